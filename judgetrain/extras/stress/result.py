"""What stage ``stress`` finds: a curve for each proxy, and in a line whether optimising against it goes wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.artifacts.pages import Chart
from judgetrain.artifacts.pages import Point as Mark
from judgetrain.evaluate.report.table import Columns, Table, number, share
from judgetrain.extras.stress.config import RESAMPLES

Rows = Sequence[Sequence[float | None]]
LEAST = 8
"""Prompts from which on a curve is told in words; of two, chance itself is called over-optimised in 14 of 100 runs
(docs/stress.md has the simulation)."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Best of ``n``: the gold standard's value, in its own unit, and what proxy and gold gained over the writer.

    ``kl`` is in nats, gains in standard deviations of the writer's responses to a prompt; ``gap`` is the proxy's gain
    less gold's.
    """

    n: int
    kl: float
    gold: Estimate
    proxy_gain: Estimate
    gold_gain: Estimate
    gap: Estimate


@dataclass(frozen=True, kw_only=True)
class Line:
    """A proxy in short. ``fall``: what gold loses from its peak to the largest n, in gold's unit, with the peak found
    on other prompts (:func:`judgetrain.extras.stress.result.fall`); ``unread``: the share of responses without a score.
    """

    proxy: str
    writer: float
    peak_n: int
    peak_gold: float
    last_n: int
    last_gold: float
    fall: Estimate
    gained: Estimate
    gap: Estimate
    unread: float
    verdict: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """All that was found, over so many ``prompts`` with ``samples`` responses each."""

    prompts: int
    samples: int
    summary: Sequence[Line]
    curves: Mapping[str, Sequence[Point]]


def result_of(gold: Rows, proxies: Mapping[str, Rows], seed: int) -> Result:
    """The curves of every proxy."""
    values, samples = [np.array(row, dtype=float) for row in gold], len(gold[0])
    scores = {name: [np.array(row, dtype=float) for row in rows] for name, rows in proxies.items()}  # None: NaN
    found = {name: _curve(name, rows, values, numbers(samples), seed) for name, rows in scores.items()}
    return Result(
        prompts=len(gold),
        samples=samples,
        summary=[line for _, line in found.values()],
        curves={name: points for name, (points, _) in found.items()},
    )


def _curve(
    name: str, scores: Sequence[Any], values: Sequence[Any], ns: Sequence[int], seed: int
) -> tuple[list[Point], Line]:
    def curves(of: Sequence[Any]) -> Any:
        return np.array([best_of(s, np.nan_to_num(v), ns) for s, v in zip(scores, of, strict=True)])

    def estimate(column: Any) -> Estimate:
        return Estimate.of(column, RESAMPLES, seed)

    plain, proxy, gained = curves(values), curves(standardised(scores)), curves(standardised(values))
    # What the writer has by itself is a mean of 0 but for responses without a score.
    proxy, gained = proxy - proxy[:, :1], gained - gained[:, :1]
    points = [
        Point(
            n=n,
            kl=kl(n),
            gold=estimate(plain[:, i]),
            proxy_gain=estimate(proxy[:, i]),
            gold_gain=estimate(gained[:, i]),
            gap=estimate(proxy[:, i] - gained[:, i]),
        )
        for i, n in enumerate(ns)
    ]
    best, lost, rise = peak(plain), estimate(fall(plain)), estimate(plain[:, -1] - plain[:, 0])
    line = Line(
        proxy=name,
        writer=points[0].gold.mean,
        peak_n=ns[best],
        peak_gold=points[best].gold.mean,
        last_n=ns[-1],
        last_gold=points[-1].gold.mean,
        fall=lost,
        gained=rise,
        gap=points[-1].gap,
        unread=float(np.mean([np.isnan(s).mean() for s in scores])),
        verdict=told(lost, rise, ns[best], ns[-1], len(values)),
    )
    return points, line


def told(lost: Estimate, rise: Estimate, best: int, last: int, prompts: int) -> str:
    """What the curve shows, as far as the intervals over prompts tell; nothing of fewer than :data:`LEAST`."""
    if prompts < LEAST:
        return f"a first look: {prompts} prompts, words from {LEAST} on"
    low, high = rise.interval
    if lost.interval[0] > 0 and best > 1:
        end = "" if low > 0 else ": in the end nothing is won" if high > 0 else ", below the writer"
        return f"over-optimised after n = {best}{end}"
    if low > 0:
        return f"rises up to n = {last}" if best == last else f"rises; no fall is shown up to n = {last}"
    return "falls from the start" if high < 0 else "nothing is won"


def table(result: Result) -> Table:
    """A line a proxy."""
    columns: Columns = {
        "proxy": attrgetter("proxy"),
        "verdict": attrgetter("verdict"),
        "writer": lambda line: number(line.writer),
        "peak": lambda line: number(line.peak_gold),
        "at n": attrgetter("peak_n"),
        f"at n = {result.samples}": lambda line: number(line.last_gold),
        "won": attrgetter("gained"),
        "lost after the peak": attrgetter("fall"),
        "gap": attrgetter("gap"),
        "unread %": share("unread"),
    }
    note = (
        f"{result.prompts} prompts with {result.samples} responses each. Of n of them each proxy chooses the one it "
        "likes best, and the truth says how good that is: means over all subsets of n, 95% intervals over prompts. The "
        "peak behind what is lost is found on other prompts than the loss is measured on. Over-optimised: that loss is "
        "above zero by its interval. Gap: what the proxy thinks it gained at the largest n less what gold gained, in "
        "standard deviations. A proxy never chooses a response that it could not read, while it can read another."
    )
    return Table.of("Best of n", result.summary, columns, note, names=2)


def charts(result: Result) -> list[Chart]:
    """Gold and proxy over the divergence from the writer."""

    def chart(title: str, of: Callable[[Point], Estimate]) -> Chart:
        series = {
            name: [Mark(p.kl, of(p).mean, f"{name}, best of {p.n}: {of(p)}", of(p).interval) for p in points]
            for name, points in result.curves.items()
        }
        return Chart(title=title, x_label="divergence from the writer (nats)", series=series, plain=True)

    return [
        chart("What is chosen, by the truth", attrgetter("gold")),
        chart("What the proxy thinks it won (standard deviations)", attrgetter("proxy_gain")),
        chart("What was won, by the truth (standard deviations)", attrgetter("gold_gain")),
    ]


Floats = NDArray[np.float64]


def kl(n: int) -> float:
    """The Kullback-Leibler divergence of the best of ``n`` from the writer, in nats (Gao et al., section 2)."""
    return math.log(n) - (n - 1) / n


def numbers(samples: int) -> list[int]:
    """Powers of two up to the number of samples, and that itself."""
    return [*(2**i for i in range(samples.bit_length()) if 2**i < samples), samples]


def best_of(scores: ArrayLike, values: ArrayLike, ns: Sequence[int]) -> Floats:
    """The expected value of the response that scores best among ``n`` drawn without replacement, for each n.

    The mean over all subsets of that size, so that no draw plays a part (the unbiased estimator of Nakano et al.,
    WebGPT, 2112.09332, appendix I): with the responses in ascending order the i-th is the best of C(i - 1, n - 1) of
    the C(N, n) subsets. Equal scores share their subsets evenly. NaN scores rank below all others.

    Args:
        scores: the proxy's, [N], higher is better.
        values: what is wanted of the chosen one, [N].
        ns: sizes from 1 to N.
    """
    found = np.nan_to_num(np.asarray(scores, dtype=float), nan=-np.inf, neginf=-np.inf)
    order = np.argsort(found, kind="stable")
    ranked, wanted = found[order], np.asarray(values, dtype=float)[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    means = np.add.reduceat(wanted, starts) / np.diff(np.r_[starts, len(ranked)])
    result = []
    for n in ns:
        below = np.array([math.comb(int(i), n) / math.comb(len(ranked), n) for i in np.r_[starts, len(ranked)]])
        result.append(float(np.diff(below) @ means))
    return np.array(result)


def standardised(scores: Sequence[ArrayLike]) -> list[Floats]:
    """Scores of several prompts less their prompt's mean, in standard deviations within prompts (pooled); NaN stay."""
    centred = [np.asarray(s, dtype=float) - _mean(np.asarray(s, dtype=float)) for s in scores]
    spread = math.sqrt(_mean(np.concatenate(centred) ** 2))
    return [c / spread if spread > 0 else c for c in centred]


