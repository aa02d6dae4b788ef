"""The items of stage judge: comparisons out of files, and rows that hold none, with the reason.

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

from judgetrain.amounts import amount
from judgetrain.data import world
from judgetrain.data.benchmarks.adapter import load_adapter
from judgetrain.data.benchmarks.benchmark import CaseReader, placed
from judgetrain.data.cells import RowError, id_text, name_text
from judgetrain.data.config import SourceConfig, WorldConfig
from judgetrain.data.dialogues import adapted
from judgetrain.data.labelled import Scale, Votes
from judgetrain.data.prompt_keys import IDS
from judgetrain.data.rows.columns import DEFAULT_FIELDS, first_filled, usual_columns
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.rows.replies import count_thoughts, thoughts_sentence
from judgetrain.data.sources import Rejects, files_of, read, row_reader
from judgetrain.errors import ConfigError, DataError
from judgetrain.judging.config import VerdictsConfig
from judgetrain.messages import replied, role_texts, scalar_text, with_empty_end
from judgetrain.schema import Candidates, Comparison, Dialogue, Message, messages_of

# Configuration keys, for messages.
KEY = "verdicts.source"
SYSTEMS = "verdicts.systems"

# The columns of systems' answers, by the names that published files have for them; the first that is there counts.
RESPONSES = ("output", "response", "answer", "completion")
MODELS = ("generator", "model_id", "model", "model_name")
GROUPS = ("dataset", "category")


@dataclass(frozen=True)
class JudgedRow:
    """A row of what is to be judged.

    Args:
        comparison: of the row; its texts are empty where the row could not be read.
        failure: why it cannot be judged; None: it can.
        group: the responses of a row that holds no pair, each to be scored by itself; ``comparison`` names the row.
        votes: people's labels of a row's only response, by criterion (:mod:`judgetrain.data.labelled`).
        scales: of these labels, the same for all rows of a source.
    """

    comparison: Comparison
    failure: str | None = None
    group: Candidates | None = None
    votes: Mapping[str, Votes] = field(default_factory=dict)
    scales: Mapping[str, Scale] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, float | None]:
        """Return the label of a row's only response, 0 to 1, by criterion; None where annotators tie."""
        return {name: self.scales[name].label(votes) for name, votes in self.votes.items()}


@dataclass(frozen=True, kw_only=True)
class SystemAnswer:
    """A system's answer to a prompt.

    Args:
        system: its name.
        prompt: the prompt's id, or its text where rows have none.
        messages: the prompt.
        text: the answer.
        group: of the prompt.
    """

    system: str
    prompt: str
    messages: tuple[Message, ...]
    text: str
    group: str | None = None


