"""The tables of a report: their cells as text, and those of a benchmark, made of rows of the result files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import yaml

from judgetrain.amounts import amount
from judgetrain.data.intervals import Interval
from judgetrain.evaluate.metrics.groups import GroupAgreement
from judgetrain.evaluate.metrics.paired import PairedComparison
from judgetrain.evaluate.metrics.rows import MetricRow, Unit
from judgetrain.evaluate.metrics.rows import columns as declared_columns

Cells = tuple[str, ...]
Columns = dict[str, Callable[[Any], Any]]
"""The functions that return a record's cells, by the columns' headers."""
# Beside this file, and part of the package.
TEMPLATES = Path(__file__).with_name("templates")


@cache
def notes() -> dict[str, str]:
    """Return the explanations of reports' tables by their titles (``templates/notes.yaml``)."""
    explanations: dict[str, str] = yaml.safe_load((TEMPLATES / "notes.yaml").read_text(encoding="utf-8"))
    return explanations


@dataclass(frozen=True)
class Table:
    """A table of a report, all of it text.

    Args:
        title: of the table.
        headers: of its columns.
        cells: by row.
        explanation: stands below it.
        names: how many of the first columns hold names, which are set to the left.
        folded: True: the table is folded on the page however short it is.
    """

    title: str
    headers: Cells
    cells: Sequence[Cells]
    explanation: str
    names: int = 1
    folded: bool = False

    @classmethod
    def of(cls, title: str, rows: Iterable[Any], columns: Columns, note: str = "", names: int = 1) -> "Table":
        """Return a table of records, a row each.

        Args:
            title: of the table.
            rows: the records.
            columns: by header what a cell shows of a record.
            note: follows the explanation that :func:`notes` has of tables with this title.
            names: as of the class.
        """
        cells = []
        for row in rows:
            cells.append(tuple(str(cell(row)) for cell in columns.values()))
        # By the title: a table of an extra is explained where all others are.
        explanation = " ".join(text for text in (notes().get(title, ""), note) if text)
        return cls(title, tuple(columns), cells, explanation, names)

    def fold(self) -> "Table":
        """Return the table as one that is folded on the page however short it is."""
        return replace(self, folded=True)


def value(name: str, unit: Unit = "percent", ends: bool = True) -> Callable[[Any], str]:
    """Return a function that returns an attribute of a record as text.

    Args:
        name: of the attribute, as ``a.b``.
        unit: of the value.
        ends: True: with the ends of its interval (the attribute ``..._ci``), where there is one.
    """
    path, _, last = name.rpartition(".")

    def cell(row: Any) -> str:
        owner = row
        if path:
            owner = attrgetter(path)(row)
        text = formatted(getattr(owner, last), unit)
        interval = getattr(owner, f"{last}_ci", None)
        # Fewer than ten prompts give no interval.
        if not ends or not interval:
            return text
        low, high = interval
        return text + within(formatted(low, unit), formatted(high, unit))

    return cell


def percent(value: float | None) -> str:
    """Return a share as a percentage with one decimal; a dash for None."""
    return number(value, 1, 100)


def signed(value: float | None) -> str:
    """Return a difference of shares in percentage points with its sign; a dash for None."""
    if value is None:
        return "–"
    return f"{100 * value:+.1f}"


def number(value: float | None, digits: int = 2, scale: int = 1) -> str:
    """Return ``scale`` times a number with so many decimals; a dash for None."""
    if value is None:
        return "–"
    return f"{scale * value:.{digits}f}"


_DIGITS = {"integer": 0, "tenths": 1, "hundredths": 2, "thousandths": 3}


def formatted(value: float | None, unit: Unit) -> str:
    """Return a metric's value in its unit; a dash for None."""
    if value is None:
        return "–"
    if unit == "percent":
        return percent(value)
    if unit == "points":
        return signed(value)
    if unit == "seconds":
        # Seconds go from thousandths to hours: three digits that count serve all of them.
        return f"{value:.3g}"
    return number(value, _DIGITS[unit])


def within(low: str, high: str) -> str:
    """Return an interval as it stands behind a number."""
    # Between negative numbers a dash would read like another sign.
    if "-" in low or "-" in high:
        return f" ({low} to {high})"
    return f" ({low}–{high})"


