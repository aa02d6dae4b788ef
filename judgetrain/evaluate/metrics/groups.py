"""Agreement by group, by prompts that several comparisons share, and with single votes where several people voted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from judgetrain.evaluate.metrics.intervals import Interval, bootstrap_interval
from judgetrain.evaluate.metrics.registry import mean
from judgetrain.evaluate.metrics.verdicts import Bools, agreement, conflict_as_tie, decided
from judgetrain.judges.base import Prediction


@dataclass(frozen=True)
class Group:
    """Agreement and consistency on the ``n`` comparisons of a group or domain."""

    n: int
    agreement: float | None
    consistency: float | None


def agreement_by_name(names: Sequence[str | None], agreed: Bools, consistent: Bools) -> dict[str, Group]:
    """Agreement and consistency, bool [n], over the items of each name, sorted; items without a name are left out."""
    masks = {name: np.array([n == name for n in names]) for name in sorted({n for n in names if n is not None})}
    return {name: Group(int(m.sum()), mean(agreed[m]), mean(consistent[m])) for name, m in masks.items()}


def agreement_by_prompt(prompts: Sequence[str], agreed: Bools) -> float | None:
    """The share of prompts of which every pair is right; None where each prompt has one pair."""
    right: dict[str, bool] = {}
    for prompt, is_right in zip(prompts, agreed, strict=True):
        right[prompt] = right.get(prompt, True) and bool(is_right)
    return mean(list(right.values())) if len(right) < len(prompts) else None


@dataclass(frozen=True, kw_only=True)
class VoteMetrics:
    """Each of ``n`` votes an item, also on comparisons without a majority.

    ``agreement``: strict. ``conflict_as_tie``: orders that conflict count as a tie (MT-Bench's setup 1).
    ``agreement_decided``: over the ``n_decided`` votes that, like the verdict, are for A or B (its setup 2).
    ``between_people``: the share of equal votes among all pairs of votes on one comparison, ``between_people_decided``
    among pairs without ties. Intervals resample prompts, since votes on one comparison, and comparisons on one prompt,
    are not independent.
    """

    n: int
    agreement: float | None
    agreement_ci: Interval | None
    conflict_as_tie: float | None
    conflict_as_tie_ci: Interval | None
    n_decided: int
    agreement_decided: float | None
    pairs_of_votes: int
    between_people: float | None
    between_people_decided: float | None


def vote_metrics(voted: Sequence[tuple[Prediction, str, tuple[str, ...]]], resamples: int, seed: int) -> VoteMetrics:
    """Agreement with votes, of predictions with their prompts and the votes on them."""
    items = [(p, prompt, vote) for p, prompt, votes in voted for vote in votes]
    ab, ba = [p.verdict_ab for p, _, _ in items], [p.verdict_ba for p, _, _ in items]
    labels, prompts = [vote for _, _, vote in items], [prompt for _, prompt, _ in items]
    strict, as_tie, both = agreement(ab, ba, labels), conflict_as_tie(ab, ba, labels), decided(ab, ba, labels)
    pairs = [pair for _, _, votes in voted for pair in combinations(votes, 2)]
    return VoteMetrics(
        n=len(items),
        agreement=mean(strict),
        agreement_ci=bootstrap_interval(strict, resamples, seed, prompts),
        conflict_as_tie=mean(as_tie),
        conflict_as_tie_ci=bootstrap_interval(as_tie, resamples, seed, prompts),
        n_decided=int(both.sum()),
        agreement_decided=mean(strict[both]),
        pairs_of_votes=len(pairs),
        between_people=mean([a == b for a, b in pairs]),
        between_people_decided=mean([a == b for a, b in pairs if "tie" not in (a, b)]),
    )
