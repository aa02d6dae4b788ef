"""Stage ``dialogues``: reads every source into one schema, drops repeated queries and counts everything (A.1).

Also checks that the sources bring labels, where a later stage learns from them.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun, derive_seed
from judgetrain.data import world
from judgetrain.data.benchmarks.benchmark import CaseReader, VotedComparison, adapter_of, add_case, placed, read_answers
from judgetrain.data.cells import Pairing, RowError, majority
from judgetrain.data.config import DialoguesConfig, DialogueSourceConfig, ResponsesConfig, SourceConfig
from judgetrain.data.duplicates import Match, NearIndex, Seen, digest_of, named_queries
from judgetrain.data.part_facts import PartFacts, are_divided
from judgetrain.data.parts import PromptFilter
from judgetrain.data.prompt_keys import normalised
from judgetrain.data.rows.labels import SHOWN
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.sources import Rejects, read, row_reader, sampled
from judgetrain.data.stages import DialoguesSettings
from judgetrain.data.united import LeftOut, UnitedLabels
from judgetrain.data.votes import as_shown
from judgetrain.errors import ConfigError, DataError, causes
from judgetrain.schema import Comparison, Dialogue, Verdict, mirror

Item = tuple[Dialogue, Comparison | LeftOut | None]
"""A dialogue, and the comparison of its responses where the row carries any, or why a rated one is left out."""
REJECTED = "rejected:"
"""The beginning of a reason for which a row could not be read, in the counts of a source."""
HINTS = {
    "too_long": "raise dialogues.max_query_chars",
    "too_large": "raise dialogues.sources[].max_row_chars",
    "near_duplicate": "set dialogues.near_dedup=false",
    "duplicate": "the rows repeat one another: look at dialogues.sources[].fields",
    "no_majority": "as many annotators pass a response as fail it: give another annotator's label",
    "repeated_id": "rows have the same id: name another column in dialogues.sources[].fields",
    "contaminated": "they hold the benchmarks' queries: give other dialogues, or set dialogues.decontaminate=[]",
    "held_out": "the run measures on all rows: give others to learn from, or set part of the benchmark",
    # Of other rows that cannot be read.
    "": "look at rejects.jsonl, and name the columns in dialogues.sources[].fields",
}
"""The remedy where no dialogue is left, by the reason that dropped them."""


def run(settings: DialoguesSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write the dialogues of all sources, and the rows that are left out.

    Files: ``dialogues.jsonl``; ``comparisons.jsonl``, of rows that carry two responses or a rated one;
    ``rejects.jsonl``, of rows that cannot be read; ``contaminated.jsonl``, of dialogues that hold a benchmark's query.

    Raises:
        DataError: a row cannot be read (``dialogues.strict``), or no dialogue is left.
    """
    config = settings.dialogues
    sieve = Sieve(config)
    facts: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter()
    with ExitStack() as files:
        outputs = _Outputs(
            sieve=sieve,
            keep=files.enter_context(out.rows_writer("dialogues")),
            keep_comparison=files.enter_context(out.rows_writer("comparisons")),
            keep_contaminated=files.enter_context(out.rows_writer("contaminated")),
            rejects=Rejects(config.strict, keep=files.enter_context(out.rows_writer("rejects"))),
        )
        for index, source in enumerate(config.sources):
            read_counts, outcomes = _write_source(source, index, settings, outputs, out.log)
            facts[source.name] = read_counts
            facts[source.name].update(outcomes)
            total.update(outcomes)

    # Only now is it known how all rows on a pair of responses label it.
    _settle_labels(sieve.votes, out)
    if are_divided(config.sources):
        _tell_parts(config, out)
    out.note("sources", facts)
    if sieve.benchmarks:
        out.note("benchmark_queries", sieve.benchmarks.counts)
    dropped = {outcome.removeprefix(REJECTED): count for outcome, count in total.items() if outcome != "kept"}
    out.count(in_=total.total(), out=total["kept"], dropped=dropped)
    held_out = dropped.get("held_out", 0)
    if held_out:
        out.log(
            f"dialogues: {amount(held_out, 'row')} {agree(held_out, 'are')} held out to measure on, and not learned "
            f"from: {out.path('contaminated.jsonl')}"
        )
    contaminated = dropped.get("contaminated", 0)
    if contaminated:
        beside = ""
        if held_out:
            beside = " beside these"
        out.log(
            f"dialogues: {amount(contaminated, 'row')}{beside} {agree(contaminated, 'hold')} a query of a benchmark, "
            f"or nearly, and {agree(contaminated, 'are')} left out: "
            f"{out.path('contaminated.jsonl')}; dialogues.decontaminate=[] keeps them"
        )
    losses = outputs.losses
    for reason, example in outputs.rejects.examples.items():
        losses.examples[f"{REJECTED}{reason}"] = example
    losses.update({name: count for name, count in total.items() if name.startswith(REJECTED)})
    for sentence in losses.sentences(total.total(), HINTS):
        out.log(f"dialogues: {sentence}")
    if not total["kept"]:
        otherwise = "look at rejects.jsonl, and name the columns in dialogues.sources[].fields"
        raise DataError(f"no dialogue is left: {causes(dropped, HINTS, otherwise)}")


