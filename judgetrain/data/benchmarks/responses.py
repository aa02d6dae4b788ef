"""Benchmarks of single responses: rows with one response and the labels that people gave it, and their scales."""

import hashlib
import json
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark, CaseReader, adapter_of, selected, source_of
from judgetrain.data.cells import RowError
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.labelled import OVERALL, LabelledResponse, Scale, Votes
from judgetrain.data.limits import fitting
from judgetrain.data.parts import PromptFilter
from judgetrain.data.prompt_keys import conversation_starts, key_of_dialogue
from judgetrain.data.rows.columns import Columns
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.sources import Rejects, numbers_among, read, row_reader
from judgetrain.data.votes import response_of
from judgetrain.errors import DataError
from judgetrain.schema import Comparison


@dataclass(frozen=True, kw_only=True)
class ResponseBenchmark:
    """A benchmark of single responses as it is evaluated.

    Args:
        name: in reports.
        split: of the source.
        responses: with their labels; one without any is asked about and counts in no metric.
        scales: of the labels, by criterion; those of responses as a whole under
            :data:`~judgetrain.data.labelled.OVERALL`.
        left_out: the number of rows that are not in it, by reason.
        left_out_examples: the id of one of them, by reason.
    """

    name: str
    split: str
    responses: list[LabelledResponse]
    scales: Mapping[str, Scale]
    left_out: Mapping[str, int] = field(default_factory=dict)
    left_out_examples: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def prompts(self) -> list[str]:
        """Return the prompt that each response counts under: turns of one conversation are about one prompt."""
        texts = [key_of_dialogue(response.dialogue) for response in self.responses]
        return ["\n".join(prompt) for prompt in conversation_starts(texts)]

    @cached_property
    def asked(self) -> Benchmark:
        """Return the responses as a judge is asked about them: each is response A, beside no other, without a label."""
        comparisons = []
        for response in self.responses:
            comparison = Comparison(
                id=response.id,
                dialogue=response.dialogue,
                response_a=response.response,
                response_b="",
                group=response.group,
                rubric=response.candidates.rubric,
            )
            comparisons.append(comparison)
        return Benchmark(name=self.name, split=self.split, comparisons=comparisons)

    @cached_property
    def content(self) -> str:
        """Return a hash of what figures are about, 16 hexadecimal digits, whatever the ids and order of the rows."""
        rows = []
        for response, prompt in zip(self.responses, self.prompts, strict=True):
            rubric = response.candidates.rubric
            criteria = None
            if rubric is not None:
                criteria = rubric.to_row()
            # Ids are left out, and rows are sorted: a file in another order is the same data.
            messages = [[message.role, message.content] for message in response.dialogue.messages]
            reference = response.dialogue.reference
            votes = sorted(response.votes.items())
            rows.append(json.dumps([prompt, messages, response.response, reference, response.group, criteria, votes]))
        # The same label is another one on another scale.
        scales = [[name, asdict(scale)] for name, scale in sorted(self.scales.items())]
        return hashlib.sha256(json.dumps([scales, sorted(rows)]).encode()).hexdigest()[:16]


def holds_single_responses(benchmark: BenchmarkConfig, key: str) -> bool:
    """Return whether a benchmark's rows hold one response each: as its adapter says, or its first row with a response.

    Args:
        benchmark: the rows.
        key: the configuration key of the benchmark, for messages.
    """
    source = source_of(benchmark)
    if source.type == "world" or source.format == "comparison":
        return False
    if source.adapter:
        return adapter_of(source).of_single_responses
    columns = RowReader(source, f"{key}.source").columns

    def holds_one(row: Any, number: int) -> bool | None:
        return row_holds_one(columns, row)

    # A row that cannot be read is told by whoever reads it for its content.
    rows = read(source, f"{key}.source", holds_one, Rejects(strict=False))
    return next((holds for holds in rows if holds is not None), False)


def row_holds_one(columns: Columns, row: Any) -> bool | None:
    """Return whether a row holds one response; None: it is an empty cell, which does not tell what the others hold."""
    if columns.holds_one_response(row):
        return True
    if isinstance(row, Mapping) and columns.has_column(row, "response") and not columns.has_responses(row):
        return None
    return False


def read_responses(benchmark: BenchmarkConfig, key: str) -> tuple[list[LabelledResponse], dict[str, Scale], int]:
    """Return the responses of a benchmark, the scales of their labels, and how many rows repeat an earlier one.

    Rows on one response to one prompt are votes on it, as when each annotator has a row. What an adapter reads stays as
    it is published.

    Args:
        benchmark: the rows; those that ``where`` selects are read.
        key: the configuration key of the benchmark, for messages.

    Raises:
        DataError: a row is malformed, a label has no meaning, or an id stands twice; names file, row and value.
    """
    source = source_of(benchmark)
    reader: CaseReader | RowReader
    if source.adapter:
        reader = CaseReader(source)
    else:
        reader = row_reader(source, f"{key}.source")
    united = UnitedResponses(as_published=bool(source.adapter))
    is_taken = PromptFilter(benchmark, key)

    def take(row: Any, number: int) -> None:
        if not selected(row, benchmark.where):
            return
        response = reader.labelled(row, number)
        if is_taken(response.dialogue):
            united.add(response)

    # Responses are put together by ``take``.
    for _ in read(source, f"{key}.source", take):
        pass
    return united.responses, reader.scales(), united.repeats


