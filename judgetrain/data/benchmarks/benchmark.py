"""Benchmarks: labelled comparisons from the generated world, a file or the Hub, read through an adapter.

A case is a comparison with the votes on it and the prompt that it belongs to.
"""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

from judgetrain.amounts import amount
from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data import world
from judgetrain.data.benchmarks.adapter import Adapter, load_adapter
from judgetrain.data.benchmarks.prompt_form import with_parts
from judgetrain.data.cells import NO_LABEL, RowError, id_text, majority, name_text, preference, turn_number
from judgetrain.data.config import BenchmarkConfig, SourceConfig, WorldConfig
from judgetrain.data.labelled import LabelledResponse, Scale
from judgetrain.data.limits import fitting
from judgetrain.data.parts import PromptFilter
from judgetrain.data.prompt_keys import PromptKey, conversation_starts, key_of_dialogue
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.sources import read
from judgetrain.data.votes import repeats
from judgetrain.errors import ConfigError, DataError
from judgetrain.messages import replied, role_texts, with_empty_end
from judgetrain.schema import Comparison, Verdict, mirror
from judgetrain.thoughts import shown


class ModelAnswers(NamedTuple):
    """A model's answers to the questions of a conversation.

    Args:
        questions: the user's turns.
        answers: the model's turns, in their order.
        category: the category of the question, where it has one.
    """

    questions: list[str]
    answers: list[str]
    category: str | None


Answers = Mapping[tuple[str, str], ModelAnswers]
"""Answers by question id and model."""


@dataclass
class VotedComparison:
    """A comparison without its label, and the votes on it.

    Args:
        comparison: the two responses.
        votes: in the order of the comparison's responses.
        prompt: the prompt that it belongs to; empty where the rows do not say.
    """

    comparison: Comparison
    votes: list[Verdict] = field(default_factory=list)
    prompt: str = ""


def case_of(comparison: Comparison) -> VotedComparison:
    """Return the case of a comparison, with its own label as the only vote."""
    votes: list[Verdict] = []
    if comparison.label:
        votes = [comparison.label]
    return VotedComparison(comparison, votes)


def adapter_of(source: SourceConfig) -> Adapter:
    """Return a source's adapter, with the columns and labels of the configuration in the place of its own."""
    adapter = load_adapter(source.adapter or "")
    # An empty name says that no column holds the field.
    columns: dict[str, list[str]] = {}
    label_columns = adapter.label_columns
    for name, column in source.fields.items():
        if column == "":
            columns[name] = []
        elif isinstance(column, str):
            columns[name] = [column]
        elif isinstance(column, list):
            # Several annotators' columns.
            label_columns = column
        else:
            raise ConfigError(f"fields.{name}={column!r}: rows of an adapter have one column of labels, or a list")
    # A column of labels that the user names takes the place of the adapter's several.
    if columns.get("label"):
        label_columns = []
    without_meaning = [label for label, meaning in source.labels.items() if meaning == NO_LABEL]
    if without_meaning:
        raise ConfigError(f"labels.{without_meaning[0]}={NO_LABEL}: every label that an adapter reads has a meaning")
    labels: dict[str, Any] = source.labels or dict(adapter.labels)
    return replace(adapter, fields={**adapter.fields, **columns}, labels=labels, label_columns=label_columns)


def placed(source: SourceConfig, name: str = "") -> SourceConfig:
    """Return a source with its place filled in.

    A source of the Hub without a path gets the data set that its adapter names.

    Args:
        source: as it is configured.
        name: the name of a source that has none.
    """
    source = replace(source, name=source.name or name)
    if not source.adapter or source.type != "hub" or source.path:
        return source
    place = dict(load_adapter(source.adapter).hub)
    path = place.pop("path", "")
    return replace(source, path=path, hub={**place, **source.hub})


def source_of(benchmark: BenchmarkConfig) -> SourceConfig:
    """Return the source of a benchmark's rows, with its place filled in."""
    return placed(benchmark.source, benchmark.name)


