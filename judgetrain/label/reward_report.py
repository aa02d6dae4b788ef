"""Does a signal tell right judgments from wrong ones? Its AUC and correlations against the label, and against truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.rewards import ENSEMBLE, Rewards, mean_of, vote_shares
from judgetrain.schema import Verdict
from judgetrain.scorers.association import associate

COMBINED = "combined"
AGAINST = ("label", "truth")


def rightness(verdict: Verdict | None, right: Verdict, ties: str) -> float | None:
    """1 for the right verdict, 0 for a wrong one; None if unreadable, or a tie that counts as neither."""
    if verdict is None or (verdict == "tie" != right and ties == "neutral"):
        return None
    return float(verdict == right)


@dataclass
class SignalReport:
    """What the signals of all judgments were, and how right the judgments turned out to be."""

    rewards: Rewards
    ties: str
    found: dict[tuple[str, str], list[tuple[float, float, str]]] = field(default_factory=dict)
    """By what a signal is held against and its name: its values, how right the judgments were, their comparisons."""

    def add(self, tree: EvaluationTree, label: Verdict | None) -> None:
        """Take in a tree's judgments against its label and against its truth, as far as they are known."""
        shares = vote_shares(tree)
        for against, right in zip(AGAINST, (label, tree.comparison.label), strict=True):
            for _, _, judgment in tree.judgments() if right else ():
                outcome = rightness(judgment.verdict, right, self.ties) if right else None
                if outcome is None or judgment.verdict is None:
                    continue
                parts = self.rewards.of_nodes([judgment.id], shares[judgment.verdict])
                for signal, value in {**parts, COMBINED: mean_of(parts)}.items():
                    if value is not None:
                        self.found.setdefault((against, signal), []).append((value, outcome, tree.comparison.id))

    def table(self, seed: int) -> dict[str, Any]:
        """By ``label`` or ``truth``, and signal, an :class:`~judgetrain.scorers.association.Association`."""
        signals = (ENSEMBLE, *self.rewards.scores, COMBINED)
        return {
            against: {signal: _associated(self.found.get((against, signal), ()), seed) for signal in signals}
            for against in AGAINST
        }


def _associated(known: Sequence[tuple[float, float, str]], seed: int) -> dict[str, Any]:
    scores, outcomes, clusters = zip(*known, strict=True) if known else ((), (), ())
    return associate(scores, outcomes, clusters, seed).to_row()


def summary(table: Mapping[str, Any]) -> Iterator[str]:
    """The AUC of each signal in words, a line for the label and one for truth where it is known."""
    for against, rows in table.items():
        told = [f"{name} {_figure(row['auc'], row['auc_ci'])}" for name, row in rows.items() if row["auc"] is not None]
        if told:
            n = ", ".join(dict.fromkeys(f"{row['n']:,}" for row in rows.values()))
            yield f"AUC of judgments against the {against} (n = {n}): {', '.join(told)}"


def _figure(value: float, interval: Sequence[float] | None) -> str:
    return f"{value:.3f}" + (f" ({interval[0]:.3f}–{interval[1]:.3f})" if interval else "")
