"""Find the column of labels in a user's file, and what its values mean, where neither is written as readers expect."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from judgetrain.data.cells import EMPTY, NO_LABEL, WORDS, label_text, number_in
from judgetrain.data.rows.columns import DEFAULT_FIELDS

TIES = ("tie", "equal", "both", "draw", "same", "tie (bothbad)")
"""Words for two responses that are equally good, in lower case."""
SIDES = {
    **dict.fromkeys(("a", "model_a", "response_a", "first", "left"), "A"),
    **dict.fromkeys(("b", "model_b", "response_b", "second", "right"), "B"),
    **dict.fromkeys(TIES, "tie"),
}
"""Labels of two responses as people write them, in lower case."""
NUMBERS = {"0": "tie", "1": "A", "2": "B"}
"""Numbers as labels of two responses, where 2 is among them."""
LABEL_NAMES = (
    *("label", "winner", "better", "best", "prefer", "choice", "chosen", "vote", "verdict", "judgment", "judgement"),
    *("rating", "score", "grade", "human", "annotat", "pass", "correct", "quality", "accept"),
)
"""Parts of the names of columns that hold labels. Only in such columns are numbers labels: others may be a turn's."""
LEAST_KNOWN = 0.9
"""The least share of a column's values whose meaning has to be known: the others are slips of the pen."""
MOST_VALUES = 12
"""The most different values of a column of labels."""


@dataclass(frozen=True)
class Labels:
    """A column of labels.

    Args:
        column: its name.
        meanings: of its values, as ``labels`` of a source says them; empty: they say it themselves.
        fields: columns by field that have to be named beside it.
    """

    column: str
    meanings: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)


def labels_of_pairs(rows: Sequence[Mapping[str, Any]], used: Iterable[str]) -> Labels | None:
    """Return the column that says which of two responses is better, or None.

    Args:
        rows: comparisons, as they are written.
        used: columns that something else is read from.
    """
    for column, counts in _candidates(rows, used):
        meanings = _sides(column, counts)
        if meanings is not None:
            return Labels(column, meanings)
        if _names_systems(rows, column, counts):
            # The reader knows the names of a row's systems; only words for a tie are said.
            ties = {value: "tie" for value in counts if value.strip().casefold() in TIES}
            return Labels(column, ties)
    return None


def labels_of_single_responses(rows: Sequence[Mapping[str, Any]], used: Iterable[str]) -> Labels | None:
    """Return the column that says how good single responses are, or None: words, 0 and 1, or 1 to 5.

    Args:
        rows: as they are written.
        used: columns that something else is read from.
    """
    for column, counts in _candidates(rows, used):
        if not _is_named_as_labels(column):
            continue
        words = sum(count for value, count in counts.items() if value.strip().casefold() in WORDS)
        numbers = [number for number in map(number_in, counts.elements()) if number is not None]
        are_words = words >= LEAST_KNOWN * counts.total()
        are_numbers = len(numbers) >= LEAST_KNOWN * counts.total() and 0 <= min(numbers) < max(numbers) <= 5
        if are_words or are_numbers:
            return Labels(column)
    return None


def responses_by_system(rows: Sequence[Mapping[str, Any]]) -> Labels | None:
    """Return the columns of a table whose responses stand under their systems' names, and whose labels name these.

    As ``prompt, gpt, llama, winner`` with ``gpt`` or ``llama`` in the column ``winner``. None for any other table.

    Args:
        rows: as they are written.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if any(name in columns for name in DEFAULT_FIELDS["response_a"]):
        return None
    for column, counts in _candidates(rows, ()):
        systems = [name for name in columns if name in counts and name != column]
        ties = {value: "tie" for value in counts if value.strip().casefold() in TIES}
        known = sum(counts[value] for value in (*systems, *ties))
        if len(systems) == 2 and known >= LEAST_KNOWN * counts.total():
            first, second = systems
            meanings = {first: "A", second: "B", **ties}
            return Labels(column, meanings, {"response_a": first, "response_b": second, "label": column})
    return None


def slips(counts: Mapping[str, int], known: int) -> dict[str, str]:
    """Return the meanings of labels that say nothing, if they are few beside those that say something.

    Args:
        counts: numbers of rows by label without a meaning.
        known: number of rows whose labels have one.
    """
    unknown = sum(counts.values())
    if not unknown or known < LEAST_KNOWN * (known + unknown):
        return {}
    return dict.fromkeys(counts, NO_LABEL)


def _candidates(rows: Sequence[Mapping[str, Any]], used: Iterable[str]) -> list[tuple[str, Counter[str]]]:
    """Return columns with few different values, those that are named as labels first, with their numbers of rows."""
    values: dict[str, Counter[str]] = {}
    not_used = set(used)
    for row in rows:
        for name, cell in row.items():
            if name not in not_used and cell not in EMPTY and not isinstance(cell, (list, dict)):
                values.setdefault(str(name), Counter())[label_text(cell)] += 1
    few = []
    for name, counts in values.items():
        # A slip of the pen may be any text, so that the commonest values count.
        commonest = sum(count for _, count in counts.most_common(MOST_VALUES))
        if len(counts) > 1 and commonest >= LEAST_KNOWN * counts.total():
            few.append((name, counts))
    return sorted(few, key=lambda item: not _is_named_as_labels(item[0]))


def _is_named_as_labels(column: str) -> bool:
    """Return whether a column's name says that it holds labels."""
    return any(part in column.casefold() for part in LABEL_NAMES)


def _sides(column: str, counts: Counter[str]) -> dict[str, str] | None:
    """Return what a column's values mean as labels of two responses, or None where they are no such labels.

    Values without a meaning are left out. 0 and 1 alone may mean either side, so that a user has to say it.
    """
    known = SIDES
    if _is_named_as_labels(column) and "2" in counts:
        known = SIDES | NUMBERS
    meanings = {}
    for value in counts:
        meaning = known.get(value.strip().casefold())
        if meaning is not None:
            meanings[value] = meaning
    # A column of ties alone, or of one side, may hold anything.
    if not {"A", "B"} <= set(meanings.values()):
        return None
    if sum(counts[value] for value in meanings) < LEAST_KNOWN * counts.total():
        return None
    # Labels as readers expect them say what they mean themselves.
    if all(value == meaning for value, meaning in meanings.items()):
        return {}
    return meanings


def _names_systems(rows: Sequence[Mapping[str, Any]], column: str, counts: Counter[str]) -> bool:
    """Return whether a column names one of the two systems of its row, nearly always."""
    named = 0
    sides = set()
    for row in rows:
        label = row.get(column)
        if label in EMPTY:
            continue
        for side in ("model_a", "model_b"):
            for name in DEFAULT_FIELDS[side]:
                if row.get(name) not in EMPTY and label_text(row[name]) == label_text(label).strip():
                    named += 1
                    sides.add(side)
    ties = sum(count for value, count in counts.items() if value.strip().casefold() in TIES)
    return len(sides) == 2 and named + ties >= LEAST_KNOWN * counts.total()
