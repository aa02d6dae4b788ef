"""Does a signal tell right branches from wrong ones? Its AUC and correlations against the label, and against truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from judgetrain.judges.trees.schema import EvaluationTree, JudgmentNode
from judgetrain.label.rewards import Parts, Rewards, vote_shares
from judgetrain.schema import Verdict
from judgetrain.scorers.association import associate

COMBINED = "combined"
AGAINST = ("label", "truth")


def rightness(verdict: Verdict | None, right: Verdict, ties: str) -> float | None:
    """1 for the right verdict, 0 for a wrong one; None if unreadable, or a tie that counts as neither."""
    if verdict is None or (verdict == "tie" != right and ties == "neutral"):
        return None
    return float(verdict == right)


@dataclass(frozen=True)
class _Item:
    level: str
    against: str
    outcome: float
    parts: Parts
    cluster: str


@dataclass
class Evidence:
    """What the signals of all nodes were, and how right the nodes turned out to be.

    A judgment is right or wrong by its verdict; the outcome of a guideline or criterion is the share of right ones
    among the judgments under it, and the vote's part the mean of these judgments' shares of the votes.
    """

    rewards: Rewards
    ties: str
    items: list[_Item] = field(default_factory=list)

    def add(self, tree: EvaluationTree, label: Verdict | None) -> None:
        """Take in a tree's nodes against its label and against its truth, as far as they are known."""
        shares = vote_shares(tree)
        for against, right in zip(AGAINST, (label, tree.comparison.label), strict=True):
            if right is None:
                continue
            for level, ids, judgments in _nodes(tree):
                told = [(o, j) for j in judgments if (o := rightness(j.verdict, right, self.ties)) is not None]
                if told:
                    outcomes = [outcome for outcome, _ in told]
                    share = fmean(shares[j.verdict] for _, j in told if j.verdict is not None)
                    parts = self.rewards.of_nodes(ids, share)
                    parts[COMBINED] = self.rewards.combined(parts)
                    self.items.append(_Item(level, against, fmean(outcomes), parts, tree.comparison.id))

    def table(self, seed: int) -> dict[str, Any]:
        """By level, ``label`` or ``truth``, and signal, an :class:`~judgetrain.scorers.association.Association`."""
        signals = (*self.rewards.weights, COMBINED)

        def associations(level: str, against: str) -> dict[str, Any]:
            items = [i for i in self.items if (i.level, i.against) == (level, against)]
            return {signal: _associated(items, signal, seed) for signal in signals}

        levels = ("judgment", "guideline", "criterion")
        return {level: {against: associations(level, against) for against in AGAINST} for level in levels}


def _nodes(tree: EvaluationTree) -> Iterator[tuple[str, Sequence[str], Sequence[JudgmentNode]]]:
    """Every node: its level, the texts whose scores are its own, and the judgments that tell how right it is."""
    for criterion in tree.criteria:
        for guideline in criterion.guidelines:
            yield from (("judgment", (judgment.id,), (judgment,)) for judgment in guideline.judgments)
            yield "guideline", (guideline.id,), guideline.judgments
        yield "criterion", [j.id for j in criterion.judgments], criterion.judgments


def _associated(items: Sequence[_Item], signal: str, seed: int) -> dict[str, Any]:
    known = [(score, i.outcome, i.cluster) for i in items if (score := i.parts[signal]) is not None]
    scores, outcomes, clusters = zip(*known, strict=True) if known else ((), (), ())
    return associate(scores, outcomes, clusters, seed).to_row()


def summary(table: Mapping[str, Any]) -> Iterator[str]:
    """The judgments' AUC of each signal in words, a line for the label and one for truth where it is known."""
    for against in AGAINST:
        rows = table["judgment"][against]
        told = [f"{name} {_figure(row['auc'], row['auc_ci'])}" for name, row in rows.items() if row["auc"] is not None]
        if told:
            n = ", ".join(dict.fromkeys(f"{row['n']:,}" for row in rows.values()))
            yield f"AUC of judgments against the {against} (n = {n}): {', '.join(told)}"


def _figure(value: float, interval: Sequence[float] | None) -> str:
    return f"{value:.3f}" + (f" ({interval[0]:.3f}–{interval[1]:.3f})" if interval else "")
