"""Preference pairs at the three levels (branching paper, section 4.4, figure 3)."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.judges.prompting.parsing import render_criteria
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.label.config import LabelConfig
from judgetrain.label.examples import Messages, Pair, Prompter
from judgetrain.label.labels import Label, accepts
from judgetrain.label.rewards import Rewards
from judgetrain.label.selection import near_identical, repeats, surplus
from judgetrain.schema import Verdict

Node = CriterionNode | GuidelineNode | JudgmentNode
LEVELS = ("criteria", "guideline", "judgment")
HIGH_SUCCESS, LOW_SUCCESS = 0.75, 0.25
"""Criteria whose judgments agree with the label at least / at most so often make an ordering pair."""


def success_rate(judgments: Sequence[JudgmentNode], label: Verdict) -> float | None:
    """Share of the readable judgments that give the label; None if none is readable."""
    readable = [j for j in judgments if j.verdict is not None]
    return sum(j.verdict == label for j in readable) / len(readable) if readable else None


def node_consensus(guideline: GuidelineNode) -> Verdict | None:
    """The verdict of more than half of a guideline's readable judgments, if each order has given it; else None."""
    verdicts = [j.verdict for j in guideline.judgments if j.verdict is not None]
    for verdict, count in Counter(verdicts).most_common(1):
        orders = {j.order for j in guideline.judgments if j.verdict == verdict}
        if 2 * count > len(verdicts) and orders == {"AB", "BA"}:
            return verdict
    return None


def taken(values: Sequence[float | None], limit: int, choose: str, rng: random.Random) -> list[int]:
    """Indices of at most ``limit`` candidates: at random, or those of the largest value, of equal ones at random."""
    drawn = rng.sample(range(len(values)), len(values) if choose == "reward" else min(len(values), limit))
    if choose == "reward":
        drawn.sort(key=lambda i: -math.inf if (value := values[i]) is None else value, reverse=True)
    return drawn[:limit]


