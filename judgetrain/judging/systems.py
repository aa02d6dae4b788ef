"""Several systems' answers to the same prompts, in the shapes that they are published in, as pairs to judge.

- alpaca_eval's ``outputs.json``: ``instruction``, ``output``, ``generator``.
- Arena-Hard's ``model_answer/MODEL.jsonl``: ``uid``, ``model``, ``messages``, the last one the answer (2.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from judgetrain.data.cells import RowError
from judgetrain.data.config import SourceConfig
from judgetrain.data.prompts import IDS, first_of
from judgetrain.data.rows import DEFAULT_FIELDS
from judgetrain.data.sources import Rejects, files_of, read
from judgetrain.errors import ConfigError, DataError
from judgetrain.schema import Comparison, Dialogue, Message, messages_of

KEY = "verdicts.systems"
RESPONSES = ("output", "response", "answer", "completion")
MODELS = ("generator", "model_id", "model", "model_name")
GROUPS = ("dataset", "category")

Pair = tuple[Comparison, str | None]
"""A comparison, and why it cannot be judged, or None."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a system answered to a prompt."""

    system: str
    prompt: str
    """The prompt's id, or its text where rows have none."""
    messages: tuple[Message, ...]
    text: str
    group: str | None = None


@dataclass
class _Answers:
    """What all files hold: the answers by prompt, and by system; both in the order of the files."""

    by_prompt: dict[str, dict[str, Answer]] = field(default_factory=dict)
    systems: dict[str, None] = field(default_factory=dict)
    unread: list[Pair] = field(default_factory=list)

    def add(self, answer: Answer) -> None:
        """Take what a row holds.

        Raises:
            RowError: the system answered the prompt before.
        """
        self.systems[answer.system] = None
        found = self.by_prompt.setdefault(answer.prompt, {})
        if answer.system in found:
            raise RowError("repeated", f"{answer.system} answers this prompt twice")
        found[answer.system] = answer


def unread(source: str, row: Mapping[str, Any]) -> Pair:
    """A row that holds no comparison, of what :class:`Rejects` tells of it: an empty one, and why.

    Its id is the row's own, where that could be read, else the source's name and the place.

    Raises:
        DataError: a column is missing, which is no fault of one row.
    """
    if row["reason"] == "missing_column":
        raise DataError(f"{row['place']}: {row['message']}")
    place = Path(row["place"]).name
    name = row.get("id") or f"{source}:{place}"
    return Comparison(name, Dialogue(name, source, ()), "", ""), f"{row['reason']}: {place}: {row['message']}"


def pairs_of(paths: Sequence[str], baseline: str | None) -> list[Pair]:
    """Every pair of systems on every prompt (or the baseline, as A, and each other), prompts in order of appearance.

    Where one of two systems has no answer, or was asked something else, the pair has the reason.

    Raises:
        ConfigError: a missing file, fewer than two systems, or no such baseline.
        DataError: a file without what is needed; names file and line.
    """
    answers = _Answers()
    files = [path for name in paths for path in files_of(name, KEY)]
    for path in files:
        _read(path, answers)
    names = list(answers.systems)
    if len(names) < 2:
        raise ConfigError(f"{KEY}: two systems or more are needed, found {', '.join(names) or 'none'} in {len(files)}")
    if baseline is not None and baseline not in names:
        raise ConfigError(f"verdicts.baseline={baseline!r}: there is no such system; there are {', '.join(names)}")
    couples = [(baseline, n) for n in names if n != baseline] if baseline else list(combinations(names, 2))
    found = list(answers.unread)
    for number, (prompt, by_system) in enumerate(answers.by_prompt.items(), 1):
        messages = next(iter(by_system.values())).messages
        # A text is no id to read; a prompt has its number then.
        name = f"systems:{prompt if prompt != _text(messages) else f'{number:05d}'}"
        dialogue = Dialogue(name, "systems", messages)
        found += (_pair(name, dialogue, by_system, *couple) for couple in couples)
    return found


def _pair(name: str, dialogue: Dialogue, answers: Mapping[str, Answer], a: str, b: str) -> Pair:
    sides, failure = [answers.get(system) for system in (a, b)], None
    for system, answer in zip((a, b), sides, strict=True):
        if answer is None:
            failure = failure or f"no_answer: {system} has no answer to this prompt"
        elif answer.messages[-1] != dialogue.messages[-1]:
            failure = failure or f"other_prompt: {system} was asked something else under this id"
    text_a, text_b = (answer.text if answer else "" for answer in sides)
    group = next((answer.group for answer in sides if answer and answer.group), None)
    return Comparison(f"{name}:{a}:{b}", dialogue, text_a, text_b, a, b, None, group), failure


def _read(path: Path, answers: _Answers) -> None:
    """The answers of a file; rows that hold none are kept aside with the reason.

    A system that its rows do not name is called as the file, whose name may hold dots (``gpt-4.1.jsonl.gz``).
    """

    source = SourceConfig(name="systems", path=str(path))
    file = Path(path.name.removesuffix(".gz")).stem

    def take(row: Any, number: int) -> None:
        if not isinstance(row, Mapping):
            raise RowError("not_an_object", f"expected a JSON object, found {type(row).__name__}")
        try:
            answers.add(_answer(row, file))
        except RowError as error:
            if error.reason == "missing_column" and number > 1:
                raise RowError("missing_field", str(error)) from error
            raise

    rejects = Rejects(strict=False, keep=lambda row: answers.unread.append(unread("systems", row)))
    for _ in read(source, KEY, take, rejects):
        pass


def _answer(row: Mapping[str, Any], file: str) -> Answer:
    """What a row holds."""
    named, prompt, group = first_of(row, MODELS), first_of(row, IDS), first_of(row, GROUPS)
    if isinstance(row.get("messages"), list):
        messages, text = _spoken(row["messages"])
    else:
        query, said = (first_of(row, columns) for columns in (DEFAULT_FIELDS["query"], RESPONSES))
        for name, value, columns in (("prompts", query, DEFAULT_FIELDS["query"]), ("answers", said, RESPONSES)):
            if value is None and not any(column in row for column in columns):
                found = ", ".join(map(str, row))
                raise RowError("missing_column", f"no column of {name}: looked for {', '.join(columns)}, found {found}")
        if not isinstance(query, str) or not isinstance(said, str):
            raise RowError("wrong_type", "expected a prompt and an answer that are texts")
        if row.get("input"):
            query = f"{query}\n\n{row['input']}"
        messages, text = (Message("user", query),), said
    group = None if group is None else str(group)
    system, prompt = file if named is None else str(named), _text(messages) if prompt is None else str(prompt)
    return Answer(system=system, prompt=prompt, messages=messages, text=text, group=group)


def _spoken(given: Sequence[Any]) -> tuple[tuple[Message, ...], str]:
    """The prompt and the answer of a conversation that ends with it; a content may be an object with ``answer``."""
    said = [dict(m) if isinstance(m, Mapping) else {} for m in given]
    for message in said:
        if isinstance(content := message.get("content"), Mapping):
            message["content"] = content.get("answer")
    if len(said) < 2 or said[-1].get("role") != "assistant" or not isinstance(said[-1].get("content"), str):
        raise RowError("no_answer", "expected messages that end with the system's answer")
    try:
        return messages_of(said[:-1]), said[-1]["content"]
    except DataError as error:
        raise RowError("wrong_message", str(error)) from error


def _text(messages: Sequence[Message]) -> str:
    """A prompt as what answers to it are matched by."""
    return repr([asdict(m) for m in messages])
