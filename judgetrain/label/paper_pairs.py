"""Preference pairs by the paper's letter: who agrees with the label is chosen, who does not is rejected (section 4.4).

No evidence is asked for (``label.rule=paper``). Where an external judge has preferred one critique of a pair
(``label.external.prompts=preference``, the paper's LLM-as-a-Judge) its preferences take the label's place.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.label.config import LabelConfig
from judgetrain.label.examples import Prompter
from judgetrain.label.labels import accepts
from judgetrain.label.pairs import Apart, PairBuilder, Ranked, of_one_order
from judgetrain.label.rewards import Rewards
from judgetrain.label.worth import Worth
from judgetrain.schema import Verdict

Preferences = Sequence[tuple[str, str]]
"""Of one tree: the ids of the preferred judgment and of the other one, pair by pair."""

HIGH_SUCCESS, LOW_SUCCESS = 0.75, 0.25
"""Criteria lead a chosen list if at least this share of their judgments is right, a rejected one if at most that share
is: the paper gives no thresholds."""


@dataclass
class LabelPairBuilder(PairBuilder):
    """Makes pairs whose sides the label alone tells apart; tie labels order criteria and guidelines too."""

    by_label: ClassVar[bool] = True

    def judgments_apart(self, tree: EvaluationTree, label: Verdict) -> Iterator[Apart]:
        """Each judgment in keeping with the label, and each of its guideline and order that is not."""
        for criterion, guideline in tree.guidelines():
            readable = [j for j in guideline.judgments if j.verdict is not None]
            right = [j for j in readable if accepts(j.verdict, label, self.config.rule)]
            wrong = [j for j in readable if not accepts(j.verdict, label, self.config.rule)]
            yield from ((criterion, guideline, *both) for both in of_one_order(right, wrong, label))

    def guidelines_apart(
        self, tree: EvaluationTree, criterion: CriterionNode, guidelines: Sequence[GuidelineNode], label: Verdict
    ) -> Iterator[tuple[GuidelineNode, GuidelineNode, float]]:
        """The guidelines with the highest success, and each with a lower one."""
        rates = ((self.rate(tree, g.judgments, label), g) for g in guidelines)
        known = [(rate, g) for rate, g in rates if rate is not None]
        best = max((rate for rate, _ in known), default=0.0)
        for (high, chosen), (low, rejected) in itertools.permutations(known, 2):
            if low < high == best:
                yield chosen, rejected, high - low

    def criteria_apart(self, tree: EvaluationTree, label: Verdict) -> Ranked:
        """Criteria that lead to the label (:data:`HIGH_SUCCESS`), and those that lead away (:data:`LOW_SUCCESS`).

        Criteria of which nothing is known stand in the middle.
        """
        rates = {c.id: self.rate(tree, c.judgments, label) for c in tree.criteria}
        known = {name: rate for name, rate in rates.items() if rate is not None}
        good = [c for c in tree.criteria if known.get(c.id, -1.0) >= HIGH_SUCCESS]
        bad = [c for c in tree.criteria if known.get(c.id, 2.0) <= LOW_SUCCESS]
        return good, bad, known

    def rate(self, tree: EvaluationTree, judgments: Sequence[JudgmentNode], label: Verdict) -> float | None:
        """The share of the readable judgments that are in keeping with the label; None if none is readable."""
        readable = [j.verdict for j in judgments if j.verdict is not None]
        right = sum(accepts(verdict, label, self.config.rule) for verdict in readable)
        return right / len(readable) if readable else None


@dataclass
class PreferredPairBuilder(LabelPairBuilder):
    """Makes pairs of the critiques that an external judge compared; ``preferred`` holds its preferences by comparison.

    Under a criterion and guideline a verdict is right if critiques with it were preferred more often than not; this
    says of guidelines and criteria how successful they are.
    """

    preferred: Mapping[str, Preferences] = field(default_factory=dict)

    def judgments_apart(self, tree: EvaluationTree, label: Verdict) -> Iterator[Apart]:
        """The judgments that the external judge decided alike in both orders."""
        nodes = {j.id: (c, g, j) for c, g, j in tree.judgments()}
        for chosen, rejected in self.preferred.get(tree.comparison.id, ()):
            yield *nodes[chosen], nodes[rejected][2]

    def rate(self, tree: EvaluationTree, judgments: Sequence[JudgmentNode], label: Verdict) -> float | None:
        """The share of right verdicts among those that were compared; None if none was."""
        right = self._right(tree)
        known = [right[j.id] for j in judgments if j.id in right]
        return sum(known) / len(known) if known else None

    def _right(self, tree: EvaluationTree) -> dict[str, bool]:
        """Of the judgments whose verdict was preferred or not under their guideline: which of the two."""
        pairs, found = self.preferred.get(tree.comparison.id, ()), dict[str, bool]()
        for _, guideline in tree.guidelines():
            verdicts, balance = {j.id: j.verdict for j in guideline.judgments}, Counter[Verdict | None]()
            for chosen, rejected in pairs:
                if chosen in verdicts:
                    balance[verdicts[chosen]] += 1
                    balance[verdicts[rejected]] -= 1
            found |= {name: balance[verdict] > 0 for name, verdict in verdicts.items() if balance[verdict]}
        return found


def pair_builder(
    prompter: Prompter,
    config: LabelConfig,
    rewards: Rewards,
    preferred: Mapping[str, Preferences] | None = None,
    worth: Worth | None = None,
) -> PairBuilder:
    """What makes the pairs that ``label.rule`` asks for; of an external judge's preferences where there are any."""
    if preferred is not None:
        return PreferredPairBuilder(prompter, config, rewards, preferred=preferred)
    if config.rule == "paper":
        return LabelPairBuilder(prompter, config, rewards)
    return PairBuilder(prompter, config, rewards, worth=worth)
