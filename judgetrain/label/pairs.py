"""Preference pairs at the three levels (branching paper, section 4.4, figure 3): by evidence, or by the paper's letter.

By its letter (``label.rule=paper``) no evidence is asked for: who agrees with the label is chosen, who does not is
rejected. Where an external judge has preferred one critique of a pair (``label.external.prompts=preference``, the
paper's LLM-as-a-Judge) its preferences take the label's place.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from judgetrain.artifacts.shards import only
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.judges.prompting.parsing import render_criteria
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.label.config import LabelConfig
from judgetrain.label.examples import (
    Messages,
    Outcomes,
    Pair,
    Prompter,
    above_zero,
    against_consensus,
    against_label,
    better,
    consensus,
    near_identical,
    repeats,
    surplus,
)
from judgetrain.label.labels import Label, accepts
from judgetrain.label.rewards import Rewards
from judgetrain.label.worth import Worth
from judgetrain.schema import ORDERS, Verdict

Node = CriterionNode | GuidelineNode | JudgmentNode
Judgments = Sequence[JudgmentNode]
Apart = tuple[CriterionNode, GuidelineNode, JudgmentNode, JudgmentNode]
"""A criterion, one of its guidelines, the judgment to choose and that to reject."""
Criteria = list[CriterionNode]
Ranked = tuple[Criteria, Criteria, Mapping[str, float]]
"""Criteria that head a chosen list, those that head a rejected one, and what each is worth."""


@dataclass
class PairBuilder:
    """Makes the preference pairs of trees; ``skipped`` counts what makes none, as ``LEVEL:REASON``."""

    prompter: Prompter
    config: LabelConfig = field(default_factory=LabelConfig)
    rewards: Rewards = field(default_factory=Rewards)
    skipped: Counter[str] = field(default_factory=Counter)
    worth: Worth | None = None
    """What criteria are worth over all trees; without it each tree's own judgments say which lead."""
    by_label: ClassVar[bool] = False
    """The paper's letter: tie labels order criteria and guidelines, and sides may differ in digits alone."""

    def pairs(self, tree: EvaluationTree, label: Label, rng: random.Random) -> list[Pair]:
        """At most ``max_pairs_per_level`` pairs of each level, drawn at random.

        A tie label makes judgment pairs, and lists where other trees say what their criteria are worth: criteria and
        guidelines that see no difference are no better for it.
        """
        verdict, limit = label.verdict, self.config.max_pairs_per_level
        assert verdict is not None
        found = {"judgment": list(self.judgment_pairs(tree, verdict))}
        if verdict != "tie" or self.by_label:
            found["guideline"] = list(self.guideline_pairs(tree, verdict))
        if verdict != "tie" or self.by_label or self.worth:
            found["criteria"] = list(self.criteria_pairs(tree, verdict, rng, limit))
        pairs: list[Pair] = []
        for level in self.config.levels:
            candidates = [w for pair in found.get(level, []) if (w := self._with_margin(pair, tree, label))]
            self.skipped[f"{level}:over_cap"] += max(0, len(candidates) - limit)
            pairs += rng.sample(candidates, min(len(candidates), limit))
        return pairs

    def _with_margin(self, pair: Pair, tree: EvaluationTree, label: Label) -> Pair | None:
        """The pair with its reward parts and combined margin; None where the signals speak against it."""
        weighed = self.rewards.of_pair(pair, tree)
        if weighed is None:
            self.skipped[f"{pair.level}:low_margin"] += 1
        else:
            weighed.reward[label.source] = label.share
        return weighed

    def judgment_pairs(self, tree: EvaluationTree, label: Verdict) -> Iterator[Pair]:
        """Same criterion, guideline and order: a judgment that is right against one that is not.

        Pairs whose sides differ in numbers alone are left out and counted, as are chosen ones that were cut off.
        """
        left_out = {"near_identical"} if self.by_label else {"near_identical", "score_digits_only"}
        for criterion, guideline, chosen, rejected in self.judgments_apart(tree, label):
            if chosen.finish_reason != "stop":
                self.skipped["judgment:chosen_cut_off"] += 1
            elif (reason := near_identical(chosen.text, rejected.text)) in left_out:
                self.skipped[f"judgment:{reason}"] += 1
            else:
                prompt = self.prompter.judgment(tree.comparison, criterion.text, guideline.text, chosen)
                yield pair_of("judgment", tree, prompt, [chosen], [rejected], 1.0)

    def guideline_pairs(self, tree: EvaluationTree, label: Verdict) -> Iterator[Pair]:
        """Same criterion: a guideline by which judgments are more often right against one by which fewer are.

        Guidelines that the token limit cut make no pair; ``skipped`` counts them, not the pairs that they might have
        made.
        """
        for criterion in tree.criteria:
            if cut := sum(g.finish_reason == "length" for g in criterion.guidelines):
                self.skipped["guideline:cut_off"] += cut
            whole = [g for g in criterion.guidelines if g.finish_reason == "stop"]
            for chosen, rejected, margin in self.guidelines_apart(tree, criterion, whole, label):
                if near_identical(chosen.text, rejected.text) == "near_identical":
                    self.skipped["guideline:near_identical"] += 1
                else:
                    prompt = self.prompter.guideline(tree.comparison, criterion.text)
                    yield pair_of("guideline", tree, prompt, [chosen], [rejected], margin)

    def criteria_pairs(self, tree: EvaluationTree, label: Verdict, rng: random.Random, number: int) -> Iterator[Pair]:
        """Orderings of the same criteria: those that lead to the label first against those that do not.

        Both sides hold the same lines, so that length and content cancel and only the order is learned. Up to
        ``number`` pairs: what is worth most first against the list as it was sampled, and against random orders.
        Where worth is unknown, of criteria that lead in this tree against such as do not, each headed by another one
        where there are enough.
        """
        if tree.given:  # the judge wrote no list
            return
        for chosen, rejected, margin in self.lists_apart(tree, label, rng, number):
            yield pair_of("criteria", tree, self.prompter.criteria(tree.comparison), chosen, rejected, margin)

    def lists_apart(
        self, tree: EvaluationTree, label: Verdict, rng: random.Random, number: int
    ) -> Iterator[tuple[Criteria, Criteria, float]]:
        """The orderings to choose and to reject, and how much more the first are worth."""
        if self.worth is not None:
            best, sampled = self.worth.ranked(tree), list(tree.criteria)
            for other in [sampled, *(rng.sample(best, len(best)) for _ in range(number - 1))][:number]:
                if (margin := self.worth.of_list(best) - self.worth.of_list(other)) > 0:
                    yield best, other, margin
            return
        good, bad, worth = self.criteria_apart(tree, label)
        if not good or not bad:
            self.skipped["criteria:no_contrast"] += 1
            return
        for chosen, rejected in orderings(tree.criteria, good, bad, rng, number):
            yield chosen, rejected, worth[chosen[0].id] - worth[rejected[0].id]

    def judgments_apart(self, tree: EvaluationTree, label: Verdict) -> Iterator[Apart]:
        """A judgment that reads its criterion rightly, and one of its guideline and order that does not.

        What is right is the criterion's consensus: what the judgments by all its guidelines agree on, in each order by
        itself, so sure that the posterior probability of their majority is at least ``min_evidence``. Without the
        orders a judge that leans to the response it sees first would have its leaning rewarded in every comparison
        where the first happens to be the better one.

        The consensus must be in keeping with the label. A consensus of ties is in keeping with A or B, and what is
        rejected may then be a judgment that gives the label: on this criterion it was a slip.
        """
        for criterion in tree.criteria:
            agreed = self._agreed("judgment", criterion, label)
            for guideline in criterion.guidelines if agreed else ():
                right = [j for j in guideline.judgments if j.verdict == agreed]
                wrong = [j for j in guideline.judgments if j.verdict not in (agreed, None)]
                yield from ((criterion, guideline, *both) for both in of_one_order(right, wrong, agreed))

    def guidelines_apart(
        self, tree: EvaluationTree, criterion: CriterionNode, guidelines: Sequence[GuidelineNode], label: Verdict
    ) -> Iterator[tuple[GuidelineNode, GuidelineNode, float]]:
        """A guideline by which the criterion's consensus is reached more often, one by which it is less, and a margin.

        A guideline says how its criterion is to be read. Whether the label was given says as much of the criterion. The
        difference must be larger than chance by ``min_evidence``.
        """
        agreed = self._agreed("guideline", criterion, label)
        known = [(against_consensus(g.judgments, agreed), g) for g in guidelines if agreed and g.judgments]
        for pair in itertools.combinations(known, 2):
            (less, worse), (more, chosen) = sorted(pair, key=lambda each: each[0].net)
            if _above(more, less, self.config.min_evidence):
                yield chosen, worse, (more.net - less.net) / 2
            else:
                self.skipped["guideline:no_evidence"] += 1

    def criteria_apart(self, tree: EvaluationTree, label: Verdict) -> Ranked:
        """The criteria that lead to the label, those below them, and what each is worth.

        What counts is net success: judgments that give the label less those that give the other side. A criterion
        leads if with ``min_evidence`` its net success is above 0. It is set against criteria below it with
        ``min_evidence``, be it that they see no difference or that they lead away.
        """
        sure = self.config.min_evidence
        outcomes = {c.id: against_label(c.judgments, label) for c in tree.criteria}
        if any(all(j.verdict is None for j in c.judgments) for c in tree.criteria):  # one of which nothing is known
            return [], [], {}
        good = [c for c in tree.criteria if outcomes[c.id].net > 0 and above_zero(outcomes[c.id]) >= sure]
        bad = [c for c in tree.criteria if all(_above(outcomes[g.id], outcomes[c.id], sure) for g in good)]
        return good, bad, {name: found.net / 2 for name, found in outcomes.items()}

    def _agreed(self, level: str, criterion: CriterionNode, label: Verdict) -> Verdict | None:
        """A criterion's consensus where it is in keeping with the label; else None, and it is counted."""
        agreed = consensus(criterion.judgments, self.config.min_evidence)
        if agreed is not None and accepts(agreed, label, self.config.rule):
            return agreed
        self.skipped[f"{level}:{'no_consensus' if agreed is None else 'against_label'}"] += 1
        return None

    def selected(self, pairs: Sequence[Pair], seed: int) -> list[int]:
        """Indices of the pairs of all trees without repeats, balanced by the traits that ``config.balance`` names."""
        traits = sorted(set(self.config.balance))
        rng = random.Random(derive_seed(seed, "balance", *traits))
        left = list(range(len(pairs)))
        for reason in ("repeated", f"unbalanced_{'_'.join(traits)}"):
            here = only(pairs, left)
            left_out = repeats(here) if reason == "repeated" else surplus(here, traits, rng)
            self.skipped.update(f"{here[i].level}:{reason}" for i in left_out)
            left = [at for i, at in enumerate(left) if i not in left_out]
        return left


