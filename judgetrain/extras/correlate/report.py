"""The page of stage ``correlate``: tables of correlations by rating and benchmark, variants, and means."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from judgetrain.evaluate.report.table import Columns, Table, number, percent, within

Row = dict[str, Any]
KINDS = ("pearson", "kendall", "spearman")
TITLE = "Ratings against scores"
NOTE = (
    "Correlations of the score with the rating, turned so that more is better (↓: less of it is, and its sign is "
    "changed); 95% intervals resample prompts. without: rated responses that have no score. "
)
PUBLISHED = "paper: Pearson, Kendall, Spearman as printed, which is without signs; same: to four digits, but for signs."


def tables(rows: Sequence[Row], means: Sequence[Row]) -> list[Table]:
    """Return the page's tables, those without rows left out.

    Args:
        rows: of :func:`judgetrain.extras.correlate.stage.correlate`.
        means: of :func:`judgetrain.extras.correlate.stage.means`.
    """
    # Ratings in the order of the configuration, and of each the benchmarks in the order of its rows.
    page: list[Table] = []
    for rating in dict.fromkeys(row["rating"] for row in rows):
        rating_rows = [row for row in rows if row["rating"] == rating]
        for benchmark in dict.fromkeys(row["benchmark"] for row in rating_rows):
            benchmark_rows = [row for row in rating_rows if row["benchmark"] == benchmark]
            page.append(_correlations(rating, benchmark, benchmark_rows))
        page.append(_variants(rating, rating_rows))
    page.append(_means(means))
    return [table for table in page if table.cells]


def _correlations(rating: str, benchmark: str, rows: Sequence[Row]) -> Table:
    """Return the correlations with one rating on one benchmark."""
    columns: Columns = {
        "model": itemgetter("model"),
        "score": _score,
        "n": itemgetter("n"),
        "without": itemgetter("without"),
    }
    for kind in KINDS:
        columns[kind.capitalize()] = _with_interval(kind)
    note = NOTE
    # Most users have no published figures: the columns of a paper would be dashes to them.
    if any(row["published"] for row in rows):
        columns["paper"] = _published
        columns["same"] = _same
        note += PUBLISHED
    return Table.of(f"{rating} on {benchmark}", rows, columns, note, names=2)


def _with_interval(kind: str) -> Callable[[Row], str]:
    """Return a function that writes a row's correlation of this kind with its interval."""

    def cell(row: Row) -> str:
        text = number(row[kind], 4)
        interval = row[f"{kind}_ci"]
        if interval:
            low, high = interval
            text += within(number(low, 4), number(high, 4))
        return text

    return cell


def _published(row: Row) -> str:
    """Return the published correlations of a row, as printed."""
    if not row["published"]:
        return "–"
    return " / ".join(f"{value:.4f}" for value in row["published"])


def _same(row: Row) -> str:
    """Return whether a row's published correlations are ours, in a word."""
    if row["published"] and not row["n"]:
        return "no data"
    return {True: "yes", False: "no", None: "–"}[row["same"]]


def _score(row: Row) -> str:
    """Return a score's name with an arrow to where it is better; without one where there are no values."""
    if not row["n"]:
        return str(row["score"])
    if row["better"] > 0:
        return f"{row['score']} ↑"
    return f"{row['score']} ↓"


def _variants(rating: str, rows: Sequence[Row]) -> Table:
    """Return scores with references and without side by side (glass-box paper, table 2)."""
    by_score: dict[tuple[str, str, str], dict[str, float | None]] = {}
    for row in rows:
        # A variant is written behind its score: ``bertscore+reference``.
        score, plus, reference = row["score"].partition("+")
        variants = by_score.setdefault((row["benchmark"], row["model"], score), {})
        variants[plus + reference] = row["pearson"]
    # A score that was computed in one way alone is in the other tables.
    varied = [(*cell, variants) for cell, variants in by_score.items() if set(variants) - {""}]
    names: dict[str, None] = {}
    for *_, variants in varied:
        names |= dict.fromkeys(sorted(variants))
    columns: Columns = {"benchmark": itemgetter(0), "model": itemgetter(1), "score": itemgetter(2)}
    for name in names:
        columns[name or "alone"] = _entry(3, name, 4)
    return Table.of(f"{rating}: with references, Pearson", varied, columns, names=3)


def _entry(place: Any, name: str, digits: int) -> Callable[[Any], str]:
    """Return a function that writes a number of the mapping at ``place`` of a row."""
    return lambda row: number(row[place].get(name), digits)


def _means(means: Sequence[Row]) -> Table:
    """Return mean ratings by category; empty where there is nothing but categories to show."""
    columns: Columns = {name: itemgetter(name) for name in ("benchmark", "category", "model", "n")}
    names = len(columns)
    for mean in means:
        for rating in mean["ratings"]:
            # A rating that is about some benchmarks alone has its column all the same, with dashes elsewhere.
            columns.setdefault(rating, _entry("ratings", rating, 2))
    if any(mean["confidence"] is not None for mean in means):
        columns["confidence %"] = lambda mean: percent(mean["confidence"])
    note = "Means of the ratings; confidence: share of answers whose discrepancy is at least -0.05."
    rows = means
    if len(columns) == names:
        rows = ()
    return Table.of("Means by category", rows, columns, note, names=3)
