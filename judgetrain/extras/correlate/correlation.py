"""How ratings and scores of the same responses go together (glass-box paper, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.evaluate.metrics.intervals import with_intervals
from judgetrain.extras.correlate.columns import Column, Item, Row
from judgetrain.scorers.probdiff import average

KINDS = ("pearson", "kendall", "spearman")
DIGITS = 4
"""Of a published row, all of which are to be the same."""


def correlate(
    ratings: Sequence[Column],
    scores: Sequence[Column],
    published: Mapping[str, Sequence[float]],
    resamples: int,
    seed: int,
) -> list[Row]:
    """Every score, and every other rating, against each rating: by benchmark and model, in the order of the columns.

    A row is over the ``n`` responses of a model on a benchmark that have both; ``without``: rated responses that have
    no score. Correlations are of the score times ``better``, so that more of it is better; None where one is not
    defined. Intervals resample prompts whole, all turns of one together.

    ``published`` rows, by ``BENCHMARK/MODEL/SCORE`` and without signs, are about the first rating. ``same``: whether
    all three are so to four digits, but for signs; None where nothing is printed. One that has no score has n 0.
    """
    printed = {_named(name): list(given) for name, given in published.items()}
    result = []
    for number, rating in enumerate(ratings):
        open_ = dict(printed) if number == 0 else {}
        for (benchmark, model), items in _cells(rating.values).items():
            for column in (*scores, *(other for other in ratings if other is not rating)):
                if any(item in column.values for item in items):
                    own = open_.pop((benchmark, model, column.name), None)
                    result.append(_row(rating, column, items, own, resamples, seed))
        for (benchmark, model, score), found in open_.items():
            row = {"rating": rating.name, "benchmark": benchmark, "model": model, "score": score, "better": 1}
            nothing = dict.fromkeys([*KINDS, *(f"{kind}_ci" for kind in KINDS)])
            result.append({**row, "n": 0, "without": 0, **nothing, "published": found, "same": False})
    return result


def _named(name: str) -> tuple[str, str, str]:
    """Benchmark, model and score of a published row; a model's name may hold slashes."""
    benchmark, _, rest = name.partition("/")
    model, _, score = rest.rpartition("/")
    return benchmark, model, score


def _cells(values: Iterable[Item]) -> dict[tuple[str, str], list[Item]]:
    """The items by benchmark and model."""
    result: dict[tuple[str, str], list[Item]] = {}
    for item in values:
        result.setdefault((item.benchmark, item.model), []).append(item)
    return result


def _row(
    rating: Column, score: Column, items: Sequence[Item], printed: list[float] | None, resamples: int, seed: int
) -> Row:
    both = [item for item in items if item in score.values]
    x, y = [score.better * score.values[item] for item in both], [rating.better * rating.values[item] for item in both]
    cell = {"benchmark": items[0].benchmark, "model": items[0].model}
    own = derive_seed(seed, rating.name, score.name, *cell.values())
    found = with_intervals(x, y, resamples, own, [item.id for item in both])
    sizes = [None if found[kind] is None else round(abs(found[kind]), DIGITS) for kind in KINDS]
    same = None if printed is None else sizes == [abs(value) for value in printed]
    row = {"rating": rating.name, **cell, "score": score.name, "better": score.better}
    return {**row, "n": len(both), "without": len(items) - len(both), **found, "published": printed, "same": same}


def means(
    ratings: Sequence[Column], categories: Mapping[Item, str | None], confident: Mapping[Item, bool]
) -> Iterator[Row]:
    """Ratings and confidence side by side (ProbDiff paper, table 5): a row a benchmark, category and model.

    ``confident``: whether an answer's discrepancy is at least the threshold; items that have none are left out.
    Category ``all`` is the whole benchmark.
    """
    groups: dict[tuple[str, str, str], list[Item]] = {}
    for item, category in categories.items():
        for name in dict.fromkeys(("all", category or "all")):
            groups.setdefault((item.benchmark, name, item.model), []).append(item)
    for (benchmark, category, model), items in sorted(groups.items(), key=lambda g: (g[0][0], g[0][1] != "all", g[0])):
        given = {r.name: average([r.values.get(item) for item in items]) for r in ratings}
        yield {
            "benchmark": benchmark,
            "category": category,
            "model": model,
            "n": len(items),
            "ratings": {name: value for name, value in given.items() if value is not None},
            "confidence": average([confident.get(item) for item in items]),
        }
