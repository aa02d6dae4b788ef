"""The results of stage ``studies`` as JSON, Markdown and a page with plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from operator import attrgetter, itemgetter
from typing import Any, Self

import numpy as np

from judgetrain.artifacts.chart import Chart, Point
from judgetrain.evaluate.metrics import correlations
from judgetrain.evaluate.report.table import Columns, Table, number, percent, share
from judgetrain.extras.probdiff_studies import comparing
from judgetrain.extras.probdiff_studies.comparing import Rank
from judgetrain.extras.probdiff_studies.conflicts import Verdicts, kappas
from judgetrain.extras.probdiff_studies.duels import Duel
from judgetrain.extras.probdiff_studies.measures import Repetition, Spread
from judgetrain.extras.probdiff_studies.models import ALL, SelfEvaluated, groups_of
from judgetrain.scorers import probdiff

CURVE = 40
"""Points of a confidence curve."""
THRESHOLDS = (0.0, 0.05, 0.1)
"""Of win, tie and lose: discrepancies that differ by less are a tie."""
MOST = 0.95
"""Share of falls that the curve's axis holds: the few largest would flatten it."""


@dataclass(frozen=True)
class Conflict:
    """``degree`` over the ``n`` prompts with d and verdict; ``without``: prompts with d but no verdict."""

    degree: float | None
    n: int
    without: int


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """A model's confidence at a threshold over the ``n`` prompts of a group that have a d."""

    model: str
    group: str
    delta: float
    n: int
    confidence: float | None


