"""Win rates and agreement of a benchmark of which few comparisons are labelled, corrected by the verdicts on all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.metrics.intervals import Interval, unseen
from judgetrain.evaluate.metrics.verdicts import merged
from judgetrain.extras.guarantees.prediction_powered import LEAST, PoweredMean, powered_mean
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
