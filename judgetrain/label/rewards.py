"""Auxiliary rewards: the mean of the branches' vote and of their scores under the judge itself.

A score (ProbDiff, glass-box) counts as its percentile, from 0 to 1, among all texts of its level. What has no score
counts in no mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.examples import Pair
from judgetrain.label.labels import Label

ENSEMBLE = "ensemble"
Parts = dict[str, float | None]
"""A reward's parts by signal; None where there is no score."""


def mean_of(parts: Parts) -> float | None:
    """The mean of the parts that are there; None if there are none."""
    known = [part for part in parts.values() if part is not None]
    return fmean(known) if known else None


def percentiles(scores: Mapping[str, float]) -> dict[str, float]:
    """Each score's percentile among all: the share of scores below it, equal ones counting half. Mean 0.5."""
    from scipy import stats

    ranks = stats.rankdata(list(scores.values())) if scores else np.zeros(0)
    return {node: float(rank - 0.5) / len(scores) for node, rank in zip(scores, ranks, strict=True)}


@dataclass(frozen=True)
class Rewards:
    """The signals of nodes.

    ``scores``: by signal, the percentile of each judgment and guideline by its id. Without signals the vote alone
    counts.
    """

    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def of_nodes(self, nodes: Iterable[str], share: float | None = None) -> Parts:
        """The parts of one node, or their means over several; ``share`` is the vote's part."""
        ids = list(nodes)
        means: Parts = {ENSEMBLE: share}
        for signal, found in self.scores.items():
            known = [found[i] for i in ids if i in found]
            means[signal] = fmean(known) if known else None
        return means

    def of_pair(self, pair: Pair, tree: EvaluationTree) -> Pair | None:
        """The pair with its margin: the mean of the branches' margin and of each signal's difference.

        That is the percentile of the chosen node minus that of the rejected one, from -1 to 1; of criteria lists, of
        the judgments under their first criteria. ``reward`` keeps all parts. None where the signals speak against it.
        """
        if not self.scores:
            return pair
        chosen, rejected = (self._behind(side[0], tree) for side in (pair.chosen_nodes, pair.rejected_nodes))
        parts: Parts = {ENSEMBLE: pair.margin}
        for signal in self.scores:
            first, second = chosen[signal], rejected[signal]
            parts[signal] = None if first is None or second is None else first - second
        margin = mean_of(parts)
        if margin is None or margin < 0:
            return None
        known = {s: p for s, p in parts.items() if p is not None and s != ENSEMBLE}
        return replace(pair, margin=margin, reward=pair.reward | {"branches": pair.margin} | known)

    def _behind(self, node: str, tree: EvaluationTree) -> Parts:
        below = next((c.judgments for c in tree.criteria if c.id == node), None)
        return self.of_nodes([node] if below is None else [j.id for j in below])

    def break_tie(self, tree: EvaluationTree, label: Label) -> Label:
        """The label; where as many branches say A as B, that of the side with the larger mean score of its branches.

        A tie stays one where the means are equal or unknown.
        """
        equal = label.verdict == "tie" and label.votes["A"] == label.votes["B"] > 0
        if not (self.scores and equal):
            return label
        sides: dict[str, list[float]] = {"A": [], "B": []}
        for _, _, judgment in tree.judgments():
            reward = mean_of(self.of_nodes([judgment.id]))
            if judgment.verdict in sides and reward is not None:
                sides[judgment.verdict].append(reward)
        first, second = (fmean(found) if found else None for found in sides.values())
        if first is None or second is None or first == second:
            return label
        return replace(label, verdict="A" if first > second else "B", source="reward")
