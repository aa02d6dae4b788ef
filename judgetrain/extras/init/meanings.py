"""Find the column of labels in a user's file, and what its values mean, where neither is written as readers expect."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from judgetrain.amounts import amount
from judgetrain.data.cells import EMPTY, NO_LABEL, WORDS, label_text, number_in
from judgetrain.data.rows.columns import DEFAULT_FIELDS, loose_name, usual_columns

TIES = (
    *("tie", "equal", "both", "draw", "same", "tie (bothbad)", "both good", "both bad", "bothbad"),
    *("no preference", "equally good"),
)
"""Words for two responses that are equally good, in lower case."""
SIDES = {**dict.fromkeys(("a", "first", "left"), "A"), **dict.fromkeys(("b", "second", "right"), "B")}
"""Words for one of two responses as people write them, in lower case; :data:`_SIDE` has more."""
_SIDE = re.compile(
    r"(?:(?P<noun>answer|assistant|candidate|completion|model|option|output|response|system)[ _-]?)?"
    r"(?P<side>[ab12])(?P<verb> wins| won| (?:is )?(?:much |slightly )?better)?"
)
"""A response by its letter or its number, as in ``Response 1``, ``model_a`` and ``B is better``."""
_ORDER = re.compile(r"(?P<one>[ab]) ?(?P<sign>>+|<+|=+) ?(?P<other>[ab])")
"""An order of the two responses, as in ``A>>B`` and ``B=A``."""
NUMBERS = {"0": "tie", "1": "A", "2": "B"}
"""Numbers as labels of two responses, where 2 is among them."""
SCORES = {
    **WORDS,
    **dict.fromkeys(("accept", "acceptable", "accepted", "helpful", "positive", "right", "thumbs up", "up", "👍"), 1.0),
    **dict.fromkeys(("bad", "negative", "not helpful", "reject", "rejected", "thumbs down", "unhelpful"), 0.0),
    **dict.fromkeys(("down", "not acceptable", "unacceptable", "wrong", "👎"), 0.0),
}
"""The scores of words that label one response, in lower case."""
_GRADE = re.compile(
    r"(?P<number>\d{1,3}(?:[.,]\d{1,3})?) ?(?:(?P<stars>stars?)|(?:/|out of) ?(?P<most>\d{1,3})|(?P<percent>%))"
)
"""A grade that says what it is out of, as ``4 stars``, ``4/5``, ``4 out of 5`` and ``80%``, in lower case."""
MOST_STARS = 5
"""The stars of the best response."""
NAMED_GRADES = 10
"""The highest grade of a scale whose grades are all named, whether rows have them or not, and which begins with 1."""
ANSWERS = ("answer", "output")
"""Columns that hold a good answer, or one that a label beside it says is good or not."""
MISSING = ("n/a", "na", "nan", "null", "-", "?", "unsure", "skip", "skipped")
"""Words that labelling tools write where there is no label, in lower case."""
LABEL_NAMES = (
    *("label", "winner", "better", "best", "prefer", "choice", "chosen", "vote", "verdict", "judgment", "judgement"),
    *("rating", "score", "grade", "human", "annotat", "pass", "correct", "quality", "accept", "result", "outcome"),
    *("feedback", "helpful", "useful", "stars", "thumb"),
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
            ties = {value: "tie" for value in counts if _plain(value) in TIES}
            return Labels(column, ties)
    return None


def labels_of_single_responses(rows: Sequence[Mapping[str, Any]], used: Iterable[str]) -> Labels | None:
    """Return the column that says how good single responses are, or None: words, grades, 0 and 1, or 1 to 5.

    Args:
        rows: as they are written.
        used: columns that something else is read from.
    """
    for column, counts in _candidates(rows, used):
        if not _is_named_as_labels(column):
            continue
        # Cells without a label are no sign that the others are none.
        missing = [value for value in counts if _plain(value) in MISSING]
        labels = Counter({value: count for value, count in counts.items() if value not in missing})
        scores = {value: SCORES[_plain(value)] for value in labels if _plain(value) in SCORES}
        words = sum(labels[value] for value in scores)
        numbers = [number for number in map(number_in, labels.elements()) if number is not None]
        are_words = words >= LEAST_KNOWN * labels.total() > 0
        are_numbers = len(numbers) >= LEAST_KNOWN * labels.total() > 0 and 0 <= min(numbers) < max(numbers) <= 5
        meanings = dict.fromkeys(missing, NO_LABEL)
        if are_words and any(_plain(value) not in WORDS for value in scores):
            # Readers do not know all of these words, and take a scale that is given as the whole of it.
            meanings |= {value: f"{score:g}" for value, score in scores.items()}
        if are_words or are_numbers:
            return Labels(column, meanings)
        scores_of_grades = _scores_of_grades(labels)
        if scores_of_grades:
            return Labels(column, meanings | scores_of_grades)
    return None


def _scores_of_grades(counts: Counter[str]) -> dict[str, str]:
    """Return the scores of grades that say what they are out of; none where they are no such grades.

    Grades up to 10 go from 1, as numbers of 1 to 5 do, unless a row has a lower one. A percentage goes from 0.

    Args:
        counts: numbers of rows by label.
    """
    grades: dict[str, float] = {}
    scales = set()
    for label in counts:
        grade = _GRADE.fullmatch(_plain(label))
        if grade is None:
            continue
        unit = "/"
        most = int(grade["most"] or 0)
        if grade["stars"]:
            unit = "stars"
            most = MOST_STARS
        elif grade["percent"]:
            unit = "%"
            most = 100
        scales.add((unit, most))
        grades[label] = float(grade["number"].replace(",", "."))
    known = sum(counts[label] for label in grades)
    # Grades out of 5 beside some out of 10 are no scale.
    if len(scales) != 1 or len(set(grades.values())) < 2 or known < LEAST_KNOWN * counts.total():
        return {}
    [(unit, most)] = scales
    if max(grades.values()) > most:
        return {}

    lowest = 0
    if 1 < most <= NAMED_GRADES and min(grades.values()) >= 1:
        lowest = 1
    if most <= NAMED_GRADES:
        # A grade that nobody gave is a level all the same.
        for number in range(lowest, most + 1):
            if number not in grades.values():
                grades[_written_grade(number, unit, most)] = number
    return {label: f"{(number - lowest) / (most - lowest):.6g}" for label, number in grades.items()}


def _written_grade(number: int, unit: str, most: int) -> str:
    """Return a grade as people write it, such as ``1 star`` and ``4/5``.

    Args:
        number: of the grade.
        unit: ``stars``, or ``/``.
        most: the best grade.
    """
    if unit == "stars":
        return amount(number, "star")
    return f"{number}/{most}"


def unread_labels(rows: Sequence[Mapping[str, Any]], used: Iterable[str]) -> tuple[str, Mapping[str, int]] | None:
    """Return the first column that is named as labels are, with its values' numbers of rows, or None.

    Args:
        rows: as they are written.
        used: columns that something is read from.
    """
    for column, counts in _candidates(rows, used):
        if _is_named_as_labels(column):
            return column, counts
    return None


def may_be_of_pairs(labels: Iterable[str]) -> bool:
    """Return whether labels may say which of two responses is better: not if they are words, grades or 1 to 5."""
    counts = Counter(labels)
    if any(_side(_plain(label)) in ("A", "B") for label in counts):
        return True
    scores = [label for label in counts if _plain(label) in SCORES or _GRADE.fullmatch(_plain(label))]
    return len(scores) < LEAST_KNOWN * len(counts)


def responses_by_system(rows: Sequence[Mapping[str, Any]]) -> Labels | None:
    """Return the columns of a table whose responses stand under their systems' names, and whose labels name these.

    As ``prompt, gpt, llama, winner`` with ``gpt`` or ``llama`` in the column ``winner``. None for any other table.

    Args:
        rows: as they are written.
    """
    columns = dict.fromkeys(name for row in rows for name in row)
    if usual_columns(columns, DEFAULT_FIELDS["response_a"]):
        return None
    for column, counts in _candidates(rows, ()):
        # By the spelling of a label as of a column: "GPT-4" names the column gpt_4.
        values: dict[str, list[str]] = {}
        for value in counts:
            values.setdefault(loose_name(value), []).append(value)
        systems = [name for name in columns if loose_name(name) in values and name != column]
        if len(systems) != 2:
            continue
        first, second = systems
        meanings = {value: "tie" for value in counts if _plain(value) in TIES}
        meanings |= dict.fromkeys(values[loose_name(first)], "A")
        meanings |= dict.fromkeys(values[loose_name(second)], "B")
        if sum(counts[value] for value in meanings) >= LEAST_KNOWN * counts.total():
            return Labels(column, meanings, {"response_a": first, "response_b": second, "label": column})
    return None


def answers_with_labels(rows: Sequence[Mapping[str, Any]]) -> Labels | None:
    """Return the columns of a table of answers with a label each, as ``Question, Answer, Correct``.

    None for any other table: without labels an ``answer`` is a good one.

    Args:
        rows: as they are written.
    """
    columns = dict.fromkeys(name for row in rows for name in row)
    for name in ("response", "response_a", "response_b", "responses"):
        if usual_columns(columns, DEFAULT_FIELDS[name]):
            return None
    answers = usual_columns(columns, ANSWERS)
    if not answers:
        return None
    labels = labels_of_single_responses(rows, usual_columns(columns, DEFAULT_FIELDS["query"]))
    if labels is None:
        return None
    return replace(labels, fields={"response": answers[0], "label": labels.column})


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


def _plain(value: str) -> str:
    """Return a label in lower case, with single blanks, and without the point of a data frame's whole number."""
    text = " ".join(value.casefold().split())
    if number_in(text) is not None:
        text = text.removesuffix(".0")
    return text


