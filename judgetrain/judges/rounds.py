"""Rounds: trees are grown anew by the judge that the round before made, over comparisons that no round has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.errors import DataError
from judgetrain.keys import key
from judgetrain.schema import Comparison


@dataclass
class RoundsConfig:
    """Rounds of the stages tree, label, sft, dpo and rl (docs/training.md)."""

    count: int = key(1, "how many; above 1 each gets its own part of the comparisons, and some are held out", low=1)
    round: int | None = key(None, "the round whose tree, label, sft, dpo and rl are meant; None: the last", low=1)
    judge: str = key("dpo", "a round's result, which grows the next round's trees", choices=("sft", "dpo", "rl"))
    start: str = key(
        "seed",
        "what sft goes on from in every round: the Initial judge (seed), or the result of the round before (last)",
        choices=("seed", "last"),
    )
    holdout_comparisons: int = key(
        100, "comparisons that no round trains on, by which the gates measure every round", low=1
    )
    holdout_labels: str = key(
        "ensemble",
        "their labels: the vote of the Initial judge's trees, or those of the data and of constructed pairs",
        choices=("ensemble", "given"),
    )
    branches: int = key(1, "branches with which the gates ask a judge, as judge.* says", low=1)
    gates: bool = key(True, "stop at a round whose judge has collapsed; false measures them alone")

    @property
    def number(self) -> int:
        """The round that is meant, from 1."""
        return self.round or self.count

    @property
    def grower(self) -> str:
        """The stage whose judge grows the trees: in later rounds its artifact is the round before's."""
        return "initial" if self.number == 1 else self.judge

    @property
    def seed(self) -> str:
        """The stage whose judge sft goes on from."""
        return "initial" if self.start == "seed" else self.grower


def with_holdout(
    comparisons: Sequence[Comparison], number: int, labels: str, seed: int
) -> tuple[list[Comparison], list[Comparison]]:
    """The first ``number`` comparisons of a seeded shuffle (with labels ``given``: of those that have one), which are
    those held out; and all others, in the order in which rounds get them. It is the same for every stage and round.
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
            "and earlier rounds have them all; give more dialogues, or lower rounds.holdout_comparisons, rounds.count "
            "or tree.max_comparisons"
        )
    return found
