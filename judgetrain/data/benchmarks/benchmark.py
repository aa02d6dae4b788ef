"""Benchmarks: labelled comparisons, from the generated world, a file or the Hub, read through an adapter.

A case is a comparison, the votes on it and which prompt it belongs to.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.data import world
from judgetrain.data.benchmarks.adapter import Adapter, load_adapter
from judgetrain.data.cells import RowError, label_text, majority
from judgetrain.data.config import BenchmarkConfig, SourceConfig, WorldConfig
from judgetrain.data.rows import Asked, RowReader, clusters
from judgetrain.data.sources import read
from judgetrain.errors import DataError
from judgetrain.messages import replied
from judgetrain.schema import Comparison, Verdict, mirror

Answers = Mapping[tuple[str, str], tuple[list[str], list[str], str | None]]
"""By question and model: the user's turns, the model's answers, and the question's category."""


@dataclass
class Case:
    """An unlabelled comparison, the votes on it in its own order, and the prompt it belongs to."""

    comparison: Comparison
    votes: list[Verdict] = field(default_factory=list)
    prompt: str = ""


def case_of(comparison: Comparison) -> Case:
    """The case of a comparison with its own label, or without one."""
    return Case(comparison, [comparison.label] if comparison.label else [])


def adapter_of(source: SourceConfig) -> Adapter:
    """The source's adapter with the columns and labels that the configuration overrides."""
    adapter = load_adapter(source.adapter or "")
    named = {name: [column] if column else [] for name, column in source.fields.items()}
    labels: dict[str, Any] = source.labels or dict(adapter.labels)
    return replace(adapter, fields={**adapter.fields, **named}, labels=labels)


def placed(source: SourceConfig, name: str = "") -> SourceConfig:
    """Where the rows are, under a name; a Hub source without a path is where the adapter's benchmark is published."""
    source = replace(source, name=source.name or name)
    if source.adapter and source.type == "hub" and not source.path:
        place = dict(load_adapter(source.adapter).hub)
        source = replace(source, path=place.pop("path", ""), hub={**place, **source.hub})
    return source


def source_of(benchmark: BenchmarkConfig) -> SourceConfig:
    """Where a benchmark's rows are."""
    return placed(benchmark.source, benchmark.name)


def selected(row: Any, where: Mapping[str, str]) -> bool:
    """Whether a row has the values that ``where`` asks for."""
    if not isinstance(row, Mapping):
        raise RowError("not_an_object", f"expected a JSON object, found {type(row).__name__}")
    missing = [column for column in where if column not in row]
    if missing:
        raise RowError("missing_field", f"expected the column {missing[0]!r} (where), found {', '.join(map(str, row))}")
    return all(label_text(row[column]) == wanted for column, wanted in where.items())


