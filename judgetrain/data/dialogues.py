"""Stage ``dialogues``: every source into one schema, queries deduplicated, everything counted (A.1).

Also the labels that the data brings: published comparisons as training data, and whether there are labels at all.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from judgetrain.artifacts.stage_run import StageRun, derive_seed
from judgetrain.data import world
from judgetrain.data.benchmarks.benchmark import CaseReader, placed
from judgetrain.data.cells import Pairing, majority
from judgetrain.data.config import DialoguesConfig, DialogueSourceConfig, ResponsesConfig, SourceConfig
from judgetrain.data.duplicates import Match, NearIndex, Seen, named_queries, normalised
from judgetrain.data.rows import SHOWN, RowReader
from judgetrain.data.sources import Rejects, read, sampled
from judgetrain.data.stages import DialoguesSettings
from judgetrain.errors import ConfigError, DataError, causes
from judgetrain.schema import Comparison, Dialogue

Item = tuple[Dialogue, Comparison | None]
REJECTED = "rejected:"
"""Stands before a reason for which a row could not be read, in the counts of a source."""
HINTS = {
    "too_long": "raise dialogues.max_query_chars",
    "near_duplicate": "set dialogues.near_dedup=false",
    "duplicate": "the rows repeat one another: look at dialogues.sources[].fields",
    "repeated_id": "rows have the same id: name another column in dialogues.sources[].fields",
    "contaminated": "they hold the benchmarks' queries: give other dialogues, or set dialogues.decontaminate=[]",
}
"""What helps where no dialogue is left, by the reason."""


def run(settings: DialoguesSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``dialogues.jsonl``, ``comparisons.jsonl`` (rows that carry two responses, or a rated one),
    ``rejects.jsonl`` and ``contaminated.jsonl`` (dialogues left out because they hold a benchmark's query)."""
    config, sieve = settings.dialogues, Sieve(settings.dialogues)
    facts: dict[str, Counter[str]] = {}
    total = Counter[str]()
    names = ("dialogues", "comparisons", "rejects", "contaminated")
    with ExitStack() as files:
        keep, compare, reject, contaminated = (files.enter_context(out.rows_writer(name)) for name in names)
        rejects = Rejects(config.strict, keep=reject)
        for index, source in enumerate(config.sources):
            counts, before, rows = Counter[str](), Counter(rejects.counts), 0
            taken = _read(source, f"dialogues.sources[{index}]", settings, rejects, out.log)
            if source.sample is not None:
                taken = iter(sampled(taken, source.sample, derive_seed(settings.seed, "sample", source.name)))
            for items in taken:
                rows += 1
                for dialogue, comparison in items:
                    rows += comparison is not None and comparison.rating_b is not None  # two rows are one item
                    outcome, match = sieve((dialogue, comparison))
                    counts[outcome] += 1
                    if outcome == "kept":
                        keep(dialogue.to_row())
                        if comparison:
                            compare(comparison.to_row())
                    elif match:
                        contaminated({"id": dialogue.id, "query": dialogue.query} | asdict(match))
            rejected = rejects.counts - before
            turns = {"dialogues": counts.total()} if source.turns == "every" else {}
            counts.update({f"{REJECTED}{reason}": n for reason, n in rejected.items()})
            facts[source.name] = Counter({"read": rows + rejected.total(), **turns, **counts})
            total += counts
            out.log(f"dialogues: {source.name}: {', '.join(f'{n} {what}' for what, n in counts.items() if n)}")
    out.note("sources", facts)
    if sieve.benchmarks:
        out.note("benchmark_queries", sieve.benchmarks.counts)
    dropped = {k.removeprefix(REJECTED): n for k, n in total.items() if k != "kept"}
    out.count(in_=total.total(), out=total["kept"], dropped=dropped)
    if dropped.get("contaminated"):
        left = f"{dropped['contaminated']} hold a query of a benchmark and are left out"
        out.log(f"dialogues: {left}: {out.path('contaminated.jsonl')}; dialogues.decontaminate=[] keeps them")
    if not total["kept"]:
        otherwise = "look at rejects.jsonl, and name the columns in dialogues.sources[].fields"
        raise DataError(f"no dialogue is left: {causes(dropped, HINTS, otherwise)}")


class Sieve:
    """Says of dialogues, in their order, which to keep, and of the others the first reason why not."""

    def __init__(self, settings: DialoguesConfig) -> None:
        self._settings = settings
        self._seen, self._ids = Seen(), Seen()
        self._near = NearIndex() if settings.near_dedup else None
        self.benchmarks = named_queries(settings)

    def __call__(self, item: Item) -> tuple[str, Match | None]:
        """``kept`` or why not, and for ``contaminated`` the benchmark query that the dialogue holds."""
        dialogue, comparison = item
        if sum(len(m.content) for m in dialogue.messages) > self._settings.max_query_chars:
            return "too_long", None
        # The same query with other responses is another comparison.
        responses = (comparison.response_a, comparison.response_b) if comparison else ()
        text = "\n".join([*([dialogue.context] if dialogue.context else ()), dialogue.query, *responses])
        if not self._seen.add(normalised(text)):
            return "duplicate", None
        if self.benchmarks and (found := self.benchmarks.matches(dialogue)):
            return "contaminated", found[0]
        if self._near is not None and not self._near.add(text):
            return "near_duplicate", None
        return ("kept" if self._ids.add(dialogue.id) else "repeated_id"), None


