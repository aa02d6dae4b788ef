"""Preference pairs at the three levels (branching paper, section 4.4, figure 3)."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from judgetrain.artifacts.spilled import only
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.judges.prompting.parsing import render_criteria
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.label.config import LabelConfig
from judgetrain.label.evidence import (
    LevelTest,
    Outcomes,
    above_zero,
    against_consensus,
    against_label,
    better,
    consensus,
    others_vote,
)
from judgetrain.label.examples import Messages, Pair, Prompter
from judgetrain.label.labels import Label, accepts
from judgetrain.label.rewards import Rewards
from judgetrain.label.selection import near_identical, repeats, surplus
from judgetrain.schema import Verdict

Node = CriterionNode | GuidelineNode | JudgmentNode

GATED = ("guideline", "judgment")
"""Levels that teach only if they are shown not to be chance. Of criteria the test asks too much: one that alone decides
rightly is borne out by no other, and is what the level is to find."""


def taken(
    values: Sequence[float | None],
    limit: int,
    choose: str,
    rng: random.Random,
    kinds: Sequence[Hashable] | None = None,
) -> list[int]:
    """Indices of at most ``limit`` candidates: at random, or those of the largest value, of equal ones at random.

    With ``kinds`` (one a candidate) the draw says how many of each kind are taken, and the values which of them: what
    a judge is surest of is most often that there is nothing to tell the responses apart, and would be all that is left.
    """
    drawn = rng.sample(range(len(values)), len(values) if choose == "best" else min(len(values), limit))
    if choose != "best":
        return drawn
    left = Counter(kinds[i] for i in drawn[:limit]) if kinds else None
    drawn.sort(key=lambda i: -math.inf if (value := values[i]) is None else value, reverse=True)
    if kinds is None or left is None:
        return drawn[:limit]
    found = []
    for index in drawn:
        if left[kinds[index]]:
            left[kinds[index]] -= 1
            found.append(index)
    return found


@dataclass
class PairBuilder:
    """Makes the preference pairs of trees; ``skipped`` counts what makes none, as ``LEVEL:REASON``."""

    prompter: Prompter
    config: LabelConfig = field(default_factory=LabelConfig)
    rewards: Rewards = field(default_factory=Rewards)
    skipped: Counter[str] = field(default_factory=Counter)
    tested: LevelTest = field(default_factory=LevelTest)
    orders_ties: ClassVar[bool] = False
    """Whether tie labels order criteria and guidelines."""

    def pairs(self, tree: EvaluationTree, label: Label, rng: random.Random) -> list[Pair]:
        """At most ``max_pairs_per_level`` pairs of each level, drawn at random or those of the largest margin.

        A tie label makes judgment pairs only: criteria and guidelines that see no difference are no better for it.
        """
        verdict, limit, choose = label.verdict, self.config.max_pairs_per_level, self.config.reward.choose
        assert verdict is not None
        self.tested.add_tree(tree, self.config.min_evidence)
        found = {"judgment": list(self.judgment_pairs(tree, verdict))}
        if verdict != "tie" or self.orders_ties:
            lists = len(tree.criteria) if choose == "best" and limit else limit
            found["guideline"] = list(self.guideline_pairs(tree, verdict))
            found["criteria"] = list(self.criteria_pairs(tree, verdict, rng, lists))
        pairs: list[Pair] = []
        for level in self.config.levels:
            candidates = [w for pair in found.get(level, []) if (w := self._with_margin(pair, tree, label))]
            self.skipped[f"{level}:over_cap"] += max(0, len(candidates) - limit)
            pairs += [candidates[i] for i in taken([p.margin for p in candidates], limit, choose, rng)]
        return pairs

    def _with_margin(self, pair: Pair, tree: EvaluationTree, label: Label) -> Pair | None:
        """The pair with its reward parts and combined margin; None where that is too low or not known."""
        weighed = self.rewards.of_pair(pair, tree)
        if weighed is None:
            self.skipped[f"{pair.level}:no_score"] += 1
        elif weighed.margin < self.config.reward.min_margin:
            self.skipped[f"{pair.level}:low_margin"] += 1
        else:
            weighed.reward[label.source] = label.share
            return weighed
        return None

    def judgment_pairs(self, tree: EvaluationTree, label: Verdict) -> Iterator[Pair]:
        """Same criterion, guideline and order: a judgment that reads its criterion rightly against one that does not.

        What is right is the criterion's consensus: what the judgments by all its guidelines agree on, in each order by
        itself, so sure that the posterior probability of their majority is at least ``min_evidence``. Without the
        orders a judge that leans to the response it sees first would have its leaning rewarded in every comparison
        where the first happens to be the better one.

        The consensus must be in keeping with the label. With ``ties=neutral`` a consensus of ties is in keeping with
        A or B, and what is rejected may then be a judgment that gives the label: on this criterion it was a slip. Pairs
        whose sides differ in numbers alone are left out, unless ``keep_digit_pairs``.
        """
        for criterion in tree.criteria:
            agreed = consensus(criterion.judgments, self.config.min_evidence)
            if agreed is None or not accepts(agreed, label, self.config.ties):
                self.skipped[f"judgment:{'no_consensus' if agreed is None else 'against_label'}"] += 1
                continue
            for guideline in criterion.guidelines:
                right = [j for j in guideline.judgments if j.verdict == agreed]
                wrong = [j for j in guideline.judgments if j.verdict not in (agreed, None)]
                for chosen, rejected in itertools.product(right, wrong):
                    if chosen.order == rejected.order:
                        yield from self.told_apart(tree, criterion, guideline, chosen, rejected)

    def told_apart(
        self,
        tree: EvaluationTree,
        criterion: CriterionNode,
        guideline: GuidelineNode,
        chosen: JudgmentNode,
        rejected: JudgmentNode,
    ) -> Iterator[Pair]:
        """The pair of two judgments, if there is something to learn from it; else it is counted."""
        left_out = {"near_identical"} if self.config.keep_digit_pairs else {"near_identical", "score_digits_only"}
        if chosen.finish_reason != "stop":
            self.skipped["judgment:chosen_cut_off"] += 1
        elif (reason := near_identical(chosen.text, rejected.text)) in left_out:
            self.skipped[f"judgment:{reason}"] += 1
        else:
            prompt = self.prompter.judgment(tree.comparison, criterion.text, guideline.text, chosen)
            verdicts = chosen.verdict, rejected.verdict
            yield pair_of("judgment", tree, prompt, [chosen], [rejected], 1.0, verdicts)

    def guideline_pairs(self, tree: EvaluationTree, label: Verdict) -> Iterator[Pair]:
        """Same criterion: a guideline by which its consensus is reached more often against one with fewer.

        A guideline says how its criterion is to be read. Whether the label was given says as much of the criterion. The
        difference must be larger than chance by ``min_evidence``. Guidelines that the token limit cut make no pair;
        ``skipped`` counts them, not the pairs that they might have made.
        """
        for criterion in tree.criteria:
            if cut := sum(g.finish_reason == "length" for g in criterion.guidelines):
                self.skipped["guideline:cut_off"] += cut
            whole = [g for g in criterion.guidelines if g.finish_reason == "stop" and g.judgments]
            agreed = consensus(criterion.judgments, self.config.min_evidence)
            if agreed is None or not accepts(agreed, label, self.config.ties):
                self.skipped[f"guideline:{'no_consensus' if agreed is None else 'against_label'}"] += 1
                continue
            known = [(against_consensus(g.judgments, agreed), g) for g in whole]
            for pair in itertools.combinations(known, 2):
                (less, worse), (more, chosen) = sorted(pair, key=lambda each: each[0].net)
                if not _above(more, less, self.config.min_evidence):
                    self.skipped["guideline:no_evidence"] += 1
                elif near_identical(chosen.text, worse.text) == "near_identical":
                    self.skipped["guideline:near_identical"] += 1
                else:
                    prompt = self.prompter.guideline(tree.comparison, criterion.text)
                    yield pair_of("guideline", tree, prompt, [chosen], [worse], (more.net - less.net) / 2)

    def criteria_pairs(self, tree: EvaluationTree, label: Verdict, rng: random.Random, number: int) -> Iterator[Pair]:
        """Orderings of the same criteria: those that lead to the label first against those that do not.

        What counts is net success: judgments that give the label less those that give the other side. A criterion
        leads if with ``min_evidence`` its net success is above 0, and if the vote of all *other* criteria is the label
        too (``leave_one_out``): otherwise it would have voted for itself. It is set against criteria below it with
        ``min_evidence``, be it that they see no difference or that they lead away. Both sides hold the same lines, so
        that length and content cancel and only the order is learned. Up to ``number`` pairs, each headed by another
        criterion where there are enough.
        """
        sure = self.config.min_evidence
        outcomes = {c.id: against_label(c.judgments, label) for c in tree.criteria}
        unread = [c for c in tree.criteria if all(j.verdict is None for j in c.judgments)]
        good = [c for c in tree.criteria if outcomes[c.id].net > 0 and above_zero(outcomes[c.id]) >= sure]
        if self.config.leave_one_out:
            confirmed = [c for c in good if others_vote(tree, c) == label]
            self.skipped["criteria:own_vote"] += len(good) - len(confirmed)
            good = confirmed
        bad = [c for c in tree.criteria if all(_above(outcomes[g.id], outcomes[c.id], sure) for g in good)]
        if unread or not good or not bad:
            self.skipped["criteria:no_contrast"] += 1
            return
        for chosen, rejected in orderings(tree.criteria, good, bad, rng, number):
            margin = (outcomes[chosen[0].id].net - outcomes[rejected[0].id].net) / 2
            yield pair_of("criteria", tree, self.prompter.criteria(tree.comparison), chosen, rejected, margin)

    def selected(self, pairs: Sequence[Pair], seed: int) -> list[int]:
        """Indices of the pairs of all trees without repeats, balanced by the traits that ``config.balance`` names.

        Those of guidelines and judgments are left out if such differences are no larger than chance (``max_chance``).
        """
        traits = sorted(set(self.config.balance))
        chance = {level for level in GATED if self.tested.p_value(level) > self.config.max_chance}
        left = list(range(len(pairs)))
        steps: tuple[tuple[str, Callable[[Sequence[Pair]], set[int]]], ...] = (
            ("level_is_chance", lambda here: {i for i, p in enumerate(here) if p.level in chance}),
            ("repeated", repeats),
            (
                f"unbalanced_{'_'.join(traits)}",
                lambda here: surplus(here, traits, random.Random(derive_seed(seed, "balance", *traits))),
            ),
        )
        for reason, found in steps:
            here = only(pairs, left)
            left_out = found(here)
            self.skipped.update(f"{here[i].level}:{reason}" for i in left_out)
            left = [at for i, at in enumerate(left) if i not in left_out]
        return left


def _above(more: Outcomes, less: Outcomes, sure: float) -> bool:
    return more.net > less.net and better(more, less) >= sure


def orderings(
    criteria: Sequence[CriterionNode],
    good: list[CriterionNode],
    bad: list[CriterionNode],
    rng: random.Random,
    number: int,
) -> Iterator[tuple[list[CriterionNode], list[CriterionNode]]]:
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
    level: str,
    tree: EvaluationTree,
    prompt: Messages,
    chosen: Sequence[Node],
    rejected: Sequence[Node],
    margin: float,
    verdicts: tuple[Verdict | None, Verdict | None] = (None, None),
) -> Pair:
    """The pair of two judgments, two guidelines, or two lists of criteria; ``verdicts``: of both sides' judgments."""
    texts = [[node.text for node in side] for side in (chosen, rejected)]
    sides = [render_criteria(side) if level == "criteria" else side[0] for side in texts]
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