@dataclass(frozen=True, kw_only=True)
class Studies:
    """Everything that the stage found; ``d`` is by model, over the prompts that all models have."""

    d: Mapping[str, Sequence[float | None]]
    sweep: Mapping[str, Mapping[float, float | None]]
    ranking: Sequence[Rank]
    outcomes: Sequence[dict[str, Any]]
    conflicts: Mapping[str, Conflict]
    kappas: Mapping[tuple[str, str], float | None]
    by_group: Sequence[Grouped]
    duels: Sequence[Duel]
    official: Mapping[str, Mapping[str, float]]
    repetition: Sequence[Repetition]
    spread: Sequence[Spread]

    @classmethod
    def of(
        cls,
        models: Mapping[str, SelfEvaluated],
        repetition: Sequence[Repetition],
        spread: Sequence[Spread],
        verdicts: Mapping[str, Verdicts],
        duels: Sequence[Duel],
        official: Mapping[str, Mapping[str, float]],
    ) -> Self:
        """All of it from the models' discrepancies; the first model is the run's own, whom verdicts are about."""
        ids = list(next(iter(models.values())).d)
        d = {name: [model.d[i] for i in ids] for name, model in models.items()}
        own = next(iter(d.values()))
        return cls(
            d=d,
            sweep={name: probdiff.confidence_sweep(values) for name, values in d.items()},
            ranking=comparing.ranking(d),
            outcomes=[
                {"first": a, "second": b, "threshold": t, **asdict(comparing.win_tie_lose(d[a], d[b], t))}
                for a, b in combinations(d, 2)
                for t in THRESHOLDS
            ],
            conflicts={name: _conflict(own, [found.get(i) for i in ids]) for name, found in verdicts.items()},
            kappas=kappas(verdicts),
            by_group=list(_by_group(models)),
            duels=duels,
            official=official,
            repetition=repetition,
            spread=spread,
        )

    @property
    def model(self) -> str:
        """The run's own model."""
        return next(iter(self.d))

    @property
    def deviation(self) -> float | None:
        """Mean over prompts of the standard deviation of their answers' log-probabilities."""
        return probdiff.average([s.deviation for s in self.spread if s.logprobs])

    def to_json(self) -> dict[str, Any]:
        """``studies.json``."""
        return {
            "repetition": [asdict(row) for row in self.repetition],
            "spread": {
                "deviation": self.deviation,
                "deviations": [s.deviation if s.logprobs else None for s in self.spread],
                "answers": [len(s.logprobs) for s in self.spread],
            },
            "ranking": [asdict(rank) for rank in self.ranking],
            "sweep": {name: {f"{k:g}": v for k, v in found.items()} for name, found in self.sweep.items()},
            "outcomes": list(self.outcomes),
            "conflicts": {name: asdict(found) for name, found in self.conflicts.items()},
            "kappas": [{"of": list(who), "kappa": value} for who, value in self.kappas.items()],
            "by_group": [asdict(row) for row in self.by_group],
            "duels": [asdict(duel) for duel in self.duels],
            "official": self._official(),
        }

    def tables(self) -> list[Table]:
        """The tables, those without rows left out."""
        compared = self._ranked(), self._beside(), self._grouped(), self._outcomes(), self._duels()
        judged = self._conflicts(), self._agreed()
        return [table for table in (*compared, *judged, self._repeated(), self._deviations()) if table.cells]

    def _official(self) -> list[dict[str, Any]]:
        """How the order of models by confidence goes with that of each official score: over a group of its name alone.

        Scores that no group has the name of are set beside the confidence over all prompts.
        """
        result = []
        for name, given in self.official.items():
            group = name if any(row.group == name for row in self.by_group) else ALL
            here = [row for row in self.by_group if (row.group, row.delta) == (group, probdiff.DELTA)]
            both = [(r.confidence, given[r.model]) for r in here if r.model in given and r.confidence is not None]
            found = correlations(*zip(*both, strict=True)) if both else {}
            ranks = {kind: found.get(kind) for kind in ("kendall", "spearman")}
            result.append({"score": name, "prompts": group, "models": len(both), **ranks})
        return result

    def _beside(self) -> Table:
        columns: Columns = {"official score": itemgetter("score")}
        columns |= {name: itemgetter(name) for name in ("prompts", "models")}
        columns |= {"Kendall": lambda r: number(r["kendall"]), "Spearman": lambda r: number(r["spearman"])}
        return Table.of("Beside official scores", self._official(), columns)

    def _grouped(self) -> Table:
        """Confidence by source and category, a row a model and threshold (the paper: tables 2, 3 and 7)."""
        groups = list(dict.fromkeys(row.group for row in self.by_group))
        by: dict[tuple[float, str], dict[str, Grouped]] = {}
        for row in self.by_group:
            by.setdefault((row.delta, row.model), {})[row.group] = row
        columns: Columns = {"threshold": lambda item: f"{item[0][0]:g}", "model": lambda item: item[0][1]}
        first = next(iter(by.values()), {})
        columns |= {f"{group} ({first[group].n}) %": _confidence_in(group) for group in groups}
        return Table.of("Confidence by group", by.items() if len(groups) > 1 else (), columns, names=2)

    def _duels(self) -> Table:
        columns: Columns = {name: attrgetter(name) for name in ("group", "first", "second", "n", "without")}
        columns |= {f"{name} %": share(name) for name in ("win", "tie", "lose")}
        columns |= {"confidence %": share("confidence"), "its confidence %": share("other_confidence")}
        return Table.of("Answers judged against each other", self.duels, columns, names=3)

    def _agreed(self) -> Table:
        known = [value for value in self.kappas.values() if value is not None]
        rows = [*((f"{a}, {b}", value) for (a, b), value in self.kappas.items())]
        rows += [("mean", sum(known) / len(known))] if len(known) > 1 else []
        columns: Columns = {"annotators": itemgetter(0), "kappa": lambda row: number(row[1], 3)}
        return Table.of("Kappa of annotators", rows, columns)

    def _ranked(self) -> Table:
        columns: Columns = {name: attrgetter(name) for name in ("model", "place", "n")}
        columns |= {name: _given(given) for name, given in self.official.items()}
        columns |= {"d": lambda r: number(r.mean, 4)}
        columns |= {f"confidence {delta:g} %": self._confident(delta) for delta in self.sweep[self.model]}
        return Table.of("Models by confidence", self.ranking, columns, f"Places: at {probdiff.DELTA:g}.")

    def _confident(self, delta: float) -> Callable[[Rank], str]:
        return lambda rank: percent(self.sweep[rank.model][delta])

    def _outcomes(self) -> Table:
        columns: Columns = {name: itemgetter(name) for name in ("first", "second")}
        columns |= {"threshold": lambda o: f"{o['threshold']:g}", "n": itemgetter("n")}
        columns |= {"win %": lambda o: percent(o["win"]), "tie %": lambda o: percent(o["tie"])}
        columns |= {"lose %": lambda o: percent(o["lose"])}
        return Table.of("Win, tie, lose", self.outcomes, columns, names=2)

    def _conflicts(self) -> Table:
        columns: Columns = {
            "verdicts of": itemgetter(0),
            "conflict %": lambda item: percent(item[1].degree),
            "n": lambda item: item[1].n,
            "no verdict": lambda item: item[1].without,
        }
        return Table.of("Conflicts with verdicts", self.conflicts.items(), columns)

    def _repeated(self) -> Table:
        columns: Columns = {
            "answers": lambda r: f"x - x{r.repetition}",
            "n": attrgetter("n"),
            "similarity %": share("similarity"),
            "exact match %": share("exact_match"),
        }
        return Table.of("Repeated answers", self.repetition, columns)

    def _deviations(self) -> Table:
        answers = sum(len(s.logprobs) for s in self.spread)
        columns: Columns = {
            "model": attrgetter("model"),
            "prompts": lambda found: len(found.spread),
            "answers": lambda found: answers,
            "deviation": lambda found: number(found.deviation, 4),
        }
        return Table.of("Spread of log-probability", [self] if answers else (), columns)


