"""What a judge would be worth whose preference for a position were taken off its margins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from judgetrain.evaluate.metrics import verdicts
from judgetrain.evaluate.metrics.intervals import bootstrap_interval
from judgetrain.evaluate.metrics.registry import Interval, mean
from judgetrain.evaluate.metrics.verdicts import Verdicts
from judgetrain.judges.base import verdict_of
from judgetrain.judges.position import Margins, position_offset

FOLDS = 10
"""Parts of the prompts, each read with the offset of the others."""


@dataclass(frozen=True, kw_only=True)
class Balanced:
    """Strict agreement and consistency of verdicts that are read with the position's offset taken off.

    ``agreement_ci``: 95% bootstrap interval; given the offsets, which are not measured anew in each resample.
    """

    agreement: float | None
    agreement_ci: Interval | None
    consistency: float | None


def balanced(
    margins_ab: Margins, margins_ba: Margins, labels: Sequence[str], prompts: Sequence[str], resamples: int, seed: int
) -> Balanced | None:
    """Agreement and consistency of balanced verdicts; None with fewer than two prompts that have margins."""
    found = balanced_verdicts(margins_ab, margins_ba, prompts, seed)
    if found is None:
        return None
    agreed = verdicts.agreement(*found, labels)
    interval = bootstrap_interval(agreed, resamples, seed, prompts)
    return Balanced(agreement=mean(agreed), agreement_ci=interval, consistency=mean(verdicts.consistency(*found)))


def balanced_verdicts(
    margins_ab: Margins, margins_ba: Margins, prompts: Sequence[str], seed: int
) -> tuple[Verdicts, Verdicts] | None:
    """The verdicts in both orders, by the sign of the margin less the offset.

    The offset of a comparison is that of the prompts in the other folds: no verdict is read with a number that it had a
    part in. Labels are not used.
    """
    names = sorted({p for p, *both in zip(prompts, margins_ab, margins_ba, strict=True) if None not in both})
    if len(names) < 2:
        return None
    folds = np.random.default_rng(seed).permutation(len(names)) % min(FOLDS, len(names))
    fold_of = dict(zip(names, folds, strict=True))
    ab: list[str | None] = [None] * len(prompts)
    ba: list[str | None] = [None] * len(prompts)
    for fold in set(folds):
        others = [i for i, prompt in enumerate(prompts) if fold_of.get(prompt, fold) != fold]
        offset = position_offset([margins_ab[i] for i in others], [margins_ba[i] for i in others])
        assert offset is not None  # other folds have margins
        for i, prompt in enumerate(prompts):
            if fold_of.get(prompt) == fold:
                ab[i], ba[i] = (_less(margins_ab[i], offset), _less(margins_ba[i], -offset))
    return ab, ba


def _less(margin: float | None, offset: float) -> str | None:
    return None if margin is None else verdict_of(margin - offset)
