"""Win rates and agreement of a benchmark of which few comparisons are labelled, corrected by the verdicts on all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.metrics.intervals import Clusters, Interval, Z, cluster_index, score_interval, unseen
from judgetrain.evaluate.metrics.verdicts import merged
from judgetrain.judges.base import SHARES, Prediction
from judgetrain.schema import Comparison

AGREEMENT = "agreement"
"""What a record is about that is of no model."""
WORTH = 1.05
"""Verdicts add something where they are worth so many times the labels."""
Item = tuple[Comparison, float | None, float]
"""A comparison, what its label says (None: no label) and what stands in for the label, 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class Corrected:
    """A share by ``n`` labels and ``unlabelled`` verdicts, beside that by the labels alone; 95% intervals, Wilson's.

    ``about``: :data:`AGREEMENT`, or the model whose win rate it is (a tie is half a win). ``effective``: how many
    labels alone would give as narrow an interval. ``told``: the same in a sentence. All other numbers are None where
    there are too few labels for an interval.
    """

    about: str
    n: int
    unlabelled: int
    estimate: float | None = None
    estimate_ci: Interval | None = None
    alone: float | None = None
    alone_ci: Interval | None = None
    adds: bool = False
    power: float | None = None
    correlation: float | None = None
    effective: float | None = None
    told: str = ""


def corrected(
    benchmark: Benchmark, predictions: Sequence[Prediction], labels: int | None, seed: int
) -> tuple[Corrected, ...]:
    """The agreement of a method and the win rate of every model, of a benchmark with unlabelled comparisons.

    Nothing where every comparison has a label (and ``labels`` takes none away). Comparisons on which
    people voted without a majority are left out: they are not unlabelled by chance.

    Args:
        benchmark: what was judged.
        predictions: in its order.
        labels: take so many, as if the others were not known (``guarantees.labels``); None: all.
        seed: draws the labels that are taken.
    """
    both = zip(benchmark.comparisons, predictions, strict=True)
    pairs = [(c, p) for c, p in both if c.label is not None or c.id not in benchmark.votes]
    labelled = [c.id for c, _ in pairs if c.label is not None]
    drawn = sorted(labelled, key=lambda name: derive_seed(seed, "labels", name))
    taken = set(drawn if labels is None else drawn[:labels])
    if not taken or len(taken) == len(pairs):
        return ()
    found = [_mean(AGREEMENT, _agreement(pairs), benchmark, taken)]
    models = sorted({m for c, _ in pairs for m in (c.model_a, c.model_b) if m})
    for model in models if len(models) > 1 else ():
        own = [(c, p) for c, p in pairs if (c.model_a == model) != (c.model_b == model)]
        found.append(_mean(model, _wins(own, model), benchmark, taken))
    return tuple(found)


def _agreement(pairs: Sequence[tuple[Comparison, Prediction]]) -> list[Item]:
    """Whether both orders say the label, and what stands in for it: whether they say the same."""
    return [(c, None if c.label is None else float(p.verdict == c.label), float(p.verdict in SHARES)) for c, p in pairs]


def _wins(pairs: Sequence[tuple[Comparison, Prediction]], model: str) -> list[Item]:
    """1 where the model wins, 0.5 for a tie, 0 where it loses; orders that conflict, or cannot be read, tell a tie."""
    items: list[Item] = []
    for comparison, prediction in pairs:
        first, second = prediction.decided
        [said] = merged([first], [second])
        shares = [None if v is None else SHARES[v] for v in (comparison.label, said or "tie")]
        won, stood = (s if s is None or comparison.model_a == model else 1.0 - s for s in shares)
        items.append((comparison, won, 0.5 if stood is None else stood))
    return items


def _mean(about: str, items: Sequence[Item], benchmark: Benchmark, taken: set[str]) -> Corrected:
    known = [(y, f, benchmark.prompt_of(c)) for c, y, f in items if c.id in taken and y is not None]
    others = [(f, benchmark.prompt_of(c)) for c, _, f in items if c.id not in taken]
    n, rest, trials = len(known), len(others), len({prompt for *_, prompt in known})
    if trials < LEAST:
        told = f"{trials} prompts with labels are too few for an interval to be trusted: label {LEAST - trials} more"
        return Corrected(about=about, n=n, unlabelled=rest, told=told)
    labels, judged, clusters = zip(*known, strict=True)
    found = powered_mean(
        labels, judged, [f for f, _ in others], clusters=clusters, unlabelled_clusters=[p for _, p in others]
    )
    if found.variance_alone == 0:
        value, reach = found.alone, unseen(trials)
        ends = max(0.0, value - reach), min(1.0, value + reach)
        told = f"{_alike(about, value, n)}: the interval is Clopper and Pearson's, of the labels alone"
        shares = {"estimate": value, "estimate_ci": ends, "alone": value, "alone_ci": ends}
        return Corrected(about=about, n=n, unlabelled=rest, told=told, **shares)  # type: ignore[arg-type]
    interval, alone_interval = found.bounded()
    adds = found.effective >= WORTH * n
    return Corrected(
        about=about,
        n=n,
        unlabelled=rest,
        estimate=round(min(1.0, max(0.0, found.estimate)), 6),
        estimate_ci=interval,
        alone=round(found.alone, 6),
        alone_ci=alone_interval,
        power=round(found.power, 6),
        correlation=round(found.correlation, 6),
        effective=round(found.effective, 1),
        adds=adds,
        told=_worth(found, adds),
    )


