"""Stage ``tree``: the Initial judge grows complete evaluation trees (branching paper, section 4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.engines.registry import make_engine
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import shard_of
from judgetrain.label.stages import TreeSettings
from judgetrain.schema import Comparison


def run(settings: TreeSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``trees`` shards: one tree per remaining comparison, k × guidelines × judgments × 2 orders."""
    config = settings.tree
    comparisons = [Comparison.from_row(row) for row in read_rows(inputs["teacher"], "remaining")]
    comparisons = comparisons[: config.max_comparisons]
    shape = Shape(
        count=config.criteria,
        criteria=config.criteria,
        guidelines=config.guidelines,
        judgments=config.judgments,
        top_up=True,
        retries=config.retries,
    )
    model = inputs["initial"] / "model"
    prompts = load_prompt_set(model / "prompts.yaml")
    engine = make_engine(settings.engine, model_path=str(model), name="initial")

    def process(index: int, items: Sequence[Comparison]) -> ShardResult:
        return shard_of(grow(items, engine, prompts, shape, config, out.shard_seed(index)))

    try:
        out.sharded("trees", comparisons, config.shard_size, process, "comparisons")
    finally:
        engine.close()