def _write_source(
    source: DialogueSourceConfig,
    index: int,
    settings: DialoguesSettings,
    outputs: "_Outputs",
    say: Callable[[str], object],
) -> tuple[Counter[str], Counter[str]]:
    """Write the dialogues of one source, and return what was read, and the number of dialogues and rows by outcome.

    Args:
        source: the rows.
        index: its place in ``dialogues.sources``.
        settings: of the stage.
        outputs: the stage's files.
        say: prints a line.
    """
    # The rejects of all sources are counted together; a source's own are what it adds.
    rejects = outputs.rejects
    rejected_before = Counter(rejects.counts)
    outcomes: Counter[str] = Counter()
    rows = 0
    for items in _rows(source, index, settings, rejects, say):
        rows += 1
        for item in items:
            # A pair of two rated responses is one item of two rows.
            rows += _is_pair_of_rated(item)
            outcomes[outputs.add(item)] += 1

    rejected = rejects.counts - rejected_before
    read_counts = Counter(read=rows + rejected.total())
    # A row then gives a dialogue for each turn, so that rows and dialogues are two numbers.
    if source.turns == "every":
        read_counts["dialogues"] = outcomes.total()
    for reason, count in rejected.items():
        outcomes[f"{REJECTED}{reason}"] += count
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items() if count)
    say(f"dialogues: {source.name}: {counts}")
    return read_counts, outcomes


class Sieve:
    """Decides for dialogues, in their order, which to keep."""

    def __init__(self, settings: DialoguesConfig) -> None:
        self._settings = settings
        self._texts = Seen()
        self._ids = Seen()
        self._near: NearIndex | None = None
        if settings.near_dedup:
            self._near = NearIndex()
        self.benchmarks = named_queries(settings)
        self._held_out = _held_out_rows(settings)
        self.votes = PairVotes()

    def __call__(self, item: Item) -> tuple[str, Match | None]:
        """Return ``kept`` or the first reason why not, and for a row with a benchmark's query that query.

        The reason is then ``held_out`` where the row is the benchmark's own, else ``contaminated``.
        """
        dialogue, comparison = item
        # The cheapest check first: what is too long is not normalised or hashed.
        characters = sum(len(message.content) for message in dialogue.messages)
        if characters > self._settings.max_query_chars:
            return "too_long", None
        if isinstance(comparison, LeftOut):
            return comparison.value, None

        responses = ["", ""]
        rubric = dialogue.rubric
        if comparison is not None:
            # The same query with other responses is another comparison.
            responses = [comparison.response_a, comparison.response_b]
            rubric = comparison.rubric
        criteria = ""
        if rubric is not None:
            # By other criteria it is another question.
            criteria = json.dumps(rubric.to_row())
        # Whichever response stands first. No text has the character between the parts.
        in_one_form: Callable[[str], str] = normalised
        if normalised(responses[0]) == normalised(responses[1]):
            # They differ in case or blanks alone, of which labels may be.
            in_one_form = as_shown
        in_order = sorted(map(in_one_form, responses))
        text = "\0".join((normalised(dialogue.context), normalised(dialogue.query), criteria, *in_order))
        vote = None
        if comparison is not None and not comparison.alone:
            vote = PairVote(comparison.id, in_order[0] != in_one_form(comparison.response_a), comparison.label)
        # Equal texts go first: a hash takes less time than the signatures of the checks below.
        if not self._texts.add(text):
            if vote is not None:
                self.votes.add(text, vote)
            return "duplicate", None
        matches: list[Match] = []
        if self.benchmarks:
            matches = self.benchmarks.matches(dialogue)
        if matches:
            if any(is_taken(dialogue) for is_taken in self._held_out.get(dialogue.source, ())):
                return "held_out", matches[0]
            return "contaminated", matches[0]
        if self._near is not None and not self._near.add(dialogue.query, dialogue.context, *responses):
            return "near_duplicate", None
        if not self._ids.add(dialogue.id):
            return "repeated_id", None
        if vote is not None:
            self.votes.begin(text, vote)
        return "kept", None


