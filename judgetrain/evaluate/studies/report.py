"""The results of stage ``studies`` as JSON, Markdown and a page with plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Self

import numpy as np

from judgetrain.artifacts.pages import render
from judgetrain.evaluate.report.chart import Chart, Point
from judgetrain.evaluate.report.page import TEMPLATES
from judgetrain.evaluate.report.sections import Table, number, percent
from judgetrain.evaluate.report.text import table_lines
from judgetrain.evaluate.studies.conflicts import Verdicts
from judgetrain.scorers import discrepancy
from judgetrain.scorers.discrepancy import LengthReport, Rank
from judgetrain.scorers.finished import SelfEvaluated
from judgetrain.scorers.studies import Repetition, Spread

REPETITION = (
    "The first answer against those after being asked for the same once more (paper: table 1). Similarity: mean cosine "
    "of sentence embeddings. A model that knows the answer repeats it."
)
SPREAD = (
    "Answers sampled to each prompt, their mean log-probability per token; deviation: its standard deviation over "
    "the answers to a prompt, mean over prompts (paper: figure 2, less is expected of a better model)."
)
RANKING = "d: log p(revised) - log p(answer) per token. Confidence: share of prompts with d at least the threshold."
OUTCOMES = "Prompt by prompt the model with the higher d wins; a tie where they differ by at most the threshold."
CONFLICTS = (
    "Share of prompts on which the sign of d and the verdict contradict each other (paper: table 6). Verdicts of a "
    "judge count where both orders say the same; a revision without a change counts as unchanged."
)
LENGTHS = (
    "Changed: share of revisions whose length in tokens changes by more than 20%. Slope: d per unit of log length "
    "ratio. Kept: prompts with less change alone. Controlled: what length explains is taken out of d (what it would be "
    "at equal length)."
)
CURVE = 40
"""Points of a confidence curve."""
WIN_TIE_LOSE = ("win", "tie", "lose")
MOST = 0.95
"""Share of falls that the curve's axis holds: the few largest would flatten it."""


@dataclass(frozen=True)
class Conflict:
    """``degree`` over the ``n`` prompts with d and verdict; ``without``: prompts with d but no verdict."""

    degree: float | None
    n: int
    without: int


