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
    """The worth of criteria over all trees; without it each tree's own judgments say which lead."""
    by_label: ClassVar[bool] = False
    """The paper's letter: tie labels order criteria and guidelines, and sides may differ in digits alone."""

    def pairs(self, tree: EvaluationTree, label: Label, rng: random.Random) -> list[Pair]:
        """Return at most ``max_pairs_per_level`` pairs of each level, drawn at random.

        A tie label makes judgment pairs, and lists where other trees say what their criteria are worth: criteria and
        guidelines that see no difference are no better for it.
        """
        verdict = label.verdict
        assert verdict is not None
        limit = self.config.max_pairs_per_level
        # Without worth, and by evidence, a tie says nothing of which criteria lead, as both sides are as good.
        by_level = {"judgment": list(self.judgment_pairs(tree, verdict))}
        if verdict != "tie" or self.by_label:
            by_level["guideline"] = list(self.guideline_pairs(tree, verdict))
        if verdict != "tie" or self.by_label or self.worth:
            by_level["criteria"] = list(self.criteria_pairs(tree, verdict, rng, limit))
        pairs: list[Pair] = []
        for level in self.config.levels:
            candidates = []
            for pair in by_level.get(level, []):
                weighed = self._with_margin(pair, tree, label)
                if weighed is not None:
                    candidates.append(weighed)
            self.skipped[f"{level}:over_cap"] += max(0, len(candidates) - limit)
            pairs += rng.sample(candidates, min(len(candidates), limit))
        return pairs

    def _with_margin(self, pair: Pair, tree: EvaluationTree, label: Label) -> Pair | None:
        """Return the pair with its reward parts and combined margin; None where the signals speak against it."""
        weighed = self.rewards.of_pair(pair, tree)
        if weighed is None:
            self.skipped[f"{pair.level}:low_margin"] += 1
            return None
        # Kept in the row: how sure the label is may explain a pair to whoever reads it.
        weighed.reward[label.source] = label.share
        return weighed

    def judgment_pairs(self, tree: EvaluationTree, label: Verdict) -> Iterator[Pair]:
        """Yield pairs of one criterion, guideline and order: a judgment that is right against one that is not.

        Pairs whose sides differ in numbers alone are left out and counted, as are chosen ones that were cut off.
        """
        left_out = {"near_identical"}
        if not self.by_label:
            # The same words with other scores would teach numbers without a reason.
            left_out.add("score_digits_only")
        for criterion, guideline, chosen, rejected in self.judgments_apart(tree, label):
            reason = near_identical(chosen.text, rejected.text)
            if chosen.finish_reason != "stop":
                self.skipped["judgment:chosen_cut_off"] += 1
            elif reason in left_out:
                self.skipped[f"judgment:{reason}"] += 1
            else:
                prompt = self.prompter.judgment(tree.comparison, criterion.text, guideline.text, chosen)
                yield pair_of("judgment", tree, prompt, _Sides([chosen], [rejected], 1.0))

    def guideline_pairs(self, tree: EvaluationTree, label: Verdict) -> Iterator[Pair]:
        """Yield pairs of one criterion: a guideline by which judgments are more often right, and one by which less.

        Guidelines that the token limit cut make no pair; ``skipped`` counts them, not the pairs that they might have
        made.
        """
        for criterion in tree.criteria:
            cut_off = sum(guideline.finish_reason == "length" for guideline in criterion.guidelines)
            if cut_off:
                self.skipped["guideline:cut_off"] += cut_off
            whole = [guideline for guideline in criterion.guidelines if guideline.finish_reason == "stop"]
            for chosen, rejected, margin in self.guidelines_apart(tree, criterion, whole, label):
                if near_identical(chosen.text, rejected.text) == "near_identical":
                    self.skipped["guideline:near_identical"] += 1
                else:
                    prompt = self.prompter.guideline(tree.comparison, criterion.text)
                    yield pair_of("guideline", tree, prompt, _Sides([chosen], [rejected], margin))

    def criteria_pairs(self, tree: EvaluationTree, label: Verdict, rng: random.Random, number: int) -> Iterator[Pair]:
        """Yield pairs of orderings of the same criteria: those that lead to the label first, and those that do not.

        Both sides hold the same lines, so that length and content cancel and only the order is learned. Up to
        ``number`` pairs: what is worth most first against random orders.
        Where worth is unknown, of criteria that lead in this tree against such as do not, each headed by another one
        where there are enough.
        """
        if tree.given:
            # The judge wrote no list.
            return
        for chosen, rejected, margin in self.lists_apart(tree, label, rng, number):
            prompt = self.prompter.criteria(tree.comparison)
            yield pair_of("criteria", tree, prompt, _Sides(chosen, rejected, margin))

    def lists_apart(
        self, tree: EvaluationTree, label: Verdict, rng: random.Random, number: int
    ) -> Iterator[tuple[Criteria, Criteria, float]]:
        """Yield the orderings to choose and to reject, and how much more the first are worth."""
        if self.worth is not None:
            best = self.worth.ranked(tree)
            for _ in range(number):
                # The list as it was sampled would be no better: an Initial judge writes nearly one list for all
                # queries, and a judge that learns to avoid it avoids it where it is right, too.
                other = rng.sample(best, len(best))
                margin = self.worth.of_list(best) - self.worth.of_list(other)
                # A list that is as good teaches nothing.
                if margin > 0:
                    yield best, other, margin
            return
        good, bad, worth = self.criteria_apart(tree, label)
        if not good or not bad:
            self.skipped["criteria:no_contrast"] += 1
            return
        for chosen, rejected in orderings(tree.criteria, good, bad, rng, number):
            yield chosen, rejected, worth[chosen[0].id] - worth[rejected[0].id]

    def judgments_apart(self, tree: EvaluationTree, label: Verdict) -> Iterator[Apart]:
        """Yield a judgment that reads its criterion rightly, and one of its guideline and order that does not.

        What is right is the criterion's consensus: what the judgments by all its guidelines agree on, in each order by
        itself, so sure that the posterior probability of their majority is at least ``min_evidence``. Without the
        orders a judge that leans to the response it sees first would have its leaning rewarded in every comparison
        where the first happens to be the better one.

        The consensus must be in keeping with the label. A consensus of ties is in keeping with A or B, and what is
        rejected may then be a judgment that gives the label: on this criterion it was a slip.
        """
        for criterion in tree.criteria:
            agreed = self._agreed("judgment", criterion, label)
            if agreed is None:
                continue
            for guideline in criterion.guidelines:
                right = [judgment for judgment in guideline.judgments if judgment.verdict == agreed]
                # A judgment that cannot be read says nothing wrong, and is on neither side.
                wrong = [judgment for judgment in guideline.judgments if judgment.verdict not in (agreed, None)]
                for chosen, rejected in of_one_order(right, wrong, agreed):
                    yield criterion, guideline, chosen, rejected

    def guidelines_apart(
        self, tree: EvaluationTree, criterion: CriterionNode, guidelines: Sequence[GuidelineNode], label: Verdict
    ) -> Iterator[tuple[GuidelineNode, GuidelineNode, float]]:
        """Yield a guideline by which the criterion's consensus is reached more often, one by which less, and a margin.

        A guideline says how its criterion is to be read. Whether the label was given says as much of the criterion. The
        difference must be larger than chance by ``min_evidence``.
        """
        agreed = self._agreed("guideline", criterion, label)
        if agreed is None:
            return
        judged = []
        outcomes = {}
        for guideline in guidelines:
            if guideline.judgments:
                judged.append(guideline)
                outcomes[guideline.id] = against_consensus(guideline.judgments, agreed)
        for pair in itertools.combinations(judged, 2):
            # In either order of the two: the better one is chosen.
            rejected, chosen = sorted(pair, key=lambda guideline: outcomes[guideline.id].net)
            more = outcomes[chosen.id]
            less = outcomes[rejected.id]
            if _above(more, less, self.config.min_evidence):
                yield chosen, rejected, (more.net - less.net) / 2
            else:
                self.skipped["guideline:no_evidence"] += 1

    def criteria_apart(self, tree: EvaluationTree, label: Verdict) -> Ranked:
        """Return the criteria that lead to the label, those below them, and what each is worth.

        What counts is net success: judgments that give the label less those that give the other side. A criterion
        leads if with ``min_evidence`` its net success is above 0. It is set against criteria below it with
        ``min_evidence``, be it that they see no difference or that they lead away.
        """
        sure = self.config.min_evidence
        outcomes = {}
        margins = {}
        for criterion in tree.criteria:
            if all(judgment.verdict is None for judgment in criterion.judgments):
                # Nothing is known of it, and every list would have to put it somewhere.
                return [], [], {}
            outcome = against_label(criterion.judgments, label)
            outcomes[criterion.id] = outcome
            # From -1..1 to -0.5..0.5, so that a margin between two criteria is 1 at most.
            margins[criterion.id] = outcome.net / 2

        good = []
        for criterion in tree.criteria:
            outcome = outcomes[criterion.id]
            if outcome.net > 0 and above_zero(outcome) >= sure:
                good.append(criterion)
        bad = []
        for criterion in tree.criteria:
            if all(_above(outcomes[leading.id], outcomes[criterion.id], sure) for leading in good):
                bad.append(criterion)
        return good, bad, margins

    def _agreed(self, level: str, criterion: CriterionNode, label: Verdict) -> Verdict | None:
        """Return a criterion's consensus where it is in keeping with the label; else None, and count it."""
        agreed = consensus(criterion.judgments, self.config.min_evidence)
        if agreed is None:
            self.skipped[f"{level}:no_consensus"] += 1
            return None
        if not accepts(agreed, label, self.config.rule):
            self.skipped[f"{level}:against_label"] += 1
            return None
        return agreed

    def selected(self, pairs: Sequence[Pair], seed: int) -> list[int]:
        """Return indices of the pairs of all trees without repeats, balanced by the traits of ``config.balance``."""
        traits = sorted(set(self.config.balance))
        # By the traits, too, so that another balance is another draw.
        rng = random.Random(derive_seed(seed, "balance", *traits))
        repeated = repeats(pairs)
        for index in repeated:
            self.skipped[f"{pairs[index].level}:repeated"] += 1
        different = [index for index in range(len(pairs)) if index not in repeated]
        # Repeats first: what is evened out is what remains without them.
        remaining = only(pairs, different)
        unbalanced = surplus(remaining, traits, rng)
        for place in unbalanced:
            self.skipped[f"{remaining[place].level}:unbalanced_{'_'.join(traits)}"] += 1
        return [index for place, index in enumerate(different) if place not in unbalanced]


