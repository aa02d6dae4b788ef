"""The tables of a report, each from rows of the result files; numbers become text here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from judgetrain.evaluate.metrics.choose import Choice
from judgetrain.evaluate.metrics.groups import Group
from judgetrain.evaluate.metrics.registry import Interval, Unit
from judgetrain.evaluate.metrics.rows import BIASES, COLUMNS, COST, DEFINITIONS, MetricRow

Cells = tuple[str, ...]
Rows = Sequence[MetricRow]

CONTRACT = (
    "Agreement: both orders give the label, over all items, ties included. "
    "Consistency: both orders give the same readable verdict. "
    "Tokens: generated for one verdict in one order. "
    "Unreadable: share of judgments without readable scores. "
    "No verdict: share of verdicts in which no branch could be read; these agree with nothing."
)
CHOSEN = " *: the number of branches was chosen on a development split that is not part of these numbers."
VOTES = (
    "Each person's vote is an item, also where a pair has no majority. Between people: share of equal votes among"
    " pairs of votes on one comparison, with ties and without. Brackets: 95% bootstrap interval, prompts resampled "
    "whole."
)
GLANCE = (
    "Each method once, a branching judge with the number of branches that was chosen for it, else the most. Tokens and "
    "seconds: of one verdict in one order. Variance: share of pairs of branches on one comparison that say different "
    "things. Prefers longer: share of consistent verdicts for the longer response; length bias: how much more often "
    "than labels (0 is no bias). Prefers first: among verdicts that flip with the order (50 is no bias). Parsed: share "
    "of judgments with readable scores."
)
CALIBRATION = (
    "Margin: mean score of A minus that of B. AUC: chance that an item labelled A has a larger margin than one "
    "labelled B; brackets: 95% bootstrap interval. ECE: expected calibration error of probabilities made of margins by "
    "a logistic curve, fitted on other items; a dash: too few. Items with an A or B label."
)


EXPLANATIONS = {
    DEFINITIONS: (
        "The same verdicts under other definitions. W/o ties: only items whose label is A or B. Single order: each "
        "order judged alone, mean of the two; AB and BA: that order. Conflict as tie: orders that conflict count as a"
        " tie. Both decide: agreement over the items that label and verdict both give to A or B (MT-Bench's setup 2),"
        " and their number. Every pair: share of prompts of which every pair is right. Kappa: Cohen's, conflicts as "
        "ties, unreadable items left out. A dash: not defined, or the orders are not stored apart."
    ),
    BIASES: (
        "First wins: share of verdicts for the response shown first, among those that flip with the order (50 is no "
        "bias). Longer wins: share of consistent verdicts for the longer response. Length bias: how much more often "
        "than labels on the same items (0 is no bias)."
    ),
    COST: (
        "Of one verdict in one order. Seconds are measured with the most branches; for fewer, their share by tokens. "
        "Parsed: share of judgments with readable scores."
    ),
}
"""Of the tables whose columns the metrics declare; a column's own note is added."""


@dataclass(frozen=True)
class Table:
    """A table as text; the first ``names`` columns are names, the others numbers."""

    title: str
    headers: Cells
    cells: Sequence[Cells]
    explanation: str
    names: int = 1


def percent(value: float | None) -> str:
    """A share as a percentage with one decimal; a dash for None."""
    return "–" if value is None else f"{100 * value:.1f}"


def signed(value: float | None) -> str:
    """A difference of shares in percentage points with its sign; a dash for None."""
    return "–" if value is None else f"{100 * value:+.1f}"


def number(value: float | None, digits: int = 2) -> str:
    """A number; a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def formatted(value: float | None, unit: Unit) -> str:
    """A metric's value in its unit; a dash for None."""
    if unit in ("percent", "points"):
        return percent(value) if unit == "percent" else signed(value)
    if unit == "seconds":
        return "–" if value is None else f"{value:.3g}"
    return number(value, {"integer": 0, "tenths": 1, "hundredths": 2}[unit])


def interval(value: float | None, ends: Interval | None) -> str:
    """A share with its 95% interval, in percent."""
    return percent(value) + (f" [{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]" if ends else "")


def _bounded(value: float | None, ends: Interval | None, digits: int) -> str:
    """A number with its interval."""
    return number(value, digits) + (f" [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]" if ends else "")


def name_of(row: MetricRow) -> tuple[str, str]:
    """A row's method and number of branches, with a star where that was chosen."""
    return row.method, f"{row.branches}{' *' if row.chosen else ''}" if row.branches else "–"


def spent(row: MetricRow) -> tuple[str, str, str]:
    """Generated tokens, and the shares of unreadable judgments and verdicts."""
    unreadable = row.parse_failures / row.judgments if row.judgments else None
    return number(row.generated_tokens, 0), percent(unreadable), percent(row.unreadable_verdicts / (2 * row.n))


def one_each(rows: Rows) -> list[MetricRow]:
    """Each method once: with the number of branches that was chosen for it, else with the largest."""
    best: dict[str, MetricRow] = {}
    for row in rows:
        current = best.get(row.method, row)
        if row.chosen or (not current.chosen and row.branches >= current.branches):
            best[row.method] = row
    return list(best.values())


def glance(rows: Rows) -> Table:
    """The judges side by side: agreement, cost, time, variance, preferences and share parsed."""
    shown = one_each(rows)
    cells = [
        (
            str(r.key),
            percent(r.agreement),
            percent(r.consistency),
            number(r.generated_tokens, 0),
            formatted(r.seconds, "seconds"),
            percent(r.spread),
            percent(r.longer_preference),
            signed(r.length_bias),
            percent(r.position_bias),
            percent(r.parsed),
        )
        for r in shown
    ]
    headers = (
        *("method", "agreement %", "consistency %", "tokens", "seconds", "variance %"),
        *("prefers longer %", "length bias", "prefers first %", "parsed %"),
    )
    return Table("At a glance", headers, cells if len(shown) > 1 else [], GLANCE)