@dataclass
class _Answers:
    """The answers of all files.

    Args:
        by_prompt: answers by prompt and system, in the order of the files.
        systems: their names, in the order of the files.
        unread: rows that hold no answer.
        columns: how many rows have each column.
        used: columns that are read.
        thoughts: as of :func:`~judgetrain.data.rows.replies.thoughts_sentence`.
    """

    # Dictionaries keep the order of the files, in which the rows come out.
    by_prompt: dict[str, dict[str, SystemAnswer]] = field(default_factory=dict)
    systems: dict[str, None] = field(default_factory=dict)
    unread: list[JudgedRow] = field(default_factory=list)
    columns: Counter[str] = field(default_factory=Counter)
    # These two are read wherever they are.
    used: set[str] = field(default_factory=lambda: {"messages", "input"})
    thoughts: Counter[str] = field(default_factory=Counter)

    def read(self, path: Path) -> None:
        """Add the answers of a file; rows that hold none are kept aside with the reason.

        A system that its rows do not name is called as the file, whose name may hold dots (``gpt-4.1.jsonl.gz``).
        """
        file = Path(path.name.removesuffix(".gz")).stem

        def take(row: Any, number: int) -> None:
            # Files are made by many programs: what is wrong in one row is told, and the others are judged.
            if not isinstance(row, Mapping):
                raise RowError("not_an_object", f"expected a JSON object, found {type(row).__name__}")
            self.columns.update(map(str, row))
            missing = "missing_field"
            # A column that the first row lacks is missing in the file, which stops the reading.
            if number == 1:
                missing = "missing_column"
            answer = self._answer(row, file, missing)
            self.systems[answer.system] = None
            answers = self.by_prompt.setdefault(answer.prompt, {})
            # A file that was written twice, or two runs in one file: nobody can say which answer is meant.
            if answer.system in answers:
                raise RowError("repeated", f"{answer.system} answers this prompt twice")
            answers[answer.system] = answer

        rejects = Rejects(strict=False, keep=lambda row: self.unread.append(unread("systems", row)))
        # The rows are drawn for what ``take`` does with them.
        list(read(SourceConfig(name="systems", path=str(path)), SYSTEMS, take, rejects))

    def tell_columns(self, say: Callable[[str], object]) -> None:
        """Say which columns are not used, and what was left out of the answers."""
        unused = [f"{name} ({count})" for name, count in sorted(self.columns.items()) if name not in self.used]
        if unused:
            say(f"systems: columns that are not used (rows): {', '.join(unused)}")
        if self.thoughts:
            say(thoughts_sentence("systems", self.thoughts))

    def tell_gaps(self, say: Callable[[str], object]) -> None:
        """Say which systems answer some of the prompts alone."""
        total = len(self.by_prompt)
        for name in self.systems:
            answered = sum(name in by_system for by_system in self.by_prompt.values())
            if answered < total:
                say(
                    f"systems: {name} has no row for {total - answered} of {amount(total, 'prompt')}, which it "
                    "is not judged on"
                )

    def _first(self, row: Mapping[str, Any], columns: Sequence[str]) -> Any:
        """Return the value of the first of some columns that a row has, and note the column as used."""
        column = first_filled(row, columns)
        if column is None:
            return None
        self.used.add(column)
        return row[column]

    def _answer(self, row: Mapping[str, Any], file: str, missing: str) -> SystemAnswer:
        """Return the answer of a row.

        Args:
            row: of a file.
            file: the system's name where the row has none.
            missing: the reason of a row without a prompt or an answer.

        Raises:
            RowError: the row holds no prompt and answer.
        """
        system = name_text(self._first(row, MODELS)) or file
        written_id = self._first(row, IDS)
        prompt = None
        if written_id is not None:
            prompt = id_text(written_id)
        group = name_text(self._first(row, GROUPS)) or None
        # Arena-Hard's rows hold a conversation, alpaca_eval's a column of each.
        if isinstance(row.get("messages"), list):
            messages, text = _conversation(row["messages"])
        else:
            _check_columns(row, missing)
            query = self._first(row, DEFAULT_FIELDS["query"])
            text = self._shown(self._first(row, RESPONSES))
            if not isinstance(query, str) or not isinstance(text, str):
                raise RowError("wrong_type", "expected a prompt and an answer that are texts")
            # alpaca_eval's rows may hold the text that an instruction is about.
            extra = scalar_text(row.get("input"))
            if not isinstance(extra, (str, type(None))):
                raise RowError("wrong_type", f"expected text in column input, found {type(extra).__name__}")
            if extra:
                query = f"{query}\n\n{extra}"
            messages = (Message("user", query),)
        if prompt is None:
            # Without an id the same text is the same prompt.
            prompt = repr(messages)
        return SystemAnswer(system=system, prompt=prompt, messages=messages, text=text, group=group)

    def _shown(self, answer: Any) -> Any:
        """Return what a reader is shown of an answer; one that is null is empty, and loses."""
        if answer is None:
            # The system was asked and said nothing.
            return ""
        try:
            text = replied(answer)
        except DataError as error:
            raise RowError("wrong_message", str(error)) from error
        count_thoughts(answer, text, self.thoughts)
        return text