def of_one_order(
    right: Judgments, wrong: Judgments, verdict: Verdict | None
) -> Iterator[tuple[JudgmentNode, JudgmentNode]]:
    """Yield each right judgment with each wrong one that saw the responses in the same order.

    Of one response the right one must itself stand further to the side of the ``verdict``: else what made it right is
    its sibling, the judgment of the other response.
    """
    for chosen, rejected in itertools.product(right, wrong):
        if chosen.order != rejected.order:
            continue
        is_pairwise = chosen.order in ORDERS
        if is_pairwise or _further(chosen, rejected, verdict):
            yield chosen, rejected


def _further(one: JudgmentNode, other: JudgmentNode, verdict: Verdict | None) -> bool:
    """Return whether one judgment of a response stands further to the verdict's side than another."""
    score = _score_of_shown(one)
    other_score = _score_of_shown(other)
    if score is None or other_score is None or verdict not in ("A", "B"):
        return False
    # The better response should score higher, and lower by a criterion that says what should not be.
    should_be_higher = (one.order == verdict) != one.inverted
    return score != other_score and (score > other_score) == should_be_higher


def _score_of_shown(judgment: JudgmentNode) -> float | None:
    """Return the score of the one response that a judgment was shown."""
    if judgment.order == "A":
        return judgment.score_a
    return judgment.score_b


