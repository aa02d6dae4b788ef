"""Verdicts only where the judge is sure, with a guarantee: pure functions on arrays.

Jung, Brahman, Choi: Trust or Escalate (ICLR 2025, arXiv 2407.18370). A cascade asks tier by tier (1 branch, 3 branches,
..., another judge) and answers with the first tier that is sure enough, else not at all. The threshold is the least
strict that fixed-sequence testing with exact binomial tests lets pass: with a chance of at least 1 - risk over the draw
of the calibration items, what is answered agrees with the labels at least as often as was asked for.

One threshold serves all tiers, so that a cascade is one of a sequence, from the strictest to the laxest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.judges.base import Prediction

Floats = NDArray[np.float64]
NEVER = -math.inf
"""The confidence of a tier that gives no verdict: its orders differ, or cannot be read."""
STEADY = 3
"""The sequence begins where so many times the items are answered that would pass without an error."""


@dataclass(frozen=True)
class Tiers:
    """What the tiers of a cascade would say of ``n`` items, arrays [tiers, n].

    ``confidence``: of a tier's verdict, :data:`NEVER` where it has none. ``right``: whether it is the label.
    ``tokens``: all that is spent once the tier has been asked.
    """

    confidence: Floats
    right: NDArray[np.bool_]
    tokens: Floats

    def part(self, items: NDArray[np.bool_]) -> Self:
        """Some of the items, by a mask [n]."""
        return type(self)(self.confidence[:, items], self.right[:, items], self.tokens[:, items])

    def ask(self, threshold: float) -> Outcomes:
        """The cascade with a threshold."""
        sure = self.confidence >= threshold
        last = len(sure) - 1
        tier = np.where(sure.any(axis=0), sure.argmax(axis=0), -1)
        index = np.where(tier < 0, last, tier), np.arange(sure.shape[1])
        return Outcomes(tier, self.right[index] & (tier >= 0), self.tokens[index])


@dataclass(frozen=True)
class Outcomes:
    """What came of ``n`` items: which ``tier`` answered (-1: none), whether it was ``right``, and the ``tokens``."""

    tier: NDArray[np.int_]
    right: NDArray[np.bool_]
    tokens: Floats

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Whether there is an answer, bool [n]."""
        return self.tier >= 0

    @property
    def coverage(self) -> float:
        """The share of items that are answered."""
        return float(self.answered.mean()) if len(self.tier) else 0.0

    @property
    def agreement(self) -> float | None:
        """The share of answers that are right; None without an answer."""
        return float(self.right[self.answered].mean()) if self.answered.any() else None


def passes(right: int, answered: int, agreement: float, risk: float) -> bool:
    """Whether so many right answers show an agreement of at least so much: the exact binomial test at level ``risk``,
    which is whether Clopper and Pearson's one-sided lower bound of the agreement is at least that."""
    from scipy import special

    return answered > 0 and float(special.bdtr(answered - right, answered, 1 - agreement)) <= risk


def lower_bound(right: int, answered: int, risk: float) -> float:
    """Clopper and Pearson's one-sided lower bound of a share, which holds with a chance of 1 - ``risk``."""
    from scipy import stats

    return float(stats.beta.ppf(risk, right, answered - right + 1)) if right else 0.0


def fewest(agreement: float, risk: float) -> int:
    """How many answers, all of them right, it takes to pass."""
    return math.ceil(math.log(risk) / math.log(agreement) - 1e-9)


def thresholds(confidence: ArrayLike, items: int, agreement: float, risk: float, most: int = 100) -> list[float]:
    """The sequence to be tested, strictest first, from confidences [tiers, m] of items that do not calibrate.

    It begins with the threshold that would answer enough of ``items`` to be told apart from luck (:data:`STEADY`). No
    label is looked at, and no calibration item, so that the order is fixed before the tests.
    """
    values = np.asarray(confidence, dtype=float)
    best = values.max(axis=0)
    enough = min(1.0, STEADY * fewest(agreement, risk) / max(items, 1)) * len(best)
    every = np.unique(values[values > NEVER])[::-1].tolist()
    found = [t for t in every if (best >= t).sum() >= enough]
    steps = np.unique(np.linspace(0, len(found) - 1, most).astype(int)) if found else ()
    return [found[i] for i in steps]  # at most so many, its ends among them


def certified(tiers: Tiers, sequence: Sequence[float], agreement: float, risk: float) -> float | None:
    """The last threshold of the sequence before the first that does not pass on the calibration items; None: the first
    does not. Items are independent draws, and the sequence was fixed without them."""
    found = None
    for threshold in sequence:
        asked = tiers.ask(threshold)
        if not passes(int(asked.right.sum()), int(asked.answered.sum()), agreement, risk):
            break
        found = threshold
    return found


LEAST = 20
"""Labelled comparisons on either side: of fewer nothing is said."""
RISK = 0.1
"""The chance that the guarantee is broken nevertheless."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a threshold comes to on ``n`` comparisons that did not set it.

    ``threshold`` None: none passed on the ``calibrated`` comparisons, and nothing is answered. ``coverage``: the share
    answered, ``agreement`` of the answers, ``bound`` its exact one-sided lower bound, which holds with a chance of
    1 - risk (of one answer a prompt, drawn by the seed: answers to one prompt are not independent);
    ``tokens``: generated per verdict in one order, abstentions included; ``tiers``: the share answered by each.
    """

    n: int
    calibrated: int
    threshold: float | None
    coverage: float = 0.0
    agreement: float | None = None
    bound: float | None = None
    tokens: float | None = None
    tiers: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Selective:
    """A method that may abstain.

    Its ``tiers`` by name, what was ``wanted`` at which ``risk``, and what it came to as a ``whole``.
    """

    tiers: tuple[str, ...]
    wanted: float
    risk: float
    whole: Answers
    told: str