@dataclass
class PairBuilder:
    """Makes the preference pairs of trees; ``skipped`` counts what makes none, as ``LEVEL:REASON``."""

    prompter: Prompter
    config: LabelConfig = field(default_factory=LabelConfig)
    rewards: Rewards = field(default_factory=Rewards)
    skipped: Counter[str] = field(default_factory=Counter)

    def pairs(self, tree: EvaluationTree, label: Label, rng: random.Random) -> list[Pair]:
        """At most ``max_pairs_per_level`` pairs of each level, drawn at random or those of the largest margin.

        A tie label makes judgment pairs only: criteria and guidelines that see no difference are no better for it.
        """
        verdict, limit, choose = label.verdict, self.config.max_pairs_per_level, self.config.reward.choose
        assert verdict is not None
        found = {"judgment": list(self.judgment_pairs(tree, verdict))}
        if verdict != "tie":
            lists = len(tree.criteria) if choose == "reward" and limit else limit
            found["guideline"] = list(self.guideline_pairs(tree, verdict))
            found["criteria"] = list(self.criteria_pairs(tree, verdict, rng, lists))
        pairs: list[Pair] = []
        for level in LEVELS:
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
        """Same criterion, guideline and order: a judgment that gives the node's consensus against one that does not.

        The consensus of a criterion and guideline is the majority of their judgments in both orders. It must be in
        keeping with the label and must be reached in each order: without that, a judge that leans to the response it
        sees first would have its leaning rewarded in every comparison where the first happens to be the better one.

        With ``ties=neutral`` a consensus of ties is in keeping with a label A or B, and what is rejected may then be
        a judgment that gives the label: on this criterion it was a slip. Pairs whose sides differ in numbers alone
        are left out, unless ``keep_digit_pairs``.
        """
        left_out = {"near_identical"} if self.config.keep_digit_pairs else {"near_identical", "score_digits_only"}
        for criterion, guideline in tree.guidelines():
            consensus = node_consensus(guideline)
            if not accepts(consensus, label, self.config.ties):
                self.skipped["judgment:no_corroborated_consensus"] += 1
                continue
            readable = [j for j in guideline.judgments if j.verdict is not None]
            right = [j for j in readable if j.verdict == consensus]
            wrong = [j for j in readable if j.verdict != consensus]
            for chosen, rejected in itertools.product(right, wrong):
                if chosen.order != rejected.order:
                    continue
                if chosen.finish_reason != "stop":
                    self.skipped["judgment:chosen_cut_off"] += 1
                elif (reason := near_identical(chosen.text, rejected.text)) in left_out:
                    self.skipped[f"judgment:{reason}"] += 1
                else:
                    prompt = self.prompter.judgment(tree.comparison, criterion.text, guideline.text, chosen)
                    yield _pair("judgment", tree, prompt, [chosen], [rejected], 1.0)

    def guideline_pairs(self, tree: EvaluationTree, label: Verdict) -> Iterator[Pair]:
        """Same criterion: the guideline whose judgments give the label more often against one with fewer.

        Guidelines that the token limit cut make no pair; ``skipped`` counts them, not the pairs that they might have
        made.
        """
        for criterion in tree.criteria:
            if cut := sum(g.finish_reason == "length" for g in criterion.guidelines):
                self.skipped["guideline:cut_off"] += cut
            whole = [g for g in criterion.guidelines if g.finish_reason == "stop"]
            known = [(rate, g) for g in whole if (rate := success_rate(g.judgments, label)) is not None]
            for (rate_1, g_1), (rate_2, g_2) in itertools.combinations(known, 2):
                if rate_1 == rate_2:
                    continue
                if near_identical(g_1.text, g_2.text) == "near_identical":
                    self.skipped["guideline:near_identical"] += 1
                    continue
                chosen, rejected = (g_1, g_2) if rate_1 > rate_2 else (g_2, g_1)
                prompt = self.prompter.guideline(tree.comparison, criterion.text)
                yield _pair("guideline", tree, prompt, [chosen], [rejected], abs(rate_1 - rate_2))

    def criteria_pairs(self, tree: EvaluationTree, label: Verdict, rng: random.Random, number: int) -> Iterator[Pair]:
        """Orderings of the same criteria: those that lead to the label first against those that lead away first.

        Both sides hold the same lines, so that length and content cancel and only the order is learned. Up to
        ``number`` pairs, each headed by another criterion where there are enough.
        """
        rates = {c.id: rate for c in tree.criteria if (rate := success_rate(c.judgments, label)) is not None}
        rated = [c for c in tree.criteria if c.id in rates]
        good = [c for c in rated if rates[c.id] >= HIGH_SUCCESS]
        bad = [c for c in rated if rates[c.id] <= LOW_SUCCESS]
        if len(rated) < len(tree.criteria) or not good or not bad:
            self.skipped["criteria:no_contrast"] += 1
            return
        middle = [c for c in rated if LOW_SUCCESS < rates[c.id] < HIGH_SUCCESS]
        leads, trails = (rng.sample(group, len(group)) for group in (good, bad))
        for i in range(min(number, max(len(good), len(bad)))):
            for group in (good, bad, middle):
                rng.shuffle(group)
            lead, trail = leads[i % len(good)], trails[i % len(bad)]
            first = [lead, *(c for c in good if c is not lead)]
            last = [trail, *(c for c in bad if c is not trail)]
            chosen, rejected = [*first, *middle, *last[::-1]], [*last, *middle, *first[::-1]]
            prompt, margin = self.prompter.criteria(tree.comparison), rates[lead.id] - rates[trail.id]
            yield _pair("criteria", tree, prompt, chosen, rejected, margin)

    def selected(self, pairs: Sequence[Pair], seed: int) -> list[Pair]:
        """The pairs of all trees without repeats and balanced by the traits that ``config.balance`` names."""
        traits = sorted(set(self.config.balance))
        once = self._without(pairs, repeats(pairs), "repeated")
        left_out = surplus(once, traits, random.Random(derive_seed(seed, "balance", *traits)))
        return self._without(once, left_out, f"unbalanced_{'_'.join(traits)}")

    def _without(self, pairs: Sequence[Pair], left_out: set[int], reason: str) -> list[Pair]:
        self.skipped.update(f"{pairs[i].level}:{reason}" for i in left_out)
        return [pair for i, pair in enumerate(pairs) if i not in left_out]


def _pair(
    level: str, tree: EvaluationTree, prompt: Messages, chosen: Sequence[Node], rejected: Sequence[Node], margin: float
) -> Pair:
    """The pair of two judgments, two guidelines, or two lists of criteria."""
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
        made=tree.comparison.made or "",
    )
