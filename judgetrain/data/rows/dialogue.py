"""The dialogue of a row: its messages, or its query with what stands below it, the reference answer and a rubric."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from judgetrain.data.cells import EMPTY, SILENCE, RowError, as_row_error, id_text, list_in, name_text
from judgetrain.data.config import SourceConfig
from judgetrain.data.rows.columns import Columns
from judgetrain.data.rubrics import rubric_of
from judgetrain.errors import DataError
from judgetrain.messages import are_messages, reference_text, role_texts, scalar_text, text_of
from judgetrain.rubrics import Rubric
from judgetrain.schema import Dialogue, Message
from judgetrain.thoughts import shown

SPEAKERS = {"turns": ("user", "assistant"), "questions": ("user",)}
"""The roles that speak in turn, by the source's format, where messages are mere texts."""


class DialogueReader:
    """Reads what a row says of its prompt. Its methods raise a RowError that says what is missing or wrong.

    Args:
        source: its name, and how its messages are written (``format``).
        columns: of its rows.
    """

    def __init__(self, source: SourceConfig, columns: Columns) -> None:
        self._source = source
        self._columns = columns

    def dialogue(self, row: Any, number: int) -> Dialogue:
        """Return the dialogue of a row.

        An answer of the assistant at its end is no part of it, and serves as the reference where there is no other.

        Args:
            row: a mapping from columns to cells.
            number: the number of the row in its source, which stands in for an id.
        """
        dialogue, answer = self._read(row, number, self._reference)
        return replace(dialogue, reference=dialogue.reference or answer)

    def _read(
        self, row: Any, number: int, reference_of: Callable[[Mapping[str, Any]], str | None]
    ) -> tuple[Dialogue, str | None]:
        """Return the dialogue of a row, and the assistant's answer at the end of its messages, if there is one.

        ``reference_of`` returns the reference answer that its columns hold.
        """
        if not isinstance(row, Mapping):
            raise RowError("not_an_object", f"expected a JSON object, found {type(row).__name__}")
        self._columns.count_filled(row)

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

        reference = reference_of(row)
        criteria = self._columns.value(row, "criteria")
        rubric = None
        if criteria not in EMPTY:
            with as_row_error("bad_rubric", "field criteria: "):
                rubric = rubric_of(criteria)
        category = self._columns.value(row, "category")
        if category is not None:
            category = name_text(category)
        dialogue = Dialogue(self.id_of(row, number), self._source.name, messages, reference, category, rubric)
        return dialogue, answer

    def id_of(self, row: Mapping[str, Any], number: int) -> str:
        """Return the source's name and the row's id, or its number where it has no id."""
        written = self._columns.value(row, "id")
        local_id = ""
        if written is not None:
            local_id = id_text(written)
        return f"{self._source.name}:{local_id or f'{number:07d}'}"

    def with_rubric(self, row: Any, number: int) -> tuple[Dialogue, Rubric | None, str | None]:
        """Return the dialogue that responses are judged in, without a rubric of its own, the rubric, and an answer.

        A judge may see the reference. So it counts only if its column is called that, or if ``fields`` names it: an
        ``output`` or ``answer`` beside two responses is often one of them. So is the answer at the end of the row's
        messages, which is no reference here, and is returned by itself; None where there is none.
        """
        dialogue, answer = self._read(row, number, self._named_reference)
        reference = None
        if self._columns.names_references(row):
            reference = dialogue.reference
        return replace(dialogue, rubric=None, reference=reference), dialogue.rubric, answer

    def _named_reference(self, row: Mapping[str, Any]) -> str | None:
        """Return the reference answer of a row whose column is one by name; another is left unread, and told."""
        if not self._columns.names_references(row):
            return None
        return self._reference(row)

    def _reference(self, row: Mapping[str, Any]) -> str | None:
        """Return the reference answer of a row, or None.

        Raises:
            RowError: a column of references holds something else. A column that is one by its common name alone, as
                ``answer``, is left unread then, and named as unused.
        """
        # A column ``answer`` may hold the label: then it is no reference.
        if self._columns.belongs_to_other_field(row, "reference"):
            return None
        column = self._columns.column(row, "reference")
        if not self._columns.names_references(row) and column is not None and not _is_reference(row[column]):
            return None
        reference = self._columns.value(row, "reference")
        if self._source.format == "questions" and isinstance(reference, list):
            # One answer for each question; the query is the last question.
            if reference:
                reference = reference[-1]
            else:
                reference = None
        with as_row_error("wrong_type", "field reference: "):
            text = reference_text(reference)
        if self._source.format == "multiple_choice":
            parts = (text, scalar_text(self._columns.value(row, "answer")))
            text = "\n".join(str(part).strip() for part in parts if part not in EMPTY) or None
        return text

    def _messages(self, row: Mapping[str, Any]) -> tuple[Message, ...]:
        """Return the messages of a row, a system message first where it has one; one message at least."""
        cell = self._columns.value(row, "messages")
        if cell is None:
            # HealthBench and TRL have a prompt that is a list of messages.
            prompt = list_in(self._columns.value(row, "query"))
            if prompt and are_messages(prompt):
                cell = prompt
        turns = list_in(cell)
        if cell is not None and not turns:
            raise RowError("wrong_type", f"expected a list of messages, found {cell!r:.40}")

        spoken: list[tuple[str, str]] = []
        with as_row_error("wrong_message"):
            if turns and self._source.format in SPEAKERS:
                spoken = _by_turns(turns, SPEAKERS[self._source.format])
            elif turns:
                spoken = role_texts(turns)
            # A persona of ParlAI is a list of lines.
            system = scalar_text(text_of(_joined(self._columns.value(row, "system"))))
        if system and not isinstance(system, str):
            raise RowError("wrong_type", f"expected text in field system, found {type(system).__name__}")

        if not turns:
            spoken = [("user", self._query(row))]
        if system:
            spoken.insert(0, ("system", system))
        return tuple(Message(role, text) for role, text in spoken)

    def _query(self, row: Mapping[str, Any]) -> str:
        """Return the query of a row without messages, with its options or its input below it."""
        query = self._columns.text(row, "query")
        if self._source.format == "multiple_choice":
            options = _options(self._columns.value(row, "options"))
            # As an examiner would print it: the question, a blank line, and a line for each choice.
            return f"{query.strip()}\n\n{options}"
        if "input" not in self._source.fields and self._columns.belongs_to_other_field(row, "input"):
            # The query itself is read from a column of this name, and would be said twice.
            return query
        extra = scalar_text(self._columns.value(row, "input"))
        if extra in EMPTY:
            return query
        if not isinstance(extra, str):
            raise RowError("wrong_type", f"expected text in field input, found {type(extra).__name__}")
        return f"{query}\n\n{extra}"


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