def _check_columns(row: Mapping[str, Any], reason: str) -> None:
    """Raise a RowError for a row without a prompt or an answer, which names all columns that it lacks."""
    missing = []
    for name, columns in (("prompts", DEFAULT_FIELDS["query"]), ("answers", RESPONSES)):
        if not usual_columns(row, columns):
            missing.append(f"no column of {name}: looked for {', '.join(columns)}")
    if missing:
        raise RowError(reason, f"{'; '.join(missing)}; found {', '.join(map(str, row))}")


def unread(source: str, row: Mapping[str, Any]) -> JudgedRow:
    """Return the item of a row that holds no comparison: an empty one with the reason.

    Its id is the row's own, where that could be read, else the source's name and the place.

    Args:
        source: the source's name.
        row: the reject of the row, as :class:`Rejects` keeps it.

    Raises:
        DataError: a column is missing, which is no fault of one row.
    """
    if row["reason"] == "missing_column":
        raise DataError(f"{row['place']}: {row['message']}")
    # Without the folders, which differ from machine to machine.
    place = Path(row["place"]).name
    name = row.get("id") or f"{source}:{place}"
    return JudgedRow(
        Comparison(name, Dialogue(name, source, ()), "", ""), f"{row['reason']}: {place}: {row['message']}"
    )


def pairs_of(paths: Sequence[str], baseline: str | None, say: Callable[[str], object]) -> list[JudgedRow]:
    """Return every pair of systems on every prompt, prompts in order of appearance.

    Where one of two systems has no answer, answered another prompt, or had said something else in earlier turns, the
    pair has the reason: a judge could show one conversation alone.

    Args:
        paths: files and globs of answers.
        baseline: the system that is compared with each other one, as A; None: all pairs of systems.
        say: called with a line about columns that are not used.

    Raises:
        ConfigError: a missing path, fewer than two systems, or no such baseline.
        DataError: a file without a column that is needed.
    """
    files: list[Path] = []
    for path in paths:
        files.extend(files_of(path, SYSTEMS))
    answers = _Answers()
    for file in files:
        answers.read(file)
    answers.tell_columns(say)
    if len(answers.systems) < 2:
        listed = ", ".join(answers.systems) or "none"
        reason = ""
        if answers.unread:
            # The first row that could not be read often says why there are so few.
            reason = f"; {answers.unread[0].failure}"
        raise ConfigError(f"{SYSTEMS}: two or more are needed, found {listed} in {amount(len(files), 'file')}{reason}")
    couples = _couples_of(list(answers.systems), baseline)
    answers.tell_gaps(say)

    items = list(answers.unread)
    for number, (prompt, by_system) in enumerate(answers.by_prompt.items(), 1):
        # Systems that were asked something else under this id differ from the first one.
        messages = next(iter(by_system.values())).messages
        # A text is no id to read; a prompt has its number then.
        identifier = prompt
        if prompt == repr(messages):
            identifier = f"{number:05d}"
        dialogue = Dialogue(f"systems:{identifier}", "systems", messages)
        for system_a, system_b in couples:
            items.append(_pair(dialogue, by_system, system_a, system_b))
    return items


def _couples_of(names: Sequence[str], baseline: str | None) -> list[tuple[str, str]]:
    """Return which systems are compared with each other (ConfigError: the baseline is none of them)."""
    if baseline is None:
        return list(combinations(names, 2))
    if baseline not in names:
        raise ConfigError(f"verdicts.baseline={baseline!r}: there is no such system; there are {', '.join(names)}")
    return [(baseline, name) for name in names if name != baseline]