def _above(more: Outcomes, less: Outcomes, sure: float) -> bool:
    """Return whether the first kind of judgments has the higher net success, by more than chance."""
    # The first comparison is cheap, and the second one draws from posteriors.
    return more.net > less.net and better(more, less) >= sure


def orderings(
    criteria: Sequence[CriterionNode], good: Criteria, bad: Criteria, rng: random.Random, number: int
) -> Iterator[tuple[Criteria, Criteria]]:
    """Yield up to ``number`` orderings with the good criteria first, and against each that with the bad ones first.

    Each is headed by another criterion where there are enough.
    """
    middle = [criterion for criterion in criteria if criterion not in good and criterion not in bad]
    leads = rng.sample(good, len(good))
    trails = rng.sample(bad, len(bad))
    for turn in range(min(number, max(len(good), len(bad)))):
        # Within a group no order is better, so that each turn draws one.
        for group in (good, bad, middle):
            rng.shuffle(group)
        lead = leads[turn % len(good)]
        trail = trails[turn % len(bad)]
        first = [lead, *(criterion for criterion in good if criterion is not lead)]
        last = [trail, *(criterion for criterion in bad if criterion is not trail)]
        # One is the other backwards but for the middle: both hold the same lines, and only their order is learned.
        yield [*first, *middle, *last[::-1]], [*last, *middle, *first[::-1]]