def _held_out_rows(settings: DialoguesConfig) -> dict[str, list[PromptFilter]]:
    """Return what decides which rows of a source are a benchmark's own, by the source's name.

    They are those of the benchmarks that are read from the source's own file.
    """
    filters: dict[str, list[PromptFilter]] = {}
    for index, benchmark in enumerate(settings.decontaminate):
        # A condition on the columns cannot be told from a dialogue.
        if not benchmark.source.local or benchmark.where:
            continue
        file = Path(benchmark.source.path).expanduser().resolve()
        is_taken = PromptFilter(benchmark, f"dialogues.decontaminate[{index}]")
        for source in settings.sources:
            if source.local and Path(source.path).expanduser().resolve() == file:
                filters.setdefault(source.name, []).append(is_taken)
    return filters


class PairVote(NamedTuple):
    """A row's label of a pair of responses.

    Args:
        id: the row's.
        is_reversed: whether its responses stand in the other order than in the text that the pair's rows share.
        label: in the row's own order; None: it has none.
    """

    id: str
    is_reversed: bool
    label: Verdict | None


class PairVotes:
    """The labels that rows give to one pair of responses, whichever of them stands first.

    Of several rows on one pair the first is kept, and its label is the majority of all.
    """

    def __init__(self) -> None:
        self._first: dict[bytes, PairVote] = {}
        self._votes: dict[bytes, list[Verdict | None]] = {}
        """The labels of pairs with several rows, in the order of the first row's responses."""

    def begin(self, text: str, vote: PairVote) -> None:
        """Remember the row that is kept, by the text that all rows on its pair share."""
        self._first[digest_of(text)] = vote

    def add(self, text: str, vote: PairVote) -> None:
        """Remember the label of another row on the pair; nothing where the first one was not kept."""
        pair = digest_of(text)
        # The first row may have been dropped, as contaminated; then there is no label to settle.
        first = self._first.get(pair)
        if first is None:
            return
        label = vote.label
        if label is not None and vote.is_reversed != first.is_reversed:
            label = mirror(label)
        self._votes.setdefault(pair, [first.label]).append(label)

    def settled(self) -> dict[str, Verdict | None]:
        """Return the labels of pairs whose rows do not all have the same one, by the id of the first row."""
        labels: dict[str, Verdict | None] = {}
        for pair, votes in self._votes.items():
            if len(set(votes)) > 1:
                labels[self._first[pair].id] = majority(vote for vote in votes if vote is not None)
        return labels


