"""Stage ``holdout_comparisons``: comparisons that no round is trained on, with labels that no round can move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun, derive_seed
from judgetrain.errors import DataError, causes
from judgetrain.extras.rounds.stages import HoldoutSettings
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.grow import grow_complete, grower
from judgetrain.label.labels import HINTS, ensemble_label
from judgetrain.schema import Comparison


def run(settings: HoldoutSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``comparisons.jsonl``: those held out, each with its label; and ``others.jsonl``, in the rounds' order.

    Labelled by the ensemble, the Initial judge's trees are kept as ``trees`` shards; comparisons on which it abstains
    are left out and counted by reason.

    Raises:
        DataError: none of them has a label.
    """
    remaining = [Comparison.from_row(row) for row in read_rows(inputs["teacher"], "remaining")]
    held, others = held_out(remaining, settings.holdout_comparisons, settings.labels, settings.seed)
    left_out = Counter[str]()
    if settings.label is not None and settings.tree is not None and settings.engine is not None:
        grow_complete(held, grower(None, inputs), settings.tree, settings.engine, out)
        labels = {}
        for tree in map(EvaluationTree.from_row, read_rows(out.directory, "trees")):
            label = ensemble_label(tree, settings.label)
            left_out[label.reason or ""] += 1
            labels[tree.comparison.id] = label.verdict
        del left_out[""]
        held = [replace(c, label=labels[c.id]) for c in held if labels[c.id] is not None]
    if not held:
        otherwise = "label.source=given, and no comparison has a label: set label.source=ensemble"
        raise DataError(f"there are no held-out comparisons to measure rounds by: {causes(left_out, HINTS, otherwise)}")
    out.write_rows("comparisons", (c.to_row() for c in held))
    out.write_rows("others", (c.to_row() for c in others))
    out.note("holdout_comparisons", dict(Counter(str(c.label) for c in held)))


def held_out(
    comparisons: Sequence[Comparison], number: int, labels: str, seed: int
) -> tuple[list[Comparison], list[Comparison]]:
    """The first ``number`` comparisons of a seeded shuffle (with labels ``given``: of those that have one), which are
    held out; and all others, in the order in which rounds get them.
    """
    shuffled = sorted(comparisons, key=lambda c: derive_seed(seed, "rounds", c.id))
    held = [c for c in shuffled if labels != "given" or c.label is not None][:number]
    ids = {c.id for c in held}
    return held, [c for c in shuffled if c.id not in ids]


def part_of(
    comparisons: Sequence[Comparison], number: int, most: int | None, count: int | None = None
) -> list[Comparison]:
    """The comparisons of round ``number``, from 1: those after what earlier rounds got, which is as many each.

    ``most``: comparisons of a round; None: an equal share in each of ``count`` rounds.

    Raises:
        DataError: none are left for it.
    """
    size = most or len(comparisons) // (count or 1)
    found = list(comparisons[(number - 1) * size : number * size])
    if not found:
        raise DataError(
            f"round {number} has no comparisons: of those that the teacher left, {len(comparisons)} are not held out, "
            "and earlier rounds have them all; give more dialogues, or lower rounds.holdout_comparisons, "
            "rounds.count or tree.max_comparisons"
        )
    return found
