"""What a table of a report is, how numbers become text, and the tables of a benchmark from rows of the result files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import yaml

from judgetrain.evaluate.metrics.groups import Group
from judgetrain.evaluate.metrics.intervals import Interval
from judgetrain.evaluate.metrics.paired import PairedComparison
from judgetrain.evaluate.metrics.rows import COLUMNS, MetricRow, Unit

Cells = tuple[str, ...]
Columns = dict[str, Callable[[Any], Any]]
"""What gives a record's cells, by the columns' headers."""
TEMPLATES = Path(__file__).with_name("templates")


@cache
def notes() -> dict[str, str]:
    """What the tables of reports mean, by their titles (``templates/notes.yaml``)."""
    found: dict[str, str] = yaml.safe_load((TEMPLATES / "notes.yaml").read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class Table:
    """A table of a report, all of it text; the first ``names`` columns hold names and are set to the left.

    A ``folded`` table is folded on the page however short it is.
    """

    title: str
    headers: Cells
    cells: Sequence[Cells]
    explanation: str
    names: int = 1
    folded: bool = False

    @classmethod
    def of(
        cls, title: str, rows: Iterable[Any], columns: Columns, note: str = "", names: int = 1, folded: bool = False
    ) -> "Table":
        """A table of records, a row each; ``note`` follows what :func:`notes` says of tables with its title."""
        cells = [tuple(str(cell(row)) for cell in columns.values()) for row in rows]
        told = " ".join(n for n in (notes().get(title, ""), note) if n)
        return cls(title, tuple(columns), cells, told, names, folded)


def value(name: str, unit: Unit = "percent", ends: bool = True) -> Callable[[Any], str]:
    """A cell: an attribute (``a.b``) in its unit, with the ``ends`` of its interval where there is one (``..._ci``)."""
    path, _, last = name.rpartition(".")

    def cell(row: Any) -> str:
        owner = attrgetter(path)(row) if path else row
        found = getattr(owner, f"{last}_ci", None) if ends else None
        brackets = within(*(formatted(end, unit) for end in found)) if found else ""
        return formatted(getattr(owner, last), unit) + brackets

    return cell


def percent(value: float | None) -> str:
    """A share as a percentage with one decimal; a dash for None."""
    return number(value, 1, 100)


def signed(value: float | None) -> str:
    """A difference of shares in percentage points with its sign; a dash for None."""
    return "–" if value is None else f"{100 * value:+.1f}"


def number(value: float | None, digits: int = 2, scale: int = 1) -> str:
    """A number; a dash for None."""
    return "–" if value is None else f"{scale * value:.{digits}f}"


def formatted(value: float | None, unit: Unit) -> str:
    """A metric's value in its unit; a dash for None."""
    if unit in ("percent", "points"):
        return percent(value) if unit == "percent" else signed(value)
    if unit == "seconds":
        return "–" if value is None else f"{value:.3g}"
    return number(value, {"integer": 0, "tenths": 1, "hundredths": 2, "thousandths": 3}[unit])


def within(low: str, high: str) -> str:
    """An interval behind a number."""
    return f" ({low} to {high})" if "-" in low + high else f" ({low}–{high})"


Rows = Sequence[MetricRow]
Row = Mapping[str, Any]

EXACT = "; at 0 and 100% Clopper and Pearson's exact one; else none below ten prompts"
BALANCED = "Length-balanced: mean of the agreement where the longer response is better and where the shorter one is."


NAME: Columns = {"method": attrgetter("method"), "branches": lambda row: str(row.branches or "–")}
ASKED: Columns = {"asked": lambda row: row.asked or "–", "plan": lambda row: row.plan or "–"}
AGREED: Columns = {
    "agreement %": value("agreement"),
    "consistency %": lambda row: value("consistency")(row) if row.plan or not row.asked else "–",
}
SPENT: Columns = {
    "tokens": value("generated_tokens", "integer"),
    "unreadable %": value("unreadable"),
    "no verdict %": value("no_verdict"),
}
"""Columns by their headers."""


def asked(rows: Rows) -> Columns:
    """The columns that say how judges were asked; none where no row has anything to say."""
    return ASKED if any(row.asked or row.plan for row in rows) else {}