def selected(row: Any, where: Mapping[str, str]) -> bool:
    """Return whether a row's columns have the values that ``where`` names.

    Raises:
        RowError: the row is no object, or lacks one of the columns.
    """
    if not isinstance(row, Mapping):
        raise RowError("not_an_object", f"expected a JSON object, found {type(row).__name__}")
    for column in where:
        if column not in row:
            columns = ", ".join(map(str, row))
            raise RowError("missing_field", f"expected the column {column!r} (where), found {columns}")
    return all(id_text(row[column]) == id_text(value) for column, value in where.items())


class CaseReader:
    """Turns rows into cases, by the kind of the source's adapter.

    Its methods raise a RowError for a row that does not fit.

    Args:
        source: the rows, with an adapter.
        answers: the models' answers, where votes are published without them.
    """

    def __init__(self, source: SourceConfig, answers: Answers | None = None) -> None:
        self.adapter = adapter_of(source)
        self._answers = answers
        self._name = source.name
        # The adapter has put the columns under their default names.
        labels: dict[Any, str] = {}
        if self.adapter.of_single_responses:
            labels = {label: str(score) for label, score in self.adapter.labels.items()}
        self._rows = RowReader(SourceConfig(name=source.name, labels=labels))

    def cases(self, row: Mapping[str, Any], number: int) -> list[VotedComparison]:
        """Return the cases of a row; its ``number`` stands in where it has no id.

        A single response with a label is a case of its own, without a vote between two.
        """
        if self.adapter.prompts:
            row = with_parts(row, self.adapter.prompts)
        if self.adapter.preferences:
            row = preference(row)
        if self.adapter.of_single_responses:
            return [VotedComparison(self._rows.rated(self._single(row, number), number))]
        # Its rows give several cases, and the columns say which response is better.
        if self.adapter.kind == "chosen_rejected":
            return list(self._chosen_rejected(row, number))
        local_id, is_reversed = self.identity(row, number)
        if self.adapter.kind == "votes":
            comparison = self._conversation(row, local_id)
            # A vote on the second turn is about the same prompt as one on the first.
            prompt = comparison.dialogue.messages[0].content
        else:
            fields = ("query", "input", "response_a", "response_b", "model_a", "model_b", "reference")
            values = {name: self.adapter.text(row, name) for name in fields}
            values["criteria"] = self.adapter.criteria_of(row)
            comparison = self._comparison(local_id, row, values)
            prompt = ""
        votes = list(self.adapter.votes(row))
        if is_reversed:
            # Votes say A and B in the row's order, the comparison has the alphabet's.
            comparison = comparison.swapped()
            votes = [mirror(vote) for vote in votes]
        return [VotedComparison(comparison, votes, prompt)]

    def labelled(self, row: Any, number: int) -> LabelledResponse:
        """Return the single response of a row with its labels, of an adapter for such rows."""
        if self.adapter.prompts:
            row = with_parts(row, self.adapter.prompts)
        return self._rows.labelled(self._single(row, number), number)

    def scales(self) -> dict[str, Scale]:
        """Return the scale of the labels of single responses that were read, by criterion."""
        return self._rows.scales()

    def _single(self, row: Any, number: int) -> dict[str, Any]:
        """Return a row of one response with its columns under their default names."""
        if not isinstance(row, Mapping):
            raise RowError("not_an_object", f"expected a JSON object, found {type(row).__name__}")
        local_id, _ = self.identity(row, number)
        values = {"id": local_id}
        for name in ("query", "input", "response", "reference", "model_a"):
            values[name] = self.adapter.text(row, name)
        values["criteria"] = self.adapter.criteria_of(row)
        values["group"] = self.adapter.value(row, "group", required=False)
        values["label"] = self.adapter.ratings(row)
        return values

    def identity(self, row: Mapping[str, Any], number: int) -> tuple[str, bool]:
        """Return the id of a row's comparison in the benchmark, and whether the row has its two models reversed.

        With a ``key`` (votes), the models stand in the order of the alphabet in the comparison, so that votes on the
        same two answers come together.
        """
        if not self.adapter.key:
            row_id = self.adapter.value(row, "id", required=False)
            if row_id is None:
                return f"{number:07d}", False
            return id_text(row_id), False

        models = [name_text(self.adapter.value(row, f"model_{side}")) for side in "ab"]

        # The models' names, in the alphabet's order, stand in the id in place of these columns.
        model_columns = []
        for side in "ab":
            model_columns += self.adapter.fields.get(f"model_{side}", [])[:1]
        parts = []
        for column in self.adapter.key:
            if column in model_columns:
                continue
            if column not in row:
                raise RowError("missing_field", f"expected the column {column!r} (key), found {', '.join(row)}")
            parts.append(id_text(row[column]))
        in_order = sorted(models)
        return ":".join([*parts, *in_order]), models != in_order

    def _comparison(self, local_id: str, row: Mapping[str, Any], values: Mapping[str, Any]) -> Comparison:
        """Return the unlabelled comparison of a row, from the values of its fields; the group is the row's."""
        group = self.adapter.value(row, "group", required=False)
        # The row's id is given, so that its number stands in for nothing.
        return self._rows.comparison({"id": local_id, "group": group, **values}, 0, labelled=False)

    def _conversation(self, row: Mapping[str, Any], local_id: str) -> Comparison:
        """Return a vote's comparison: the questions up to the vote's turn, and both models' answers to them.

        The answers between the questions are the responses' own, so that the dialogue has questions alone, one after
        the other: whoever lists criteria is to see all questions.
        """
        # MT-Bench has a vote for each turn; it is on all that was said up to there.
        turn = self.adapter.value(row, "turn", required="turn" in self.adapter.fields)
        values: dict[str, Any] = {}
        questions_by_side: list[list[str]] = []
        for side in "ab":
            model = name_text(self.adapter.value(row, f"model_{side}"))
            questions, answers, category = self._turns(row, side, model)
            # Without a turn, a vote is on the whole conversation.
            count = len(answers)
            if turn is not None:
                count = turn_number(turn)
            if not 1 <= count <= min(len(questions), len(answers)):
                raise RowError("missing_turn", f"turn {turn!r}: {model} has {amount(len(answers), 'answer')}")
            if category:
                values["group"] = category
            questions_by_side.append([" ".join(question.split()) for question in questions[:count]])
            values["query"] = [{"role": "user", "content": question} for question in questions[:count]]
            values[f"response_{side}"] = rendered(questions[:count], answers[:count])
            values[f"model_{side}"] = model
        if questions_by_side[0] != questions_by_side[1]:
            raise RowError("other_prompt", "the questions that one model answers are not those of the other model")
        return self._comparison(local_id, row, values)

    def _turns(self, row: Mapping[str, Any], side: str, model: str) -> ModelAnswers:
        """Return the conversation of one side of a vote, from the file of answers or from the row itself."""
        if self._answers is not None:
            question_id = row.get("question_id")
            answers = self._answers.get((id_text(question_id), model))
            if answers is None:
                raise RowError("no_answer", f"no answer of {model!r} to question {question_id!r} (answers)")
            return answers

        turns = self.adapter.value(row, f"conversation_{side}", required=False)
        if not isinstance(turns, list) or not all(isinstance(turn, Mapping) and "content" in turn for turn in turns):
            raise RowError("missing_field", f"expected the list conversation_{side}; or give answers, a file of them")
        texts: dict[str, list[str]] = {"user": [], "assistant": []}
        try:
            for role, text in role_texts(with_empty_end(turns)):
                # A system's message is no turn.
                if role in texts:
                    texts[role].append(text)
        except DataError as error:
            raise RowError("wrong_message", f"conversation_{side}: {error}") from error
        return ModelAnswers(texts["user"], texts["assistant"], None)

    def _chosen_rejected(self, row: Mapping[str, Any], number: int) -> Iterator[VotedComparison]:
        """Yield a case for every better response of a row with every worse one."""
        local_id, _ = self.identity(row, number)
        styles = self.adapter.styles
        query = self.adapter.value(row, "query")
        chosen_texts = self._texts(row, "chosen")
        chosen_model = self.adapter.value(row, "chosen_model", required=False) or ""
        rejected_texts = self._texts(row, "rejected")
        rejected_model = self.adapter.value(row, "rejected_model", required=False) or ""

        several = len(chosen_texts) * len(rejected_texts) > 1
        for (i, chosen), (j, rejected) in product(enumerate(chosen_texts), enumerate(rejected_texts)):
            pair_id = local_id
            if several:
                pair_id = f"{local_id}:{i}:{j}"
            values = {
                "query": query,
                "response_a": chosen,
                "response_b": rejected,
                "model_a": chosen_model,
                "model_b": rejected_model,
                "criteria": self.adapter.criteria_of(row),
            }
            # RM-Bench reports agreement by pairs of styles, not by the rows' own groups.
            if styles:
                values["group"] = f"{styles[i]} against {styles[j]}"
            comparison = self._comparison(pair_id, row, values)
            prompt = f"{self._name}:{local_id}"
            # The side of the better response is drawn, and is the same in every run.
            if derive_seed("side", self._name, pair_id) % 2:
                yield VotedComparison(comparison.swapped(), ["B"], prompt)
            else:
                yield VotedComparison(comparison, ["A"], prompt)

    def _texts(self, row: Mapping[str, Any], name: str) -> list[str]:
        """Return the text or texts of a column of responses; as many as the adapter has ``styles``, if it has any."""
        texts = replied(self.adapter.value(row, name))
        if isinstance(texts, str):
            texts = [texts]
        if isinstance(texts, list):
            # Each of several may be a conversation, too.
            texts = [replied(text) for text in texts]
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise RowError("wrong_type", f"expected a text or texts in {name}, found {type(texts).__name__}")
        styles = self.adapter.styles
        if styles and len(texts) != len(styles):
            raise RowError(
                "wrong_length",
                f"expected {amount(len(styles), 'text')} ({', '.join(styles)}) in {name}, found {len(texts)}",
            )
        return texts