def _settle_labels(votes: PairVotes, out: StageRun) -> None:
    """Give comparisons that rows label differently the majority of these labels, and say so."""
    labels = votes.settled()
    if not labels:
        return

    # The new file takes the old one's name at its end, so that the old one can be read meanwhile.
    with out.rows_writer("comparisons") as keep:
        for row in read_rows(out.directory, "comparisons"):
            row["label"] = labels.get(row["id"], row["label"])
            keep(row)
    without_majority = sum(label is None for label in labels.values())
    out.note("labelled_differently", {"pairs": len(labels), "without_majority": without_majority})
    out.log(
        f"dialogues: {amount(len(labels), 'pair')} of responses {agree(len(labels), 'stand')} in several rows "
        "with different labels, such as "
        f"{next(iter(labels))}: the majority counts, and {without_majority} have none"
    )


def _tell_parts(config: DialoguesConfig, out: StageRun) -> None:
    """Print and note what is learned from of each source, and the queries that are kept out of it by benchmark."""
    of_source: dict[str, list[Comparison]] = {source.name: [] for source in config.sources}
    for row in read_rows(out.directory, "comparisons"):
        comparison = Comparison.from_row(row)
        of_source[comparison.dialogue.source].append(comparison)
    facts = {name: PartFacts.of(comparisons) for name, comparisons in of_source.items() if comparisons}
    for name, of_part in facts.items():
        out.log(f"dialogues: to learn from, {name}: {of_part}", keep=True)
    out.note("parts", {name: of_part.to_row() for name, of_part in facts.items()})


@dataclass(frozen=True)
class _Outputs:
    """The files of the stage.

    Args:
        sieve: decides which dialogues to keep.
        keep: writes a dialogue.
        keep_comparison: writes the comparison of a kept dialogue.
        keep_contaminated: writes a dialogue that holds a benchmark's query, with that query.
        rejects: counts and writes rows that cannot be read.
    """

    sieve: Sieve
    keep: Callable[[Mapping[str, Any]], None]
    keep_comparison: Callable[[Mapping[str, Any]], None]
    keep_contaminated: Callable[[Mapping[str, Any]], None]
    rejects: Rejects
    losses: Losses = field(default_factory=Losses)
    """The dialogues that were dropped."""

    def add(self, item: Item) -> str:
        """Write an item to the file where it belongs, if any, and return ``kept`` or why it is not kept."""
        dialogue, comparison = item
        outcome, match = self.sieve(item)
        if outcome == "kept":
            self.keep(dialogue.to_row())
            if isinstance(comparison, Comparison):
                self.keep_comparison(comparison.to_row())
            return outcome
        # Nothing is lost of a row whose label counts with the others on its response.
        if comparison is LeftOut.SAME_RESPONSE:
            return outcome
        if match is not None:
            self.keep_contaminated({"id": dialogue.id, "query": dialogue.query} | asdict(match))
        # The rows that are measured on are no loss, so that nobody is told what brings them back.
        if outcome == "held_out":
            return outcome
        self.losses.lose(outcome, f"{dialogue.id} ({' '.join(dialogue.query.split())[:80]!r})")
        return outcome


def _is_pair_of_rated(item: Item) -> bool:
    _, comparison = item
    return isinstance(comparison, Comparison) and comparison.rating_b is not None


def _rows(
    source: DialogueSourceConfig,
    index: int,
    settings: DialoguesSettings,
    rejects: Rejects,
    say: Callable[[str], object],
) -> Iterator[Sequence[Item]]:
    """Yield the items of every row of a source that can be read, or of a sample of its rows.

    Args:
        source: the rows; ``sample`` of them are drawn, if it is set.
        index: its place in ``dialogues.sources``.
        settings: of the stage.
        rejects: where the other rows go.
        say: prints a line.
    """
    key = f"dialogues.sources[{index}]"
    rows: Iterator[Sequence[Item]]
    if source.type == "world":
        dialogues = world.train_dialogues(settings.dialogues.world, settings.seed)
        rows = ([(dialogue, None)] for dialogue in dialogues)
    elif source.adapter:
        rows = _adapted_items(source, key, rejects, say)
    else:
        rows = _read(source, key, rejects, say)
    # A part before a sample: the sample is then drawn from the part alone.
    is_taken = PromptFilter(source, key)
    if not is_taken.takes_all:
        rows = _of_part(rows, source, is_taken, say)
    if source.sample is None:
        return rows
    # Each response stands once in the urn, however many rows it has.
    to_draw_from = (items for items in rows if not isinstance(items[0][1], LeftOut))
    # The name in the seed: two sources are sampled independently.
    return iter(sampled(to_draw_from, source.sample, derive_seed(settings.seed, "sample", source.name)))


