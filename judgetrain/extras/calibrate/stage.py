"""Stage ``calibrate``: how much each of a judge's criteria counts, fitted on comparisons with known labels."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.data.rows import clusters
from judgetrain.engines.answers import spending
from judgetrain.errors import DataError
from judgetrain.extras.calibrate.fit import fit
from judgetrain.extras.calibrate.stages import CalibrateSettings
from judgetrain.judges.base import Cost
from judgetrain.judges.config import FITTED
from judgetrain.judges.factory import Models
from judgetrain.judges.kinds.aggregation import Fitted, margins_of, used
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.trees.schema import cost_of
from judgetrain.judging.items import read_items
from judgetrain.judging.rows import table
from judgetrain.judging.stage import judge_of
from judgetrain.schema import Comparison


def run(settings: CalibrateSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``fitted.json`` for ``judge.aggregation=fitted judge.fitted=FILE``; ``margins`` are its shards."""
    config = settings.verdicts
    items = read_items(config, settings.world, settings.seed, lambda told: out.log(f"calibrate: {told}"))
    labelled = [item.comparison for item in items if item.failure is None and item.comparison.label]
    if not labelled:
        raise DataError(f"none of the {len(items)} rows of verdicts.source has a label; name its column with fields")
    branches = settings.method.most or 1
    with (
        spending(settings.asked_engines, config, "verdicts", out) as budget,
        judge_of(Models(settings, inputs, out, budget), settings) as judge,
    ):

        def process(index: int, found: Sequence[Comparison]) -> ShardResult:
            asked = judge()
            assert isinstance(asked, BranchingJudge)
            trees, others = asked.ask(found, settings.seed, numbers=[c.number for c in found])
            rows = [
                {
                    "id": tree.comparison.id,
                    "asked": list(tree.comparison.dialogue.asked),
                    "label": tree.comparison.label,
                    "margins": margins_of(used(tree, branches), *([used(other, branches)] if other else [])),
                }
                for tree, other in zip(trees, others or repeat(None, len(trees)), strict=True)
            ]
            return ShardResult(rows, len(rows), **sum(map(cost_of, (*trees, *others)), Cost()).tokens)

        out.sharded("margins", labelled, config.shard_size, process, "comparisons", load=judge, spread=budget is None)
    rows = list(read_rows(out.directory, "margins"))
    prompts = clusters([tuple(r["asked"]) for r in rows])
    found = fit([r["margins"] for r in rows], [r["label"] for r in rows], prompts)
    found.save(out.directory)
    out.tell(told(found, settings.method.name))
    out.log(f"calibrate: judge.aggregation=fitted judge.fitted={out.directory / FITTED}")


def told(found: Fitted, judge: str) -> Iterator[Any]:
    """The table and the lines at the stage's end."""
    yield table(f"Criteria of {judge}, n = {found.n}", ("criterion", "weight"), _weights(found))
    for name, each in (("mean", found.before), ("fitted, held out", found.after)):
        yield f"{name}: {_measured(each)}"


def _weights(found: Fitted) -> list[tuple[str, str]]:
    """The criteria with their weights, the heaviest first."""
    return [(name, f"{weight:.2f}") for name, weight in sorted(found.weights.items(), key=lambda item: -item[1])]


def _measured(found: Mapping[str, float]) -> str:
    return f"agreement {100 * found['agreement']:.1f}%, calibration error {found['ece']:.3f}"


def _card(directory: Path, judge: str) -> str:
    """What a judge's card says of the weights that were fitted for it; empty of another stage's artifact."""
    if not (directory / FITTED).is_file():
        return ""
    found = Fitted.load(directory, "fitted weights")
    return (
        f"Rule `judge.aggregation=fitted`, on {found.n} labelled comparisons. Plain mean: {_measured(found.before)}; "
        f"fitted weights, on prompts that they were not fitted on: {_measured(found.after)}. "
        f"Weights: {', '.join(map(' '.join, _weights(found)))}."
    )


PARTS = {"Fitted weights": _card}
"""By its title a section of the card: its text of what a finished artifact holds of a judge, empty for nothing."""