@dataclass(frozen=True)
class _Sides:
    """The nodes that the two sides of a pair are made of, and how much more the chosen ones are worth."""

    chosen: Sequence[Node]
    rejected: Sequence[Node]
    margin: float


def pair_of(level: str, tree: EvaluationTree, prompt: Messages, sides: _Sides) -> Pair:
    """Return the pair of two judgments, two guidelines, or two lists of criteria."""
    return Pair(
        prompt=prompt,
        chosen=_text_of(sides.chosen, level),
        rejected=_text_of(sides.rejected, level),
        level=level,
        margin=sides.margin,
        comparison_id=tree.comparison.id,
        chosen_nodes=tuple(node.id for node in sides.chosen),
        rejected_nodes=tuple(node.id for node in sides.rejected),
        chosen_verdict=_verdict_of(sides.chosen[0]),
        rejected_verdict=_verdict_of(sides.rejected[0]),
        made=tree.comparison.made or "",
    )


def _text_of(nodes: Sequence[Node], level: str) -> str:
    """Return a side's text: that of its node, or the list of its criteria."""
    if level == "criteria":
        return render_criteria([node.text for node in nodes])
    return nodes[0].text


def _verdict_of(node: Node) -> Verdict | None:
    """Return the verdict of a judgment, None of any other node."""
    if not isinstance(node, JudgmentNode):
        return None
    return node.verdict


Preferences = Sequence[tuple[str, str]]
"""The ids of the preferred judgment and of the other one, pair by pair, of one tree."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence about trees besides their own verdicts.

    Args:
        rewards: the branches' scores.
        preferred: an external judge's preferences between critiques by comparison, where they choose the pairs.
        worth: what criteria are worth over all trees, where that was learned.
    """

    rewards: Rewards = field(default_factory=Rewards)
    preferred: Mapping[str, Preferences] | None = None
    worth: Worth | None = None


HIGH_SUCCESS = 0.75
"""Criteria lead a chosen list if at least this share of their judgments is right: the paper gives no threshold."""
LOW_SUCCESS = 0.25
"""Criteria lead a rejected list if at most this share of their judgments is right."""


