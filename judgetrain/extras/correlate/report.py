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
    """The page's tables, those without rows left out."""
    found: list[Table] = []
    for rating in dict.fromkeys(row["rating"] for row in rows):
        own = [row for row in rows if row["rating"] == rating]
        for benchmark in dict.fromkeys(row["benchmark"] for row in own):
            found.append(_correlations(rating, benchmark, [row for row in own if row["benchmark"] == benchmark]))
        found.append(_variants(rating, own))
    return [table for table in (*found, _means(means)) if table.cells]


def _correlations(rating: str, benchmark: str, rows: Sequence[Row]) -> Table:
    columns: Columns = {"model": itemgetter("model"), "score": _score, "n": itemgetter("n")}
    columns |= {"without": itemgetter("without"), **{kind.capitalize(): _of(kind) for kind in KINDS}}
    note = NOTE
    if any(row["published"] for row in rows):
        columns["paper"] = lambda row: " / ".join(f"{value:.4f}" for value in row["published"] or ()) or "–"
        said = {True: "yes", False: "no", None: "–"}
        columns["same"] = lambda row: "no data" if row["published"] and not row["n"] else said[row["same"]]
        note += PUBLISHED
    return Table.of(f"{rating} on {benchmark}", rows, columns, note, names=2)


def _of(kind: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        ends = row[f"{kind}_ci"]
        return number(row[kind], 4) + (within(*(number(end, 4) for end in ends)) if ends else "")

    return cell


def _score(row: Row) -> str:
    return f"{row['score']} {'↑' if row['better'] > 0 else '↓'}" if row["n"] else row["score"]


def _variants(rating: str, rows: Sequence[Row]) -> Table:
    """Scores with references and without side by side (glass-box paper, table 2)."""
    by: dict[tuple[str, str, str], dict[str, float | None]] = {}
    for row in rows:
        base, plus, variant = row["score"].partition("+")
        by.setdefault((row["benchmark"], row["model"], base), {})[plus + variant] = row["pearson"]
    varied = [(*key, found) for key, found in by.items() if set(found) - {""}]
    columns: Columns = {name: itemgetter(i) for i, name in enumerate(("benchmark", "model", "score"))}
    for variant in dict.fromkeys(name for *_, found in varied for name in sorted(found)):
        columns[variant or "alone"] = _entry(3, variant, 4)
    return Table.of(f"{rating}: with references, Pearson", varied, columns, names=3)


def _entry(place: Any, name: str, digits: int) -> Callable[[Any], str]:
    return lambda row: number(row[place].get(name), digits)


def _means(means: Sequence[Row]) -> Table:
    rated = list(dict.fromkeys(name for mean in means for name in mean["ratings"]))
    columns: Columns = {name: itemgetter(name) for name in ("benchmark", "category", "model", "n")}
    columns |= {name: _entry("ratings", name, 2) for name in rated}
    if any(mean["confidence"] is not None for mean in means):
        columns["confidence %"] = lambda mean: percent(mean["confidence"])
    note = "Means of the ratings; confidence: share of answers whose discrepancy is at least -0.05."
    return Table.of("Means by category", means if len(columns) > 4 else (), columns, note, names=3)
