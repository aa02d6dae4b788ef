"""Dialogues and comparisons from the rows of published data sets."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from statistics import fmean
from typing import Any, cast

from judgetrain.data.cells import (
    EMPTY,
    SILENCE,
    NumberScale,
    RowError,
    id_text,
    label_text,
    list_in,
    name_text,
    number_in,
    score_of,
)
from judgetrain.data.config import SourceConfig
from judgetrain.data.labelled import OVERALL, LabelledResponse, Scale, Votes, cells_by_name, scale_of
from judgetrain.data.rubrics import rubric_of
from judgetrain.errors import ConfigError, DataError
from judgetrain.messages import are_messages, reference_text, replied, role_texts, scalar_text, text_of, with_empty_end
from judgetrain.rubrics import Rubric, without_rounding
from judgetrain.schema import Candidates, Comparison, Dialogue, Message, Rating, Verdict
from judgetrain.thoughts import shown

DEFAULT_FIELDS = {
    # MT-Bench has question_id, GLUE and its like idx.
    "id": ("id", "question_id", "idx"),
    # OpenAI's name, ShareGPT's, and that of Chatbot Arena's conversations.
    "messages": ("messages", "conversations", "conversation"),
    # AlpacaEval and Alpaca say instruction, with an input below it.
    "query": ("query", "prompt", "instruction", "question"),
    "input": ("input",),
    # Without a default: a column of such a name may hold anything, so ``fields`` has to name it.
    "system": (),
    "options": (),
    "answer": (),
    "reference": ("reference", "reference_answer", "output", "answer"),
    "category": ("category", "scenario"),
    # AlpacaEval says output_1 and generator_1.
    "response_a": ("response_a", "response_1", "answer_a", "output_1", "response_A"),
    "response_b": ("response_b", "response_2", "answer_b", "output_2", "response_B"),
    "model_a": ("model_a", "generator_1"),
    "model_b": ("model_b", "generator_2"),
    "response": ("response", "completion"),
    "responses": ("responses", "completions"),
    "criteria": ("criteria", "rubric", "rubrics"),
    "label": ("label",),
    "score": ("score", "rating"),
    "rationale": ("rationale", "feedback", "explanation"),
    "group": ("group", "scenario", "category"),
}
"""The columns that each field is read from: the first one that holds something. ``fields`` names another column."""

SPEAKERS = {"turns": ("user", "assistant"), "questions": ("user",)}
"""The roles that speak in turn, by the source's format, where messages are mere texts."""
REFERENCES = ("reference", "reference_answer")
"""The columns of references that hold nothing else; an ``output`` or ``answer`` may be many things."""
VERDICTS = ("A", "B", "tie")
"""The verdicts that a label of two responses can mean."""
SHOWN = 5
"""The most labels or columns that a message names."""


