"""How ratings and scores of the same responses go together (glass-box paper, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.evaluate.metrics.registry import Interval
from judgetrain.evaluate.metrics.statistics import with_intervals
from judgetrain.extras.correlate.columns import Column, Item

KINDS = ("pearson", "kendall", "spearman")
DIGITS = 4
"""Of a published row, all of which are to be the same."""


@dataclass(frozen=True, kw_only=True)
class Correlated:
    """A score against a rating, over the ``n`` responses of a model on a benchmark that have both.

    Correlations are of the score times ``better``, so that more of it is better; None where one is not defined.
    ``without``: rated responses that have no score. ``published``: what a paper prints, without signs; ``same``:
    whether all three are the same to four digits, but for signs, None where nothing is printed.
    """

    rating: str
    benchmark: str
    model: str
    score: str
    better: int
    n: int
    without: int
    pearson: float | None = None
    kendall: float | None = None
    spearman: float | None = None
    pearson_ci: Interval | None = None
    kendall_ci: Interval | None = None
    spearman_ci: Interval | None = None
    published: tuple[float, ...] | None = None
    same: bool | None = None

    @property
    def state(self) -> str:
        """How it stands to the published row."""
        if self.published is None:
            return "–"
        return "no data" if not self.n else "yes" if self.same else "no"


def correlate(
    ratings: Sequence[Column],
    scores: Sequence[Column],
    published: Mapping[str, Sequence[float]],
    resamples: int,
    seed: int,
) -> list[Correlated]:
    """Every score, and every other rating, against each rating: by benchmark and model, in the order of the columns.

    ``published`` rows, by ``BENCHMARK/MODEL/SCORE``, are about the first rating; one of which there is no score gives a
    row with ``n`` 0.
    Intervals resample prompts whole, all turns of one together.
    """
    printed = {_named(name): tuple(given) for name, given in published.items()}
    result = []
    for number, rating in enumerate(ratings):
        open_ = dict(printed) if number == 0 else {}
        for (benchmark, model), items in _cells(rating.values).items():
            for column in (*scores, *(other for other in ratings if other is not rating)):
                if any(item in column.values for item in items):
                    own = open_.pop((benchmark, model, column.name), None)
                    result.append(_row(rating, column, items, own, resamples, seed))
        for (benchmark, model, score), found in open_.items():
            named: dict[str, Any] = {"benchmark": benchmark, "model": model, "score": score, "rating": rating.name}
            result.append(Correlated(**named, better=1, n=0, without=0, published=found, same=False))
    return result


def _named(name: str) -> tuple[str, str, str]:
    """Benchmark, model and score of a published row; a model's name may hold slashes."""
    benchmark, _, rest = name.partition("/")
    model, _, score = rest.rpartition("/")
    return benchmark, model, score


def _cells(values: Mapping[Item, float]) -> dict[tuple[str, str], list[Item]]:
    """The items by benchmark and model."""
    result: dict[tuple[str, str], list[Item]] = {}
    for item in values:
        result.setdefault((item.benchmark, item.model), []).append(item)
    return result


def _row(
    rating: Column, score: Column, items: Sequence[Item], printed: tuple[float, ...] | None, resamples: int, seed: int
) -> Correlated:
    both = [item for item in items if item in score.values]
    x, y = [score.better * score.values[item] for item in both], [rating.values[item] for item in both]
    y = [rating.better * value for value in y]
    own = derive_seed(seed, rating.name, score.name, items[0].benchmark, items[0].model)
    found = with_intervals(x, y, resamples, own, [item.id for item in both])
    if printed is not None:
        sizes = [None if found[kind] is None else round(abs(found[kind]), DIGITS) for kind in KINDS]
        found |= {"published": printed, "same": sizes == [abs(value) for value in printed]}
    return Correlated(
        rating=rating.name,
        benchmark=items[0].benchmark,
        model=items[0].model,
        score=score.name,
        better=score.better,
        n=len(both),
        without=len(items) - len(both),
        **found,
    )


@dataclass(frozen=True, kw_only=True)
class Mean:
    """Means of a model's ratings in a category of a benchmark (``all``: of the whole), and ProbDiff's confidence."""

    benchmark: str
    category: str
    model: str
    n: int
    ratings: Mapping[str, float]
    confidence: float | None


def means(
    ratings: Sequence[Column], categories: Mapping[Item, str | None], confident: Mapping[Item, bool]
) -> Iterator[Mean]:
    """Ratings and confidence side by side (ProbDiff paper, table 5): a row a benchmark, category and model.

    ``confident``: whether an answer's discrepancy is at least the threshold; items that have none are left out.
    """
    groups: dict[tuple[str, str, str], list[Item]] = {}
    for item, category in categories.items():
        for name in dict.fromkeys(("all", category or "all")):
            groups.setdefault((item.benchmark, name, item.model), []).append(item)
    for (benchmark, category, model), items in sorted(groups.items(), key=lambda g: (g[0][0], g[0][1] != "all", g[0])):
        known = [confident[item] for item in items if item in confident]
        given = {r.name: [r.values[item] for item in items if item in r.values] for r in ratings}
        yield Mean(
            benchmark=benchmark,
            category=category,
            model=model,
            n=len(items),
            ratings={name: sum(values) / len(values) for name, values in given.items() if values},
            confidence=sum(known) / len(known) if known else None,
        )
