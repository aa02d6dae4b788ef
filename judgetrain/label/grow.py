"""Stage ``tree``: the Initial judge grows complete evaluation trees (branching paper, section 4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from judgetrain.artifacts.shards import read_files, read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.engines.config import EngineConfig
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.engines.registry import make_engine
from judgetrain.judges.config import TREE_READS, TreeConfig
from judgetrain.judges.method import judge_among
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import shard_of
from judgetrain.label.stages import TreeSettings
from judgetrain.schema import Comparison


def run(settings: TreeSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``trees`` shards: one tree per remaining comparison, k × guidelines × judgments × 2 orders or responses."""
    given = settings.tree.comparisons
    rows = read_rows(inputs["teacher"], "remaining") if given is None else read_files(given)
    comparisons = [Comparison.from_row(row) for row in rows][: settings.tree.max_comparisons]
    grow_complete(comparisons, grower(settings.tree.judge, inputs), settings.tree, settings.engine, out)


def grower(given: str | None, inputs: Mapping[str, Path]) -> Path:
    """The directory of the judge that grows trees: the one that is given, or the Initial judge's."""
    return judge_among(inputs) / "model" if given is None else Path(given).expanduser()


def grow_complete(
    comparisons: Sequence[Comparison], model: Path, config: TreeConfig, engine_config: EngineConfig, out: StageRun
) -> None:
    """Write ``trees`` shards: the complete trees that the judge of a directory grows over the comparisons."""
    shape = Shape(
        count=config.criteria,
        criteria=config.criteria,
        guidelines=config.guidelines,
        judgments=config.judgments,
        orders=TREE_READS[config.reads],
        top_up=True,
    )
    prompts = load_prompt_set(model / "prompts.yaml")
    name = model.parent.parent.name
    with loaded_once(lambda: make_engine(engine_config, model_path=str(model), name=name)) as engine:

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            return shard_of(grow(items, engine(), prompts, shape, config, out.shard_seed(index)))

        out.sharded(
            "trees", comparisons, config.shard_size, process, "comparisons", engine, spread=not engine_config.paid
        )