def _of_part(
    rows: Iterator[Sequence[Item]], source: DialogueSourceConfig, is_taken: PromptFilter, say: Callable[[str], object]
) -> Iterator[Sequence[Item]]:
    """Yield the items of every row whose prompts the source takes, and say at the end how many do."""
    kept = 0
    left_out = 0
    for items in rows:
        # A row's turns are of one conversation, and so in one part; rated responses that make a pair share a prompt.
        if is_taken(items[0][0]):
            kept += 1
            yield items
        else:
            left_out += 1
    total = kept + left_out
    conditions = []
    if source.part:
        begin, end = source.part
        conditions.append(f"in the part from {begin:g} to {end:g}")
    if source.only:
        conditions.append(f"that {source.only} names")
    if source.leave_out:
        conditions.append(f"that {source.leave_out} does not name")
    say(
        f"dialogues: {source.name}: {kept} of {amount(total, 'row')} {agree(kept, 'have')} prompts "
        f"{' and '.join(conditions)}"
    )


def _adapted_items(
    source: DialogueSourceConfig, key: str, rejects: Rejects, say: Callable[[str], object]
) -> Iterator[Sequence[Item]]:
    """Yield the items of every row that a source's adapter reads; rated responses become pairs as in :func:`_read`."""
    if not adapter_of(source).of_single_responses:
        for comparisons in adapted(source, key, rejects):
            if comparisons:
                yield [(comparison.dialogue, comparison) for comparison in comparisons]
        return
    united = _united_of_adapter(source, key)
    pairing = Pairing()
    for comparisons in adapted(source, key, rejects):
        for rated in comparisons:
            yield from _paired(united.rated(rated), rated.dialogue, pairing)
    for alone in pairing.left():
        yield [(alone.dialogue, alone)]
    _tell_united(united, source, say)


def _united_of_adapter(source: DialogueSourceConfig, key: str) -> UnitedLabels:
    """Return the labels of the single responses that a source's adapter reads."""
    reader = CaseReader(placed(source))
    united = UnitedLabels()

    def take(row: Any, number: int) -> None:
        united.add(reader.labelled(row, number))

    # Rows that cannot be read are reported where they are read for their content.
    for _ in read(placed(source), key, take, Rejects(strict=False)):
        pass
    united.settle(reader.scales())
    return united


def _paired(rated: Comparison | LeftOut, dialogue: Dialogue, pairing: Pairing) -> Iterator[Sequence[Item]]:
    """Yield the items that a row's rated response makes with those that wait for another one to their prompt."""
    if isinstance(rated, LeftOut):
        yield [(dialogue, rated)]
        return
    for paired in pairing.add(rated):
        yield [(paired.dialogue, paired)]


def _tell_united(united: UnitedLabels, source: DialogueSourceConfig, say: Callable[[str], object]) -> None:
    """Say which responses of a source stand in several rows, if any do."""
    sentence = united.sentence()
    if sentence is not None:
        say(f"dialogues: {source.name}: {sentence}")