def _pair(dialogue: Dialogue, answers: Mapping[str, SystemAnswer], system_a: str, system_b: str) -> JudgedRow:
    """Return the item of two systems' answers to one prompt, by system."""
    answer_a = answers.get(system_a)
    answer_b = answers.get(system_b)
    failure = _pair_failure(dialogue, system_a, answer_a) or _pair_failure(dialogue, system_b, answer_b)
    comparison = Comparison(
        id=f"{dialogue.id}:{system_a}:{system_b}",
        dialogue=dialogue,
        response_a="",
        response_b="",
        model_a=system_a,
        model_b=system_b,
    )
    # From B to A, so that A's group counts where both have one.
    if answer_b is not None:
        comparison = replace(comparison, response_b=answer_b.text, group=answer_b.group or None)
    if answer_a is not None:
        comparison = replace(comparison, response_a=answer_a.text, group=answer_a.group or comparison.group)
    return JudgedRow(comparison, failure)


def _pair_failure(dialogue: Dialogue, system: str, answer: SystemAnswer | None) -> str | None:
    """Return why a system's answer is none to this prompt; None where it is one."""
    if answer is None:
        return f"no_answer: {system} has no answer to this prompt"
    # System prompts may differ: they belong to how a system was asked.
    if _turns_of(answer.messages, "user") != _turns_of(dialogue.messages, "user"):
        return f"other_prompt: {system} was asked something else under this id"
    if _turns_of(answer.messages, "assistant") != _turns_of(dialogue.messages, "assistant"):
        return f"other_turns: {system} answers a conversation in which it had said something else before"
    return None


def _turns_of(messages: Sequence[Message], role: str) -> list[str]:
    """Return what one side says in a conversation."""
    return [message.content for message in messages if message.role == role]


def _conversation(messages: Sequence[Any]) -> tuple[tuple[Message, ...], str]:
    """Return the prompt and the answer of a conversation that ends with the answer (RowError: it is none).

    A content may be an object with ``answer``.
    """
    turns = []
    for message in messages:
        if isinstance(message, Mapping):
            message = dict(message)
            content = message.get("content")
            # Arena-Hard's version 2.0 has {"answer": ...} in place of the text.
            if isinstance(content, Mapping):
                message["content"] = content.get("answer")
        turns.append(message)
    if not turns:
        raise RowError("no_answer", "expected messages that end with the system's answer, found none")
    try:
        spoken = role_texts(with_empty_end(turns))
        text = replied(turns)
        prompt = spoken
        # The answer may be several messages, all that came after the user's last one.
        while prompt and prompt[-1][0] == "assistant":
            prompt = prompt[:-1]
        if not prompt or len(prompt) == len(spoken) or not isinstance(text, str):
            raise RowError("no_answer", "expected messages that end with the system's answer")
        return messages_of([Message(*turn) for turn in prompt]), text
    except DataError as error:
        raise RowError("wrong_message", str(error)) from error


def read_items(
    config: VerdictsConfig,
    world_config: WorldConfig | None,
    seed: int,
    say: Callable[[str], object] = lambda line: None,
) -> list[JudgedRow]:
    """Return the rows of stage judge, in their order, each under an id of its own.

    A row that cannot be read is one with a ``failure``. Columns that the first row lacks stop the reading.

    Args:
        config: says where the rows are.
        world_config: of the generated world, for a source of this type.
        seed: of the world.
        say: called with lines about labels that are not known, and columns that are not used.

    Raises:
        ConfigError: a missing path, fewer than two systems, or no such baseline.
        DataError: a file that is none, or without a column that is needed; names the file, line and column.
    """
    if config.systems:
        items = pairs_of(config.systems, config.baseline, say)
    elif config.source.type == "world":
        assert world_config is not None
        # Of held-out queries, which no judge was trained on.
        comparisons = world.eval_comparisons(world.of_source(world_config, config.source), seed)
        items = [JudgedRow(comparison) for comparison in comparisons[: config.source.limit]]
    else:
        items = _of_source(config.source, say)
    return list(_with_unique_ids(items))