def one_each(rows: Rows) -> list[MetricRow]:
    """Each method once, with its largest number of branches."""
    best: dict[str, MetricRow] = {}
    for row in rows:
        if row.branches >= best.get(row.method, row).branches:
            best[row.method] = row
    return list(best.values())


def front(rows: Rows) -> Table:
    """The few judges that are read first."""
    columns: Columns = NAME | {"n": attrgetter("n")}
    columns |= AGREED | {"tokens": SPENT["tokens"], "seconds": value("seconds", "seconds")}
    return Table.of("Judges", rows, columns)


def results(rows: Rows) -> Table:
    """The headline."""
    shared = [r for r in rows if r.n_prompts is not None and r.n_prompts < r.n]
    over = "over comparisons"
    if shared:
        over = f"over the {shared[0].n_prompts} prompts that the {shared[0].n} comparisons share, each resampled whole"
    columns: Columns = NAME | asked(rows)
    columns |= AGREED | SPENT
    columns["length-balanced %"] = value("length_balanced")
    return Table.of("Results", rows, columns, f"Brackets: 95% bootstrap interval {over}{EXACT}. {BALANCED}")


def declared(title: str, rows: Rows) -> Table:
    """A table of the metrics that name it in their column, a row a method and number of branches."""
    shown = {
        name: column
        for name, column in COLUMNS.items()
        if column.table == title
        if not column.sparse or any(getattr(row, name) is not None for row in rows)
    }
    columns: Columns = {c.header: value(name, c.unit) for name, c in shown.items()}
    return Table.of(title, rows, NAME | columns, folded=True)


def ratings(rows: Rows) -> Table:
    """Correlations of scores with ratings, or of margins with labels."""
    columns: Columns = {"method": attrgetter("method"), "n": attrgetter("n")}
    columns |= {n.capitalize(): value(f"correlations.{n}", "thousandths") for n in ("pearson", "kendall", "spearman")}
    return Table.of("Correlations", [r for r in rows if r.correlations], columns)


def by_group(rows: Rows) -> Table:
    """Agreement by group, every method with its largest number of branches."""
    shown = [r for r in one_each(rows) if r.groups]
    columns: Columns = {"group": itemgetter(0), "n": lambda item: item[1].n}
    columns |= {str(r.key): partial(lambda groups, item: _agreement(groups, item[0]), r.groups) for r in shown}
    groups = (shown[0].groups or {}).items() if shown else ()
    return Table.of("Agreement by group", groups, columns, folded=True)


def by_domain(rows: Rows) -> Table:
    """Agreement by domain, a coarse group: every method with every number of branches (branching paper, table 2)."""
    shown = [r for r in rows if r.domains]
    domains = (shown[0].domains or {}) if shown else {}
    columns: Columns = {
        f"{domain} ({group.n})": partial(lambda name, row: _agreement(row.domains, name), domain)
        for domain, group in domains.items()
    }
    return Table.of("Agreement by domain", shown, NAME | columns | {"all": value("agreement", ends=False)})


def _agreement(groups: Mapping[str, Group] | None, name: str) -> str:
    """Agreement on one group; a dash where a method has no comparison of it."""
    found = (groups or {}).get(name)
    return percent(found.agreement if found else None)


def differences(paired: Sequence[PairedComparison]) -> Table:
    """Paired differences in agreement."""
    columns: Columns = {
        "first": attrgetter("first"),
        "second": attrgetter("second"),
        "difference": lambda r: points(r.agreement_difference, r.agreement_difference_ci),
        "bootstrap p": lambda r: "< 0.001" if (r.bootstrap_p or 1) < 0.001 else number(r.bootstrap_p, 3),
    }
    return Table.of("Differences", paired, columns, names=2, folded=True)


def points(difference: float | None, ends: Interval | None) -> str:
    """A difference of shares in percentage points, with its interval."""
    return signed(difference) + (f" ({signed(ends[0])} to {signed(ends[1])})" if ends else "")


@dataclass(frozen=True, kw_only=True)
class Sections:
    """What an extra shows of a benchmark: tables before all others, in front and behind."""

    first: Sequence[Table] = ()
    front: Sequence[Table] = ()
    folded: Sequence[Table] = ()