def _alike(about: str, value: float, n: int) -> str:
    """What all labels have in common, in words."""
    if about == AGREEMENT:
        return f"both orders say the label on {'every one' if value else 'none'} of {n} labelled comparisons"
    return f"it {({1.0: 'wins', 0.0: 'loses'}).get(value, 'ties')} all {n} labelled comparisons"


def _worth(found: PoweredMean, adds: bool) -> str:
    if adds:
        return f"with {found.unlabelled} verdicts {found.n} labels are worth {found.effective:.0f}"
    told = f"its verdicts tell too little of the labels (correlation {found.correlation:.2f})"
    return f"the judge adds nothing: {told}, use the {found.n} labels alone"


LEAST = 30
"""Labels, or prompts that share them: an interval of fewer covers less than it says."""
UNSEEN = 0.5
"""Differences between labels and verdicts that are added to those seen; by simulation: without, 92% of 95% intervals
hold where few labels meet a judge that is seldom off."""


@dataclass(frozen=True, kw_only=True)
class PoweredMean:
    """A mean by labels and verdicts together, and by the labels alone.

    ``power``: how much the verdicts count (lambda, 0 to 1). ``variance``, ``variance_alone``: of the estimates.
    ``correlation``: of labels and verdicts on the ``n`` labelled; ``unlabelled`` have a verdict only. Normal intervals
    hold the truth too seldom where a share is near 0 or 1, and may pass it; those of :meth:`bounded` do neither.
    """

    n: int
    unlabelled: int
    estimate: float
    alone: float
    power: float
    correlation: float
    variance: float
    variance_alone: float

    @property
    def effective(self) -> float:
        """How many labels alone would give as narrow an interval (the effective sample size)."""
        return self.n * self.variance_alone / self.variance if self.variance else float(self.n)

    def bounded(self, z: float = Z) -> tuple[tuple[float, float], tuple[float, float]]:
        """Wilson's intervals of the estimate and of the labels alone, between 0 and 1; ``z``: the normal quantile.

        In place of n stand as many trials as tell as much: a(1 - a) over the variance, with a the labels' mean. How
        often a good judge is off is seen a few times only, and its variance is as often too small: it is that of half
        a difference more, no larger than without verdicts, and no smaller than if all comparisons had a label.
        """
        one = self.alone * (1 - self.alone)
        if not one or not self.variance_alone:
            raise ValueError("all labels are the same: their variance tells no number of trials")
        more = min(self.variance + UNSEEN * (self.power / self.n) ** 2, max(self.variance, self.variance_alone))
        trials = one / max(more, self.variance_alone * self.n / (self.n + self.unlabelled))
        share = min(1.0, max(0.0, self.estimate))
        return score_interval(share, trials, z), score_interval(self.alone, one / self.variance_alone, z)


def powered_mean(
    labels: ArrayLike,
    judged: ArrayLike,
    unlabelled: ArrayLike,
    clusters: Clusters = None,
    unlabelled_clusters: Clusters = None,
) -> PoweredMean:
    """The mean of labels, corrected by what the judge says of many more (PPI++, section 3 and proposition 2).

    With independent items the variance is that of the package ``ppi-python``. Where items share a cluster, variances
    sum over clusters (the influence of a cluster is that of all its items, labelled or not).

    Args:
        labels: float [n].
        judged: float [n], what the judge says of the same.
        unlabelled: float [N], what it says of those without a label.
        clusters: the prompt of each labelled item; None: items are independent.
        unlabelled_clusters: those of the others.

    Raises:
        ValueError: labels and verdicts of different length, or no label.
    """
    y, f, g = (np.asarray(values, dtype=float) for values in (labels, judged, unlabelled))
    if y.ndim != 1 or y.shape != f.shape or g.ndim != 1 or not len(y):
        raise ValueError(f"labels and verdicts [n] and verdicts [N] are needed, not {y.shape}, {f.shape}, {g.shape}")
    tuned = best_power(y, f, g)
    named = clusters is not None or unlabelled_clusters is not None
    own = range(len(y)) if clusters is None else clusters
    others = range(len(y), len(y) + len(g)) if unlabelled_clusters is None else unlabelled_clusters
    index = cluster_index([*own, *others] if named else None, len(y) + len(g))

    def of(share: float) -> tuple[float, float]:
        rest = y - share * f
        far = share * float(g.mean()) if len(g) else 0.0
        influence = np.concatenate([(rest - rest.mean()) / len(y), share * (g - g.mean()) / len(g) if len(g) else g])
        variance = float((np.bincount(index, weights=influence) ** 2).sum())
        return far + float(rest.mean()), variance

    estimate, variance = of(tuned)
    alone, variance_alone = of(0.0)
    spread = float(y.std() * f.std())
    return PoweredMean(
        n=len(y),
        unlabelled=len(g),
        estimate=estimate,
        alone=alone,
        power=tuned,
        correlation=float(np.mean((y - y.mean()) * (f - f.mean()))) / spread if spread else 0.0,
        variance=variance,
        variance_alone=variance_alone,
    )


def best_power(y: NDArray[np.float64], f: NDArray[np.float64], g: NDArray[np.float64]) -> float:
    """The lambda that makes the variance smallest (PPI++, example 6.1), from 0 to 1; 0 where verdicts tell nothing."""
    if len(g) == 0 or np.ptp(np.concatenate([f, g])) == 0:
        return 0.0
    covariance = float(np.mean((y - y.mean()) * (f - f.mean())))
    variance = float(np.var(np.concatenate([f, g]), ddof=1))
    return float(np.clip(covariance / ((1 + len(y) / len(g)) * variance), 0.0, 1.0))