def read_cases(benchmark: BenchmarkConfig, key: str) -> list[VotedComparison]:
    """Return the cases of a benchmark, from the rows that ``where``, ``part``, ``only`` and ``leave_out`` select.

    Votes on one comparison are one case.

    Without an adapter a row is a comparison with a label, which it may lack if the benchmark is ``unlabelled``.

    Args:
        benchmark: the rows.
        key: the configuration key of the benchmark, for messages.

    Raises:
        DataError: a row is malformed, a label is unknown or an id stands twice; names file, row and value.
    """
    answers = None
    if benchmark.answers:
        answers = read_answers(benchmark.answers, key)
    is_taken = PromptFilter(benchmark, key)
    source = source_of(benchmark)
    reader = None
    if source.adapter:
        reader = CaseReader(source, answers)
    holds_votes = reader is not None and reader.adapter.kind == "votes"
    plain_reader = RowReader(source, f"{key}.source")
    # None takes a label where a row has one, True requires it.
    labelled = None
    if not benchmark.unlabelled:
        labelled = True
    cases: dict[str, VotedComparison] = {}

    def cases_of(row: Any, number: int) -> list[VotedComparison]:
        if reader is not None:
            return reader.cases(row, number)

        # The first row's columns stand for those of all.
        if not cases:
            plain_reader.columns.check(row, labelled=not benchmark.unlabelled)
        return [case_of(plain_reader.comparison(row, number, labelled))]

    def take(row: Any, number: int) -> None:
        if not selected(row, benchmark.where):
            return
        for case in cases_of(row, number):
            if is_taken(case.comparison.dialogue):
                add_case(case, cases, holds_votes)

    # The cases are put together by ``take``.
    for _ in read(source, f"{key}.source", take):
        pass
    return list(cases.values())