def _of_source(source: SourceConfig, say: Callable[[str], object]) -> list[JudgedRow]:
    """Return the rows of a file or a data set (DataError: none of them holds a comparison)."""
    # A name of the file alone, so that the ids of rows are the same wherever it lies.
    source = replace(source, name=source.name or Path(source.path).name.partition(".")[0])
    items: list[JudgedRow] = []

    rejects = Rejects(strict=False, keep=lambda row: items.append(unread(source.name, row)))
    if source.adapter and load_adapter(source.adapter, KEY).of_single_responses:
        adapter_reader = CaseReader(source)
        # Row by row here and below: rejected rows are added in between, so that the order is the file's.
        for item in _of_adapted_responses(adapter_reader, placed(source), rejects):
            items.append(item)
        items = _with_scales(items, adapter_reader.scales())
    elif source.adapter:
        for comparisons in adapted(source, KEY, rejects):
            items.extend(map(JudgedRow, comparisons))
    else:
        reader = row_reader(source, KEY)
        for item in _of_plain_rows(reader, source, rejects):
            items.append(item)
        # At the end, when every row has been seen.
        reader.tell(say)
        items = _with_scales(items, reader.scales())
    if not items:
        raise DataError(f"{KEY}.path={source.path}: there is no row; expected a comparison a line")
    # Such a file is most likely another kind of file.
    if all(item.failure for item in items):
        raise DataError(
            f"{KEY}.path={source.path}: none of the {amount(len(items), 'row')} holds a comparison; the first: "
            f"{items[0].failure}"
        )
    return items


def _of_adapted_responses(reader: CaseReader, source: SourceConfig, rejects: Rejects) -> Iterator[JudgedRow]:
    """Yield the items of rows that an adapter reads as single responses with their labels."""
    for response in read(source, KEY, reader.labelled, rejects):
        group = response.candidates
        yield JudgedRow(Comparison(group.id, group.dialogue, "", ""), group=group, votes=response.votes)


def _with_scales(items: Sequence[JudgedRow], scales: Mapping[str, Scale]) -> list[JudgedRow]:
    """Return items with the scales of their labels, which are known when all rows were read."""
    with_scales = []
    for item in items:
        if item.votes:
            item = replace(item, scales=scales)
        with_scales.append(item)
    return with_scales


def _of_plain_rows(reader: RowReader, source: SourceConfig, rejects: Rejects) -> Iterator[JudgedRow]:
    """Yield the items of rows that need no adapter."""

    def take(row: Any, number: int) -> JudgedRow:
        try:
            # A row with one response, or with a list of them.
            if reader.columns.is_scored(row):
                group = reader.candidates(row, number)
                # Most likely a column that was never filled: a score of 0 would count in the means of all rows.
                if not any(text.strip() for text in group.responses):
                    raise RowError("empty_response", "no response holds a text")
                votes: dict[str, Votes] = {}
                if reader.columns.is_rated(row):
                    votes = reader.labels.known_votes(row)
                return JudgedRow(Comparison(group.id, group.dialogue, "", ""), group=group, votes=votes)
            if number == 1:
                reader.columns.check(row)
            # A label is welcome and not needed: one that has no meaning does not cost the row its verdict.
            comparison = reader.comparison(row, number, labelled=False)
            return JudgedRow(replace(comparison, label=reader.labels.known_verdict(row)))
        except RowError as error:
            # The row's own id, if at least that can be read.
            if isinstance(row, Mapping):
                with suppress(RowError):
                    error.id = reader.id_of(row, number)
            raise

    yield from read(source, KEY, take, rejects)


def _with_unique_ids(items: list[JudgedRow]) -> Iterator[JudgedRow]:
    """Yield the items, those whose id stood before under ``ID#2`` and so on."""
    counts: Counter[str] = Counter()
    ids = {item.comparison.id for item in items}
    for item in items:
        name = item.comparison.id
        counts[name] += 1
        # A row may itself be called ID#2.
        while counts[name] > 1 and f"{name}#{counts[name]}" in ids:
            counts[name] += 1
        identifier = name
        if counts[name] > 1:
            identifier = f"{name}#{counts[name]}"
        group = None
        if item.group is not None:
            group = replace(item.group, id=identifier)
        yield replace(item, comparison=replace(item.comparison, id=identifier), group=group)