@dataclass
class LabelPairBuilder(PairBuilder):
    """Makes pairs whose sides the label alone tells apart; tie labels order criteria and guidelines too."""

    by_label: ClassVar[bool] = True

    def judgments_apart(self, tree: EvaluationTree, label: Verdict) -> Iterator[Apart]:
        """Yield each judgment in keeping with the label, and each of its guideline and order that is not."""
        for criterion, guideline in tree.guidelines():
            right: list[JudgmentNode] = []
            wrong: list[JudgmentNode] = []
            for judgment in guideline.judgments:
                if judgment.verdict is None:
                    continue
                if accepts(judgment.verdict, label, self.config.rule):
                    right.append(judgment)
                else:
                    wrong.append(judgment)
            for chosen, rejected in of_one_order(right, wrong, label):
                yield criterion, guideline, chosen, rejected

    def guidelines_apart(
        self, tree: EvaluationTree, criterion: CriterionNode, guidelines: Sequence[GuidelineNode], label: Verdict
    ) -> Iterator[tuple[GuidelineNode, GuidelineNode, float]]:
        """Yield the guidelines with the highest success, and each with a lower one."""
        rated = []
        for guideline in guidelines:
            rate = self.rate(tree, guideline.judgments, label)
            if rate is not None:
                rated.append((rate, guideline))
        best = max((rate for rate, _ in rated), default=0.0)
        for (high, chosen), (low, rejected) in itertools.permutations(rated, 2):
            if low < high == best:
                yield chosen, rejected, high - low

    def criteria_apart(self, tree: EvaluationTree, label: Verdict) -> Ranked:
        """Return criteria that lead to the label (:data:`HIGH_SUCCESS`), and such as lead away (:data:`LOW_SUCCESS`).

        Criteria of which nothing is known stand in the middle.
        """
        rates = {}
        for criterion in tree.criteria:
            rate = self.rate(tree, criterion.judgments, label)
            if rate is not None:
                rates[criterion.id] = rate
        good = []
        bad = []
        for criterion in tree.criteria:
            rate = rates.get(criterion.id)
            if rate is None:
                continue
            if rate >= HIGH_SUCCESS:
                good.append(criterion)
            elif rate <= LOW_SUCCESS:
                bad.append(criterion)
        return good, bad, rates

    def rate(self, tree: EvaluationTree, judgments: Sequence[JudgmentNode], label: Verdict) -> float | None:
        """Return the share of the readable judgments that are in keeping with the label; None if none is readable."""
        verdicts = [judgment.verdict for judgment in judgments if judgment.verdict is not None]
        if not verdicts:
            return None
        right = sum(accepts(verdict, label, self.config.rule) for verdict in verdicts)
        return right / len(verdicts)


@dataclass
class PreferredPairBuilder(LabelPairBuilder):
    """Makes pairs of the critiques that an external judge compared; ``preferred`` holds its preferences by comparison.

    Under a criterion and guideline a verdict is right if critiques with it were preferred more often than not; this
    says of guidelines and criteria how successful they are.
    """

    preferred: Mapping[str, Preferences] = field(default_factory=dict)

    def judgments_apart(self, tree: EvaluationTree, label: Verdict) -> Iterator[Apart]:
        """Yield the judgments that the external judge decided alike in both orders."""
        # The external judge's preferences name nodes alone.
        paths = {path[-1].id: path for path in tree.judgments()}
        for chosen_id, rejected_id in self.preferred.get(tree.comparison.id, ()):
            criterion, guideline, chosen = paths[chosen_id]
            # Both critiques were written by one guideline.
            rejected = paths[rejected_id][-1]
            yield criterion, guideline, chosen, rejected

    def rate(self, tree: EvaluationTree, judgments: Sequence[JudgmentNode], label: Verdict) -> float | None:
        """Return the share of right verdicts among those that were compared; None if none was."""
        is_right = self._right(tree)
        compared = [is_right[judgment.id] for judgment in judgments if judgment.id in is_right]
        if not compared:
            return None
        return sum(compared) / len(compared)

    def _right(self, tree: EvaluationTree) -> dict[str, bool]:
        """Return for judgments whether their verdict was preferred under their guideline, more often than not.

        A verdict that was preferred as often as it was not is left out.
        """
        is_right: dict[str, bool] = {}
        for _, guideline in tree.guidelines():
            verdicts = {judgment.id: judgment.verdict for judgment in guideline.judgments}
            balance: Counter[Verdict | None] = Counter()
            for chosen, rejected in self.preferred.get(tree.comparison.id, ()):
                # A preference is between critiques by one guideline, so that both are in it or neither.
                if chosen in verdicts:
                    balance[verdicts[chosen]] += 1
                    balance[verdicts[rejected]] -= 1
            for name, verdict in verdicts.items():
                if balance[verdict]:
                    is_right[name] = balance[verdict] > 0
        return is_right


def pair_builder(prompter: Prompter, config: LabelConfig, evidence: Evidence) -> PairBuilder:
    """Return what makes the pairs that ``label.rule`` asks for, of an external judge's preferences where it has any."""
    rewards = evidence.rewards
    if evidence.preferred is not None:
        return PreferredPairBuilder(prompter, config, rewards, preferred=evidence.preferred)
    if config.rule == "paper":
        return LabelPairBuilder(prompter, config, rewards)
    return PairBuilder(prompter, config, rewards, worth=evidence.worth)