def add_case(case: VotedComparison, cases: dict[str, VotedComparison], holds_votes: bool) -> None:
    """Add a case to those of its benchmark, or its votes to those of an earlier case on the same comparison.

    Args:
        case: of a row.
        cases: by the ids of their comparisons.
        holds_votes: a row is a vote, so that several may be on one comparison.

    Raises:
        RowError: an id stands twice, or two votes on one comparison are about different texts.
    """
    name = case.comparison.id
    earlier = cases.get(name)
    if earlier is None:
        cases[name] = case
        return
    if not holds_votes:
        raise RowError("repeated_id", f"the id {name!r} stands twice; ids must differ")
    # Votes are only put together if people saw the same texts.
    if earlier.comparison != case.comparison:
        raise RowError("other_texts", f"two votes on {name!r} are about different texts")
    earlier.votes += case.votes


def united(cases: Sequence[VotedComparison]) -> list[VotedComparison]:
    """Return the cases, in which rows that label one pair of responses are votes on one comparison.

    The first of them stands for all: a comparison counts once, however often it stands in a file, and nobody could
    agree with several labels of it. What an adapter reads is not united: the figure of a published benchmark is over
    its own rows.
    """
    comparisons = [case.comparison for case in cases]
    votes_of: dict[int, list[Verdict]] = {}
    later: set[int] = set()
    for rows in repeats(comparisons, [case.votes for case in cases]):
        first, *others = rows.places
        votes_of[first] = rows.votes
        later.update(others)

    result = []
    for place, case in enumerate(cases):
        if place not in later:
            result.append(replace(case, votes=votes_of.get(place, case.votes)))
    return result