@dataclass(frozen=True, kw_only=True)
class Studies:
    """Everything that the stage found; ``d`` is by model, over the prompts that all models have."""

    d: Mapping[str, Sequence[float | None]]
    delta: float
    sweep: Mapping[str, Mapping[float, float | None]]
    ranking: Sequence[Rank]
    outcomes: Sequence[dict[str, Any]]
    lengths: Mapping[str, LengthReport | None]
    conflicts: Mapping[str, Conflict]
    repetition: Sequence[Repetition]
    spread: Sequence[Spread]

    @classmethod
    def of(
        cls,
        models: Mapping[str, SelfEvaluated],
        repetition: Sequence[Repetition],
        spread: Sequence[Spread],
        verdicts: Mapping[str, Verdicts],
        thresholds: Sequence[float],
        delta: float,
        sweep: Sequence[float],
    ) -> Self:
        """All of it from the models' discrepancies; the first model is the run's own, whom verdicts are about."""
        ids = list(next(iter(models.values())).d)
        d = {name: [model.d[i] for i in ids] for name, model in models.items()}
        ratios = {name: [model.length_ratios[i] for i in ids] for name, model in models.items()}
        own = next(iter(d.values()))
        deltas = sorted({*sweep, delta}, reverse=True)
        return cls(
            d=d,
            delta=delta,
            sweep={name: discrepancy.confidence_sweep(values, deltas) for name, values in d.items()},
            ranking=discrepancy.ranking(d, delta),
            outcomes=[
                {"first": a, "second": b, "threshold": t, **asdict(discrepancy.win_tie_lose(d[a], d[b], t))}
                for a, b in combinations(d, 2)
                for t in thresholds
            ],
            lengths={name: discrepancy.length_report(d[name], ratios[name], delta) for name in d},
            conflicts={name: _conflict(own, [found.get(i) for i in ids]) for name, found in verdicts.items()},
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
        return discrepancy.mean([s.deviation for s in self.spread if s.logprobs])

    def to_json(self) -> dict[str, Any]:
        """``studies.json``."""
        lengths = {
            name: None if report is None else {k: v for k, v in asdict(report).items() if k != "controlled"}
            for name, report in self.lengths.items()
        }
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
            "lengths": lengths,
        }

    def tables(self) -> Iterator[Table]:
        """The tables, those without rows left out."""
        for table in (self._ranked(), self._outcomes(), self._conflicts(), self._lengths(), *self._hypotheses()):
            if table.cells:
                yield table

    def _ranked(self) -> Table:
        deltas = list(self.sweep[self.model])
        cells = [
            (r.model, str(r.place), str(r.n), number(r.mean, 4), *(percent(self.sweep[r.model][x]) for x in deltas))
            for r in self.ranking
        ]
        headers = ("model", "place", "n", "d", *(f"confidence {x:g} %" for x in deltas))
        return Table("Models by confidence", headers, cells, f"{RANKING} Places: at {self.delta:g}.")

    def _outcomes(self) -> Table:
        cells = [
            (o["first"], o["second"], f"{o['threshold']:g}", str(o["n"]), *(percent(o[k]) for k in WIN_TIE_LOSE))
            for o in self.outcomes
        ]
        headers = ("first", "second", "threshold", "n", *(f"{k} %" for k in WIN_TIE_LOSE))
        return Table("Win, tie, lose", headers, cells, OUTCOMES, names=2)

    def _conflicts(self) -> Table:
        cells = [(name, percent(c.degree), str(c.n), str(c.without)) for name, c in self.conflicts.items()]
        return Table("Conflicts with verdicts", ("verdicts of", "conflict %", "n", "no verdict"), cells, CONFLICTS)

    def _lengths(self) -> Table:
        headers = ("model", "n", "changed %", "mean change %", "slope", "kept d", "kept confidence %")
        cells = [
            (
                *(name, str(r.n), percent(r.changed), percent(r.mean_change), number(r.slope, 3)),
                *(number(r.kept_mean, 4), percent(r.kept_confidence)),
                *(number(r.controlled_mean, 4), percent(r.controlled_confidence)),
            )
            for name, r in self.lengths.items()
            if r is not None
        ]
        return Table("Length", (*headers, "controlled d", "controlled confidence %"), cells, LENGTHS)

    def _hypotheses(self) -> Iterator[Table]:
        again = [
            (f"x - x{r.repetition}", str(r.n), percent(r.similarity), percent(r.exact_match)) for r in self.repetition
        ]
        yield Table("Repeated answers", ("answers", "n", "similarity %", "exact match %"), again, REPETITION)
        answers = sum(len(s.logprobs) for s in self.spread)
        row = (self.model, str(len(self.spread)), str(answers), number(self.deviation, 4))
        headers = ("model", "prompts", "answers", "deviation")
        yield Table("Spread of log-probability", headers, [row] if answers else [], SPREAD)


def _conflict(d: Sequence[float | None], verdicts: Sequence[int | None]) -> Conflict:
    there = [v for x, v in zip(d, verdicts, strict=True) if x is not None]
    found = sum(v is not None for v in there)
    return Conflict(discrepancy.conflict_degree(d, verdicts), found, len(there) - found)


def markdown(found: Studies) -> str:
    """The tables as Markdown."""
    lines = [f"# ProbDiff studies: {found.model}", ""]
    return "\n".join([*lines, *(line for table in found.tables() for line in table_lines(table))])


def html_page(found: Studies) -> str:
    """The tables and plots as one page that needs nothing else."""
    charts = [chart for chart in (_confidence(found), _spread(found)) if any(chart.series.values())]
    title = f"ProbDiff studies: {found.model}"
    return render(TEMPLATES / "studies.html", title=title, charts=charts, tables=found.tables())


def _confidence(found: Studies) -> Chart:
    """Confidence by how far a revision's log-probability may fall (the threshold's size), a line a model."""
    falls = [max(0.0, -x) for values in found.d.values() for x in values if x is not None]
    most = max(0.1, float(np.quantile(falls, MOST))) if falls else 0.1
    series = {}
    for name, values in found.d.items():
        shares = [(most * i / CURVE, discrepancy.confidence(values, -most * i / CURVE)) for i in range(CURVE + 1)]
        series[name] = [Point(x, y, f"{name}: {percent(y)}% at {-x:.3g}") for x, y in shares if y is not None]
    label = "fall of log-probability that still counts as confident, nats"
    return Chart(title="Confidence by threshold", x_label=label, series=series)


def _spread(found: Studies) -> Chart:
    """Every sampled answer's log-probability, a line a prompt (paper: figure 2)."""
    series = {str(i): [Point(n, x) for n, x in enumerate(s.logprobs)] for i, s in enumerate(found.spread)}
    title = f"Sampled answers, a line a prompt; {found.model}: mean standard deviation {number(found.deviation, 3)}"
    return Chart(title=title, x_label="answer; up: log-probability a token, nats", series=series, plain=True)
