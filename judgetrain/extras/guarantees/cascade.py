"""Selective judging as an evaluation reports it: thresholds set on some queries, numbers of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.metrics.intervals import bootstrap_interval
from judgetrain.evaluate.metrics.registry import Interval
from judgetrain.evaluate.metrics.statistics import paired_difference
from judgetrain.extras.guarantees.config import GuaranteesConfig
from judgetrain.extras.guarantees.selective import (
    NEVER,
    Outcomes,
    Tiers,
    certified,
    in_full,
    levels,
    lower_bound,
    reliabilities,
    thinned,
    thresholds,
    within_budget,
)
from judgetrain.judges.base import Prediction

LEAST = 20
"""Labelled comparisons on either side: of fewer nothing is said."""
POINTS = 20
"""Points of a curve."""
BUDGET = 0.3
"""Answering everything, a judge may spend this share of the tokens of its most branches."""
FITTED = 1 / 3
"""Share of the calibration side that tells what confidences are worth, where tiers have several scales."""


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


@dataclass(frozen=True)
class CurvePoint:
    """A threshold with the coverage, agreement and tokens that it comes to."""

    threshold: float
    coverage: float
    agreement: float
    tokens: float | None


@dataclass(frozen=True, kw_only=True)
class InFull:
    """The cascade that answers everything and was right most often on the calibration side within the budget.

    ``tiers``: how many are asked at most. Agreement and tokens are of the other side, as are those of the full judge
    (the last tier) and of the ``best`` single tier on the calibration side; ``share``: tokens over the full judge's;
    ``difference``: agreement less that of ``best``, with its 95% paired interval. ``fits``: False where nothing is
    within the budget, and this is the first tier alone, over it.
    """

    tiers: int
    threshold: float | None
    agreement: float
    agreement_ci: Interval | None
    tokens: float
    share: float | None
    full_agreement: float
    best: str
    best_agreement: float
    difference: float
    difference_ci: Interval | None
    fits: bool = True


@dataclass(frozen=True, kw_only=True)
class Selective:
    """A method that may abstain.

    Its ``tiers`` by name, what was ``wanted`` at which ``risk``, what it came to as a ``whole`` and by group, the
    ``curve`` of all thresholds, and the cascade ``in_full``, that never abstains (None for one tier). With a tier of
    another method in front thresholds are chances to be right.
    """

    tiers: tuple[str, ...]
    wanted: float
    risk: float
    whole: Answers
    groups: dict[str, Answers]
    curve: tuple[CurvePoint, ...]
    in_full: InFull | None
    told: str


def selective(
    benchmark: Benchmark,
    tiers: Sequence[Sequence[Prediction]],
    calibrating: NDArray[np.bool_],
    config: GuaranteesConfig,
    resamples: int,
    seed: int,
    own: str | None = None,
) -> Selective | None:
    """Selective judging by one method, None where either side has fewer than :data:`LEAST` labelled comparisons.

    With a tier of another method in front a share of the calibration side sets no threshold: it tells what the
    confidences of each tier are worth, and :data:`LEAST` of the others are needed. A verdict without a margin does not
    stand in front.

    Args:
        benchmark: what was judged.
        tiers: the predictions of each tier in the benchmark's order; the first may be another method's.
        calibrating: which comparisons set thresholds, bool [n]; a query is on one side only.
        config: ``guarantees``.
        resamples: of bootstrap intervals.
        seed: of these, and of the one comparison that calibrates where several share a prompt.
        own: the method's name; None: that of the first tier.
    """
    labelled = np.array([c.label is not None for c in benchmark.comparisons])
    prompts, ids = [benchmark.prompt_of(c) for c in benchmark.comparisons], [c.id for c in benchmark.comparisons]
    alone = partial(_one_a_prompt, prompts=prompts, ids=ids, seed=seed)
    calibrates = alone(labelled & calibrating)
    reported = labelled & ~calibrating
    if min(calibrates.sum(), reported.sum()) < LEAST:
        return None
    own = own or tiers[0][0].method
    found, names = _tiers(benchmark, tiers, own), _names(tiers)
    in_front, tests = tiers[0][0].method != own, calibrates
    if in_front:
        fits = _share(calibrates, FITTED, ids, seed)
        found, tests = reliabilities(found, fits), calibrates & ~fits
        if tests.sum() < LEAST:
            return None
    groups = np.array([c.group or "" for c in benchmark.comparisons], dtype=object)

    def answers(of: NDArray[np.bool_]) -> Answers:
        return _answers(found, tests & of, reported & of, alone, config)

    everything = np.ones(len(labelled), dtype=bool)
    whole = answers(everything)
    curve = _curve(found.part(reported))
    full = None
    if len(names) > 1 and not np.isnan(found.tokens).any():
        sides = found.part(calibrates), found.part(reported)
        clusters = [p for p, is_reported in zip(prompts, reported, strict=True) if is_reported]
        before = _spent(tiers[0]) if in_front else np.zeros(len(labelled))
        full = _in_full(*sides, names, BUDGET, resamples, seed, clusters, before[calibrates], before[reported])
    return Selective(
        tiers=names,
        wanted=config.agreement,
        risk=config.risk,
        whole=whole,
        groups={name: answers(groups == name) for name in sorted({*groups[reported]} - {""})},
        curve=curve,
        in_full=full,
        told=_told(whole, config),
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


def _share(kept: NDArray[np.bool_], share: float, ids: Sequence[str], seed: int) -> NDArray[np.bool_]:
    """A share of the items that are kept, drawn by the seed."""
    drawn = sorted(np.flatnonzero(kept).tolist(), key=lambda i: derive_seed(seed, "fits", ids[i]))
    result = np.zeros(len(kept), dtype=bool)
    result[drawn[: round(share * len(drawn))]] = True
    return result


def _spent(predictions: Sequence[Prediction]) -> NDArray[np.float64]:
    return np.array([p.cost.generated_tokens for p in predictions], dtype=float)


def _tiers(benchmark: Benchmark, tiers: Sequence[Sequence[Prediction]], own: str) -> Tiers:
    """The tiers as arrays. A larger number of branches holds the smaller ones; another method is asked beside them."""
    labels = [c.label for c in benchmark.comparisons]
    right = [[p.verdict == y for p, y in zip(each, labels, strict=True)] for each in tiers]
    front = tiers[0] if tiers[0][0].method != own else []
    sure = [[NEVER if front is each and p.margin is None else _confidence(p) for p in each] for each in tiers]
    spent = [_spent(each) + (_spent(front) if front and front is not each else 0.0) for each in tiers]
    return Tiers(np.array(sure, dtype=float), np.array(right, dtype=bool), np.array(spent))


def _confidence(prediction: Prediction) -> float:
    """How sure a verdict is: the size of its margin, 0 where there is none."""
    if prediction.verdict not in ("A", "B", "tie"):
        return NEVER
    return 0.0 if prediction.margin is None else abs(prediction.margin)


def _names(tiers: Sequence[Sequence[Prediction]]) -> tuple[str, ...]:
    return tuple(f"{p.method}@{p.branches}" if p.branches else p.method for p, *_ in tiers)


def _answers(
    tiers: Tiers,
    calibrates: NDArray[np.bool_],
    reported: NDArray[np.bool_],
    alone: Callable[[NDArray[np.bool_]], NDArray[np.bool_]],
    config: GuaranteesConfig,
) -> Answers:
    n, items = int(reported.sum()), int(calibrates.sum())
    sequence = thresholds(tiers.confidence[:, reported], items, config.agreement, config.risk) if n and items else []
    threshold = certified(tiers.part(calibrates), sequence, config.agreement, config.risk)
    if threshold is None:
        return Answers(n=n, calibrated=items, threshold=None)
    everything, asked = tiers.ask(threshold), tiers.part(reported).ask(threshold)
    independent = everything.right[alone(reported & everything.answered)]
    right, answered = int(independent.sum()), len(independent)
    return Answers(
        n=n,
        calibrated=items,
        threshold=round(threshold, 6),
        coverage=round(asked.coverage, 6),
        agreement=_rounded(asked.agreement),
        bound=round(lower_bound(right, answered, config.risk), 6) if answered else None,
        tokens=_tokens(asked),
        tiers=tuple(round(float((asked.tier == i).mean()), 6) for i in range(len(tiers.right))),
    )


def _curve(tiers: Tiers) -> tuple[CurvePoint, ...]:
    """Thresholds from the strictest to the laxest."""
    points = []
    for threshold in thinned(levels(tiers.confidence), POINTS):
        asked = tiers.ask(threshold)
        assert asked.agreement is not None
        share = round(asked.coverage, 6), round(asked.agreement, 6)
        points.append(CurvePoint(round(threshold, 6), *share, _tokens(asked)))
    return tuple(points)


def _in_full(
    calibration: Tiers,
    reported: Tiers,
    names: Sequence[str],
    budget: float,
    resamples: int,
    seed: int,
    prompts: Sequence[str],
    *before: NDArray[np.float64],
) -> InFull:
    """``before``: tokens spent in front of the judge, on either side; the full judge is asked without."""
    spent = [
        float((side.tokens[-1] - front).mean()) for side, front in zip((calibration, reported), before, strict=True)
    ]
    count, threshold, fits = within_budget(calibration, levels(calibration.confidence), budget, spent[0])
    right, tokens = in_full(reported.first(count), threshold)
    best = int(calibration.right.mean(axis=1).argmax())
    differ = paired_difference(right, reported.right[best], resamples, seed, prompts)
    assert differ is not None
    full = spent[1]
    return InFull(
        tiers=count,
        threshold=None if np.isinf(threshold) else round(threshold, 6),
        agreement=round(float(right.mean()), 6),
        agreement_ci=bootstrap_interval(right, resamples, seed, prompts),
        tokens=round(float(tokens.mean()), 3),
        share=round(float(tokens.mean()) / full, 6) if full else None,
        full_agreement=round(float(reported.right[-1].mean()), 6),
        best=names[best],
        best_agreement=round(float(reported.right[best].mean()), 6),
        difference=round(differ.mean, 6),
        difference_ci=differ.interval,
        fits=fits,
    )


def _told(whole: Answers, config: GuaranteesConfig) -> str:
    sure, wanted = f"{100 * (1 - config.risk):g}%", f"{100 * config.agreement:g}%"
    if whole.threshold is None:
        return f"abstains: no threshold passes for {wanted} on {whole.calibrated} comparisons"
    seen = "–" if whole.agreement is None else f"{100 * whole.agreement:.1f}%"
    return (
        f"answers {100 * whole.coverage:.0f}% of the comparisons; of these at least {wanted} agree, with {sure} "
        f"confidence ({seen} seen on {whole.n} others)"
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _tokens(asked: Outcomes) -> float | None:
    mean = float(asked.tokens.mean())
    return None if np.isnan(mean) else round(mean, 3)
