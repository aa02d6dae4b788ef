"""Labels of single responses that several rows give together, as when each annotator has a row."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from judgetrain.amounts import agree, amount
from judgetrain.data.duplicates import digest_of
from judgetrain.data.labelled import LabelledResponse, Scale, Votes
from judgetrain.data.rows.reader import rating_of
from judgetrain.data.votes import response_of
from judgetrain.schema import Candidates, Comparison


class LeftOut(StrEnum):
    """Why the rated response of a row is not learned from by itself."""

    SAME_RESPONSE = "same_response"
    """An earlier row has the same response, and the label that all rows on it give together."""
    NO_MAJORITY = "no_majority"
    """On a scale of two levels as many annotators speak for either."""


@dataclass
class _OfResponse:
    """The labels of one response.

    Args:
        first_id: the id of the first row on it.
        votes: of all rows, by criterion.
        rows: how many have a label.
        differ: whether two rows have different labels.
    """

    first_id: str
    votes: Mapping[str, Votes]
    rows: int = 1
    differ: bool = False


@dataclass
class UnitedLabels:
    """The labels of a source's single responses, each with those of all its rows.

    All rows are added first. Then each row's rated response gets the label that its rows give together, the first time.
    """

    _responses: dict[bytes, _OfResponse] = field(default_factory=dict)
    _scales: Mapping[str, Scale] = field(default_factory=dict)
    _given: set[bytes] = field(default_factory=set)

    def add(self, response: LabelledResponse) -> None:
        """Add the labels of a row; nothing where it has none."""
        if not response.votes:
            return
        place = _place_of(response.candidates)
        known = self._responses.get(place)
        if known is None:
            self._responses[place] = _OfResponse(response.id, response.votes)
            return
        known.rows += 1
        known.differ = known.differ or _levels(response.votes) != _levels(known.votes)
        votes = dict(known.votes)
        for name, of_row in response.votes.items():
            votes[name] = (*votes.get(name, ()), *of_row)
        known.votes = votes

    def settle(self, scales: Mapping[str, Scale]) -> None:
        """Take the scales of the labels, by criterion, which are known once all rows are read."""
        self._scales = scales

    def rated(self, rated: Comparison) -> Comparison | LeftOut:
        """Return a row's rated response with the label that all rows on it give together, or why it is left out."""
        candidates = Candidates(rated.id, rated.dialogue, (rated.response_a,), rated.rubric)
        place = _place_of(candidates)
        if place in self._given:
            return LeftOut.SAME_RESPONSE
        self._given.add(place)
        assert rated.rating_a is not None, "the response is rated"
        scores = {}
        for name, votes in self._responses[place].votes.items():
            label = self._scales[name].label(votes)
            if label is not None:
                scores[name] = label
        rating = rating_of(scores, rated.rubric, rated.rating_a.reason)
        if rating is None:
            return LeftOut.NO_MAJORITY
        return replace(rated, rating_a=rating)

    def sentence(self) -> str | None:
        """Return the sentence about responses that stand in several rows; None where there are none."""
        repeated = [known for known in self._responses.values() if known.rows > 1]
        if not repeated:
            return None
        differing = sum(known.differ for known in repeated)
        rows = sum(known.rows for known in repeated)
        return (
            f"{amount(len(repeated), 'response')} {agree(len(repeated), 'stand')} in several rows with labels, {rows} "
            f"in all, such as {repeated[0].first_id}; of {differing} the labels differ: the label that all of a "
            "response's rows give together is learned from, once"
        )


def _place_of(candidates: Candidates) -> bytes:
    """Return a hash of what rows on one response have in common: all that a judge is shown."""
    # A hash, since the texts of a large source would fill the memory.
    shown: Hashable = response_of(candidates)
    return digest_of(repr(shown))


def _levels(votes: Mapping[str, Votes]) -> dict[str, frozenset[float]]:
    """Return the different labels of rows, by criterion."""
    return {name: frozenset(of_name) for name, of_name in votes.items()}
