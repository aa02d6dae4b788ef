"""Labels, ratings and lists in a row's cells, majorities of votes, and the error of a row that cannot be used."""

import ast
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.errors import DataError
from judgetrain.json_text import RepeatedKeyError, load_json
from judgetrain.messages import replied
from judgetrain.schema import Comparison, Verdict

T = TypeVar("T")
EMPTY = (None, "")
"""Cells that hold nothing."""
NO_LABEL = "none"
"""The meaning that ``labels`` of a source gives to a label that says nothing, as a slip of the pen."""
SILENCE = "__SILENCE__"
"""The text that ParlAI writes for a speaker who has not said anything yet."""
TWO_COLUMNS = "two_columns"
"""The reason of a row two of whose columns may be meant by one name."""


class RowError(ValueError):
    """A row that cannot be used.

    Args:
        reason: a short word for it, by which rows are counted.
        message: what was expected and what the row holds.

    Attributes:
        id: the row's id, where it could be read.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.id: str | None = None


@contextmanager
def as_row_error(reason: str, where: str = "") -> Iterator[None]:
    """Turn a DataError of the code inside into a RowError; ``where`` goes before its message."""
    try:
        yield
    except DataError as error:
        raise RowError(reason, f"{where}{error}") from error


def label_text(value: Any) -> str:
    """Return a label as text: a whole number without a point, also where a file has it as a float, and 0 or 1."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def check_names(names: Sequence[str], place: str) -> None:
    """Refuse a table with two columns of one name; columns without a name are left unread.

    Args:
        names: of all columns.
        place: of the table, for the message.

    Raises:
        DataError: two columns have one name.
    """
    for name, count in Counter(names).items():
        if count > 1 and name.strip():
            raise DataError(f"{place}: two columns are called {name!r}; give each a name of its own")


_POWER = re.compile(r"-?\d(?:\.\d+)?[eE]\+(\d{2,})")
"""A number as a power of ten; the group is the exponent."""
ROUNDED_POWER = 11
"""The exponent from which on Excel, and data frames later, keep the first digits alone; R writes 100000 as 1e+05."""
EXACT = 2**53
"""The whole numbers below this one are those that a float tells apart."""
_WHOLE = re.compile(r"-?\d+\.0")
"""A whole number as data frames write it whose column has empty cells."""


def id_text(value: Any) -> str:
    """Return an id as text: 3, 3.0, "3", "3.0" and " 3 " are one id, which a data frame may write in any of these.

    Raises:
        RowError: it is a number whose last digits are lost, so that several ids have become one.
    """
    text = label_text(value).strip()
    is_rounded = isinstance(value, float) and math.isfinite(value) and abs(value) >= EXACT
    power = _POWER.fullmatch(text)
    if power:
        is_rounded = is_rounded or int(power[1]) >= ROUNDED_POWER
    if is_rounded:
        raise RowError(
            "rounded_id",
            f"the id {value!r} is a number that lost its last digits in a spreadsheet or data frame, so that others "
            "look the same: expected ids that were kept as text",
        )
    if _WHOLE.fullmatch(text):
        return text.removesuffix(".0")
    return text


def name_text(value: Any) -> str:
    """Return the name of a system, judge or group as text; empty where a cell holds none. It is told apart as an id."""
    if value is None:
        return ""
    return id_text(value)


def turn_number(value: Any) -> int:
    """Return the number of a turn, from 1, which a file may write as an id (RowError: it is none)."""
    text = id_text(value)
    # Longer ones are no turns, and Python refuses to read numbers of thousands of digits.
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise RowError("missing_turn", f"expected the number of a turn, from 1, found {value!r}")
    return int(text)


def majority(votes: Iterable[T]) -> T | None:
    """Return the vote that is given most often; None without votes, or where two are given equally often."""
    # Two suffice: if the most frequent votes tie, so do the first two.
    counts = Counter(votes).most_common(2)
    if not counts:
        return None
    if len(counts) == 2 and counts[0][1] == counts[1][1]:
        return None
    return counts[0][0]


def list_in(cell: Any) -> list[Any] | None:
    """Return the list that a cell holds, also as text of JSON or as Python writes it; None for anything else.

    Raises:
        RowError: the text is JSON in which an object has a key twice.
    """
    # CSV has no lists, so that they stand in cells as text.
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            cell = load_json(cell)
        except RepeatedKeyError as error:
            raise RowError("repeated_key", str(error)) from error
        except (ValueError, RecursionError):
            return _python_list(cell)
    if isinstance(cell, list):
        return cell
    return None


def _python_list(text: str) -> list[Any] | None:
    """Return the list that a text is as Python writes it, which is how data frames put lists into CSV; else None."""
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    # NumPy writes arrays without commas, which Python would read as one long text.
    if isinstance(value, list) and repr(value) == text.strip():
        return value
    return None


