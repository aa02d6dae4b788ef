"""Auxiliary rewards: the branches' vote and their scores under the judge itself as one weighted mean.

A score (ProbDiff, glass-box) counts as its percentile, from 0 to 1, among all texts of its level. What has no score
counts in no mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from judgetrain.judges.trees.schema import EvaluationTree, JudgmentNode
from judgetrain.label.config import LabelConfig, RewardConfig
from judgetrain.label.examples import Pair
from judgetrain.label.labels import Label
from judgetrain.schema import Verdict

ENSEMBLE = "ensemble"
Parts = dict[str, float | None]
"""A reward's parts by signal; None where there is no score."""


def percentiles(scores: Mapping[str, float]) -> dict[str, float]:
    """Each score's percentile among all: the share of scores below it, equal ones counting half. Mean 0.5."""
    from scipy import stats

    ranks = stats.rankdata(list(scores.values())) if scores else np.zeros(0)
    return {node: float(rank - 0.5) / len(scores) for node, rank in zip(scores, ranks, strict=True)}


@dataclass(frozen=True)
class Rewards:
    """The signals of nodes, and how they are weighed.

    ``scores``: by signal, the percentile of each judgment and guideline by its id. Without signals the vote alone
    counts.
    """

    config: RewardConfig = field(default_factory=RewardConfig)
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each signal that is on."""
        return {s: float(getattr(self.config, f"{s}_weight")) for s in (ENSEMBLE, *self.scores)}

    def combined(self, parts: Mapping[str, float | None]) -> float | None:
        """The weighted mean of the parts that are there; None if there are none of a weight above 0."""
        weights = self.weights
        known = {s: p for s, p in parts.items() if p is not None and weights[s] > 0}
        total = sum(weights[s] for s in known)
        return sum(weights[s] * p for s, p in known.items()) / total if known else None

    def of_nodes(self, nodes: Iterable[str], share: float | None = None) -> Parts:
        """The parts of one node, or their means over several; ``share`` is the vote's part."""
        ids = list(nodes)
        means: Parts = {ENSEMBLE: share}
        for signal, found in self.scores.items():
            known = [found[i] for i in ids if i in found]
            means[signal] = fmean(known) if known else None
        return means

    def of_judgment(self, judgment: JudgmentNode, shares: Mapping[Verdict, float]) -> float | None:
        """The reward of a branch; ``shares`` as :func:`vote_shares` gives them."""
        share = None if judgment.verdict is None else shares[judgment.verdict]
        return self.combined(self.of_nodes([judgment.id], share))

    def of_pair(self, pair: Pair, tree: EvaluationTree) -> Pair | None:
        """The pair with its margin: the weighted mean of the branches' margin and of each signal's difference.

        That is the percentile of the chosen node minus that of the rejected one, from -1 to 1; of criteria lists, of
        the judgments under their first criteria. ``reward`` keeps all parts. None if none of a weight above 0 is known.
        """
        if not self.scores:
            return pair
        chosen, rejected = (self._behind(side[0], tree) for side in (pair.chosen_nodes, pair.rejected_nodes))
        parts: Parts = {ENSEMBLE: pair.margin}
        for signal in self.scores:
            first, second = chosen[signal], rejected[signal]
            parts[signal] = None if first is None or second is None else first - second
        margin = self.combined(parts)
        if margin is None:
            return None
        known = {s: p for s, p in parts.items() if p is not None and s != ENSEMBLE}
        return replace(pair, margin=margin, reward=pair.reward | {"branches": pair.margin} | known)

    def _behind(self, node: str, tree: EvaluationTree) -> Parts:
        below = next((c.judgments for c in tree.criteria if c.id == node), None)
        return self.of_nodes([node] if below is None else [j.id for j in below])

    def break_tie(self, tree: EvaluationTree, label: Label, config: LabelConfig) -> Label:
        """The label; where as many branches say A as B, that of the side with the larger mean score of its branches.

        A tie stays one where the means are equal or unknown, where ``min_vote_share`` asks for more than half of the
        votes, and where fewer branches decide than ``min_deciding_share`` asks for.
        """
        equal = label.verdict == "tie" and label.votes["A"] == label.votes["B"] > 0
        enough = config.min_vote_share <= 0.5 and label.deciding_share >= config.min_deciding_share
        if not (self.scores and self.config.break_ties and equal and enough):
            return label
        sides: dict[str, list[float]] = {"A": [], "B": []}
        for _, _, judgment in tree.judgments():
            reward = self.combined(self.of_nodes([judgment.id]))
            if judgment.verdict in sides and reward is not None:
                sides[judgment.verdict].append(reward)
        first, second = (fmean(found) if found else None for found in sides.values())
        if first is None or second is None or first == second:
            return label
        return replace(label, verdict="A" if first > second else "B", source="reward")


def vote_shares(tree: EvaluationTree) -> dict[Verdict, float]:
    """The share of the tree's readable judgments that give each verdict."""
    counts = Counter(j.verdict for _, _, j in tree.judgments() if j.verdict is not None)
    total = max(1, counts.total())
    return {"A": counts["A"] / total, "B": counts["B"] / total, "tie": counts["tie"] / total}
