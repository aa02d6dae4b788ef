"""From the rows of published data sets to dialogues and comparisons."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from typing import Any, cast

from judgetrain.data.cells import SILENCE, RowError, label_text, list_in, score_of
from judgetrain.data.config import SourceConfig
from judgetrain.data.rubrics import rubric_of
from judgetrain.errors import ConfigError, DataError
from judgetrain.messages import are_messages, replied, said, text_of
from judgetrain.schema import Candidates, Comparison, Dialogue, Message, Rating, Verdict

DEFAULT_FIELDS = {
    "id": ("id", "question_id", "idx"),
    "messages": ("messages", "conversations", "conversation"),
    "query": ("query", "prompt", "instruction", "question"),
    "input": ("input",),
    "system": (),
    "options": (),
    "answer": (),
    "reference": ("reference", "reference_answer", "output", "answer"),
    "category": ("category", "scenario"),
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
"""The columns in which each field is looked for; ``fields`` in the configuration puts one in front."""

SPEAKERS = {"turns": ("user", "assistant"), "questions": ("user",)}
"""Who speaks in turn, by format, where messages are mere texts."""
VERDICTS = ("A", "B", "tie")
"""What a label of two responses may mean."""
SHOWN = 5
"""Labels or columns that a message names."""


class RowReader:
    """Reads the rows of one source, whatever their published shape; a RowError says what is missing or wrong in one.

    ConfigError: ``fields`` of the source names a field that there is not, or ``labels`` what a label cannot mean.
    """

    def __init__(self, source: SourceConfig, key: str = "source") -> None:
        self._source, self._key = source, key
        self._labels = {text: meaning for text, meaning in source.labels.items() if meaning in VERDICTS}
        self.unknown: Counter[str] = Counter()
        """How labels that are none are written, and how often."""
        self._columns, self._used = Counter[str](), set[str]()
        if unknown := sorted(set(source.fields) - set(DEFAULT_FIELDS)):
            raise ConfigError(f"{key}.fields: unknown field {unknown[0]!r}; known: {', '.join(DEFAULT_FIELDS)}")
        self._scale = {text: self._share(text) for text in source.labels if text not in self._labels}

    def _share(self, label: str) -> float:
        meaning = self._source.labels[label]
        try:
            if 0 <= (share := float(meaning)) <= 1:
                return share
        except ValueError:
            pass
        allowed = f"{', '.join(VERDICTS)}, and of one response 0 (worst) to 1"
        raise ConfigError(f"{self._key}.labels.{label}={meaning!r}: allowed are {allowed}")

    def _get(self, row: Mapping[str, Any], field: str) -> Any:
        named = self._source.fields.get(field)
        if named == "":  # no column
            return None
        if named is not None:
            self._used.update([named, named.partition(".")[0], *_PLACE.findall(named)])
            return _column(row, named, field)
        found = _first(row, field)
        self._used.update([found] if found else [])
        return row[found] if found else None

    def _named(self, row: Mapping[str, Any], field: str) -> str | None:
        value = self._get(row, field)
        return None if value is None else str(value)

    def _text(self, row: Mapping[str, Any], field: str) -> str:
        value = self._get(row, field)
        if value is None:
            raise RowError("missing_field", f"expected text in field {field}, found nothing")
        if not isinstance(value, str):
            raise RowError("wrong_type", f"expected text in field {field}, found {type(value).__name__}")
        return value

    def _response(self, row: Mapping[str, Any], field: str) -> str:
        value, names = self._replied(self._get(row, field)), (self._source.fields.get(field), *DEFAULT_FIELDS[field])
        table = self._source.path.removesuffix(".gz").endswith((".csv", ".tsv"))
        if value is None and table and any(name in row for name in names):
            return ""  # a table has no other way to write a response without text
        return value if isinstance(value, str) else self._text(row, field)

    def _replied(self, value: Any) -> Any:
        """What is judged of a response: its text, also of a conversation that ends with it.

        A text that is JSON is an answer like any other.
        """
        with _refused("wrong_message"):
            found = value if isinstance(value, str) else replied(value)
        return found if isinstance(found, str) else value

    def check_columns(self, row: Any) -> None:
        """Check of a source's first row that it has the columns of a comparison, whatever they hold."""
        named = self._source.fields
        for field in ("query", "response_a", "response_b") if isinstance(row, Mapping) else ():
            looked = [named[field]] if field in named else [*DEFAULT_FIELDS[field]]
            if field == "query" and field not in named:
                looked += [named["messages"]] if "messages" in named else DEFAULT_FIELDS["messages"]
            if not any(name in row or "{" in name or name.partition(".")[0] in row for name in looked):
                told = f"no column for {field}: looked for {', '.join(looked)}, found {', '.join(map(str, row))}"
                raise RowError("missing_column", f"{told}; say '{self._key}.fields={{{field}: COLUMN}}'")

    def dialogue(self, row: Any, number: int) -> Dialogue:
        """The dialogue of a row; ``number`` stands in where it has no id."""
        if not isinstance(row, Mapping):
            raise RowError("not_an_object", f"expected a JSON object, found {type(row).__name__}")
        self._columns.update(str(name) for name, value in row.items() if value is not None)
        messages, answer = self._messages(row), None
        if len(messages) > 1 and messages[-1].role == "assistant":
            messages, answer = messages[:-1], messages[-1].content
        if (role := messages[-1].role) != "user":
            raise RowError("last_not_user", f"expected the last message to be the user's, found role {role!r}")
        if not messages[-1].content.strip():
            raise RowError("empty_query", "expected a query, found only white space")
        reference, raw = self._reference(row) or answer, self._get(row, "criteria")
        with _refused("bad_rubric", "field criteria: "):
            rubric = None if raw in (None, "") else rubric_of(raw)
        category = self._named(row, "category")
        return Dialogue(self.id_of(row, number), self._source.name, messages, reference, category, rubric)

    def id_of(self, row: Mapping[str, Any], number: int) -> str:
        """The source's name and the row's id; ``number`` stands in where it has none."""
        return f"{self._source.name}:{self._named(row, 'id') or f'{number:07d}'}"

    def comparison(self, row: Any, number: int, labelled: bool | None) -> Comparison:
        """The comparison of a row. ``labelled`` asks for a label, None reads one where it is; False never does."""
        row = self._unlisted(row) if isinstance(row, Mapping) else row
        known = self._about(row, number)
        a, b = (self._response(row, f"response_{side}") for side in "ab")
        wanted = labelled or (labelled is None and self._written_label(row) not in (None, ""))
        known |= {name: self._named(row, name) or "" for name in ("model_a", "model_b")}
        known["group"] = self._named(row, "group")
        return Comparison(**known, response_a=a, response_b=b, label=self._label(row) if wanted else None)

    def candidates(self, row: Any, number: int) -> Candidates:
        """The responses of a row that holds one, or a list of them, each to be scored by itself."""
        known, cell = self._about(row, number), self._get(row, "responses")
        listed = [self._response(row, "response")] if cell is None else list_in(cell)
        texts = tuple(map(self._replied, listed or ()))
        if not texts or not all(isinstance(text, str) for text in texts):
            raise RowError("wrong_type", f"expected a list of texts in field responses, found {cell!r:.80}")
        if not any(text.strip() for text in texts):
            raise RowError("empty_response", "no response holds a text")
        return Candidates(**known, responses=texts)

    def rated(self, row: Any, number: int) -> Comparison:
        """The response of a row that holds one, with how good its label says that it is; nothing is set against it."""
        known, response = self._about(row, number), self._response(row, "response")
        if not response.strip():
            raise RowError("empty_response", "expected a response, found only white space")
        rating = Rating(score_of(self._rating(row), self._scale), self._named(row, "rationale"))
        known |= {"model_a": self._named(row, "model_a") or "", "group": self._named(row, "group")}
        return Comparison(**known, response_a=response, response_b="", rating_a=rating)

    def _about(self, row: Any, number: int) -> dict[str, Any]:
        """The id, the dialogue and the rubric of what is judged.

        Its reference is one that a judge may be shown: of a column of that name, or one that is named.
        """
        found = self.dialogue(row, number)
        shown = "reference" in self._source.fields or _first(row, "reference") in ("reference", "reference_answer")
        dialogue = replace(found, rubric=None, reference=found.reference if shown else None)
        return {"id": found.id, "dialogue": dialogue, "rubric": found.rubric}

    def _unlisted(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row; where query and responses are lists with an entry a turn, also as JSON in cells, their texts."""
        fields = ("query", "response_a", "response_b")
        names = [self._source.fields.get(field) or _first(row, field) for field in fields]
        lists = [found for name in names if name and (found := list_in(row.get(name))) is not None]
        lists = [each for each in lists if all(text is None or isinstance(text, str) for text in each)]
        if len(lists) < len(names) or len({len(each) for each in lists}) > 1:
            return row
        if (turns := len(lists[0])) != 1:
            raise RowError("several_turns", f"query and responses are lists of {turns} turns; expected a text each")
        return {**row, **{str(name): each[0] for name, each in zip(names, lists, strict=True)}}

    def has_responses(self, row: Any) -> bool:
        """Whether the row carries two responses."""
        return isinstance(row, Mapping) and all(self._get(row, f"response_{side}") is not None for side in "ab")

    def is_scored(self, row: Any) -> bool:
        """Whether the row holds one response, or a list of them, in the place of two."""
        named = isinstance(row, Mapping) and any(self._get(row, name) is not None for name in ("responses", "response"))
        return named and not self.has_responses(row)

    def is_rated(self, row: Any) -> bool:
        """Whether the row holds one response and a label of it."""
        if not self.is_scored(row) or self._get(row, "response") is None or self._is_other_s(row, "response"):
            return False
        return self._rating(row) not in (None, "")

    def _rating(self, row: Mapping[str, Any]) -> Any:
        return self._get(row, "score") if (label := self._get(row, "label")) is None else label

    def _is_other_s(self, row: Mapping[str, Any], field: str) -> bool:
        """Whether the column of a field is one that ``fields`` gives to another field."""
        return _first(row, field) in {name for other, name in self._source.fields.items() if other != field}

    def label(self, row: Mapping[str, Any]) -> Verdict | None:
        """The label of a row, where it has one that is known; :meth:`tell` says what else stood there."""
        try:
            return self._label(row)
        except RowError:
            if (written := self._written_label(row)) not in (None, ""):
                self.unknown[label_text(written)] += 1
            return None

    def tell(self, say: Callable[[str], object]) -> None:
        """Say how many labels were read that are none, and which columns nothing was read from; if any."""
        name = self._source.name
        if self.unknown:
            written = _counts([(repr(label), n) for label, n in self.unknown.most_common()])
            told = f"{self.unknown.total()} labels are none of {', '.join(self._labels or VERDICTS)} and are not used"
            advice = f"say what they mean with '{self._key}.labels={{{next(iter(self.unknown))}: A, ...}}'"
            say(f"{name}: {told}: {written}; {advice}")
        if unused := [(column, n) for column, n in sorted(self._columns.items()) if column not in self._used]:
            say(f"{name}: columns that are not used (rows): {_counts(unused)}")

    def _written_label(self, row: Mapping[str, Any]) -> Any:
        try:
            return self._get(row, "label")
        except RowError:  # no such column
            return None

    def _label(self, row: Mapping[str, Any]) -> Verdict:
        value = self._get(row, "label")
        text = label_text(value)
        verdict = self._labels.get(text, text if not self._labels else None)
        if verdict not in VERDICTS:
            known = ", ".join(self._labels or VERDICTS)
            raise RowError("unknown_label", f"label {value!r} is not one of {known}: set labels to say what it means")
        return cast(Verdict, verdict)

    def _reference(self, row: Mapping[str, Any]) -> str | None:
        if self._is_other_s(row, "reference"):  # as a label in a column answer
            return None
        value = self._get(row, "reference")
        if self._source.format == "questions" and isinstance(value, list):  # one a question; the last is asked last
            value = value[-1] if value else None
        value = _joined(value)
        if self._source.format == "multiple_choice":
            value = "\n".join(str(part).strip() for part in (value, self._get(row, "answer")) if part)
        return value if isinstance(value, str) and value else None

    def _messages(self, row: Mapping[str, Any]) -> tuple[Message, ...]:
        form, cell = self._source.format, self._get(row, "messages")
        if cell is None and (asked := list_in(self._get(row, "query"))) and are_messages(asked):
            cell = asked  # HealthBench, TRL: a prompt of messages
        turns = list_in(cell)
        if cell is not None and not turns:
            raise RowError("wrong_type", f"expected a list of messages, found {cell!r:.40}")
        with _refused("wrong_message"):
            spoken = _by_turns(turns, SPEAKERS[form]) if turns and form in SPEAKERS else said(turns or ())
            system = text_of(_joined(self._get(row, "system")))
        if system and not isinstance(system, str):
            raise RowError("wrong_type", f"expected text in field system, found {type(system).__name__}")
        asked_here = spoken if turns else [("user", self._query(row))]
        return tuple(Message(*each) for each in [*([("system", system)] if system else ()), *asked_here])

    def _query(self, row: Mapping[str, Any]) -> str:
        query = self._text(row, "query")
        if self._source.format == "multiple_choice":
            return f"{query.strip()}\n\n{_options(self._get(row, 'options'))}"
        return f"{query}\n\n{self._text(row, 'input')}" if self._get(row, "input") else query


@contextmanager
def _refused(reason: str, where: str = "") -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise RowError(reason, f"{where}{error}") from error


def _counts(found: Sequence[tuple[str, int]]) -> str:
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"{', '.join(f'{name} ({n})' for name, n in found[:SHOWN])}{more}"


_PLACE = re.compile(r"\{([^{}]+)\}")


def _column(row: Mapping[str, Any], name: str, field: str) -> Any:
    """A column by name; ``a.b`` is the entry ``b`` of a column ``a`` of objects, and ``{a}`` in a text is filled in."""
    if name in row:
        return row[name]
    if "{" in name:
        return _PLACE.sub(lambda place: str(_column(row, place[1], field)), name)
    value: Any = row
    for part in name.split("."):
        if value is None:
            return None
        if not isinstance(value, Mapping) or part not in value:
            found = ", ".join(map(str, row))
            raise RowError("missing_field", f"expected the column {name!r} (field {field}), found {found}")
        value = value[part]
    return value


def _by_turns(turns: Sequence[Any], roles: Sequence[str]) -> list[tuple[str, str]]:
    spoken = [(role, text) for role, text in zip(cycle(roles), turns) if text != SILENCE]
    if not spoken or not all(isinstance(text, str) for text in turns):
        raise RowError("wrong_type", f"expected a list of texts, of {' and '.join(roles)} in turn")
    return spoken


def _options(options: Any) -> str:
    """The choices of a question as lines ``A. text``; each is an object with ``aoVal`` and ``content``, in a list."""
    try:
        choices = [choice for group in options for choice in group]
        return "\n".join(f"{c['aoVal']}. {c['content'].strip()}" for c in choices)
    except (TypeError, KeyError, AttributeError) as error:
        raise RowError("wrong_type", "expected options as lists of objects with aoVal and content") from error


def _first(row: Mapping[str, Any], field: str) -> str | None:
    return next((name for name in DEFAULT_FIELDS[field] if row.get(name) is not None), None)


def _joined(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "\n".join(part.strip() for part in value)
    return value


IDS = ("uid", "question_id", "prompt_id")
"""Columns of a prompt's id, as benchmarks call them (Arena-Hard 2.0, MT-Bench); they decide where a row has one."""

Asked = tuple[str, ...]
"""What tells one prompt from another: its id, or all that the user said, an entry a turn."""


def asked_in(row: Mapping[str, Any], column: str | None = None) -> Asked | None:
    """What a row says of its prompt; None where it says nothing. ``column``: the one that decides."""
    named = (column,) if column else IDS
    if (found := first_of(row, named)) is not None:
        return (str(found),)
    if column:
        return None
    if messages := list_in(row.get("messages")):
        said = [m.get("content") for m in messages if isinstance(m, Mapping) and m.get("role") == "user"]
        return tuple(map(str, said)) or (json.dumps(messages),)
    found = first_of(row, (*DEFAULT_FIELDS["query"], "dialogue_id"))
    return None if found in (None, "") else (str(found),)


def clusters(asked: Sequence[Asked]) -> list[Asked]:
    """What rows about one prompt have in common: turns of a conversation count as its first one that there is."""
    whole = set(asked)
    return [next(each[:n] for n in range(1, len(each) + 1) if each[:n] in whole) for each in asked]


def first_of(row: Mapping[str, Any], columns: Sequence[str]) -> Any:
    """The first of the columns that holds something, be it 0 or an empty text; None without any."""
    return next((row[name] for name in columns if row.get(name) is not None), None)
