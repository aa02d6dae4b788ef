"""Stage ``tree``: the Initial judge grows complete evaluation trees (branching paper, section 4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.engines.registry import make_engine
from judgetrain.judges.config import TREE_READS
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import shard_of
from judgetrain.label.stages import TreeSettings
from judgetrain.schema import Comparison


def run(settings: TreeSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``trees`` shards: one tree per remaining comparison, k × guidelines × judgments × 2 orders or responses."""
    config, engine_config, model = settings.tree, settings.engine, inputs["initial"] / "model"
    comparisons = [Comparison.from_row(row) for row in read_rows(inputs["teacher"], "remaining")]
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

        taken, spread = comparisons[: config.max_comparisons], not engine_config.paid
        out.sharded("trees", taken, config.shard_size, process, "comparisons", engine, spread=spread)
