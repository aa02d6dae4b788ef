"""Single responses with the labels that people gave them: by one or several annotators, as a whole or by criterion."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import Any

from judgetrain.data.cells import EMPTY, NumberScale, RowError, list_in, number_in
from judgetrain.json_text import RepeatedKeyError, load_json
from judgetrain.rubrics import EQUAL, criterion_key, without_rounding
from judgetrain.schema import Candidates, Dialogue

OVERALL = ""
"""The name of labels that are of a response as a whole, where others are of one criterion."""
MOST_BETWEEN = 100
"""The most whole numbers between two numbers of a scale that are levels of it."""

Votes = tuple[float, ...]
"""Annotators' labels of one response, each 0 (worst) to 1."""


@dataclass(frozen=True)
class Scale:
    """The levels that labels of single responses may have, the worst first.

    Args:
        scores: of the levels, 0 to 1, rising.
        names: of the levels, as rows or ``labels`` write them.
    """

    scores: tuple[float, ...]
    names: tuple[str, ...]

    @property
    def has_two_levels(self) -> bool:
        """Return whether a response passes or fails, and nothing between."""
        return len(self.scores) == 2

    @cached_property
    def _middles(self) -> list[float]:
        """Return the scores halfway between neighbouring levels, each less what rounding may take off."""
        return [(low + high) / 2 - EQUAL for low, high in pairwise(self.scores)]

    def level(self, score: float) -> int:
        """Return the number, from 0, of the level next to a score; halfway between two it is the better one."""
        return bisect_right(self._middles, score)

    def label(self, votes: Sequence[float]) -> float | None:
        """Return the label that annotators give together: their mean.

        It is None without votes, and on a scale of two levels where as many speak for either.
        """
        if not votes:
            return None
        mean = without_rounding(fmean(votes))
        # Two of four say pass: the mean is no label of this scale, while 2.5 between 2 and 3 tells something.
        if self.has_two_levels and abs(mean - fmean(self.scores)) <= EQUAL:
            return None
        return mean


@dataclass(frozen=True, kw_only=True)
class LabelledResponse:
    """One response to a dialogue, and what people say of it.

    Args:
        candidates: the response, alone in its group, with its id, dialogue and criteria.
        votes: labels by the criterion's name; those of the response as a whole stand under :data:`OVERALL`.
        model: that wrote the response; empty where it is not known.
        group: a subset or scenario, for tables by group.
    """

    candidates: Candidates
    votes: Mapping[str, Votes] = field(default_factory=dict)
    model: str = ""
    group: str | None = None

    @property
    def id(self) -> str:
        """Return the row's id."""
        return self.candidates.id

    @property
    def dialogue(self) -> Dialogue:
        """Return the dialogue that the response answers."""
        return self.candidates.dialogue

    @property
    def response(self) -> str:
        """Return the response's text."""
        return self.candidates.responses[0]

    @property
    def characters(self) -> int:
        """Return the number of characters in the dialogue and the response."""
        return sum(len(message.content) for message in self.dialogue.messages) + len(self.response)


def cells_by_name(cell: Any) -> dict[str, list[Any]]:
    """Return the labels in a cell, by criterion; those of the response as a whole under :data:`OVERALL`.

    Cells that hold nothing are no label.

    Args:
        cell: a label, a list of annotators' labels, an object with a label (or a list) a criterion, or the JSON text of
            either; or a list of such objects.

    Raises:
        RowError: lists stand in lists, or an object has two labels for one criterion.
    """
    named: dict[str, list[Any]] = {}
    for name, label in _labels_in(_decoded(cell)):
        if label in EMPTY:
            continue
        if isinstance(label, (list, Mapping)):
            raise RowError(
                "wrong_type", f"expected a label, a list of labels or a label a criterion, found {cell!r:.80}"
            )
        named.setdefault(name, []).append(label)
    return named


def _labels_in(cell: Any) -> Iterator[tuple[str, Any]]:
    """Yield the labels in a cell, each with its criterion's name."""
    for entry in _as_list(cell):
        if not isinstance(entry, Mapping):
            yield OVERALL, entry
            continue
        names_by_key: dict[str, str] = {}
        for name, labels in entry.items():
            other = names_by_key.setdefault(criterion_key(str(name)), str(name))
            if other != str(name):
                raise RowError(
                    "repeated_key",
                    f"labels {other!r} and {str(name)!r} are of one criterion, whose name has no case: expected a "
                    "label for each criterion",
                )
            for label in _as_list(_decoded(labels)):
                yield str(name), label


def _as_list(value: Any) -> list[Any]:
    """Return a list as it is, and any other value as the only one of a list."""
    if isinstance(value, list):
        return value
    return [value]


def _decoded(cell: Any) -> Any:
    """Return the list or object that a cell holds, also as text, and any other cell as it is.

    Raises:
        RowError: the text is JSON in which an object has a key twice.
    """
    listed = list_in(cell)
    if listed is not None:
        return listed
    if not isinstance(cell, str) or not cell.lstrip().startswith("{"):
        return cell
    try:
        value = load_json(cell)
    except RepeatedKeyError as error:
        raise RowError("repeated_key", str(error)) from error
    except (ValueError, RecursionError):
        return cell
    if not isinstance(value, Mapping):
        return cell
    return value


def scale_of(meanings: Mapping[str, float], numbers: NumberScale, seen: Mapping[float, str]) -> Scale:
    """Return the scale of a column of labels.

    Its levels are those that ``labels`` names, whole numbers between them, and whatever else rows hold.

    Args:
        meanings: scores by label, as a source gives them; empty: it gives none.
        numbers: what the column's numbers are read as then.
        seen: the labels of the rows, as they are written, by score.
    """
    names: dict[float, str] = {}
    points: list[tuple[float, float]] = []
    for text, score in (meanings or numbers.scores).items():
        names.setdefault(without_rounding(score), text)
        number = number_in(text)
        if number is not None:
            points.append((number, score))

    # A scale of 1 to 5 that names its ends has 2, 3 and 4 as well.
    for (low, score_of_low), (high, score_of_high) in pairwise(sorted(points)):
        if not low.is_integer() or not high.is_integer() or high - low > MOST_BETWEEN:
            continue
        for whole in range(int(low) + 1, int(high)):
            score = score_of_low + (score_of_high - score_of_low) * (whole - low) / (high - low)
            names.setdefault(without_rounding(score), str(whole))
    for score, text in seen.items():
        names.setdefault(without_rounding(score), text)
    # Words that come without a scale are of two levels, also where rows have one of them alone.
    if not meanings:
        names.setdefault(0.0, "0")
        names.setdefault(1.0, "1")
    in_order = sorted(names)
    return Scale(tuple(in_order), tuple(names[score] for score in in_order))