class RowReader:
    """Reads the rows of one source, whatever their published shape.

    Every method that reads a row raises a RowError that says what is missing or wrong in it.

    Args:
        source: the columns (``fields``), the meaning of labels (``labels``) and the shape (``format``).
        key: the configuration key of the source, for messages.
        numbers: returns what the numbers of its column of ratings are read as, by criterion, where ``labels`` does not
            say so.

    Raises:
        ConfigError: ``fields`` names an unknown field, or ``labels`` gives a label a meaning that is not allowed.
    """

    def __init__(
        self, source: SourceConfig, key: str = "source", numbers: Callable[[], Mapping[str, NumberScale]] = dict
    ) -> None:
        self._source = source
        self._key = key
        self._find_numbers: Callable[[], Mapping[str, NumberScale]] | None = numbers
        self._numbers_found: Mapping[str, NumberScale] = {}

        # A misspelt field would otherwise be a column that is never looked for.
        unknown_fields = sorted(set(source.fields) - set(DEFAULT_FIELDS))
        if unknown_fields:
            known_fields = ", ".join(DEFAULT_FIELDS)
            raise ConfigError(f"{key}.fields: unknown field {unknown_fields[0]!r}; known: {known_fields}")
        for field, column in source.fields.items():
            # A label may be several annotators', or one a criterion; everything else stands in one column.
            if not isinstance(column, str) and (field != "label" or not _columns_in(column)):
                raise ConfigError(
                    f"{key}.fields.{field}={column!r}: expected a column's name; label alone may be a list of "
                    "annotators' columns, or a column a criterion"
                )

        self._verdicts: dict[str, str] = {}
        self._scores: dict[str, float] = {}
        # One setting serves both: A, B and tie are of two responses, numbers of one.
        for label, meaning in source.labels.items():
            if meaning in VERDICTS:
                self._verdicts[label] = meaning
            else:
                self._scores[label] = self._score_meant(label, meaning)

        self.unknown: Counter[str] = Counter()
        """Counts of the labels without a meaning, as they are written."""
        self.unknown_votes: list[str] = []
        """Why labels of single responses are not used, a message a row."""
        self.thoughts: Counter[str] = Counter()
        """Counts of the responses that held ``some`` thoughts, and of those that held nothing else (``all``)."""
        self._seen_labels: dict[str, dict[float, str]] = {}
        """The labels of single responses that were read, as they are written: by criterion, then by score."""
        self._filled_columns: Counter[str] = Counter()
        self._used_columns: set[str] = set()

    def check_columns(self, row: Any, labelled: bool = False) -> None:
        """Raise a RowError unless a source's first row has the columns of a comparison, whatever they hold.

        Args:
            row: the first row; all columns that it lacks are named.
            labelled: a column of labels is needed, too.
        """
        if not isinstance(row, Mapping):
            return
        fields = self._source.fields
        # All that are missing, so that a user mends the settings once.
        missing: dict[str, list[str]] = {}
        needed = ["query", "response_a", "response_b"]
        if labelled:
            needed.append("label")
        for field in needed:
            columns = list(DEFAULT_FIELDS[field])
            if field in fields:
                columns = _columns_in(fields[field])
            elif field == "query" and "messages" in fields:
                # A list of messages ends with the query.
                columns.append(fields["messages"])
            elif field == "query":
                columns += DEFAULT_FIELDS["messages"]
            if not any(_has_column(row, column) for column in columns):
                missing[field] = columns
        if not missing:
            return

        places = "; no column for ".join(f"{field}: looked for {', '.join(names)}" for field, names in missing.items())
        remedy = ", ".join(f"{field}: COLUMN" for field in missing)
        raise RowError(
            "missing_column",
            f"no column for {places}; found {', '.join(map(str, row))}; say '{self._key}.fields={{{remedy}}}'",
        )

    def dialogue(self, row: Any, number: int) -> Dialogue:
        """Return the dialogue of a row.

        An answer of the assistant at its end is no part of it, and serves as the reference where there is no other.

        Args:
            row: a mapping from columns to cells.
            number: the number of the row in its source, which stands in for an id.
        """
        if not isinstance(row, Mapping):
            raise RowError("not_an_object", f"expected a JSON object, found {type(row).__name__}")
        # A Parquet file has every column in every row: those that hold nothing are no oversight.
        self._filled_columns.update(str(name) for name, value in row.items() if value is not None)

        messages = self._messages(row)
        answer = None
        if len(messages) > 1 and messages[-1].role == "assistant":
            answer = messages[-1].content
            messages = messages[:-1]
        last = messages[-1]
        if last.role != "user":
            raise RowError("last_not_user", f"expected the last message to be the user's, found role {last.role!r}")
        if not last.content.strip():
            raise RowError("empty_query", "expected a query, found only white space")

        reference = self._reference(row) or answer
        criteria = self._value(row, "criteria")
        rubric = None
        if criteria not in EMPTY:
            with _refused("bad_rubric", "field criteria: "):
                rubric = rubric_of(criteria)
        category = self._value(row, "category")
        if category is not None:
            category = name_text(category)
        return Dialogue(self.id_of(row, number), self._source.name, messages, reference, category, rubric)

    def id_of(self, row: Mapping[str, Any], number: int) -> str:
        """Return the source's name and the row's id, or its number where it has no id."""
        written = self._value(row, "id")
        local_id = ""
        if written is not None:
            local_id = id_text(written)
        return f"{self._source.name}:{local_id or f'{number:07d}'}"

    def comparison(self, row: Any, number: int, labelled: bool | None) -> Comparison:
        """Return the comparison of a row.

        Args:
            row: a mapping from columns to cells.
            number: the number of the row in its source, which stands in for an id.
            labelled: True requires a label, None reads one where the row has it, False leaves it unread.
        """
        as_written = row
        if isinstance(row, Mapping):
            # Before anything else is read: the query itself may stand in such a list.
            row = self._unlisted(row)
        dialogue, rubric = self._dialogue_and_rubric(row, number)
        for field in ("response_a", "response_b"):
            self._check_conversation(self._value(as_written, field), field, dialogue, in_text=row is not as_written)
        response_a = self._response(row, "response_a")
        response_b = self._response(row, "response_b")
        if labelled is None:
            # A benchmark may have some rows without a label, which are judged and not counted.
            labelled = self._written_label(row) not in EMPTY
        model_a = name_text(self._value(row, "model_a"))
        model_b = name_text(self._value(row, "model_b"))
        group = name_text(self._value(row, "group")) or None
        label = None
        if labelled:
            label = self._label(row)
        return Comparison(
            id=dialogue.id,
            dialogue=dialogue,
            response_a=response_a,
            response_b=response_b,
            model_a=model_a,
            model_b=model_b,
            group=group,
            label=label,
            rubric=rubric,
        )

    def candidates(self, row: Any, number: int) -> Candidates:
        """Return the responses of a row that holds one, or a list of them; each is to be scored by itself."""
        dialogue, rubric = self._dialogue_and_rubric(row, number)
        cell = self._value(row, "responses")
        if cell is None:
            written = [self._value(row, "response")]
            responses: list[Any] | None = [self._response(row, "response")]
        else:
            responses = list_in(cell)
            written = responses or []
        # Of several responses some may be empty; they are judged as such.
        for response in written:
            self._check_conversation(response, "response", dialogue)
        texts = tuple(self._reply(response) for response in responses or ())
        if not texts or not all(isinstance(text, str) for text in texts):
            raise RowError("wrong_type", f"expected a list of texts in field responses, found {cell!r:.80}")
        if not any(text.strip() for text in texts):
            raise RowError("empty_response", "no response holds a text")
        return Candidates(dialogue.id, dialogue, texts, rubric)

    def rated(self, row: Any, number: int) -> Comparison:
        """Return the only response of a row with the rating that its label gives it; there is no second response.

        Several annotators' labels are one rating, their mean.
        """
        dialogue, rubric = self._dialogue_and_rubric(row, number)
        self._check_conversation(self._value(row, "response"), "response", dialogue)
        response = self._response(row, "response")
        if not response.strip():
            raise RowError("empty_response", "expected a response, found only white space")
        votes = self.votes(row).get(OVERALL)
        if not votes:
            raise RowError(
                "by_criterion",
                f"label {self._rating(row)!r} of one response says nothing of it as a whole: name the column of such a "
                f"label, as in {self._key}.fields={{label: COLUMN}}",
            )
        # Rounded where sums of floats differ in their last digits, so that equal ratings are equal.
        score = without_rounding(fmean(votes))
        return Comparison(
            id=dialogue.id,
            dialogue=dialogue,
            response_a=response,
            response_b="",
            rating_a=Rating(score, self._optional_text(row, "rationale")),
            model_a=name_text(self._value(row, "model_a")),
            group=name_text(self._value(row, "group")) or None,
            rubric=rubric,
        )

    def votes(self, row: Mapping[str, Any]) -> dict[str, Votes]:
        """Return the labels that people gave a row's only response, by criterion (:func:`cells_by_name`)."""
        cells = cells_by_name(self._rating(row))
        numbers = self.numbers_of(row)
        votes: dict[str, Votes] = {}
        for name, labels in cells.items():
            scores: list[float] = []
            for label in labels:
                score = without_rounding(score_of(label, self._scores, numbers.get(name)))
                # The scale of a column is of all labels that rows hold, as they are written.
                self._seen_labels.setdefault(name, {}).setdefault(score, label_text(label))
                scores.append(score)
            votes[name] = tuple(scores)
        return votes

    def labelled(self, row: Any, number: int) -> LabelledResponse:
        """Return the only response of a row with its labels; a row without any is one that nobody labelled."""
        dialogue, rubric = self._dialogue_and_rubric(row, number)
        self._check_conversation(self._value(row, "response"), "response", dialogue)
        return LabelledResponse(
            candidates=Candidates(dialogue.id, dialogue, (self._response(row, "response"),), rubric),
            votes=self.votes(row),
            model=name_text(self._value(row, "model_a")),
            group=name_text(self._value(row, "group")) or None,
        )

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
            numbers = self._numbers_found.get(name, NumberScale())
            scales[name] = scale_of(self._scores, numbers, seen)
        return scales

    def has_responses(self, row: Any) -> bool:
        """Return whether the row carries two responses."""
        if not isinstance(row, Mapping):
            return False
        return self._value(row, "response_a") is not None and self._value(row, "response_b") is not None

    def is_scored(self, row: Any) -> bool:
        """Return whether the row holds one response, or a list of them, in the place of two."""
        if not isinstance(row, Mapping):
            return False
        if self._value(row, "responses") is None and self._value(row, "response") is None:
            return False
        return not self.has_responses(row)

    def holds_one_response(self, row: Any) -> bool:
        """Return whether the row holds one response, with a label or without."""
        if not self.is_scored(row) or self._value(row, "response") is None:
            return False
        # A column ``response`` may have been given to another field, as the reference.
        return not self._belongs_to_other_field(row, "response")

    def is_rated(self, row: Any) -> bool:
        """Return whether the row holds one response and a label of it."""
        return self.holds_one_response(row) and self._rating(row) not in EMPTY

    def rated_numbers(self, row: Any) -> dict[str, list[float]]:
        """Return the numbers that rate a row's response, by criterion, where ``labels`` does not say what they mean."""
        # With a scale of the source's own, numbers mean what it says.
        if self._scores or not self.is_rated(row):
            return {}
        named: dict[str, list[float]] = {}
        for name, labels in cells_by_name(self._rating(row)).items():
            numbers = [number for number in map(number_in, labels) if number is not None]
            if numbers:
                named[name] = numbers
        return named

    def numbers_of(self, row: Mapping[str, Any]) -> Mapping[str, NumberScale]:
        """Return what the numbers that rate a row's response are read as, by criterion."""
        # When a row first needs it, as the whole column is read for it.
        if self._find_numbers is not None and self.rated_numbers(row):
            self._numbers_found = self._find_numbers()
            self._find_numbers = None
        return self._numbers_found

    def label(self, row: Mapping[str, Any]) -> Verdict | None:
        """Return the verdict that a row's label means, or None; labels without a meaning are counted."""
        try:
            return self._label(row)
        except RowError:
            written = self._written_label(row)
            if written not in EMPTY:
                # One label that nobody foresaw must not cost the row: its responses can still be judged.
                self.unknown[label_text(written)] += 1
            return None

    def tell(self, say: Callable[[str], object]) -> None:
        """Say how many labels had no meaning, and which columns nothing was read from; nothing where all is well.

        Args:
            say: prints one line.
        """
        name = self._source.name
        if self.unknown:
            counts = _counts([(repr(label), count) for label, count in self.unknown.most_common()])
            allowed = ", ".join(self._verdicts or VERDICTS)
            example = next(iter(self.unknown))
            say(
                f"{name}: {self.unknown.total()} labels are none of {allowed} and are not used: {counts}; "
                f"say what they mean with '{self._key}.labels={{{example}: A, ...}}'"
            )
        if self.unknown_votes:
            say(f"{name}: the labels of {len(self.unknown_votes)} responses are not used: {self.unknown_votes[0]}")
        for criterion, numbers in self._numbers_found.items():
            # A column whose highest number is 3 may be of a scale of 1 to 3, and would be read as one of 1 to 5.
            if numbers.scores and 0 < numbers.highest < 5:
                of_criterion = ""
                if criterion:
                    of_criterion = f" of {criterion}"
                say(
                    f"{name}: the highest rating{of_criterion} is {numbers.highest:g}, and ratings are read as "
                    f"{numbers.meaning}; if it is the best, say '{self._key}.labels={{1: 0, {numbers.highest:g}: 1}}'"
                )
        if self.thoughts:
            say(thoughts_sentence(name, self.thoughts))
        # A column that was meant for a field, under a name of its own, shows up here.
        unused = [item for item in sorted(self._filled_columns.items()) if item[0] not in self._used_columns]
        if unused:
            say(f"{name}: columns that are not used (rows): {_counts(unused)}")

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
                "and of one response 0 (worst) to 1"
            )
        return score

    def _value(self, row: Mapping[str, Any], field: str) -> Any:
        """Return the cell of a field, or None; the columns that it is read from count as used."""
        column = self._source.fields.get(field)
        if column == "":
            # An empty name in ``fields`` says that no column holds this field.
            return None
        if column is not None and not isinstance(column, str):
            self._used_columns.update(_columns_in(column))
            with self._all_missing(row):
                return _cells(row, column, field)
        if column is not None:
            # All ways in which ``fields`` can name a column: itself, an entry of it, and in braces within a text.
            self._used_columns.update([column, column.partition(".")[0], *_PLACE.findall(column)])
            with self._all_missing(row):
                return _column(row, column, field)
        column = _first_column(row, field)
        if column is None:
            return None
        self._used_columns.add(column)
        return row[column]

    @contextmanager
    def _all_missing(self, row: Mapping[str, Any]) -> Iterator[None]:
        """Name all columns of ``fields`` that a row lacks in the RowError for the first of them."""
        try:
            yield
        except RowError as error:
            missing = []
            for field, columns in self._source.fields.items():
                missing += [f"{name!r} (field {field})" for name in _columns_in(columns) if not _has_column(row, name)]
            if error.reason != "missing_field" or len(missing) < 2:
                raise
            raise RowError(
                error.reason, f"expected the columns {', '.join(missing)}; found {', '.join(map(str, row))}"
            ) from error

    def _optional_text(self, row: Mapping[str, Any], field: str) -> str | None:
        """Return the cell of a field as text (:func:`scalar_text`), or None."""
        value = scalar_text(self._value(row, field))
        if value is None:
            return None
        return str(value)

    def _text(self, row: Mapping[str, Any], field: str) -> str:
        """Return the text of a field that every row must have."""
        value = self._value(row, field)
        if value is None:
            where = self._looked_for(row, field)
            raise RowError("missing_field", f"expected text in field {field}, found nothing{where}")
        if not isinstance(value, str):
            raise RowError("wrong_type", f"expected text in field {field}, found {type(value).__name__}")
        return value

    def _looked_for(self, row: Mapping[str, Any], field: str) -> str:
        """Return the end of a message about a field that no column of a row holds; empty where one does."""
        columns = list(DEFAULT_FIELDS[field])
        if field == "query":
            # A list of messages ends with the query.
            columns += DEFAULT_FIELDS["messages"]
        if field in self._source.fields or any(_has_column(row, column) for column in columns):
            return ""
        return (
            f": looked for {', '.join(columns)}; found {', '.join(map(str, row))}; say "
            f"'{self._key}.fields={{{field}: COLUMN}}'"
        )

    def _response(self, row: Mapping[str, Any], field: str) -> str:
        """Return the text of a response; a cell that is there and holds nothing is a response without text."""
        reply = self._reply(self._value(row, field))
        if isinstance(reply, str):
            return reply
        # Whoever was asked and gave nothing loses as with an empty text; only a column that is missing is a fault.
        column = self._source.fields.get(field)
        columns = list(DEFAULT_FIELDS[field])
        if column:
            columns = [column]
        if reply is None and any(_has_column(row, name) for name in columns):
            return ""
        return self._text(row, field)

    def _reply(self, response: Any) -> Any:
        """Return the text that is judged: that of a conversation is its last reply; other values come back as they are.

        What its model thought before is no part of it. A text that is JSON is an answer like any other, not a
        conversation.
        """
        with _refused("wrong_message"):
            reply = replied(response)
        if not isinstance(reply, str):
            return response
        count_thoughts(response, reply, self.thoughts)
        return reply

    def _check_conversation(self, response: Any, field: str, dialogue: Dialogue, in_text: bool = False) -> None:
        """Check that a response which is a whole conversation is one with the row's own turns before its reply.

        Args:
            response: the cell.
            field: of the response, for messages.
            dialogue: what the response is judged in.
            in_text: the row's lists may stand in cells of text.

        Raises:
            RowError: it has other turns of the user or, before its reply, of the assistant. It would be judged as an
                answer to what it does not answer.
        """
        turns = response
        if in_text:
            turns = list_in(response)
        if not isinstance(turns, list) or not turns or not are_messages(turns):
            return
        with _refused("wrong_message", f"field {field}: "):
            spoken = role_texts(with_empty_end(turns))
        before = spoken
        # All that comes after the user's last message is the reply.
        while before and before[-1][0] == "assistant":
            before = before[:-1]
        # Of a reply alone there is nothing to compare, and a conversation without one is no response.
        if not before or len(before) == len(spoken):
            return
        # Blanks make no other turn. Rows are counted by reason, so that each role has one.
        for role, reason in (("user", "other_prompt"), ("assistant", "other_turns")):
            own_turns = [" ".join(text.split()) for speaker, text in before if speaker == role]
            turns_of_row = [" ".join(turn.content.split()) for turn in dialogue.messages if turn.role == role]
            if own_turns != turns_of_row:
                raise RowError(
                    reason,
                    f"field {field}: a conversation whose turns of the {role} are not those of the row's own prompt",
                )

    def _dialogue_and_rubric(self, row: Any, number: int) -> tuple[Dialogue, Rubric | None]:
        """Return the dialogue that responses are judged in, without a rubric of its own, and the rubric.

        A judge may see the reference. So it counts only if its column is called that, or if ``fields`` names it: an
        ``output`` or ``answer`` beside two responses is often one of them.
        """
        dialogue = self.dialogue(row, number)
        reference = None
        if self._names_references(row):
            reference = dialogue.reference
        return replace(dialogue, rubric=None, reference=reference), dialogue.rubric

    def _unlisted(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a row whose query and responses are lists of one text each, also as JSON, with these texts instead.

        Published conversations hold an entry a turn. Any other row comes back as it is.
        """
        lists: dict[str, list[Any]] = {}
        for field in ("query", "response_a", "response_b"):
            column = self._source.fields.get(field) or _first_column(row, field)
            if column is None:
                return row
            texts = list_in(row.get(column))
            if texts is None:
                return row
            # A response may be a conversation, of which the last reply is judged.
            if field != "query" and texts and are_messages(texts):
                texts = [self._reply(texts)]
            if not all(text is None or isinstance(text, str) for text in texts):
                return row
            lists[column] = texts

        # Lists of different lengths are no turns of one conversation.
        lengths = {len(texts) for texts in lists.values()}
        if len(lengths) > 1:
            return row
        turns = lengths.pop()
        if turns != 1:
            raise RowError("several_turns", f"query and responses are lists of {turns} turns; expected a text each")
        return {**row, **{column: texts[0] for column, texts in lists.items()}}

    def _rating(self, row: Mapping[str, Any]) -> Any:
        """Return the label of a row's only response, or its score where it has no label."""
        label = self._value(row, "label")
        if label is None:
            return self._value(row, "score")
        return label

    def _belongs_to_other_field(self, row: Mapping[str, Any], field: str) -> bool:
        """Return whether ``fields`` gives the default column of a field to another field."""
        columns_of_others: set[str] = set()
        for name, column in self._source.fields.items():
            if name != field:
                columns_of_others.update(_columns_in(column))
        return _first_column(row, field) in columns_of_others

    def _written_label(self, row: Mapping[str, Any]) -> Any:
        """Return the cell of the label, or None; None also where the row lacks the column."""
        try:
            return self._value(row, "label")
        except RowError:
            return None

    def _label(self, row: Mapping[str, Any]) -> Verdict:
        """Return the verdict that a row's label means."""
        written = self._value(row, "label")
        text = label_text(written)
        verdict: str | None = text
        if self._verdicts:
            # Where the source says what labels mean, A, B and tie themselves mean nothing more.
            verdict = self._verdicts.get(text)
        if verdict not in VERDICTS:
            allowed = ", ".join(self._verdicts or VERDICTS)
            raise RowError(
                "unknown_label", f"label {written!r} is not one of {allowed}: set labels to say what it means"
            )
        return cast(Verdict, verdict)

    def _reference(self, row: Mapping[str, Any]) -> str | None:
        """Return the reference answer of a row, or None.

        Raises:
            RowError: a column of references holds something else. A column that is one by its common name alone, as
                ``answer``, is left unread then, and named as unused.
        """
        # A column ``answer`` may hold the label: then it is no reference.
        if self._belongs_to_other_field(row, "reference"):
            return None
        column = _first_column(row, "reference")
        if not self._names_references(row) and column is not None and not _is_reference(row[column]):
            return None
        reference = self._value(row, "reference")
        if self._source.format == "questions" and isinstance(reference, list):
            # One answer for each question; the query is the last question.
            if reference:
                reference = reference[-1]
            else:
                reference = None
        with _refused("wrong_type", "field reference: "):
            text = reference_text(reference)
        if self._source.format == "multiple_choice":
            parts = (text, scalar_text(self._value(row, "answer")))
            text = "\n".join(str(part).strip() for part in parts if part not in EMPTY) or None
        return text

    def _names_references(self, row: Mapping[str, Any]) -> bool:
        """Return whether the row's column of the reference is called so, or ``fields`` names one."""
        return "reference" in self._source.fields or _first_column(row, "reference") in REFERENCES

    def _messages(self, row: Mapping[str, Any]) -> tuple[Message, ...]:
        """Return the messages of a row, a system message first where it has one; one message at least."""
        cell = self._value(row, "messages")
        if cell is None:
            # HealthBench and TRL have a prompt that is a list of messages.
            prompt = list_in(self._value(row, "query"))
            if prompt and are_messages(prompt):
                cell = prompt
        turns = list_in(cell)
        if cell is not None and not turns:
            raise RowError("wrong_type", f"expected a list of messages, found {cell!r:.40}")

        spoken: list[tuple[str, str]] = []
        with _refused("wrong_message"):
            if turns and self._source.format in SPEAKERS:
                spoken = _by_turns(turns, SPEAKERS[self._source.format])
            elif turns:
                spoken = role_texts(turns)
            # A persona of ParlAI is a list of lines.
            system = scalar_text(text_of(_joined(self._value(row, "system"))))
        if system and not isinstance(system, str):
            raise RowError("wrong_type", f"expected text in field system, found {type(system).__name__}")

        if not turns:
            spoken = [("user", self._query(row))]
        if system:
            spoken.insert(0, ("system", system))
        return tuple(Message(role, text) for role, text in spoken)

    def _query(self, row: Mapping[str, Any]) -> str:
        """Return the query of a row without messages, with its options or its input below it."""
        query = self._text(row, "query")
        if self._source.format == "multiple_choice":
            options = _options(self._value(row, "options"))
            # As an examiner would print it: the question, a blank line, and a line for each choice.
            return f"{query.strip()}\n\n{options}"
        extra = scalar_text(self._value(row, "input"))
        if extra in EMPTY:
            return query
        if not isinstance(extra, str):
            raise RowError("wrong_type", f"expected text in field input, found {type(extra).__name__}")
        return f"{query}\n\n{extra}"


@contextmanager
def _refused(reason: str, where: str = "") -> Iterator[None]:
    """Turn a DataError of the code inside into a RowError; ``where`` goes before its message."""
    try:
        yield
    except DataError as error:
        raise RowError(reason, f"{where}{error}") from error


def count_thoughts(response: Any, reply: Any, thoughts: Counter[str]) -> None:
    """Count a text whose model's thoughts were left out.

    Args:
        response: as it was read.
        reply: what a reader is shown of it.
        thoughts: ``some`` of the texts hold an answer, too, and ``all`` nothing else.
    """
    if not isinstance(response, str) or reply == response:
        return
    if reply.strip():
        thoughts["some"] += 1
    else:
        thoughts["all"] += 1


def thoughts_sentence(name: str, thoughts: Mapping[str, int]) -> str:
    """Return the line about responses that hold what their model thought.

    Args:
        name: of the source.
        thoughts: how many held ``some``, and ``all`` how many held nothing else.
    """
    line = f"{name}: {sum(thoughts.values())} responses hold what their model thought (as <think>), which is left out"
    if thoughts.get("all"):
        line += f"; {thoughts['all']} of them hold nothing else, and are empty"
    return line


def _counts(counts: Sequence[tuple[str, int]]) -> str:
    """Return names and their counts as text, :data:`SHOWN` of them at most."""
    text = ", ".join(f"{name} ({count})" for name, count in counts[:SHOWN])
    # A column of free texts has as many labels as rows.
    if len(counts) > SHOWN:
        return f"{text} and {len(counts) - SHOWN} more"
    return text


_PLACE = re.compile(r"\{([^{}]+)\}")
"""A column's name in braces, as ``fields`` may have it in a text."""


def _column(row: Mapping[str, Any], name: str, field: str) -> Any:
    """Return the cell of a column that ``fields`` names.

    ``a.b`` is the entry ``b`` of a column ``a`` of objects. In a text with braces, ``{a}`` is replaced by the cell of
    ``a``.
    """
    if name in row:
        return row[name]
    if "{" in name:
        return _PLACE.sub(lambda place: str(_column(row, place[1], field)), name)
    # Tried after the whole name: a column's own name may hold a dot.
    value: Any = row
    for part in name.split("."):
        if value is None:
            return None
        if not isinstance(value, Mapping) or part not in value:
            columns = ", ".join(map(str, row))
            raise RowError("missing_field", f"expected the column {name!r} (field {field}), found {columns}")
        value = value[part]
    return value


def _columns_in(columns: Any) -> list[str]:
    """Return the names of columns that ``fields`` gives a field: one, a list, or one (or a list) a criterion.

    Anything else gives none.
    """
    if isinstance(columns, str):
        return [columns]
    values = columns
    if isinstance(columns, Mapping):
        values = columns.values()
    if not isinstance(values, Iterable):
        return []
    names: list[str] = []
    for value in values:
        of_value = _columns_in(value)
        if not of_value:
            return []
        names.extend(of_value)
    return names


def _cells(row: Mapping[str, Any], columns: Any, field: str) -> Any:
    """Return the cells of several columns in the shape in which ``fields`` names them; None where all hold nothing."""
    if isinstance(columns, str):
        return _column(row, columns, field)
    if isinstance(columns, Mapping):
        named = {name: _cells(row, column, field) for name, column in columns.items()}
        if all(cell in EMPTY for cell in named.values()):
            return None
        return named
    cells = [_cells(row, column, field) for column in columns]
    if all(cell in EMPTY for cell in cells):
        return None
    return cells


def _has_column(row: Mapping[str, Any], name: str) -> bool:
    """Return whether :func:`_column` could read a column of this name; a text with braces is taken on trust."""
    return name in row or "{" in name or name.partition(".")[0] in row


def _by_turns(turns: Sequence[Any], roles: Sequence[str]) -> list[tuple[str, str]]:
    """Return the role and the text of each turn, where turns are mere texts and the roles speak one after another."""
    # ParlAI marks a turn in which nobody spoke; the roles go on as if it were one.
    spoken = [(role, text) for role, text in zip(cycle(roles), turns) if text != SILENCE]
    if not spoken or not all(isinstance(text, str) for text in turns):
        raise RowError("wrong_type", f"expected a list of texts, of {' and '.join(roles)} in turn")
    turns_shown = []
    for role, text in spoken:
        # What a model thought is no part of its turn; a user may well write of <think>.
        if role == "assistant":
            text = shown(text)
        turns_shown.append((role, text))
    return turns_shown


def _options(options: Any) -> str:
    """Return the choices of a question as lines ``A. text``.

    Args:
        options: lists of objects with ``aoVal`` (the letter) and ``content``.
    """
    lines = []
    try:
        for group in options:
            for choice in group:
                lines.append(f"{choice['aoVal']}. {choice['content'].strip()}")
    except (TypeError, KeyError, AttributeError) as error:
        raise RowError("wrong_type", "expected options as lists of objects with aoVal and content") from error
    return "\n".join(lines)


def _first_column(row: Mapping[str, Any], field: str) -> str | None:
    """Return the first default column of a field that holds something, or None."""
    for column in DEFAULT_FIELDS[field]:
        if row.get(column) is not None:
            return column
    return None


def _is_reference(cell: Any) -> bool:
    """Return whether a cell could be a reference answer."""
    try:
        reference_text(cell)
    except DataError:
        return False
    return True


def _joined(value: Any) -> Any:
    """Return a list of texts as one text of lines, and anything else as it is."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "\n".join(part.strip() for part in value)
    return value
