"""Preference pairs at the three levels (branching paper, section 4.4, figure 3)."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence

from judgetrain.judges.prompting.parsing import render_criteria
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.label.examples import Pair, Prompter
from judgetrain.label.labels import accepts
from judgetrain.label.selection import near_identical
from judgetrain.schema import Verdict

HIGH_SUCCESS, LOW_SUCCESS = 0.75, 0.25
"""Criteria whose judgments agree with the label at least / at most so often make an ordering pair."""


def success_rate(judgments: Sequence[JudgmentNode], label: Verdict) -> float | None:
    """Share of the readable judgments that give the label; None if none is readable."""
    readable = [j for j in judgments if j.verdict is not None]
    return sum(j.verdict == label for j in readable) / len(readable) if readable else None


def judgment_pairs(
    tree: EvaluationTree,
    label: Verdict,
    prompter: Prompter,
    skipped: Counter[str],
    ties: str = "neutral",
    keep_digits: bool = False,
) -> Iterator[Pair]:
    """Same criterion, guideline and order: a judgment that gives the node's consensus against one that does not.

    The consensus of a criterion and guideline is the majority of their judgments in both orders. It must be in
    keeping with the label and must be reached in each order: without that, a judge that leans to the response it
    sees first would have its leaning rewarded in every comparison where the first happens to be the better one.

    With ``ties="neutral"`` a consensus of ties is in keeping with a label A or B, and what is rejected may then be a
    judgment that gives the label: on this criterion it was a slip. ``keep_digits``: also pairs whose sides differ in
    numbers alone.
    """
    left_out = {"near_identical"} if keep_digits else {"near_identical", "score_digits_only"}
    for criterion in tree.criteria:
        for guideline in criterion.guidelines:
            consensus = node_consensus(guideline)
            if not accepts(consensus, label, ties):
                skipped["judgment:no_corroborated_consensus"] += 1
                continue
            for order in ("AB", "BA"):
                nodes = [j for j in guideline.judgments if j.order == order and j.verdict is not None]
                right = [j for j in nodes if j.verdict == consensus]
                wrong = [j for j in nodes if j.verdict != consensus]
                for chosen, rejected in itertools.product(right, wrong):
                    if chosen.finish_reason != "stop":
                        skipped["judgment:chosen_cut_off"] += 1
                        continue
                    if (reason := near_identical(chosen.text, rejected.text)) in left_out:
                        skipped[f"judgment:{reason}"] += 1
                        continue
                    yield Pair(
                        prompter.judgment(tree.comparison, criterion.text, guideline.text, chosen),
                        chosen.text,
                        rejected.text,
                        "judgment",
                        1.0,
                        tree.comparison.id,
                        (chosen.id,),
                        (rejected.id,),
                    )


def node_consensus(guideline: GuidelineNode) -> Verdict | None:
    """The verdict of more than half of a guideline's readable judgments, if each order has given it; else None."""
    verdicts = [j.verdict for j in guideline.judgments if j.verdict is not None]
    for verdict, count in Counter(verdicts).most_common(1):
        orders = {j.order for j in guideline.judgments if j.verdict == verdict}
        if 2 * count > len(verdicts) and orders == {"AB", "BA"}:
            return verdict
    return None


def guideline_pairs(tree: EvaluationTree, label: Verdict, prompter: Prompter, skipped: Counter[str]) -> Iterator[Pair]:
    """Same criterion: the guideline whose judgments give the label more often against one with fewer.

    Guidelines that the token limit cut make no pair; ``skipped`` counts them, not the pairs that they might have made.
    """
    for criterion in tree.criteria:
        whole = [g for g in criterion.guidelines if g.finish_reason == "stop"]
        if cut := sum(g.finish_reason == "length" for g in criterion.guidelines):
            skipped["guideline:cut_off"] += cut
        rated = [(success_rate(g.judgments, label), g) for g in whole]
        known = [(rate, g) for rate, g in rated if rate is not None]
        for (rate_1, g_1), (rate_2, g_2) in itertools.combinations(known, 2):
            if rate_1 == rate_2:
                continue
            if near_identical(g_1.text, g_2.text) == "near_identical":
                skipped["guideline:near_identical"] += 1
                continue
            chosen, rejected = (g_1, g_2) if rate_1 > rate_2 else (g_2, g_1)
            yield Pair(
                prompter.guideline(tree.comparison, criterion.text),
                chosen.text,
                rejected.text,
                "guideline",
                abs(rate_1 - rate_2),
                tree.comparison.id,
                (chosen.id,),
                (rejected.id,),
            )


def criteria_pairs(
    tree: EvaluationTree, label: Verdict, prompter: Prompter, rng: random.Random, number: int, skipped: Counter[str]
) -> Iterator[Pair]:
    """Orderings of the same criteria: those that lead to the label first against those that lead away first.

    Both sides hold the same lines, so that length and content cancel and only the order is learned. Up to
    ``number`` pairs, each headed by another criterion where there are enough.
    """
    rated = [(rate, c) for c in tree.criteria if (rate := _criterion_success(c, label)) is not None]
    good = [c for rate, c in rated if rate >= HIGH_SUCCESS]
    bad = [c for rate, c in rated if rate <= LOW_SUCCESS]
    if len(rated) < len(tree.criteria) or not good or not bad:
        skipped["criteria:no_contrast"] += 1
        return
    rates = {c.id: rate for rate, c in rated}
    middle = [c for _, c in rated if LOW_SUCCESS < rates[c.id] < HIGH_SUCCESS]
    leads, trails = (rng.sample(group, len(group)) for group in (good, bad))
    for i in range(min(number, max(len(good), len(bad)))):
        for group in (good, bad, middle):
            rng.shuffle(group)
        lead, trail = leads[i % len(good)], trails[i % len(bad)]
        first = [lead, *(c for c in good if c is not lead)]
        last = [trail, *(c for c in bad if c is not trail)]
        chosen, rejected = [*first, *middle, *last[::-1]], [*last, *middle, *first[::-1]]
        yield Pair(
            prompter.criteria(tree.comparison),
            render_criteria([c.text for c in chosen]),
            render_criteria([c.text for c in rejected]),
            "criteria",
            rates[lead.id] - rates[trail.id],
            tree.comparison.id,
            tuple(c.id for c in chosen),
            tuple(c.id for c in rejected),
        )


def _criterion_success(criterion: CriterionNode, label: Verdict) -> float | None:
    return success_rate([j for g in criterion.guidelines for j in g.judgments], label)