def _read(
    source: DialogueSourceConfig, key: str, rejects: Rejects, say: Callable[[str], object]
) -> Iterator[Sequence[Item]]:
    """Yield the items of every row of a file or Hub data set: one dialogue, or one for each of its user turns.

    Rated responses come when another one to their prompt makes a pair with them, or else at the end. Several rows on
    one response rate it together, and come as one.
    """
    reader = row_reader(source, key)
    united: UnitedLabels | None = None
    pairing = Pairing()
    for dialogue, comparison in read(source, key, partial(_item, source, reader), rejects):
        if comparison is not None and comparison.alone:
            # When a row first needs it, as all rows are read for it.
            if united is None:
                united = _united(source, key)
            yield from _paired(united.rated(comparison), dialogue, pairing)
        elif comparison is not None or source.turns == "last":
            yield [(dialogue, comparison)]
        elif source.turns == "first":
            # Under the dialogue's own id, as nothing else of it is kept.
            first = next(user_turns(dialogue))
            yield [(replace(first, id=dialogue.id), None)]
        else:
            yield [(turn, None) for turn in user_turns(dialogue)]
    # A rated response without a partner still serves a judge that reads one at a time.
    for alone in pairing.left():
        yield [(alone.dialogue, alone)]
    if united is not None:
        _tell_united(united, source, say)
    # At the end, as labels and columns are counted while rows are read.
    reader.tell(lambda message: say(f"dialogues: {message}"))


def _item(source: DialogueSourceConfig, reader: RowReader, row: Any, number: int) -> tuple[Dialogue, Comparison | None]:
    """Return the dialogue of a row, and the comparison of its responses or its only one with a rating, if it has any.

    Args:
        source: the rows.
        reader: of the source's rows.
        row: of the source.
        number: of the row.

    Raises:
        RowError: the row cannot be used.
    """
    if source.type == "comparisons" or source.format == "comparison" or reader.columns.has_responses(row):
        # The label is read apart, as an unknown one is counted and does not cost the row.
        comparison = reader.comparison(row, number, labelled=False)
        return comparison.dialogue, replace(comparison, label=reader.labels.known_verdict(row))
    if reader.columns.is_rated(row):
        rated = reader.rated(row, number)
        return rated.dialogue, rated
    return reader.dialogue(row, number), None


def _united(source: DialogueSourceConfig, key: str) -> UnitedLabels:
    """Return the labels of the single responses in a source's rows; arguments as of :func:`_read`."""
    # A reader of its own, as the other one counts labels and columns while rows are read for their content.
    reader = row_reader(source, key)
    united = UnitedLabels()

    def take(row: Any, number: int) -> None:
        # The same rows are read as there: with a limit, those that can be used count.
        _, comparison = _item(source, reader, row, number)
        if comparison is not None and comparison.alone:
            united.add(reader.labelled(row, number))

    for _ in read(source, key, take, Rejects(strict=False)):
        pass
    united.settle(reader.scales())
    return united


def user_turns(dialogue: Dialogue) -> Iterator[Dialogue]:
    """Yield a dialogue for every user turn, with all messages before it; the assistant's answer is its reference.

    The ids of the earlier ones end in ``#`` and the turn's number. The last keeps the dialogue's own id.
    """
    number = 0
    for place, (message, following) in enumerate(pairwise(dialogue.messages)):
        if message.role != "user":
            continue
        number += 1
        answer = None
        if following.role == "assistant":
            answer = following.content
        messages = dialogue.messages[: place + 1]
        yield replace(dialogue, id=f"{dialogue.id}#{number}", messages=messages, reference=answer)
    yield dialogue


def adapted(source: SourceConfig, key: str, rejects: Rejects) -> Iterator[list[Comparison]]:
    """Yield the comparisons of each row that a source's adapter reads, labelled by the majority of their votes.

    Args:
        source: the rows, with an adapter.
        key: the configuration key of the source, for messages.
        rejects: where rows go that cannot be read.
    """
    answers = None
    path = getattr(source, "answers", None)
    if path:
        answers = read_answers(path, key)
    source = placed(source)
    reader = CaseReader(source, answers)
    if reader.adapter.kind == "votes":
        for case in _united_votes(source, key, reader, rejects):
            yield [replace(case.comparison, label=majority(case.votes))]
        return
    for cases in read(source, key, reader.cases, rejects):
        yield [replace(case.comparison, label=majority(case.votes)) for case in cases]