def of_one_order(
    right: Judgments, wrong: Judgments, verdict: Verdict | None
) -> Iterator[tuple[JudgmentNode, JudgmentNode]]:
    """Each right judgment with each wrong one that saw the responses in the same order.

    Of one response the right one must itself stand further to the side of the ``verdict``: else what made it right is
    its sibling, the judgment of the other response.
    """
    for one, other in itertools.product(right, wrong):
        if one.order == other.order and (one.order in ORDERS or _further(one, other, verdict)):
            yield one, other


def _further(one: JudgmentNode, other: JudgmentNode, verdict: Verdict | None) -> bool:
    own, less = (node.score_a if node.order == "A" else node.score_b for node in (one, other))
    if own is None or less is None or verdict not in ("A", "B"):
        return False
    return (own > less) == ((one.order == verdict) != one.inverted) and own != less


def _above(more: Outcomes, less: Outcomes, sure: float) -> bool:
    return more.net > less.net and better(more, less) >= sure


def orderings(
    criteria: Sequence[CriterionNode], good: Criteria, bad: Criteria, rng: random.Random, number: int
) -> Iterator[tuple[Criteria, Criteria]]:
    """Up to ``number`` orderings with the good criteria first, and against each the one with the bad ones first.

    Each is headed by another criterion where there are enough.
    """
    middle = [c for c in criteria if c not in good and c not in bad]
    leads, trails = (rng.sample(group, len(group)) for group in (good, bad))
    for i in range(min(number, max(len(good), len(bad)))):
        for group in (good, bad, middle):
            rng.shuffle(group)
        lead, trail = leads[i % len(good)], trails[i % len(bad)]
        first = [lead, *(c for c in good if c is not lead)]
        last = [trail, *(c for c in bad if c is not trail)]
        yield [*first, *middle, *last[::-1]], [*last, *middle, *first[::-1]]


def pair_of(
    level: str, tree: EvaluationTree, prompt: Messages, chosen: Sequence[Node], rejected: Sequence[Node], margin: float
) -> Pair:
    """The pair of two judgments, two guidelines, or two lists of criteria."""
    texts = [[node.text for node in side] for side in (chosen, rejected)]
    sides = [render_criteria(side) if level == "criteria" else side[0] for side in texts]
    verdicts = [node.verdict if isinstance(node, JudgmentNode) else None for node in (chosen[0], rejected[0])]
    return Pair(
        prompt=prompt,
        chosen=sides[0],
        rejected=sides[1],
        level=level,
        margin=margin,
        comparison_id=tree.comparison.id,
        chosen_nodes=tuple(node.id for node in chosen),
        rejected_nodes=tuple(node.id for node in rejected),
        chosen_verdict=verdicts[0],
        rejected_verdict=verdicts[1],
        made=tree.comparison.made or "",
    )


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