Rows = Sequence[MetricRow]
Row = Mapping[str, Any]

# Parts of the note under the results.
EXACT = "; at 0 and 100% Clopper and Pearson's exact one; none below ten prompts"
EVERY_PAIR = (
    "Every pair: share of prompts of which every pair is right in both orders, the plain mean over groups; groups that "
    "are published by a rule of their own are left out. It is what is published of this benchmark; the agreement over "
    "single pairs is not."
)
BALANCED = "Length-balanced: mean of the agreement where the longer response is better and where the shorter one is."


def _branches(row: MetricRow) -> str:
    """Return the number of branches; a dash for a method without branches."""
    return str(row.branches or "–")


def _consistency(row: MetricRow) -> str:
    """Return the consistency; a dash for a judge that is shown no order, for which it says nothing."""
    # A judge that is asked and has no plan reads one response at a time.
    if row.asked and not row.plan:
        return "–"
    return value("consistency")(row)


# Columns by their headers.
NAME: Columns = {"method": attrgetter("method"), "branches": _branches}
ASKED: Columns = {"asked": lambda row: row.asked or "–", "plan": lambda row: row.plan or "–"}
SPENT: Columns = {
    "tokens": value("generated_tokens", "integer"),
    "unreadable %": value("unreadable"),
    "no verdict %": value("no_verdict"),
}


def agreed(rows: Rows) -> Columns:
    """Return the columns of agreement and consistency.

    Where a published figure counts prompts, it stands first, and agreement says that it is over pairs.
    """
    if any(row.every_pair is not None for row in rows):
        return {"every pair %": value("every_pair"), "pairs %": value("agreement"), "consistency %": _consistency}
    return {"agreement %": value("agreement"), "consistency %": _consistency}


def asked(rows: Rows) -> Columns:
    """Return the columns that say how judges were asked; none where no row says anything."""
    if any(row.asked or row.plan for row in rows):
        return ASKED
    return {}


def one_each(rows: Rows) -> list[MetricRow]:
    """Return each method once, with its largest number of branches."""
    best: dict[str, MetricRow] = {}
    for row in rows:
        # A method's first row is compared with itself.
        if row.branches >= best.get(row.method, row).branches:
            best[row.method] = row
    return list(best.values())


def best_row(rows: Rows) -> MetricRow:
    """Return the row of the highest agreement, of equal ones that with the fewest branches: the way to ask a judge.

    Args:
        rows: of one method on one benchmark, at least one, each with an agreement.
    """
    return max(rows, key=lambda row: (row.agreement or 0.0, -row.branches))


def front(rows: Rows) -> Table:
    """Return the table of the few judges that are read first."""
    columns: Columns = {
        **NAME,
        "n": attrgetter("n"),
        **agreed(rows),
        "tokens": SPENT["tokens"],
        "seconds": value("seconds", "seconds"),
    }
    return Table.of("Judges", rows, columns)


def results(rows: Rows) -> Table:
    """Return the main table: agreement, consistency and what could not be read, by method."""
    items = "over comparisons"
    for row in rows:
        if row.n_prompts is not None and row.n_prompts < row.n:
            items = (
                f"over the {amount(row.n_prompts, 'prompt')} that the {amount(row.n, 'comparison')} share, each "
                "resampled whole"
            )
            break
    columns = {**NAME, **asked(rows), **agreed(rows), **SPENT, "length-balanced %": value("length_balanced")}
    note = f"Brackets: 95% bootstrap interval {items}{EXACT}. {BALANCED}"
    if any(row.every_pair is not None for row in rows):
        note = f"{note} {EVERY_PAIR}"
    return Table.of("Results", rows, columns, note)


def declared(title: str, rows: Rows) -> Table:
    """Return a table of the metrics that name it in their column, a row a method and number of branches."""
    columns = dict(NAME)
    for name, column in declared_columns().items():
        if column.table != title:
            continue
        has_value = any(getattr(row, name) is not None for row in rows)
        if has_value or not column.sparse:
            columns[column.header] = value(name, column.unit)
    return Table.of(title, rows, columns).fold()


