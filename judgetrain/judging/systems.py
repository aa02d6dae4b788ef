"""Several systems' answers to the same prompts, in the shapes that they are published in, as pairs to judge.

- alpaca_eval's ``outputs.json``: ``instruction``, ``output``, ``generator``.
- Arena-Hard's ``model_answer/MODEL.jsonl``: ``uid``, ``model``, ``messages``, the last one the answer (2.0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from judgetrain.data.cells import RowError
from judgetrain.data.config import SourceConfig
from judgetrain.data.rows import DEFAULT_FIELDS, IDS, first_of
from judgetrain.data.sources import Rejects, files_of, read
from judgetrain.errors import ConfigError, DataError
from judgetrain.messages import said
from judgetrain.schema import Comparison, Dialogue, Message, messages_of

KEY = "verdicts.systems"
RESPONSES = ("output", "response", "answer", "completion")
MODELS = ("generator", "model_id", "model", "model_name")
GROUPS = ("dataset", "category")

Pair = tuple[Comparison, str | None]
"""A comparison, and why it cannot be judged, or None."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a system answered to a prompt, which is its id, or its text where rows have none."""

    system: str
    prompt: str
    messages: tuple[Message, ...]
    text: str
    group: str | None = None


@dataclass
class _Answers:
    """What all files hold: the answers by prompt, and the systems; both in the order of the files."""

    by_prompt: dict[str, dict[str, Answer]] = field(default_factory=dict)
    systems: dict[str, None] = field(default_factory=dict)
    unread: list[Pair] = field(default_factory=list)
    columns: Counter[str] = field(default_factory=Counter)
    used: set[str] = field(default_factory=lambda: {"messages", "input"})

    def read(self, path: Path) -> None:
        """Take the answers of a file; rows that hold none are kept aside with the reason.

        A system that its rows do not name is called as the file, whose name may hold dots (``gpt-4.1.jsonl.gz``).
        """
        file = Path(path.name.removesuffix(".gz")).stem

        def take(row: Any, number: int) -> None:
            if not isinstance(row, Mapping):
                raise RowError("not_an_object", f"expected a JSON object, found {type(row).__name__}")
            self.columns.update(map(str, row))
            try:
                answer = self._answer(row, file)
            except RowError as error:
                late = error.reason == "missing_column" and number > 1
                raise RowError("missing_field", str(error)) if late else error from None
            self.systems[answer.system] = None
            known = self.by_prompt.setdefault(answer.prompt, {})
            if answer.system in known:
                raise RowError("repeated", f"{answer.system} answers this prompt twice")
            known[answer.system] = answer

        rejects = Rejects(strict=False, keep=lambda row: self.unread.append(unread("systems", row)))
        list(read(SourceConfig(name="systems", path=str(path)), KEY, take, rejects))

    def _first(self, row: Mapping[str, Any], columns: Sequence[str]) -> Any:
        self.used.update(next(([name] for name in columns if row.get(name) is not None), []))
        return first_of(row, columns)

    def _answer(self, row: Mapping[str, Any], file: str) -> Answer:
        named, prompt, group = (self._first(row, columns) for columns in (MODELS, IDS, GROUPS))
        if isinstance(row.get("messages"), list):
            messages, text = _spoken(row["messages"])
        else:
            found = []
            for name, columns in (("prompts", DEFAULT_FIELDS["query"]), ("answers", RESPONSES)):
                found.append(self._first(row, columns))
                if not any(column in row for column in columns):
                    told = f"looked for {', '.join(columns)}, found {', '.join(map(str, row))}"
                    raise RowError("missing_column", f"no column of {name}: {told}")
            query, text = found
            if not isinstance(query, str) or not isinstance(text, str):
                raise RowError("wrong_type", "expected a prompt and an answer that are texts")
            messages = (Message("user", f"{query}\n\n{row['input']}" if row.get("input") else query),)
        return Answer(
            system=file if named is None else str(named),
            prompt=_text(messages) if prompt is None else str(prompt),
            messages=messages,
            text=text,
            group=None if group is None else str(group),
        )

    def tell_unused(self, say: Callable[[str], object]) -> None:
        """Say which columns nothing was read from, and in how many rows they stood; if any."""
        if unused := [f"{name} ({n})" for name, n in sorted(self.columns.items()) if name not in self.used]:
            say(f"systems: columns that are not used (rows): {', '.join(unused)}")


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


def pairs_of(paths: Sequence[str], baseline: str | None, say: Callable[[str], object]) -> list[Pair]:
    """Every pair of systems on every prompt (or the baseline, as A, and each other), prompts in order of appearance.

    Where one of two systems has no answer, or was asked something else, the pair has the reason. ``say`` is told of
    columns that are not used.

    Raises:
        ConfigError: a missing file, fewer than two systems, or no such baseline.
        DataError: a file without what is needed; names file and line.
    """
    answers = _Answers()
    files = [path for name in paths for path in files_of(name, KEY)]
    for path in files:
        answers.read(path)
    answers.tell_unused(say)
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


def _spoken(given: Sequence[Any]) -> tuple[tuple[Message, ...], str]:
    """The prompt and the answer of a conversation that ends with it; a content may be an object with ``answer``."""
    turns = [dict(m) if isinstance(m, Mapping) else m for m in given]
    for turn in turns:
        if isinstance(turn, dict) and isinstance(content := turn.get("content"), Mapping):
            turn["content"] = content.get("answer")
    try:
        *asked, (role, text) = said(turns)
        if not asked or role != "assistant":
            raise RowError("no_answer", "expected messages that end with the system's answer")
        return messages_of([Message(*each) for each in asked]), text
    except DataError as error:
        raise RowError("wrong_message", str(error)) from error


def _text(messages: Sequence[Message]) -> str:
    """A prompt as what answers to it are matched by."""
    return repr(messages)
