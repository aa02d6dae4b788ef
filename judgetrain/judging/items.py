"""What is to be judged: comparisons out of files, and rows that hold none, with the reason.

Several systems' answers to the same prompts become pairs, in the shapes that they are published in: alpaca_eval's
``outputs.json`` (``instruction``, ``output``, ``generator``), and Arena-Hard's ``model_answer/MODEL.jsonl`` (``uid``,
``model``, ``messages``, the last one the answer, 2.0).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from judgetrain.data import world
from judgetrain.data.cells import RowError
from judgetrain.data.config import SourceConfig, WorldConfig
from judgetrain.data.dialogues import adapted
from judgetrain.data.rows import DEFAULT_FIELDS, IDS, RowReader, first_of
from judgetrain.data.sources import Rejects, files_of, read
from judgetrain.errors import ConfigError, DataError
from judgetrain.judging.config import VerdictsConfig
from judgetrain.messages import said
from judgetrain.schema import Candidates, Comparison, Dialogue, Message, messages_of

KEY, SYSTEMS = "verdicts.source", "verdicts.systems"
RESPONSES = ("output", "response", "answer", "completion")
MODELS = ("generator", "model_id", "model", "model_name")
GROUPS = ("dataset", "category")


@dataclass(frozen=True)
class Item:
    """A row: a comparison, and why it cannot be judged, or None. Of one that could not be read the texts are empty.

    ``group``: the responses of a row that holds no pair, each to be scored by itself; ``comparison`` names the row.
    """

    comparison: Comparison
    failure: str | None = None
    group: Candidates | None = None


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
    unread: list[Item] = field(default_factory=list)
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
            answer = self._answer(row, file, "missing_column" if number == 1 else "missing_field")
            self.systems[answer.system] = None
            known = self.by_prompt.setdefault(answer.prompt, {})
            if answer.system in known:
                raise RowError("repeated", f"{answer.system} answers this prompt twice")
            known[answer.system] = answer

        rejects = Rejects(strict=False, keep=lambda row: self.unread.append(unread("systems", row)))
        list(read(SourceConfig(name="systems", path=str(path)), SYSTEMS, take, rejects))

    def _first(self, row: Mapping[str, Any], columns: Sequence[str]) -> Any:
        self.used.update(next(([name] for name in columns if row.get(name) is not None), []))
        return first_of(row, columns)

    def _answer(self, row: Mapping[str, Any], file: str, missing: str) -> Answer:
        named, prompt, group = (self._first(row, columns) for columns in (MODELS, IDS, GROUPS))
        if isinstance(row.get("messages"), list):
            messages, text = _spoken(row["messages"])
        else:
            found = []
            for name, columns in (("prompts", DEFAULT_FIELDS["query"]), ("answers", RESPONSES)):
                found.append(self._first(row, columns))
                if not any(column in row for column in columns):
                    told = f"looked for {', '.join(columns)}, found {', '.join(map(str, row))}"
                    raise RowError(missing, f"no column of {name}: {told}")
            query, text = found
            if not isinstance(query, str) or not isinstance(text, str):
                raise RowError("wrong_type", "expected a prompt and an answer that are texts")
            messages = (Message("user", f"{query}\n\n{row['input']}" if row.get("input") else query),)
        return Answer(
            system=file if named is None else str(named),
            prompt=repr(messages) if prompt is None else str(prompt),
            messages=messages,
            text=text,
            group=None if group is None else str(group),
        )


def unread(source: str, row: Mapping[str, Any]) -> Item:
    """A row that holds no comparison, of what :class:`Rejects` tells of it: an empty one, and why.

    Its id is the row's own, where that could be read, else the source's name and the place. A missing column is no
    fault of one row, and stops the reading (DataError).
    """
    if row["reason"] == "missing_column":
        raise DataError(f"{row['place']}: {row['message']}")
    place = Path(row["place"]).name
    name = row.get("id") or f"{source}:{place}"
    return Item(Comparison(name, Dialogue(name, source, ()), "", ""), f"{row['reason']}: {place}: {row['message']}")


def pairs_of(paths: Sequence[str], baseline: str | None, say: Callable[[str], object]) -> list[Item]:
    """Every pair of systems on every prompt (or the baseline, as A, and each other), prompts in order of appearance.

    Where one of two systems has no answer, or was asked something else, the pair has the reason. ``say`` is told of
    columns that are not used.
    """
    answers = _Answers()
    for path in (files := [path for name in paths for path in files_of(name, SYSTEMS)]):
        answers.read(path)
    if unused := [f"{name} ({n})" for name, n in sorted(answers.columns.items()) if name not in answers.used]:
        say(f"systems: columns that are not used (rows): {', '.join(unused)}")
    names = list(answers.systems)
    if len(names) < 2:
        told = f"; {answers.unread[0].failure}" if answers.unread else ""
        there = ", ".join(names) or "none"
        raise ConfigError(f"{SYSTEMS}: two or more are needed, found {there} in {len(files)} files{told}")
    if baseline is not None and baseline not in names:
        raise ConfigError(f"verdicts.baseline={baseline!r}: there is no such system; there are {', '.join(names)}")
    couples = [(baseline, n) for n in names if n != baseline] if baseline else list(combinations(names, 2))
    found = list(answers.unread)
    for number, (prompt, by_system) in enumerate(answers.by_prompt.items(), 1):
        messages = next(iter(by_system.values())).messages
        # A text is no id to read; a prompt has its number then.
        name = f"systems:{prompt if prompt != repr(messages) else f'{number:05d}'}"
        dialogue = Dialogue(name, "systems", messages)
        found += (_pair(name, dialogue, by_system, *couple) for couple in couples)
    return found


def _pair(name: str, dialogue: Dialogue, answers: Mapping[str, Answer], a: str, b: str) -> Item:
    sides, failure = [answers.get(system) for system in (a, b)], None
    for system, answer in zip((a, b), sides, strict=True):
        if answer is None:
            failure = failure or f"no_answer: {system} has no answer to this prompt"
        elif answer.messages[-1] != dialogue.messages[-1]:
            failure = failure or f"other_prompt: {system} was asked something else under this id"
    text_a, text_b = (answer.text if answer else "" for answer in sides)
    group = next((answer.group for answer in sides if answer and answer.group), None)
    return Item(Comparison(f"{name}:{a}:{b}", dialogue, text_a, text_b, a, b, None, group), failure)


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


def read_items(
    config: VerdictsConfig,
    world_config: WorldConfig | None,
    seed: int,
    say: Callable[[str], object] = lambda told: None,
) -> list[Item]:
    """The rows that stage judge is given, in their order, each under an id of its own (ConfigError: a missing path,
    fewer than two systems, or no such baseline; DataError: a file that is none, or without a column that is needed;
    names the file, line and column).

    A row that cannot be read is one with a ``failure``. Columns that the first row lacks stop the reading. ``say`` is
    told of labels that are not known, and of columns that are not used.
    """
    if config.systems:
        found = pairs_of(config.systems, config.baseline, say)
    elif config.source.type == "world":
        assert world_config is not None
        comparisons = world.eval_comparisons(world.of_source(world_config, config.source), seed)
        found = [Item(c) for c in comparisons[: config.source.limit]]
    else:
        found = _of_source(config.source, say)
    return list(_told_apart(found))


def _of_source(source: SourceConfig, say: Callable[[str], object]) -> list[Item]:
    source = replace(source, name=source.name or Path(source.path).name.partition(".")[0])
    found: list[Item] = []

    rejects = Rejects(strict=False, keep=lambda row: found.append(unread(source.name, row)))
    if source.adapter:
        for comparisons in adapted(source, KEY, rejects):
            found += map(Item, comparisons)
    else:
        for item in _plain(source, rejects, say):
            found.append(item)  # rejected rows come in between
    if not found:
        raise DataError(f"{KEY}.path={source.path}: there is no row; expected a comparison a line")
    if all(item.failure for item in found):
        told = f"none of the {len(found)} rows holds a comparison; the first: {found[0].failure}"
        raise DataError(f"{KEY}.path={source.path}: {told}")
    return found


def _plain(source: SourceConfig, rejects: Rejects, say: Callable[[str], object]) -> Iterator[Item]:
    reader = RowReader(source, KEY)

    def take(row: Any, number: int) -> Item:
        try:
            if reader.is_scored(row):
                group = reader.candidates(row, number)
                return Item(Comparison(group.id, group.dialogue, "", ""), group=group)
            if number == 1:
                reader.check_columns(row)
            return Item(replace(reader.comparison(row, number, labelled=False), label=reader.label(row)))
        except RowError as error:
            with suppress(RowError):
                error.id = reader.id_of(row, number) if isinstance(row, Mapping) else None
            raise

    yield from read(source, KEY, take, rejects)
    reader.tell(say)


def _told_apart(items: list[Item]) -> Iterator[Item]:
    """The items, those whose id stood before under ``ID#2`` and so on."""
    seen: Counter[str] = Counter()
    taken = {item.comparison.id for item in items}
    for item in items:
        name = item.comparison.id
        seen[name] += 1
        while seen[name] > 1 and f"{name}#{seen[name]}" in taken:
            seen[name] += 1
        number = seen[name]
        own, group = f"{name}#{number}" if number > 1 else name, item.group
        yield Item(replace(item.comparison, id=own), item.failure, group and replace(group, id=own))