class CaseReader:
    """Turns rows into cases, by the adapter's kind."""

    def __init__(self, source: SourceConfig, answers: Answers | None = None) -> None:
        self.adapter, self._answers = adapter_of(source), answers
        self._name, self._rows = source.name, RowReader(SourceConfig(name=source.name))

    def cases(self, row: Mapping[str, Any], number: int) -> list[Case]:
        """The cases of a row; ``number`` stands in where it has no id."""
        if self.adapter.kind == "chosen_rejected":
            return list(self._chosen_rejected(row, number))
        local, reversed_ = self.identity(row, number)
        prompt = ""
        if self.adapter.kind == "votes":
            comparison = self._conversation(row, local)
            prompt = comparison.dialogue.messages[0].content  # of both turns
        else:
            names = ("query", "input", "response_a", "response_b", "model_a", "model_b", "reference", "criteria")
            comparison = self._comparison(local, row, {name: self.adapter.text(row, name) for name in names})
        votes = list(self.adapter.votes(row))
        if reversed_:
            comparison, votes = comparison.swapped(), [mirror(v) for v in votes]
        return [Case(comparison, votes, prompt)]

    def identity(self, row: Mapping[str, Any], number: int) -> tuple[str, bool]:
        """The id of a row's comparison within the benchmark, and whether the row names its two models the other way.

        With a ``key`` (votes), the models stand in the order of the alphabet in the comparison.
        """
        if not self.adapter.key:
            identifier = self.adapter.value(row, "id", required=False)
            return f"{number:07d}" if identifier is None else str(identifier), False
        columns = {side: (self.adapter.fields.get(f"model_{side}") or [""])[0] for side in "ab"}
        models = [str(self.adapter.value(row, f"model_{side}")) for side in "ab"]
        other = [column for column in self.adapter.key if column not in columns.values()]
        missing = [column for column in other if column not in row]
        if missing:
            raise RowError("missing_field", f"expected the column {missing[0]!r} (key), found {', '.join(row)}")
        return ":".join([*(str(row[c]) for c in other), *sorted(models)]), models != sorted(models)

    def _comparison(self, local: str, row: Mapping[str, Any], values: Mapping[str, Any]) -> Comparison:
        named = {"id": local, "group": self.adapter.value(row, "group", required=False), **values}
        return self._rows.comparison(named, 0, labelled=False)

    def _conversation(self, row: Mapping[str, Any], local: str) -> Comparison:
        """A vote's comparison: the questions up to the vote's turn, and what the two models answered to them.

        The answers between the questions are the responses' own, so that the dialogue has questions alone, one after
        the other: whoever lists criteria is to see all that was asked.
        """
        turn = self.adapter.value(row, "turn", required="turn" in self.adapter.fields)
        values: dict[str, Any] = {}
        for side in "ab":
            model = str(self.adapter.value(row, f"model_{side}"))
            questions, answers, category = self._turns(row, side, model)
            count = len(answers) if turn is None else int(turn)
            if not 1 <= count <= min(len(questions), len(answers)):
                raise RowError("missing_turn", f"turn {turn!r}: {model} has {len(answers)} answers")
            values |= {"group": category} if category else {}
            asked = [{"role": "user", "content": question} for question in questions[:count]]
            values |= {"query": asked, f"response_{side}": rendered(questions[:count], answers[:count])}
            values[f"model_{side}"] = model
        return self._comparison(local, row, values)

    def _turns(self, row: Mapping[str, Any], side: str, model: str) -> tuple[list[str], list[str], str | None]:
        if self._answers is not None:
            found = self._answers.get((str(row.get("question_id")), model))
            if found is None:
                raise RowError("no_answer", f"no answer of {model!r} to question {row.get('question_id')!r} (answers)")
            return found
        turns = self.adapter.value(row, f"conversation_{side}", required=False)
        if not isinstance(turns, list) or not all(isinstance(t, Mapping) and "content" in t for t in turns):
            raise RowError("missing_field", f"expected the list conversation_{side}; or give answers, a file of them")
        said = {role: [str(t["content"]) for t in turns if t.get("role") == role] for role in ("user", "assistant")}
        return said["user"], said["assistant"], None

    def _chosen_rejected(self, row: Mapping[str, Any], number: int) -> Iterator[Case]:
        local, styles = self.identity(row, number)[0], self.adapter.styles
        values: dict[str, Any] = {"query": self.adapter.value(row, "query")}
        lists: list[list[str]] = []
        for side, name in (("a", "chosen"), ("b", "rejected")):
            said = replied(self.adapter.value(row, name))
            texts = [said] if isinstance(said, str) else said
            if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
                raise RowError("wrong_type", f"expected a text or texts in {name}, found {type(texts).__name__}")
            if styles and len(texts) != len(styles):
                told = f"expected {len(styles)} texts ({', '.join(styles)}) in {name}, found {len(texts)}"
                raise RowError("wrong_length", told)
            lists.append(texts)
            values[f"model_{side}"] = self.adapter.value(row, f"{name}_model", required=False) or ""
        pairs = list(product(*map(enumerate, lists)))
        for (i, chosen), (j, rejected) in pairs:
            name, prompt = f"{local}:{i}:{j}" if len(pairs) > 1 else local, f"{self._name}:{local}"
            group = {"group": f"{styles[i]} against {styles[j]}"} if styles else {}
            sides = {"response_a": chosen, "response_b": rejected}
            found = self._comparison(name, row, values | sides | group)
            # The side of the better response is drawn, and is the same in every run.
            swapped = derive_seed("side", self._name, name) % 2
            yield Case(found.swapped(), ["B"], prompt) if swapped else Case(found, ["A"], prompt)


def read_cases(benchmark: BenchmarkConfig, key: str) -> list[Case]:
    """The cases of a benchmark, of the rows that ``where`` selects; votes on one comparison are put together.

    Without an adapter a row is a comparison with a label, or with ``unlabelled`` perhaps without one. A malformed row,
    an unknown label or a repeated id is a DataError that names file, row and value.
    """
    answers = _answers(benchmark, key) if benchmark.answers else None
    source = source_of(benchmark)
    reader = CaseReader(source, answers) if source.adapter else None
    plain = RowReader(source, f"{key}.source")
    cases: dict[str, Case] = {}

    labelled = None if benchmark.unlabelled else True
    several = reader is not None and reader.adapter.kind == "votes"

    def take(row: Any, number: int) -> None:
        if not selected(row, benchmark.where):
            return
        for case in reader.cases(row, number) if reader else [case_of(plain.comparison(row, number, labelled))]:
            known = cases.setdefault(name := case.comparison.id, case)
            if known is not case and not several:
                raise RowError("repeated_id", f"the id {name!r} stands twice; ids must differ")
            if known.comparison != case.comparison:
                raise RowError("other_texts", f"two votes on {name!r} are about different texts")
            known.votes += case.votes if known is not case else []

    for _ in read(source, f"{key}.source", take):
        pass
    return list(cases.values())