def selective(
    benchmark: Benchmark,
    tiers: Sequence[Sequence[Prediction]],
    calibrating: NDArray[np.bool_],
    wanted: float,
    seed: int,
) -> Selective | None:
    """Selective judging by one method, None where either side has fewer than :data:`LEAST` labelled comparisons.

    Args:
        benchmark: what was judged.
        tiers: the predictions with each number of branches, the fewest first, in the benchmark's order.
        calibrating: which comparisons set thresholds, bool [n]; a query is on one side only.
        wanted: how often answers are to agree with the labels.
        seed: of the one comparison that calibrates where several share a prompt.
    """
    labelled = np.array([c.label is not None for c in benchmark.comparisons])
    prompts, ids = [benchmark.prompt_of(c) for c in benchmark.comparisons], [c.id for c in benchmark.comparisons]
    alone = partial(_one_a_prompt, prompts=prompts, ids=ids, seed=seed)
    calibrates = alone(labelled & calibrating)
    reported = labelled & ~calibrating
    if min(calibrates.sum(), reported.sum()) < LEAST:
        return None
    whole = _answers(_tiers(benchmark, tiers), calibrates, reported, alone, wanted)
    return Selective(
        tiers=tuple(f"{p.method}@{p.branches}" if p.branches else p.method for p, *_ in tiers),
        wanted=wanted,
        risk=RISK,
        whole=whole,
        told=_told(whole, wanted),
    )


def _one_a_prompt(kept: NDArray[np.bool_], prompts: Sequence[str], ids: Sequence[str], seed: int) -> NDArray[np.bool_]:
    """Of the items of one prompt one alone, drawn by the seed: the binomial test needs independent items."""
    chosen: dict[str, tuple[int, int]] = {}
    for i in np.flatnonzero(kept).tolist():
        mine = derive_seed(seed, "calibrates", ids[i]), i
        chosen[prompts[i]] = min(mine, chosen.get(prompts[i], mine))
    result = np.zeros(len(kept), dtype=bool)
    result[[i for _, i in chosen.values()]] = True
    return result


def _tiers(benchmark: Benchmark, tiers: Sequence[Sequence[Prediction]]) -> Tiers:
    """The tiers as arrays. A larger number of branches holds the smaller ones, and so has spent their tokens."""
    labels = [c.label for c in benchmark.comparisons]
    right = [[p.verdict == y for p, y in zip(each, labels, strict=True)] for each in tiers]
    sure = [[_confidence(p) for p in each] for each in tiers]
    spent = [[p.cost.generated_tokens for p in each] for each in tiers]
    return Tiers(np.array(sure, dtype=float), np.array(right, dtype=bool), np.array(spent, dtype=float))


def _confidence(prediction: Prediction) -> float:
    """How sure a verdict is: the size of its margin, 0 where there is none."""
    if prediction.verdict not in ("A", "B", "tie"):
        return NEVER
    return 0.0 if prediction.margin is None else abs(prediction.margin)


def _answers(
    tiers: Tiers,
    calibrates: NDArray[np.bool_],
    reported: NDArray[np.bool_],
    alone: Callable[[NDArray[np.bool_]], NDArray[np.bool_]],
    wanted: float,
) -> Answers:
    n, items = int(reported.sum()), int(calibrates.sum())
    sequence = thresholds(tiers.confidence[:, reported], items, wanted, RISK)
    threshold = certified(tiers.part(calibrates), sequence, wanted, RISK)
    if threshold is None:
        return Answers(n=n, calibrated=items, threshold=None)
    everything, asked = tiers.ask(threshold), tiers.part(reported).ask(threshold)
    independent = everything.right[alone(reported & everything.answered)]
    tokens, answered = float(asked.tokens.mean()), len(independent)
    return Answers(
        n=n,
        calibrated=items,
        threshold=round(threshold, 6),
        coverage=round(asked.coverage, 6),
        agreement=None if asked.agreement is None else round(asked.agreement, 6),
        bound=round(lower_bound(int(independent.sum()), answered, RISK), 6) if answered else None,
        tokens=None if np.isnan(tokens) else round(tokens, 3),
        tiers=tuple(round(float((asked.tier == i).mean()), 6) for i in range(len(tiers.right))),
    )


def _told(whole: Answers, wanted: float) -> str:
    sure, asked = f"{100 * (1 - RISK):g}%", f"{100 * wanted:g}%"
    if whole.threshold is None:
        return f"abstains: no threshold passes for {asked} on {whole.calibrated} comparisons"
    seen = "–" if whole.agreement is None else f"{100 * whole.agreement:.1f}%"
    return (
        f"answers {100 * whole.coverage:.0f}% of the comparisons; of these at least {asked} agree, with {sure} "
        f"confidence ({seen} seen on {whole.n} others)"
    )
