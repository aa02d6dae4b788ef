"""Which queries of a benchmark the judges were trained on: looked up beside the results, whatever training left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from judgetrain.artifacts.integrity import checked, made_from, read_manifest
from judgetrain.artifacts.shards import read_rows
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.contamination import BenchmarkQueries, asked, turns
from judgetrain.data.dedup import normalised
from judgetrain.errors import DataError
from judgetrain.judges.method import Method
from judgetrain.schema import Comparison, Dialogue

SHOWN = 10
"""Ids of a benchmark's comparisons that ``metrics.json`` names."""


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """How much of a benchmark a method was trained on.

    ``training_queries`` is None where that is not known, as of a judge from elsewhere; ``exact`` and ``near`` count the
    comparisons with a query that stands among them word for word, or nearly so; ``ids`` are the first of those.
    """

    training_queries: int | None
    exact: int = 0
    near: int = 0
    ids: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a group of methods was trained on: their names, the dialogues, None where they are not known, and by
    benchmark the comparisons with a query among theirs, each with whether that is word for word."""

    methods: list[str]
    dialogues: Sequence[Dialogue] | None
    seen: Mapping[str, Mapping[str, bool]]


@dataclass(frozen=True)
class Overlaps:
    """What each group of methods was trained on."""

    trained: Sequence[Training]

    @classmethod
    def find(cls, methods: Sequence[Method], inputs: Mapping[str, Path], benchmarks: Sequence[Benchmark]) -> Self:
        """Look every training dialogue up among the benchmarks' queries, as ``dialogues.decontaminate`` does.

        Args:
            methods: those that name no trained judge are left out.
            inputs: directories of this run's judges, by stage.
            benchmarks: loaded.
        """
        groups: dict[tuple[Path, bool] | None, list[str]] = {}
        for method in methods:
            if method.target in inputs or method.is_directory:
                artifact = inputs.get(method.target) or Path(method.target).expanduser().resolve().parent
                source = _teacher(artifact)
                # The Initial judge learned from the teacher's evaluations alone.
                key = (source, _manifest(artifact).get("stage") == "initial") if source else None
                groups.setdefault(key, []).append(method.name)
        queries = [(b.name, *_queries(b)) for b in benchmarks]
        trained = []
        for key, names in groups.items():
            dialogues = _dialogues(*key) if key else None
            seen = {name: _seen(by_query, index, dialogues or ()) for name, by_query, index in queries}
            trained.append(Training(methods=names, dialogues=dialogues, seen=seen))
        return cls(trained)

    def of(self, method: str, benchmark: str, comparisons: Sequence[Comparison]) -> Overlap | None:
        """The overlap of a method's training with labelled comparisons of a benchmark; None for what is no judge."""
        training = next((t for t in self.trained if method in t.methods), None)
        if training is None:
            return None
        if training.dialogues is None:
            return Overlap(training_queries=None)
        labelled = {c.id for c in comparisons if c.label is not None}
        seen = {name: exact for name, exact in training.seen[benchmark].items() if name in labelled}
        ids = sorted(seen, key=lambda name: not seen[name])  # a stable sort: the exact ones first
        exact = sum(seen.values())
        return Overlap(training_queries=len(training.dialogues), exact=exact, near=len(seen) - exact, ids=ids[:SHOWN])

    def told(self, benchmarks: Sequence[Benchmark]) -> Iterator[str]:
        """A line for each benchmark and group of methods, to be logged."""
        for training in self.trained:
            who = ", ".join(training.methods)
            if training.dialogues is None:
                yield f"evaluate: {who}: what it was trained on is not known here, so that overlaps are not looked up"
                continue
            for benchmark in benchmarks:
                found = self.of(training.methods[0], benchmark.name, benchmark.comparisons)
                assert found is not None
                line = (
                    f"evaluate: {benchmark.name}: {found.exact + found.near} of {len(benchmark.comparisons)} "
                    f"comparisons have a query among the {len(training.dialogues)} that {who} learned from"
                )
                if found.ids:
                    line += f" ({found.exact} word for word, {found.near} nearly; first {found.ids[0]})"
                yield line


def _manifest(artifact: Path) -> Mapping[str, Any]:
    return read_manifest(artifact) or {}


def _teacher(artifact: Path) -> Path | None:
    """The stage upstream that says which comparisons were learned from, if it is still there."""
    if _manifest(artifact).get("stage") == "teacher":
        return artifact
    return next((found for found in map(_teacher, made_from(artifact).values()) if found), None)


def _dialogues(teacher: Path, only_taught: bool) -> list[Dialogue] | None:
    """What was learned from; None where the stage's artifact is damaged, as a part of it would say too little."""
    try:
        checked(teacher)
    except DataError:
        return None
    rows = [row["comparison"] for row in read_rows(teacher, "evaluations")]
    rows += [] if only_taught else list(read_rows(teacher, "remaining"))
    return list({normalised(turns(d)): d for d in (Comparison.from_row(row).dialogue for row in rows)}.values())


def _queries(benchmark: Benchmark) -> tuple[dict[str, list[str]], BenchmarkQueries]:
    """The ids of a benchmark's comparisons by what they ask, and an index of that."""
    by_query: dict[str, list[str]] = {}
    for comparison in benchmark.comparisons:
        for text in asked(comparison.dialogue):
            by_query.setdefault(normalised(text), []).append(comparison.id)
    return by_query, BenchmarkQueries([(benchmark.name, text) for text in by_query])


def _seen(by_query: Mapping[str, list[str]], index: BenchmarkQueries, dialogues: Iterable[Dialogue]) -> dict[str, bool]:
    """The comparisons with a query that a dialogue holds, and whether one does word for word."""
    found: dict[str, bool] = {}
    for dialogue in dialogues:
        for match in index.matches(dialogue):
            for name in by_query[match.query]:
                found[name] = found.get(name, False) or match.exact
    return found