def _answers(benchmark: BenchmarkConfig, key: str) -> Answers:
    """The models' answers, from rows ``question_id, model, questions, answers`` and perhaps ``category``."""
    found: dict[tuple[str, str], tuple[list[str], list[str], str | None]] = {}

    def take(row: Any, number: int) -> None:
        if not isinstance(row, Mapping) or not {"question_id", "model", "questions", "answers"} <= set(row):
            raise RowError("missing_field", "expected the columns question_id, model, questions and answers")
        found[str(row["question_id"]), str(row["model"])] = row["questions"], row["answers"], row.get("category")

    source = SourceConfig(name="answers", path=benchmark.answers or "")
    for _ in read(source, f"{key}.answers", take):
        pass
    return found


def rendered(questions: Sequence[str], answers: Sequence[str]) -> str:
    """One answer as it is; a conversation after its first question, as ``Role: text`` paragraphs."""
    if len(answers) == 1:
        return answers[0]
    later = [f"User: {q}\n\nAssistant: {a}" for q, a in zip(questions[1:], answers[1:], strict=True)]
    return "\n\n".join([f"Assistant: {answers[0]}", *later])


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark as evaluated.

    A comparison's label is None where its votes have no majority; metrics leave it out. ``left_out`` counts by reason
    what is not in it. ``prompts`` (which prompt a comparison belongs to, where the rows say so) are by comparison id,
    ``domains`` (coarse groups) by group; both may be empty.
    """

    name: str
    split: str
    comparisons: list[Comparison]
    left_out: Mapping[str, int] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)

    def prompt_of(self, comparison: Comparison) -> str:
        """What comparisons on one prompt have in common: the prompt that the rows name, else what the user said.

        Turns of one conversation are about one prompt.
        """
        named = self.prompts.get(comparison.id)
        return "\n".join(self._clusters[comparison.id]) if named is None else named

    @cached_property
    def _clusters(self) -> Mapping[str, Asked]:
        found = clusters([c.dialogue.asked for c in self.comparisons])
        return {c.id: asked for c, asked in zip(self.comparisons, found, strict=True)}


def load_benchmark(benchmark: BenchmarkConfig, index: int, seed: int, world_config: WorldConfig | None) -> Benchmark:
    """The comparisons of a benchmark, with labels (DataError: as :func:`read_cases`, or nothing is left)."""
    key, source = f"evaluate.benchmarks[{index}]", source_of(benchmark)
    if source.type == "world":
        assert world_config is not None
        config = world.of_source(world_config, source)
        made = world.eval_comparisons(config, seed)
        truth = world.world_of(config, seed)
        rubrics = {c.group: world.true_rubric(truth, c.dialogue.query) for c in made}  # one a kind, held once
        cases = [case_of(replace(c, rubric=rubrics[c.group])) for c in made]
    else:
        cases = read_cases(benchmark, key)
    comparisons = [replace(case.comparison, label=majority(case.votes)) for case in cases]
    kept = [c for c in comparisons if benchmark.max_chars is None or c.characters <= benchmark.max_chars]
    left_out = {"too_long": len(comparisons) - len(kept)}
    if benchmark.limit is not None and benchmark.limit < len(kept):
        left_out["over_limit"] = len(kept) - benchmark.limit
        kept = random.Random(derive_seed(seed, "benchmark", benchmark.name)).sample(kept, benchmark.limit)
    unlabelled = sum(c.label is None for c in kept)
    left_out["no_label" if benchmark.unlabelled else "no_majority"] = unlabelled
    if unlabelled == len(kept):
        advice = f"look at max_chars={benchmark.max_chars} and where={dict(benchmark.where)}"
        raise DataError(f"{key}: no comparison with a label is left of {len(comparisons)}; {advice}")
    prompts = {case.comparison.id: case.prompt or case.comparison.id for case in cases}
    adapter = adapter_of(source) if source.adapter else None
    groups = {c.group for c in comparisons if c.group is not None} if adapter else ()
    return Benchmark(
        name=benchmark.name,
        split={"world": "heldout", "hub": source.split}.get(source.type, "test"),
        comparisons=kept,
        left_out={reason: n for reason, n in left_out.items() if n},
        prompts=prompts if len(set(prompts.values())) < len(cases) else {},
        domains={group: name for group in groups if adapter and (name := adapter.domain(group)) is not None},
    )
