"""Stage ``tree``: the Initial judge grows complete evaluation trees (branching paper, section 4.3).

In later rounds (``rounds.count``) the judge that the round before made grows them, over comparisons of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.engines.registry import make_engine
from judgetrain.judges.method import judge_among
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.rounds import part_of, with_holdout
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import shard_of
from judgetrain.label.stages import HoldoutSettings, TreeSettings
from judgetrain.schema import Comparison


def run(settings: TreeSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``trees`` shards: one tree per remaining comparison, k × guidelines × judgments × 2 orders."""
    comparisons = [Comparison.from_row(row) for row in read_rows(inputs["teacher"], "remaining")]
    if settings.round is not None:
        held = settings.holdout_comparisons or 0, settings.holdout_labels or "", settings.seed
        _, others = with_holdout(comparisons, *held)
        comparisons = part_of(others, settings.round, settings.tree.max_comparisons, settings.count)
    grow_complete(comparisons[: settings.tree.max_comparisons], judge_among(inputs), settings, out)


def grow_complete(
    comparisons: Sequence[Comparison], judge: Path, settings: TreeSettings | HoldoutSettings, out: StageRun
) -> None:
    """Write ``trees`` shards: the complete trees that a judge, by its artifact, grows over the comparisons."""
    config, engine_config = settings.tree, settings.engine
    assert config is not None and engine_config is not None
    shape = Shape(
        count=config.criteria,
        criteria=config.criteria,
        guidelines=config.guidelines,
        judgments=config.judgments,
        top_up=True,
        retries=config.retries,
    )
    model = judge / "model"
    prompts = load_prompt_set(model / "prompts.yaml")
    name = judge.parent.name
    with loaded_once(lambda: make_engine(engine_config, model_path=str(model), name=name)) as engine:

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            return shard_of(grow(items, engine(), prompts, shape, config, out.shard_seed(index)))

        out.sharded(
            "trees", comparisons, config.shard_size, process, "comparisons", engine, spread=not engine_config.paid
        )