def _by_group(models: Mapping[str, SelfEvaluated]) -> Iterator[Grouped]:
    first = next(iter(models.values()))
    for group, ids in groups_of(first.d, first.categories).items():
        for name, model in models.items():
            d = [model.d[i] for i in ids]
            n = sum(x is not None for x in d)
            for delta, value in probdiff.confidence_sweep(d).items():
                yield Grouped(model=name, group=group, delta=delta, n=n, confidence=value)


def _confidence_in(group: str) -> Callable[[tuple[Any, Mapping[str, Grouped]]], str]:
    return lambda item: percent(item[1][group].confidence)


def _given(official: Mapping[str, float]) -> Callable[[Rank], str]:
    return lambda rank: number(official.get(rank.model))


def _conflict(d: Sequence[float | None], verdicts: Sequence[int | None]) -> Conflict:
    there = [v for x, v in zip(d, verdicts, strict=True) if x is not None]
    found = sum(v is not None for v in there)
    return Conflict(comparing.conflict_degree(d, verdicts), found, len(there) - found)


def charts(found: Studies) -> list[Chart]:
    """The plots that have anything to show."""
    return [chart for chart in (_confidence(found), _spread(found)) if any(chart.series.values())]


def _confidence(found: Studies) -> Chart:
    """Confidence by how far a revision's log-probability may fall (the threshold's size), a line a model."""
    falls = [max(0.0, -x) for values in found.d.values() for x in values if x is not None]
    most = max(0.1, float(np.quantile(falls, MOST))) if falls else 0.1
    series = {}
    for name, values in found.d.items():
        shares = [(most * i / CURVE, probdiff.confidence(values, -most * i / CURVE)) for i in range(CURVE + 1)]
        series[name] = [Point(x, y, f"{name}: {percent(y)}% at {-x:.3g}") for x, y in shares if y is not None]
    label = "fall of log-probability that still counts as confident, nats"
    return Chart(title="Confidence by threshold", x_label=label, series=series)


def _spread(found: Studies) -> Chart:
    """Every sampled answer's log-probability, a line a prompt (paper: figure 2)."""
    series = {str(i): [Point(n, x) for n, x in enumerate(s.logprobs)] for i, s in enumerate(found.spread)}
    title = f"Sampled answers, a line a prompt; {found.model}: mean standard deviation {number(found.deviation, 3)}"
    return Chart(title=title, x_label="answer; up: log-probability a token, nats", series=series, plain=True)