def ratings(rows: Rows) -> Table:
    """Return the table of correlations of scores with ratings, or of margins with labels."""
    columns: Columns = {"method": attrgetter("method"), "n": attrgetter("n")}
    for name in ("pearson", "kendall", "spearman"):
        columns[name.capitalize()] = value(f"correlations.{name}", "thousandths")
    return Table.of("Correlations", [row for row in rows if row.correlations], columns)


def by_group(rows: Rows) -> Table:
    """Return the table of agreement by group, every method with its largest number of branches."""
    with_groups = [row for row in one_each(rows) if row.groups]
    columns: Columns = {"group": itemgetter(0), "n": lambda item: item[1].n}
    for row in with_groups:
        # A partial function, as a lambda would read the loop's last row.
        columns[str(row.key)] = partial(_group_cell, row.groups)
    groups: Mapping[str, GroupAgreement] = {}
    if with_groups:
        # All methods judged the same comparisons, so that the first one names all groups.
        groups = with_groups[0].groups or {}
    return Table.of("Agreement by group", groups.items(), columns).fold()


def _group_cell(groups: Mapping[str, GroupAgreement] | None, item: tuple[str, GroupAgreement]) -> str:
    """Return a method's agreement on the group of a row."""
    name, _ = item
    return _agreement(groups, name)


def every_pair_by_group(rows: Rows) -> Table:
    """Return the table of prompts of which every pair is right, by group."""
    with_groups = [row for row in one_each(rows) if row.every_pair_groups]
    columns: Columns = {"group": itemgetter(0), "prompts": lambda item: item[1].n}
    for row in with_groups:
        columns[str(row.key)] = partial(_group_cell, row.every_pair_groups)
    groups: Mapping[str, GroupAgreement] = {}
    if with_groups:
        groups = with_groups[0].every_pair_groups or {}
    return Table.of("Every pair by group", groups.items(), columns).fold()


def by_domain(rows: Rows) -> Table:
    """Return the table of agreement by domain, a coarse group, with every number of branches (paper, table 2)."""
    with_domains = [row for row in rows if row.domains]
    domains: Mapping[str, GroupAgreement] = {}
    if with_domains:
        domains = with_domains[0].domains or {}
    columns = dict(NAME)
    for domain, group in domains.items():
        columns[f"{domain} ({group.n})"] = partial(_domain_cell, domain)
    # Without its interval, which stands in the results.
    columns["all"] = value("agreement", ends=False)
    return Table.of("Agreement by domain", with_domains, columns)


def _domain_cell(domain: str, row: MetricRow) -> str:
    """Return a row's agreement on a domain."""
    return _agreement(row.domains, domain)


def _agreement(groups: Mapping[str, GroupAgreement] | None, name: str) -> str:
    """Return the agreement on one group; a dash where a method has no comparison of it."""
    if not groups or name not in groups:
        return percent(None)
    return percent(groups[name].agreement)


def differences(paired: Sequence[PairedComparison]) -> Table:
    """Return the table of paired differences in agreement."""
    columns: Columns = {
        "first": attrgetter("first"),
        "second": attrgetter("second"),
        "difference": lambda row: points(row.agreement_difference, row.agreement_difference_ci),
        "bootstrap p": _p_value,
    }
    return Table.of("Differences", paired, columns, names=2).fold()


def _p_value(row: PairedComparison) -> str:
    """Return the p of a difference to three decimals."""
    # Three decimals would show 0.000.
    if row.bootstrap_p is not None and 0 < row.bootstrap_p < 0.001:
        return "< 0.001"
    return number(row.bootstrap_p, 3)


def points(difference: float | None, ends: Interval | None) -> str:
    """Return a difference of shares in percentage points, with its interval."""
    if not ends:
        return signed(difference)
    low, high = ends
    return f"{signed(difference)} ({signed(low)} to {signed(high)})"


@dataclass(frozen=True, kw_only=True)
class Sections:
    """The tables that an extra shows of a benchmark.

    Args:
        first: before all others.
        front: before the results.
        folded: behind all others.
    """

    first: Sequence[Table] = ()
    front: Sequence[Table] = ()
    folded: Sequence[Table] = ()