WORDS = {
    "pass": 1.0,
    "fail": 0.0,
    "true": 1.0,
    "false": 0.0,
    "yes": 1.0,
    "no": 0.0,
    "correct": 1.0,
    "incorrect": 0.0,
    "good": 1.0,
    "poor": 0.0,
}
"""The scores of words that label one response, where a source gives no scale of its own."""
WAITING = 100_000
"""The most rated responses that wait for another one to their prompt. The first of more stands alone."""


@dataclass(frozen=True)
class NumberScale:
    """The meaning of the numbers in a column of ratings, where a source gives no scale of its own.

    Args:
        scores: by number, of the ends of the scale; empty: the numbers do not tell.
        meaning: the scale in words, or why the numbers do not tell.
        highest: the highest number of the column.
    """

    scores: Mapping[str, float] = field(default_factory=dict)
    meaning: str = ""
    highest: float = 0.0


def number_scale(numbers: Collection[float]) -> NumberScale:
    """Return what the different numbers of a column of ratings are read as: 0 and 1, or 1 to 5, or nothing.

    The best of one scale is the worst of another, so that all numbers of the column decide.
    """
    if not numbers:
        return NumberScale()
    lowest = min(numbers)
    highest = max(numbers)
    if set(numbers) <= {0.0, 1.0}:
        # A column of 1 alone is refused: who guesses wrong takes the best answers for the worst.
        if lowest == 1:
            return NumberScale(meaning="its only number, 1, may be the worst of 1 to 5 or the better of 0 and 1")
        return NumberScale({"0": 0.0, "1": 1.0}, "0, 1")
    if lowest >= 1 and highest <= 5:
        return NumberScale({"1": 0.0, "5": 1.0}, "1 to 5", highest)
    return NumberScale(meaning=f"its numbers, {lowest:g} to {highest:g}, are neither 0 and 1 nor 1 to 5")


def score_of(label: Any, scale: Mapping[str, float], numbers: NumberScale | None = None) -> float:
    """Return the score, 0 (worst) to 1, that a label gives to one response.

    A number between two numbers of the scale scores evenly between their scores.

    Args:
        label: a word, a number or a truth value; upper and lower case count the same.
        scale: scores by label, as ``{"1": 0, "10": 1}``. Empty: :data:`WORDS`, and ``numbers``.
        numbers: what the numbers of the column are read as; None: as nothing.

    Raises:
        RowError: the label is not on the scale.
    """
    numbers = numbers or NumberScale()
    # A scale that the source gives stands alone: words beside it would mean what its author did not say.
    scores = {text.casefold(): score for text, score in (scale or {**WORDS, **numbers.scores}).items()}
    # As it is written first: a scale may well tell "true" from "1".
    for text in (str(label), label_text(label)):
        score = scores.get(text.strip().casefold())
        if score is not None:
            return score

    # Not a label of the scale itself: a number between two numbers of it counts by its place.
    points = []
    for text, score in scores.items():
        number = number_in(text)
        if number is not None:
            points.append((number, score))
    value = number_in(label)
    if value is not None:
        # Between neighbours, since a scale need not be even: labels={1: 0, 2: 0.5, 10: 1}.
        for (low, score_of_low), (high, score_of_high) in pairwise(sorted(points)):
            if low <= value <= high:
                return score_of_low + (score_of_high - score_of_low) * (value - low) / (high - low)

    allowed = [*scale]
    reason = ""
    if not scale and numbers.scores:
        allowed = [*WORDS, numbers.meaning]
    elif not scale:
        allowed = [*WORDS]
        if value is not None and numbers.meaning:
            reason = f" ({numbers.meaning})"
    remedy = "say what it means, as in labels={0: 0, 1: 1} or labels={1: 0, 5: 1}"
    if value is None:
        # Words have no order of their own, as numbers have.
        remedy = "say the order of your words, from 0 (worst) to 1, as in labels={poor: 0, fair: 0.5, good: 1}"
    raise RowError(
        "unknown_label", f"label {label!r} of one response is not one of {', '.join(allowed)}{reason}: {remedy}"
    )


def number_in(value: Any) -> float | None:
    """Return a cell as a number, or None; a truth value is none."""
    if isinstance(value, bool):
        return None
    try:
        # Also of a text, as CSV files have numbers.
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    return number