def _side(text: str) -> str | None:
    """Return what a label in lower case means as people write it: A, B or tie; None: nothing that is known."""
    if text in TIES:
        return "tie"
    if text in SIDES:
        return SIDES[text]
    order = _ORDER.fullmatch(text)
    if order and order["one"] != order["other"]:
        if order["sign"].startswith("="):
            return "tie"
        better = order["one"]
        if order["sign"].startswith("<"):
            better = order["other"]
        return better.upper()
    named = _SIDE.fullmatch(text)
    # A number alone may be anything.
    if named and (named["noun"] or named["verb"]):
        return {"a": "A", "1": "A", "b": "B", "2": "B"}[named["side"]]
    return None


def _sides(column: str, counts: Counter[str]) -> dict[str, str] | None:
    """Return what a column's values mean as labels of two responses, or None where they are no such labels.

    Values without a meaning are left out. 0 and 1 alone may mean either side, so that a user has to say it.
    """
    are_numbers = _is_named_as_labels(column) and "2" in map(_plain, counts)
    meanings = {}
    for value in counts:
        text = _plain(value)
        meaning = _side(text)
        if meaning is None and are_numbers:
            meaning = NUMBERS.get(text)
        if meaning is None and text in MISSING:
            meaning = NO_LABEL
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
            for name in usual_columns(row, DEFAULT_FIELDS[side]):
                if row[name] not in EMPTY and label_text(row[name]) == label_text(label).strip():
                    named += 1
                    sides.add(side)
    ties = sum(count for value, count in counts.items() if _plain(value) in TIES)
    return len(sides) == 2 and named + ties >= LEAST_KNOWN * counts.total()
