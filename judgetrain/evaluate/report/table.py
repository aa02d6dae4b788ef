"""What a table of a report is, and how numbers become text: here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import yaml

from judgetrain.evaluate.metrics.intervals import Interval
from judgetrain.evaluate.metrics.registry import Unit

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
    ) -> Table:
        """A table of records, a row each; ``note`` follows what :func:`notes` says of tables with its title."""
        cells = [tuple(str(cell(row)) for cell in columns.values()) for row in rows]
        told = " ".join(n for n in (notes().get(title, ""), note) if n)
        return cls(title, tuple(columns), cells, told, names, folded)


def share(name: str, digits: int = 1, scale: int = 100) -> Callable[[Any], str]:
    """A cell: an attribute (``a.b``) in percent, with its interval where the record has one (``..._ci``)."""
    path, _, last = name.rpartition(".")

    def cell(row: Any) -> str:
        owner = attrgetter(path)(row) if path else row
        return bounded(getattr(owner, last), getattr(owner, f"{last}_ci", None), digits, scale)

    return cell


def value(name: str, unit: Unit, ends: bool = False) -> Callable[[Any], str]:
    """A cell: an attribute in its unit, with the ``ends`` of its interval where the record has one (``..._ci``)."""

    def cell(row: Any) -> str:
        found = getattr(row, f"{name}_ci", None) if ends else None
        brackets = f" [{', '.join(formatted(end, unit) for end in found)}]" if found else ""
        return formatted(getattr(row, name), unit) + brackets

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
    return number(value, {"integer": 0, "tenths": 1, "hundredths": 2}[unit])


def bounded(value: float | None, ends: Interval | None, digits: int, scale: int = 1) -> str:
    """A number with its interval."""
    brackets = f" [{scale * ends[0]:.{digits}f}, {scale * ends[1]:.{digits}f}]" if ends else ""
    return number(value, digits, scale) + brackets
