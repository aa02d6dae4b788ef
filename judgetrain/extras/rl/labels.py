"""Labels that the judge which training goes on from gives itself, with more branches than are trained."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from judgetrain.artifacts.shards import count_rows, read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, is_held_out
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.extras.rl.config import LABEL_BRANCHES
from judgetrain.extras.rl.stages import RlSettings
from judgetrain.judges.config import JudgeOptions
from judgetrain.judges.prompting.prompts import FILE as PROMPTS
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.schema import Comparison

if TYPE_CHECKING:
    from judgetrain.extras.rl.trainer import Labelled

SHARD = 100
"""Comparisons that are labelled together; the unit of resume."""


def own_labels(
    settings: RlSettings, inputs: Mapping[str, Path], start: ModelConfig, out: StageRun
) -> tuple[list[Labelled], int]:
    """The comparisons on which both orders say the same, and how many of those asked about are left out.

    The start is asked greedily, with :data:`LABEL_BRANCHES`; what many branches say, one learns to say. No label
    of people or of an ensemble is read, nor are trees: all comparisons there are may be learned from, or
    ``max_comparisons`` of them drawn by the seed, and besides all those that are held out. Kept in shards.
    """
    from judgetrain.engines.local.transformers_engine import TransformersEngine
    from judgetrain.extras.rl.trainer import Labelled, sampled_at
    from judgetrain.judges.kinds.branching import BranchingJudge

    left = untaught(inputs)

    def always(identifier: str) -> bool:
        return (left is None or identifier in left) and is_held_out(settings.seed, identifier, settings.holdout or 0.0)

    comparisons = _comparisons(inputs, settings.train.max_comparisons, out.seed, always)
    asking = sampled_at(settings.asking, 0.0)
    prompts = load_prompt_set(inputs[settings.train.start] / "model" / PROMPTS)
    assert settings.aggregation is not None and settings.tie is not None
    branches, how = min(LABEL_BRANCHES, settings.asking.criteria), settings.aggregation
    options = JudgeOptions(branches=branches, steps=asking, aggregation=how, tie=settings.tie, early_stop=True)

    def load() -> BranchingJudge:
        engine = TransformersEngine(TransformersEngineConfig(model=start, batch_size=256))
        return BranchingJudge(engine, prompts, options)

    def process(index: int, items: Sequence[Comparison]) -> ShardResult:
        said = judge().compare_all(items, out.shard_seed(index))
        rows = [
            {"comparison_id": p.comparison_id, "verdict_ab": p.verdict_ab, "verdict_ba": p.verdict_ba} for p in said
        ]
        return ShardResult(rows, 0, counts_out=0)

    with loaded_once(load) as judge:
        out.sharded("own-labels", comparisons, SHARD, process, "comparisons", judge, spread=True)
    found = {row["comparison_id"]: row for row in read_rows(out.directory, "own-labels")}
    kept = [
        Labelled(comparison, row["verdict_ab"])
        for comparison in comparisons
        if (row := found[comparison.id])["verdict_ab"] is not None and row["verdict_ab"] == row["verdict_ba"]
    ]
    return kept, len(comparisons) - len(kept)


def _comparisons(
    inputs: Mapping[str, Path], most: int | None, seed: int, always: Callable[[str], bool]
) -> list[Comparison]:
    place = inputs["responses"], "comparisons"
    number = count_rows(*place)
    every = most is None or most >= number
    drawn = set() if every else set(random.Random(derive_seed(seed, "own labels")).sample(range(number), most or 0))
    rows = enumerate(read_rows(*place))
    return [Comparison.from_row(row) for i, row in rows if every or i in drawn or always(row["id"])]


def untaught(inputs: Mapping[str, Path]) -> set[str] | None:
    """The ids of the comparisons that the teacher left: what is chosen by must be among them; None: all may be."""
    if "teacher" not in inputs:
        return None
    return {row["id"] for row in read_rows(inputs["teacher"], "remaining")}