def _united_votes(source: SourceConfig, key: str, reader: CaseReader, rejects: Rejects) -> Iterable[VotedComparison]:
    """Return the comparisons that rows of single votes are about, each with all votes on it.

    Arguments are as of :func:`adapted`; ``reader`` is the source's.
    """
    cases: dict[str, VotedComparison] = {}

    def take(row: Any, number: int) -> None:
        for case in reader.cases(row, number):
            add_case(case, cases, holds_votes=True)

    # A vote on a comparison may stand anywhere in the file, so that all rows are read first.
    for _ in read(source, key, take, rejects):
        pass
    return cases.values()


def check_labelled(
    sources: list[DialogueSourceConfig], responses: ResponsesConfig, setting: str = "label.source=given"
) -> None:
    """Refuse sources that bring no label to learn from.

    Labels are those of the sources' comparisons, of pairs that are constructed, and of the generated world. Rows are
    read up to the first label. Those of the Hub are not looked at.

    Args:
        sources: of stage dialogues.
        responses: settings of stage responses.
        setting: the setting that needs labels, for the message.

    Raises:
        ConfigError: there is no label; says how to get one.
    """
    constructs = bool(responses.contrast)
    if responses.models:
        if constructs or any(source.type == "world" for source in sources):
            return
        raise ConfigError(
            f"{setting}: responses.models answer the dialogues anew, without labels; set responses.models=[], "
            "or responses.contrast to construct pairs"
        )

    unknown_labels: Counter[str] = Counter()
    lacking: list[str] = []
    # Rows of the Hub would have to be downloaded for a check: they count as labelled.
    for index, source in enumerate(sources):
        if source.type == "hub":
            return
        # The world has a good answer to each of its queries.
        if constructs and source.type == "world":
            return
        if _serves(source, index, unknown_labels, lacking, constructs):
            return

    if constructs:
        raise ConfigError(
            f"{setting} with responses.contrast={[*responses.contrast]}: no good answer to construct a pair from; "
            "name its column ('dialogues.sources[0].fields={reference: COLUMN}')"
        )
    if unknown_labels:
        written = ", ".join(repr(label) for label in islice(unknown_labels, SHOWN))
        raise ConfigError(
            f"{setting}: no comparison of dialogues.sources has a label: the column holds {written}; "
            "say what they mean with 'dialogues.sources[0].labels={...: A, ...: B}'"
        )
    if lacking:
        raise ConfigError(f"{setting}: {lacking[0]}; or construct pairs with responses.contrast")
    raise ConfigError(
        f"{setting}: no comparison of dialogues.sources has a label; "
        "name its column with 'dialogues.sources[0].fields={label: COLUMN}', "
        "or construct pairs with responses.contrast"
    )


def _serves(
    source: SourceConfig, index: int, unknown_labels: Counter[str], lacking: list[str], with_reference: bool
) -> bool:
    """Return whether a row of a source has a label with a meaning.

    Args:
        source: the rows.
        index: its place in ``dialogues.sources``.
        unknown_labels: gets the number of labels without a meaning, as they are written.
        lacking: gets a message with all columns that the first row of a source of comparisons lacks.
        with_reference: a reference answer is enough, too.
    """
    # Rows that cannot be read are reported by the stage itself.
    rejects = Rejects(strict=False)
    key = f"dialogues.sources[{index}]"
    if source.adapter:
        comparisons = chain.from_iterable(adapted(source, key, rejects))
        return any(comparison.label for comparison in comparisons)

    reader = row_reader(source, key)

    is_of_comparisons = source.type == "comparisons" or source.format == "comparison"

    def serves(row: Any, number: int) -> bool:
        if number == 1 and is_of_comparisons and not with_reference:
            try:
                reader.columns.check(row, labelled=True)
            except RowError as error:
                # Another row may have what the first one lacks: it is said where none has.
                lacking.append(f"{source.path}: {error}")
        if reader.columns.is_rated(row):
            return True
        if reader.columns.has_responses(row) and reader.labels.known_verdict(row) is not None:
            return True
        return with_reference and reader.dialogue(row, number).reference is not None

    has_label = any(read(source, key, serves, rejects))
    unknown_labels.update(reader.labels.unknown)
    return has_label