HEADLINE = ("method", "branches", "agreement %", "consistency %", "tokens", "unreadable %", "no verdict %")


def results(rows: Rows) -> Table:
    """The headline."""
    cells = [
        (*name_of(r), interval(r.agreement, r.agreement_ci), interval(r.consistency, r.consistency_ci), *spent(r))
        for r in rows
    ]
    over = "over comparisons"
    for row in rows:
        if row.n_prompts is not None and row.n_prompts < row.n:
            over = f"over the {row.n_prompts} prompts that the {row.n} comparisons share, each resampled whole"
            break
    chosen_note = CHOSEN if any(r.chosen for r in rows) else ""
    return Table("Results", HEADLINE, cells, f"{CONTRACT} Brackets: 95% bootstrap interval {over}.{chosen_note}")


def declared(title: str, rows: Rows) -> Table:
    """A table of the metrics that name it in their column, a row a method and number of branches."""
    columns = {
        name: column
        for name, column in COLUMNS.items()
        if column.table == title
        if not column.sparse or any(getattr(row, name) is not None for row in rows)
    }
    cells = [(*name_of(r), *(formatted(getattr(r, name), c.unit) for name, c in columns.items())) for r in rows]
    headers = ("method", "branches", *(c.header for c in columns.values()))
    notes = (EXPLANATIONS.get(title, ""), *(c.note for c in columns.values()))
    return Table(title, headers, cells, " ".join(note for note in notes if note))


def votes(rows: Rows) -> Table:
    """Agreement with single votes."""
    cells = [
        (
            *name_of(row),
            str(v.n),
            interval(v.agreement, v.agreement_ci),
            interval(v.conflict_as_tie, v.conflict_as_tie_ci),
            percent(v.agreement_decided),
            str(v.n_decided),
            f"{percent(v.between_people)} / {percent(v.between_people_decided)}",
        )
        for row in rows
        if (v := row.votes)
    ]
    headers = ("method", "branches", "votes", "agreement %", "conflict as tie %", "both decide %", "n both decide")
    return Table("Agreement per vote", (*headers, "between people %"), cells, VOTES)


def calibration(rows: Rows) -> Table:
    """Whether larger margins are surer."""
    cells = [
        (*name_of(r), str(c.n) if c else "–", _bounded(r.auc, r.auc_ci, 2), number(c.ece if c else None, 3))
        for r in rows
        for c in [r.calibration]
        if r.auc is not None
    ]
    return Table("Calibration of margins", ("method", "branches", "n", "AUC", "ECE"), cells, CALIBRATION)


def chosen(choices: Sequence[Choice]) -> Table:
    """How the number of branches was chosen."""
    counts = sorted({k for c in choices for k in c.agreement})
    cells = [(c.method, str(c.branches), str(c.n), *(percent(c.agreement.get(k)) for k in counts)) for c in choices]
    headers = ("method", "chosen", "n", *(f"{k} %" for k in counts))
    explanation = (
        "Agreement on the development split by number of branches; the best is chosen, of equals the smallest."
    )
    return Table("Choice of branches", headers, cells, explanation)


def ratings(rows: Rows) -> Table:
    """Correlations of scores with ratings, or of margins with labels."""
    cells = [
        (
            row.method,
            str(row.n),
            _bounded(c.pearson, c.pearson_ci, 3),
            _bounded(c.kendall, c.kendall_ci, 3),
            _bounded(c.spearman, c.spearman_ci, 3),
        )
        for row in rows
        if (c := row.correlations)
    ]
    explanation = (
        "Pearson's r, Kendall's tau-b and Spearman's rho with the benchmark's ratings; for comparisons, of margins "
        "with labels (A 1, tie 0, B -1). Brackets: 95% bootstrap interval, prompts resampled whole."
    )
    return Table("Correlations", ("method", "n", "Pearson", "Kendall", "Spearman"), cells, explanation)


def by_group(rows: Rows) -> Table:
    """Agreement by group, every method with its chosen, else its largest, number of branches."""
    shown = [r for r in one_each(rows) if r.groups]
    sizes = {name: found.n for r in shown[:1] for name, found in (r.groups or {}).items()}
    cells = [(name, str(n), *(_of(r.groups, name) for r in shown)) for name, n in sizes.items()]
    headers = ("group", "n", *(str(r.key) for r in shown))
    return Table("Agreement by group", headers, cells, "Agreement in percent, method@branches.")


def by_domain(rows: Rows) -> Table:
    """Agreement by domain, a coarse group: every method with every number of branches (branching paper, table 2)."""
    shown = [r for r in rows if r.domains]
    sizes = {name: found.n for r in shown[:1] for name, found in (r.domains or {}).items()}
    cells = [(*name_of(r), *(_of(r.domains, name) for name in sizes), percent(r.agreement)) for r in shown]
    headers = ("method", "branches", *(f"{name} ({n})" for name, n in sizes.items()), "all")
    return Table("Agreement by domain", headers, cells, "Agreement in percent; in brackets the number of comparisons.")


def _of(groups: Mapping[str, Group] | None, name: str) -> str:
    """Agreement on one group; a dash where a method has no comparison of it."""
    found = (groups or {}).get(name)
    return percent(found.agreement if found else None)