class Pairing:
    """Pairs rated responses to one prompt where one is rated higher; the others stay alone.

    Every comparison that comes out has an id of its own: rows on one prompt may all have the prompt's id.
    """

    def __init__(self) -> None:
        self._waiting: dict[object, list[Comparison]] = {}
        self._number_waiting = 0
        self._times_seen: Counter[str] = Counter()

    def add(self, rated: Comparison) -> Iterator[Comparison]:
        """Yield the pair that a rated response makes with one that waits, and any response that waited too long."""
        # The same prompt under other criteria is another question.
        prompt = (rated.dialogue.messages, rated.rubric)
        waiting = self._waiting.setdefault(prompt, [])
        for earlier in waiting:
            pair = _pair(earlier, rated)
            if pair is not None:
                waiting.remove(earlier)
                self._number_waiting -= 1
                yield self._with_own_id(pair)
                break
        else:
            waiting.append(rated)
            self._number_waiting += 1
        # Prompts without a waiting response would pile up otherwise.
        if not waiting:
            del self._waiting[prompt]
        yield from self.left(WAITING)

    def left(self, most: int = 0) -> Iterator[Comparison]:
        """Yield responses that stay alone, the prompts in their order, until ``most`` wait at most."""
        while self._number_waiting > most:
            # The prompt that has waited longest: its other responses would stand near it in most files.
            first_prompt = next(iter(self._waiting))
            responses = self._waiting.pop(first_prompt)
            self._number_waiting -= len(responses)
            yield from map(self._with_own_id, responses)

    def _with_own_id(self, comparison: Comparison) -> Comparison:
        """Return a comparison whose id ends in ``#`` and a number if the id came before."""
        self._times_seen[comparison.id] += 1
        times = self._times_seen[comparison.id]
        own_id = comparison.id
        if times > 1:
            own_id = f"{comparison.id}#{times}"
        return replace(comparison, id=own_id, dialogue=replace(comparison.dialogue, id=own_id))


def _pair(one: Comparison, other: Comparison) -> Comparison | None:
    """Return the comparison of two rated responses; None where neither is rated higher, or their texts are equal."""
    rating_a = one.rating_a
    rating_b = other.rating_a
    if rating_a is None or rating_b is None or rating_a.score == rating_b.score:
        return None
    # Imported here, as the module counts votes by this one's majority.
    from judgetrain.data.votes import as_shown

    # People may rate one text twice, and differently; two spellings of it are one text.
    if as_shown(one.response_a) == as_shown(other.response_a):
        return None
    label: Verdict = "B"
    if rating_a.score > rating_b.score:
        label = "A"
    return replace(one, response_b=other.response_a, model_b=other.model_a, label=label, rating_b=rating_b)


PREFERENCE = ("prompt", "chosen", "rejected")
"""The columns of TRL's preference format."""


def preference(row: Any) -> Any:
    """Return a row of TRL's preference format as a labelled comparison, and any other row as it is.

    A hash of the texts decides the side of the chosen response, so that it is not always the same.

    Args:
        row: a mapping with ``prompt``, ``chosen`` and ``rejected``, texts or messages. Without a prompt both may be
            transcripts of a whole dialogue (:mod:`judgetrain.data.transcripts`).

    Raises:
        RowError: two transcripts are about two dialogues.
    """
    if not isinstance(row, Mapping):
        return row
    # Imported here, as the modules raise this one's errors.
    from judgetrain.data.rows.columns import first_filled, usual_columns
    from judgetrain.data.transcripts import is_transcript, with_dialogue

    # A row with both shapes is a comparison already.
    if first_filled(row, ("response_a",)) is not None:
        return row
    as_written = row
    if "chosen" not in row:
        usual_names = {column: name for name in PREFERENCE for column in usual_columns(row, (name,))}
        row = {usual_names.get(column, column): cell for column, cell in row.items()}
    if row.get("prompt") is None and is_transcript(row.get("chosen")) and is_transcript(row.get("rejected")):
        row = with_dialogue(row)
    chosen = row.get("chosen")
    rejected = row.get("rejected")
    prompt = row.get("prompt")
    if prompt is None and isinstance(chosen, list):
        # TRL's implicit prompt: all messages before the last.
        prompt = chosen[:-1]
    # Texts, or conversations that end in one.
    texts = [replied(chosen), replied(rejected)]
    if not all(isinstance(text, str) for text in texts):
        return as_written

    comparison = {name: value for name, value in row.items() if name not in ("chosen", "rejected")}
    # Other columns stay, as ids and categories.
    comparison["prompt"] = prompt
    if row.get("label") not in EMPTY:
        # Which of the two is chosen is the label, so that another one stands among the columns that are not used.
        comparison["label beside chosen"] = row["label"]
    # By the texts, not by a draw: the same row gives the same comparison in every source and every run.
    if derive_seed("side", *texts) % 2:
        comparison |= {"response_a": rejected, "response_b": chosen, "label": "B"}
    else:
        comparison |= {"response_a": chosen, "response_b": rejected, "label": "A"}
    return comparison


def first_cell(row: Mapping[str, Any], columns: Sequence[str]) -> Any:
    """Return the first cell of some columns that is not None, be it 0 or an empty text; None without any."""
    for column in columns:
        if row.get(column) is not None:
            return row[column]
    return None
