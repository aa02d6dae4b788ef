"""The labels of a row: which of two responses is better, or how good a single one is."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from judgetrain.amounts import agree, amount
from judgetrain.data.cells import EMPTY, NO_LABEL, NumberScale, RowError, label_text, name_text, number_in, score_of
from judgetrain.data.labelled import Scale, Votes, cells_by_name, scale_of
from judgetrain.data.rows.columns import Columns
from judgetrain.errors import ConfigError
from judgetrain.rubrics import criterion_key, without_rounding
from judgetrain.schema import Verdict

VERDICTS = ("A", "B", "tie")
"""The verdicts that a label of two responses can mean."""
SIDES = {"model_a": "A", "model_b": "B"}
"""Labels that name the column of the better response's system, as Chatbot Arena's do."""
TWO_MEANINGS = "two_meanings"
"""The reason why a row is not read whose label is a verdict, and the name of the other response's system."""
NO_KEY = "write one of these, or the name of the row's model_a or model_b"
"""What to do about a label without a meaning, where rows are given in Python and no configuration key says more."""
SHOWN = 5
"""The most labels or columns that a message names."""


class LabelReader:
    """Reads the labels of rows, and keeps which of them had no meaning.

    Args:
        meanings: what labels mean, as ``labels`` of a source says; empty: what they say themselves.
        key: the configuration key of the source, for messages.
        columns: of its rows.
        numbers: returns what the numbers of its column of ratings are read as, by criterion, where ``meanings`` does
            not say so.

    Raises:
        ConfigError: ``meanings`` gives a label a meaning that is not allowed.
    """

    def __init__(
        self,
        meanings: Mapping[str, str],
        key: str,
        columns: Columns,
        numbers: Callable[[], Mapping[str, NumberScale]] = dict,
    ) -> None:
        self._key = key
        self._columns = columns
        self._find_numbers: Callable[[], Mapping[str, NumberScale]] | None = numbers
        self._numbers_found: Mapping[str, NumberScale] = {}

        self._verdicts: dict[str, str] = {}
        self._scores: dict[str, float] = {}
        self._no_labels: set[str] = set()
        # One setting serves both: A, B and tie are of two responses, numbers of one.
        for label, meaning in meanings.items():
            if meaning in VERDICTS:
                self._verdicts[label] = meaning
            elif meaning == NO_LABEL:
                self._no_labels.add(label)
            else:
                self._scores[label] = self._score_meant(label, meaning)

        self.unknown: Counter[str] = Counter()
        """Counts of the labels without a meaning, as they are written."""
        self.unclear: list[str] = []
        """Why labels of two responses are not used that may mean either of them, a message a row."""
        self.unknown_votes: list[str] = []
        """Why labels of single responses are not used, a message a row."""
        self._seen_labels: dict[str, dict[float, str]] = {}
        """The labels of single responses that were read, as they are written: by criterion, then by score."""
        self._names: dict[str, str] = {}
        """The criteria's names as the first row has them, by key: rows may write them in other case."""
        self._rated_by: Counter[str] = Counter()
        """How many single responses have a label of the field ``label``, and how many one of ``score`` in its place."""

    def votes(self, row: Mapping[str, Any]) -> dict[str, Votes]:
        """Return the labels that people gave a row's only response, by criterion (:func:`cells_by_name`)."""
        cells = cells_by_name(self._columns.rating(row))
        numbers = self.numbers_of(row)
        if cells:
            field = "label"
            if self._columns.value(row, "label") is None:
                field = "score"
            self._rated_by[field] += 1
        votes: dict[str, Votes] = {}
        for written_name, labels in cells.items():
            name = self._name(written_name)
            scores: list[float] = list(votes.get(name, ()))
            for label in labels:
                # One annotator of several may have written what says nothing.
                if label_text(label) in self._no_labels:
                    continue
                score = without_rounding(score_of(label, self._scores, numbers.get(criterion_key(name))))
                # The scale of a column is of all labels that rows hold, as they are written.
                self._seen_labels.setdefault(name, {}).setdefault(score, label_text(label))
                scores.append(score)
            votes[name] = tuple(scores)
        return votes

    def _name(self, written: str) -> str:
        """Return a criterion's name as the first row with it has it."""
        return self._names.setdefault(criterion_key(written), written)

    def known_votes(self, row: Mapping[str, Any]) -> dict[str, Votes]:
        """Return the labels of a row's only response; none where one of them has no meaning, which is counted."""
        try:
            return self.votes(row)
        except RowError as error:
            # The response can be judged all the same.
            self.unknown_votes.append(str(error))
            return {}

    def scales(self) -> dict[str, Scale]:
        """Return the scale of the labels that were read, by criterion."""
        scales = {}
        for name, seen in self._seen_labels.items():
            numbers = self._numbers_found.get(criterion_key(name), NumberScale())
            scales[name] = scale_of(self._scores, numbers, seen)
        return scales

    def rated_numbers(self, row: Any) -> dict[str, list[float]]:
        """Return the numbers that rate a row's response, where ``labels`` does not say what they mean.

        They stand by the criterion's :func:`~judgetrain.rubrics.criterion_key`.
        """
        # With a scale of the source's own, numbers mean what it says.
        if self._scores or not self._columns.is_rated(row):
            return {}
        named: dict[str, list[float]] = {}
        for name, labels in cells_by_name(self._columns.rating(row)).items():
            numbers = [number for number in map(number_in, labels) if number is not None]
            if numbers:
                named.setdefault(criterion_key(name), []).extend(numbers)
        return named

    def numbers_of(self, row: Mapping[str, Any]) -> Mapping[str, NumberScale]:
        """Return what the numbers that rate a row's response are read as, by the criterion's key."""
        # When a row first needs it, as the whole column is read for it.
        if self._find_numbers is not None and self.rated_numbers(row):
            self._numbers_found = self._find_numbers()
            self._find_numbers = None
        return self._numbers_found

    def known_verdict(self, row: Mapping[str, Any]) -> Verdict | None:
        """Return the verdict that a row's label means, or None; labels without a meaning are counted."""
        try:
            return self.verdict(row)
        except RowError as error:
            written = self.written(row)
            if error.reason == TWO_MEANINGS:
                self.unclear.append(str(error))
            elif written not in EMPTY:
                # One label that nobody foresaw must not cost the row: its responses can still be judged.
                self.unknown[label_text(written)] += 1
            return None

    def verdict(self, row: Mapping[str, Any]) -> Verdict:
        """Return the verdict that a row's label means: as ``labels`` says, by itself, or as the name of a system."""
        written = self._columns.value(row, "label")
        text = label_text(written)
        verdict: str | None = SIDES.get(text, text)
        if self._verdicts:
            # Where the source says what labels mean, A, B and tie themselves mean nothing more.
            verdict = self._verdicts.get(text)
        verdict_by_name = self._verdict_for_system(row, text)
        if verdict not in VERDICTS:
            verdict = verdict_by_name
        elif not self._verdicts and verdict_by_name not in (None, verdict):
            # Nobody but the writer knows which of the two a row means, and they are opposites.
            remedy = "; expected another name"
            if self._key:
                remedy = f": say '{self._key}.labels={{A: A, B: B, tie: tie}}' if it is no name"
            raise RowError(
                TWO_MEANINGS,
                f"label {written!r} means {verdict} by itself, and is the name of the row's "
                f"model_{verdict_by_name.lower()}{remedy}",
            )
        if verdict not in VERDICTS:
            allowed = ", ".join(self._verdicts or VERDICTS)
            remedy = NO_KEY
            if self._key:
                remedy = "set labels to say what it means"
            raise RowError("unknown_label", f"label {written!r} is not one of {allowed}: {remedy}")
        return cast(Verdict, verdict)

    def _verdict_for_system(self, row: Mapping[str, Any], label: str) -> str | None:
        """Return the side whose system a label names, or None; a name that both sides have says nothing."""
        sides = []
        for side in ("A", "B"):
            if name_text(self._columns.value(row, f"model_{side.lower()}")) == label.strip():
                sides.append(side)
        if len(sides) != 1:
            return None
        return sides[0]

    def written(self, row: Mapping[str, Any]) -> Any:
        """Return the cell of the label, or None; None also where the row lacks the column."""
        try:
            return self._columns.value(row, "label")
        except RowError:
            return None

    def messages(self) -> Iterator[str]:
        """Yield a message about labels without a meaning, and about ratings that may be of another scale."""
        if self.unknown:
            counts = counts_text([(repr(label), count) for label, count in self.unknown.most_common()])
            allowed = ", ".join(self._verdicts or VERDICTS)
            example = next(iter(self.unknown))
            # Rows that are given in Python have no configuration key.
            remedy = NO_KEY
            if self._key:
                remedy = f"say what they mean with '{self._key}.labels={{{example}: A, ...}}'"
            yield (
                f"{amount(self.unknown.total(), 'label')} {agree(self.unknown.total(), 'are')} none of {allowed} "
                f"and {agree(self.unknown.total(), 'are')} not used: {counts}; {remedy}"
            )
        if self.unclear:
            count = len(self.unclear)
            yield (
                f"{amount(count, 'label')} {agree(count, 'have')} two meanings and {agree(count, 'are')} not used: "
                f"{self.unclear[0]}"
            )
        if len(self._rated_by) > 1:
            # A score beside people's labels may well be a model's.
            yield (
                f"the labels of {amount(self._rated_by['label'], 'response')} are those of label, and of "
                f"{amount(self._rated_by['score'], 'response')} without one those of score: if these are no labels, "
                f"say '{self._key}.fields={{score: \"\"}}'"
            )
        if self.unknown_votes:
            yield (f"the labels of {amount(len(self.unknown_votes), 'response')} are not used: {self.unknown_votes[0]}")
        for criterion, numbers in self._numbers_found.items():
            # A column whose highest number is 3 may be of a scale of 1 to 3, and would be read as one of 1 to 5.
            if numbers.scores and 0 < numbers.highest < 5:
                of_criterion = ""
                if criterion:
                    of_criterion = f" of {self._name(criterion)}"
                yield (
                    f"the highest rating{of_criterion} is {numbers.highest:g}, and ratings are read as "
                    f"{numbers.meaning}; if it is the best, say '{self._key}.labels={{1: 0, {numbers.highest:g}: 1}}'"
                )

    def _score_meant(self, label: str, meaning: str) -> float:
        """Return the score, 0 (worst) to 1, that ``labels`` gives to a label of one response."""
        try:
            score = float(meaning)
        except ValueError:
            # Out of the range below, as any text is that is no number.
            score = -1.0
        # Not a number compares false with both bounds.
        if not 0 <= score <= 1:
            raise ConfigError(
                f"{self._key}.labels.{label}={meaning!r}: allowed are {', '.join(VERDICTS)}, "
                f"of one response 0 (worst) to 1, and {NO_LABEL} for a label that says nothing"
            )
        return score


def counts_text(counts: Sequence[tuple[str, int]]) -> str:
    """Return names and their counts as text, :data:`SHOWN` of them at most."""
    text = ", ".join(f"{name} ({count})" for name, count in counts[:SHOWN])
    # A column of free texts has as many labels as rows.
    if len(counts) > SHOWN:
        return f"{text} and {len(counts) - SHOWN} more"
    return text