def benchmark_of_rows(rows: Sequence[Any], name: str) -> ResponseBenchmark:
    """Return rows that were given in Python, one labelled response each, as a benchmark.

    Args:
        rows: mappings with columns as files have them: ``query`` or ``messages``, ``response``, ``label`` or ``score``.
        name: of the benchmark.

    Raises:
        DataError: a row cannot be read, its label has no meaning, or its id stands for another response, too; names the
            row's number, from 0.
    """
    source = SourceConfig(name="rows")
    reader = RowReader(source, "", partial(numbers_among, rows, source, ""))
    united = UnitedResponses()
    for number, row in enumerate(rows):
        try:
            united.add(reader.labelled(row, number))
        except RowError as error:
            raise DataError(f"row {number}: {error}") from error
    return ResponseBenchmark(name=name, split="", responses=united.responses, scales=reader.scales())


class UnitedResponses:
    """Collects labelled responses, and makes rows on one response to one prompt votes on it.

    Args:
        as_published: an id stands for one response, and rows that repeat a response stay as many. Users' rows may
            repeat one under any id, a row for each annotator.
    """

    def __init__(self, as_published: bool = False) -> None:
        self._as_published = as_published
        self._by_place: dict[Hashable, LabelledResponse] = {}
        self._place_of_id: dict[str, Hashable] = {}
        self.repeats = 0
        """How many rows were on a response that was there."""

    @property
    def responses(self) -> list[LabelledResponse]:
        """Return the responses in the order of their first rows."""
        return list(self._by_place.values())

    def add(self, response: LabelledResponse) -> None:
        """Add the response of a row (RowError: its id stands for another response, too)."""
        place: Hashable = response.id
        if not self._as_published:
            place = _asked(response)
        # An id that stands for two responses would give one of them the other's judgment.
        is_other = self._place_of_id.setdefault(response.id, place) != place
        if is_other or (self._as_published and place in self._by_place):
            raise RowError("repeated_id", f"the id {response.id!r} stands twice; ids must differ")
        earlier = self._by_place.get(place)
        if earlier is not None:
            self.repeats += 1
            response = replace(earlier, votes=_together(earlier.votes, response.votes))
        self._by_place[place] = response


def _asked(response: LabelledResponse) -> Hashable:
    """Return what rows on one response have in common: all that a judge is shown, as it is shown, and the group."""
    return response_of(response.candidates), response.group


def _together(first: Mapping[str, Votes], second: Mapping[str, Votes]) -> dict[str, Votes]:
    """Return the votes of two rows by criterion."""
    return {name: (*first.get(name, ()), *second.get(name, ())) for name in {**first, **second}}


def load_responses(benchmark: BenchmarkConfig, index: int, seed: int) -> ResponseBenchmark:
    """Return a benchmark of single responses with their labels.

    Args:
        benchmark: the rows, and how many of them.
        index: its place in ``evaluate.benchmarks``, for messages.
        seed: of the sample of ``limit`` responses.

    Raises:
        DataError: as :func:`read_responses`; or a row has no label, or none is left.
    """
    key = f"evaluate.benchmarks[{index}]"
    source = source_of(benchmark)
    responses, scales, repeats = read_responses(benchmark, key)
    left_out = Losses({"same_response": repeats})
    kept = fitting(responses, benchmark.max_chars, left_out)
    if benchmark.limit is not None and benchmark.limit < len(kept):
        left_out["over_limit"] = len(kept) - benchmark.limit
        rng = random.Random(derive_seed(seed, "benchmark", benchmark.name))
        # Drawn, not the first: benchmarks are often sorted by group.
        kept = rng.sample(kept, benchmark.limit)

    without_label = [response for response in kept if not response.votes]
    if without_label and not benchmark.unlabelled:
        raise DataError(
            f"{key}: {len(without_label)} of {amount(len(kept), 'row')} {agree(len(without_label), 'have')} no "
            "label, such as "
            f"{without_label[0].id}; name its "
            "column with source.fields={label: COLUMN}, or set unlabelled=true to leave such rows uncounted"
        )
    left_out.lose_all("no_label", (response.id for response in without_label))
    number_counted = counted(kept, scales)
    left_out["no_majority"] = len(kept) - len(without_label) - number_counted
    if not number_counted:
        counts = ", ".join(f"{count} {reason}" for reason, count in left_out.items() if count)
        raise DataError(f"{key}: no response with a label is left of {len(responses)} ({counts})")
    split = "test"
    if source.type == "hub":
        split = source.split
    return ResponseBenchmark(
        name=benchmark.name,
        split=split,
        responses=kept,
        scales=scales,
        left_out={reason: count for reason, count in left_out.items() if count},
        left_out_examples=left_out.examples,
    )


def counted(responses: Sequence[LabelledResponse], scales: Mapping[str, Scale]) -> int:
    """Return how many responses have a label that counts: annotators that tie over two levels give none."""
    count = 0
    for response in responses:
        labels = [scales[name].label(votes) for name, votes in response.votes.items()]
        count += any(label is not None for label in labels)
    return count


def labels_of(benchmark: ResponseBenchmark, name: str = OVERALL) -> list[float | None]:
    """Return the label of each response, 0 to 1, as a whole or by a criterion; None where there is none."""
    scale = benchmark.scales.get(name)
    if scale is None:
        return [None] * len(benchmark.responses)
    return [scale.label(response.votes.get(name, ())) for response in benchmark.responses]