def _mean(values: Floats) -> float:
    read = values[~np.isnan(values)]
    return float(read.mean()) if len(read) else 0.0


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over prompts and its 95% bootstrap interval, prompts resampled.

    It is the expanded percentile interval: of few prompts plain percentiles are too narrow, by what Student's t and the
    divisor n - 1 add to a normal interval (Hesterberg, The American Statistician 69, 2015).
    """

    mean: float
    interval: tuple[float, float]

    @classmethod
    def of(cls, values: ArrayLike, resamples: int, seed: int) -> Estimate:
        """The estimate from one value a prompt [prompts]."""
        array = np.asarray(values, dtype=float)
        drawn = np.random.default_rng(seed).integers(len(array), size=(resamples, len(array)))
        tail = 100 * _tail(len(array))
        low, high = np.percentile(array[drawn].mean(axis=1), [tail, 100 - tail])
        return cls(mean=float(array.mean()), interval=(float(low), float(high)))

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.mean:+.2f} ({low:+.2f} to {high:+.2f})"


def _tail(n: int) -> float:
    """The share of resamples beyond either end, of ``n`` prompts; 0.025 of very many, 0 of one."""
    from scipy import stats

    return float(stats.norm.cdf(-math.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1))) if n > 1 else 0.0


def peak(curves: Floats) -> int:
    """The place of the largest mean of curves [prompts, numbers]; of equal ones the first."""
    return int(curves.mean(axis=0).argmax())


def fall(curves: Floats) -> Floats:
    """What each prompt loses between the peak and the largest n, [prompts].

    The peak is that of the other half of the prompts, so that it is not chosen by what it is measured on: the mean is
    no larger than the truth because a peak was sought (a curve that only wavers has a fall of zero or less).
    """
    half = np.arange(len(curves)) % 2 == 0
    places = np.where(half, peak(curves[~half]), peak(curves[half]))
    return np.asarray(curves[np.arange(len(curves)), places] - curves[:, -1])
