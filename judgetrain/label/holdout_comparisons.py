"""Stage ``holdout_comparisons``: comparisons that no round is trained on, with labels that no round can move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.errors import DataError, causes
from judgetrain.judges.method import judge_among
from judgetrain.judges.rounds import with_holdout
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.grow import grow_complete
from judgetrain.label.hints import HINTS
from judgetrain.label.labels import ensemble_label
from judgetrain.label.stages import HoldoutSettings
from judgetrain.schema import Comparison


def run(settings: HoldoutSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``comparisons.jsonl``: the held-out comparisons, each with its label in the place of the data's.

    Labelled by the ensemble, the Initial judge's trees are kept as ``trees`` shards; those on which it abstains are
    left out and counted by reason.

    Raises:
        DataError: none has a label.
    """
    remaining = [Comparison.from_row(row) for row in read_rows(inputs["teacher"], "remaining")]
    held, _ = with_holdout(remaining, settings.holdout_comparisons, settings.holdout_labels, settings.seed)
    left_out = Counter[str]()
    if settings.label is not None:
        grow_complete(held, judge_among(inputs), settings, out)
        labels = {}
        for tree in map(EvaluationTree.from_row, read_rows(out.directory, "trees")):
            label = ensemble_label(tree, settings.label)
            left_out[label.reason or ""] += 1
            labels[tree.comparison.id] = label.verdict
        del left_out[""]
        held = [replace(c, label=labels[c.id]) for c in held if labels[c.id] is not None]
    if not held:
        otherwise = "rounds.holdout_labels=given, and no comparison has a label: set rounds.holdout_labels=ensemble"
        raise DataError(f"there are no held-out comparisons to measure rounds by: {causes(left_out, HINTS, otherwise)}")
    out.write_rows("comparisons", (c.to_row() for c in held))
    out.note("holdout_comparisons", _shares(held))


def _shares(held: Iterable[Comparison]) -> dict[str, int]:
    return dict(Counter(str(c.label) for c in held))
