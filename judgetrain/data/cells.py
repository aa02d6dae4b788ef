"""What stands in a row's cells: labels, votes, lists, and what is said of a row that cannot be used."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeVar

T = TypeVar("T")


class RowError(ValueError):
    """A row that cannot be used; ``reason`` is short and countable, the message says what was expected.

    ``id`` is the row's own, where that could be read.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.id: str | None = None


def label_text(value: Any) -> str:
    """A label as text: whole numbers without a point, also where a file has them as floats."""
    whole = isinstance(value, bool) or (isinstance(value, float) and value.is_integer())
    return str(int(value)) if whole else str(value)


def majority(votes: Iterable[T]) -> T | None:
    """What is given most often; None where nothing is, or two are given equally often."""
    most: list[tuple[T | None, int]] = [*Counter(votes).most_common(2), (None, 0)]
    return None if len(most) > 1 and most[0][1] == most[1][1] else most[0][0]


def list_in(cell: Any) -> list[Any] | None:
    """The list that a cell holds, be it as the text of a JSON list; None of anything else."""
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            cell = json.loads(cell)
        except ValueError:
            return None
    return cell if isinstance(cell, list) else None