def _read(
    source: DialogueSourceConfig, key: str, settings: DialoguesSettings, rejects: Rejects, say: Callable[[str], object]
) -> Iterator[Sequence[Item]]:
    """What every row that can be read gives: one dialogue, or one for each of its user turns."""
    if source.type == "world":
        yield from ([(d, None)] for d in world.train_dialogues(settings.dialogues.world, settings.seed))
        return
    if source.adapter:
        yield from ([(c.dialogue, c) for c in comparisons] for comparisons in adapted(source, key, rejects))
        return
    reader = RowReader(source, key)

    def take(row: Any, number: int) -> Item:
        if source.type == "comparisons" or source.format == "comparison" or reader.has_responses(row):
            comparison = reader.comparison(row, number, labelled=False)
            return comparison.dialogue, replace(comparison, label=reader.label(row))
        rated = reader.rated(row, number) if reader.is_rated(row) else None
        return rated.dialogue if rated else reader.dialogue(row, number), rated

    pairing = Pairing()
    for dialogue, comparison in read(source, key, take, rejects):
        if comparison and comparison.alone:
            yield from ([(c.dialogue, c)] for c in pairing.add(comparison))
        elif comparison or source.turns == "last":
            yield [(dialogue, comparison)]
        elif source.turns == "first":
            yield [(replace(next(user_turns(dialogue)), id=dialogue.id), None)]
        else:
            yield [(turn, None) for turn in user_turns(dialogue)]
    yield from ([(c.dialogue, c)] for c in pairing.left())
    reader.tell(lambda told: say(f"dialogues: {told}"))


def user_turns(dialogue: Dialogue) -> Iterator[Dialogue]:
    """A dialogue for every user turn, with what came before it; what the assistant answered is its reference.

    The ids of the earlier ones end in ``#`` and the turn's number; the last keeps the dialogue's own.
    """
    number = 0
    for i, (message, answer) in enumerate(pairwise(dialogue.messages)):
        if message.role == "user":
            number += 1
            said = answer.content if answer.role == "assistant" else None
            name, messages = f"{dialogue.id}#{number}", dialogue.messages[: i + 1]
            yield replace(dialogue, id=name, messages=messages, reference=said)
    yield dialogue


def adapted(source: SourceConfig, key: str, rejects: Rejects) -> Iterator[list[Comparison]]:
    """The comparisons of each row of a source that an adapter reads, with the label that most of its votes give."""
    source = placed(source)
    for cases in read(source, key, CaseReader(source).cases, rejects):
        yield [replace(case.comparison, label=majority(case.votes)) for case in cases]


def check_labelled(
    sources: list[DialogueSourceConfig], responses: ResponsesConfig, wanted: str = "label.source=given"
) -> None:
    """Refuse (ConfigError) sources without a label to learn from, as ``wanted`` asks; no more is read than that takes.

    Labels are those of the sources' comparisons, of pairs that are constructed, and of the generated world. What the
    Hub holds is not looked at.
    """
    constructed, found = bool(responses.contrast), Counter[str]()
    if responses.models:
        if constructed or any(source.type == "world" for source in sources):
            return
        told = f"{wanted}: responses.models answer the dialogues anew, without labels; set responses.models=[]"
        raise ConfigError(f"{told}, or responses.contrast to construct pairs")
    for index, source in enumerate(sources):
        there = source.type == "hub" or (constructed and source.type == "world")
        if there or _serves(source, index, found, constructed):
            return
    column = "name its column with 'dialogues.sources[0].fields={label: COLUMN}'"
    if constructed:
        told = f"{wanted} with responses.contrast={[*responses.contrast]}: no good answer to construct a pair from"
        raise ConfigError(f"{told}; name its column ('dialogues.sources[0].fields={{reference: COLUMN}}')")
    written = ", ".join(repr(label) for label in islice(found, SHOWN))
    told = f": the column holds {written}; say what they mean with 'dialogues.sources[0].labels={{...: A, ...: B}}'"
    told = told if found else f"; {column}, or construct pairs with responses.contrast"
    raise ConfigError(f"{wanted}: no comparison of dialogues.sources has a label{told}")


def _serves(source: SourceConfig, index: int, found: Counter[str], references: bool) -> bool:
    """Whether a row of a source has a label that is known, or with ``references`` a reference answer.

    ``found`` counts how other labels are written.
    """
    rejects, key = Rejects(strict=False), f"dialogues.sources[{index}]"
    if source.adapter:
        return any(c.label for comparisons in adapted(source, key, rejects) for c in comparisons)
    reader = RowReader(source, key)

    def serves(row: Any, number: int) -> bool:
        if reader.is_rated(row) or (reader.has_responses(row) and reader.label(row) is not None):
            return True
        return references and reader.dialogue(row, number).reference is not None

    there = any(read(source, key, serves, rejects))
    found.update(reader.unknown)
    return there