def read_answers(path: str, key: str) -> Answers:
    """Return the models' answers, from rows ``question_id, model, questions, answers`` and perhaps ``category``.

    Args:
        path: of the file.
        key: the configuration key of the benchmark or source, for messages.
    """
    answers: dict[tuple[str, str], ModelAnswers] = {}

    def take(row: Any, number: int) -> None:
        if not isinstance(row, Mapping) or not {"question_id", "model", "questions", "answers"} <= set(row):
            raise RowError("missing_field", "expected the columns question_id, model, questions and answers")
        place = (id_text(row["question_id"]), name_text(row["model"]))
        answers[place] = ModelAnswers(row["questions"], row["answers"], row.get("category"))

    source = SourceConfig(name="answers", path=path)
    for _ in read(source, f"{key}.answers", take):
        pass
    return answers


def rendered(questions: Sequence[str], answers: Sequence[str]) -> str:
    """Return a single answer as it is, and several as ``Role: text`` paragraphs with the questions between them."""
    first, *others = map(shown, answers)
    if not others:
        return first
    # The first question is the dialogue's, and is not repeated.
    paragraphs = [f"Assistant: {first}"]
    for question, answer in zip(questions[1:], others, strict=True):
        paragraphs.append(f"User: {question}\n\nAssistant: {answer}")
    return "\n\n".join(paragraphs)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark as it is evaluated.

    Args:
        name: in reports.
        split: of the source.
        comparisons: with their labels; None where the votes have no majority, which metrics leave out.
        left_out: the number of comparisons that are not in it, by reason.
        left_out_examples: the id of one of them, by reason.
        prompts: the prompt of a comparison, by its id; empty where the rows do not say.
        domains: the coarse group of a group; may be empty.
        counted: the prompt of each comparison, by its id, where the published figure counts prompts whose pairs are all
            right: of prompts that it counts and of which every pair is there. Empty where it counts pairs.
        labelled_differently: the number of comparisons on a pair of responses that others label differently, which a
            published benchmark counts as they are.
    """

    name: str
    split: str
    comparisons: list[Comparison]
    left_out: Mapping[str, int] = field(default_factory=dict)
    left_out_examples: Mapping[str, str] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)
    labelled_differently: int = 0

    def prompt_of(self, comparison: Comparison) -> str:
        """Return the prompt that a comparison counts under: the one that the rows name, else the user's messages.

        Turns of one conversation are about one prompt.
        """
        prompt = self.prompts.get(comparison.id)
        if prompt is None:
            return "\n".join(self._clusters[comparison.id])
        return prompt

    @cached_property
    def content(self) -> str:
        """Return a hash of what figures are about, 16 hexadecimal digits.

        That is texts, references, labels, groups, criteria, and which comparisons share a prompt. Ids, names and the
        order of the comparisons do not change it.
        """
        by_prompt: dict[str, list[str]] = {}
        for comparison in self.comparisons:
            rubric = None
            if comparison.rubric is not None:
                rubric = comparison.rubric.to_row()
            values = [
                comparison.content,
                comparison.dialogue.reference,
                comparison.label,
                comparison.group,
                self.domains.get(comparison.group or ""),
                rubric,
            ]
            by_prompt.setdefault(self.prompt_of(comparison), []).append(json.dumps(values))
        # Sorted twice, so that neither the order of rows nor that of prompts counts.
        prompts = sorted(sorted(rows) for rows in by_prompt.values())
        return hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:16]

    @cached_property
    def _clusters(self) -> Mapping[str, PromptKey]:
        prompts = conversation_starts([key_of_dialogue(comparison.dialogue) for comparison in self.comparisons])
        return {comparison.id: prompt for comparison, prompt in zip(self.comparisons, prompts, strict=True)}


def load_benchmark(benchmark: BenchmarkConfig, index: int, seed: int, world_config: WorldConfig | None) -> Benchmark:
    """Return a benchmark with its comparisons and their labels.

    Args:
        benchmark: the rows, and how many of them.
        index: its place in ``evaluate.benchmarks``, for messages.
        seed: the seed of the generated world, and of the sample of ``limit`` comparisons.
        world_config: the generated world; a benchmark of type ``world`` needs it.

    Raises:
        DataError: as :func:`read_cases`; or no comparison with a label is left.
    """
    key = f"evaluate.benchmarks[{index}]"
    source = source_of(benchmark)
    if source.type == "world":
        assert world_config is not None
        cases = _world_cases(world.of_source(world_config, source), seed)
    else:
        cases = read_cases(benchmark, key)
    ids = [case.comparison.id for case in cases]

    # Rows on one pair become votes on it. A published benchmark keeps its rows, over which its figure is.
    if not source.adapter:
        cases = united(cases)
    comparisons = [replace(case.comparison, label=majority(case.votes)) for case in cases]

    # A comparison whose prompt the rows do not name counts as a prompt of its own.
    prompts = {case.comparison.id: case.prompt or case.comparison.id for case in cases}
    adapter = None
    if source.adapter:
        adapter = adapter_of(source)
    # Where a figure counts prompts, a prompt is drawn with all its pairs or not at all.
    counts_prompts = adapter is not None and adapter.figure == "prompts"
    drawn_whole: dict[str, str] = {}
    if counts_prompts:
        drawn_whole = prompts
    kept, left_out = _within_limits(comparisons, benchmark, seed, drawn_whole)

    united_ids = {case.comparison.id for case in cases}
    left_out.lose_all("repeated", (name for name in ids if name not in united_ids))
    _count_unlabelled(kept, left_out, benchmark, key)

    counted = {}
    if adapter is not None and counts_prompts:
        counted = _counted(kept, prompts, adapter.apart)
    if len(set(prompts.values())) == len(cases):
        # Every comparison has a prompt of its own, so the rows say nothing about which belong together.
        prompts = {}
    return Benchmark(
        name=benchmark.name,
        split={"world": "heldout", "hub": source.split}.get(source.type, "test"),
        comparisons=kept,
        left_out=dict(left_out),
        left_out_examples=left_out.examples,
        prompts=prompts,
        domains=_domains(source, comparisons),
        counted=counted,
        labelled_differently=_labelled_differently(kept),
    )


def _count_unlabelled(kept: Sequence[Comparison], left_out: Losses, benchmark: BenchmarkConfig, key: str) -> None:
    """Count comparisons without a label among those left out (DataError: all are).

    They stay in the benchmark: a judge is asked about them, and metrics leave them out.

    Args:
        kept: the comparisons that are evaluated.
        left_out: the comparisons that are left out, by reason, to which these are added.
        benchmark: the rows.
        key: the configuration key of the benchmark, for the message.
    """
    unlabelled = [comparison.id for comparison in kept if comparison.label is None]
    reason_unlabelled = "no_majority"
    if benchmark.unlabelled:
        reason_unlabelled = "no_label"
    number_read = len(kept) + left_out.total()
    left_out.lose_all(reason_unlabelled, unlabelled)
    if len(unlabelled) < len(kept):
        return

    counts = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
    raise DataError(
        f"{key}: no comparison with a label is left of {number_read} ({counts}); "
        f"look at max_chars={benchmark.max_chars}, where={dict(benchmark.where)} and part={list(benchmark.part)}"
    )


def _counted(kept: Sequence[Comparison], prompts: Mapping[str, str], apart: Sequence[str]) -> dict[str, str]:
    """Return the prompt of each comparison of prompts that a figure over prompts counts.

    Args:
        kept: the comparisons that are evaluated.
        prompts: of all comparisons of the benchmark, by their ids.
        apart: groups that the figure leaves out.
    """
    # A limit or max_chars may have taken some pairs of a prompt away.
    pairs = Counter(prompts.values())
    kept_pairs = Counter(prompts[comparison.id] for comparison in kept)
    counted = {}
    for comparison in kept:
        prompt = prompts[comparison.id]
        # With fewer pairs than were published a prompt is easier.
        if kept_pairs[prompt] == pairs[prompt] and comparison.group not in apart:
            counted[comparison.id] = prompt
    return counted


def _labelled_differently(comparisons: Sequence[Comparison]) -> int:
    """Return how many comparisons are on a pair of responses that others of them label differently."""
    votes = [case_of(comparison).votes for comparison in comparisons]
    return sum(len(rows.places) for rows in repeats(comparisons, votes) if rows.differ)


def _world_cases(config: WorldConfig, seed: int) -> list[VotedComparison]:
    """Return the held-out comparisons of the generated world, each with the criteria that decide there."""
    comparisons = world.eval_comparisons(config, seed)
    truth = world.world_of(config, seed)
    # One rubric a kind of query, which all its comparisons share: thousands of equal ones would be held otherwise.
    rubrics = {comparison.group: world.true_rubric(truth, comparison.dialogue.query) for comparison in comparisons}
    return [case_of(replace(comparison, rubric=rubrics[comparison.group])) for comparison in comparisons]


def _within_limits(
    comparisons: list[Comparison], benchmark: BenchmarkConfig, seed: int, prompts: Mapping[str, str]
) -> tuple[list[Comparison], Losses]:
    """Return the comparisons within ``max_chars``, ``limit`` of them drawn by the seed, and the others.

    Args:
        comparisons: of the benchmark.
        benchmark: the limits.
        seed: of the draw.
        prompts: of the comparisons by their ids, where prompts are drawn whole; empty: comparisons are drawn.
    """
    left_out = Losses()
    kept = fitting(comparisons, benchmark.max_chars, left_out)
    if benchmark.limit is not None and benchmark.limit < len(kept):
        # The first rows would be of a few groups alone: benchmarks are often sorted by group.
        rng = random.Random(derive_seed(seed, "benchmark", benchmark.name))
        number = len(kept)
        if prompts:
            kept = _whole_prompts(kept, prompts, benchmark.limit, rng)
        else:
            kept = rng.sample(kept, benchmark.limit)
        left_out["over_limit"] = number - len(kept)
    return kept, left_out


def _whole_prompts(
    comparisons: Sequence[Comparison], prompts: Mapping[str, str], limit: int, rng: random.Random
) -> list[Comparison]:
    """Return the comparisons of prompts drawn at random, as many as fit into a limit; those of one prompt at least."""
    by_prompt: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        by_prompt.setdefault(prompts[comparison.id], []).append(comparison)
    kept: list[Comparison] = []
    for prompt in rng.sample(list(by_prompt), len(by_prompt)):
        # The draw ends with the first prompt that does not fit: going on would favour prompts of few pairs.
        if kept and len(kept) + len(by_prompt[prompt]) > limit:
            break
        kept.extend(by_prompt[prompt])
    return kept


def _domains(source: SourceConfig, comparisons: Sequence[Comparison]) -> dict[str, str]:
    """Return the coarse group of each group that the source's adapter gives one."""
    if not source.adapter:
        return {}
    adapter = adapter_of(source)
    groups = {comparison.group for comparison in comparisons if comparison.group is not None}
    domains = {}
    for group in sorted(groups):
        domain = adapter.domain(group)
        if domain is not None:
            domains[group] = domain
    return domains
