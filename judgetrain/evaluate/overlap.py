"""Which queries of a benchmark the judges were trained on: looked up beside the results, whatever training left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgetrain.artifacts.integrity import checked, made_from, read_manifest
from judgetrain.artifacts.shards import read_rows
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.duplicates import BenchmarkQueries, asked, normalised, turns
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


def overlaps(
    methods: Sequence[Method], inputs: Mapping[str, Path], benchmarks: Sequence[Benchmark], say: Callable[[str], None]
) -> dict[tuple[str, str], Overlap]:
    """The overlaps by the names of method and benchmark; of methods that name a trained judge.

    Every training dialogue is looked up among a benchmark's queries, as ``dialogues.decontaminate`` does.

    Args:
        methods: those of the evaluation.
        inputs: directories of this run's judges, by stage.
        benchmarks: loaded.
        say: is given a line for each benchmark and group of methods that learned from the same.
    """
    groups: dict[tuple[Path, bool] | None, list[str]] = {}
    for method in methods:
        if method.target in inputs or method.is_directory:
            artifact = inputs.get(method.target) or Path(method.target).expanduser().resolve().parent
            source = _teacher(artifact)
            # The Initial judge learned from the teacher's evaluations alone.
            key = (source, _manifest(artifact).get("stage") == "initial") if source else None
            groups.setdefault(key, []).append(method.name)
    queries = [(b, *_queries(b)) for b in benchmarks]
    found: dict[tuple[str, str], Overlap] = {}
    for key, names in groups.items():
        who, dialogues = ", ".join(names), _dialogues(*key) if key else None
        if dialogues is None:
            say(f"evaluate: {who}: what it was trained on is not known here, so that overlaps are not looked up")
        for benchmark, by_query, index in queries:
            seen = _seen(by_query, index, dialogues or ())
            exact, ids = sum(seen.values()), sorted(seen, key=lambda name: not seen[name])  # stable: exact ones first
            own = Overlap(training_queries=None)
            if dialogues is not None:
                n = len(dialogues)
                own = Overlap(training_queries=n, exact=exact, near=len(seen) - exact, ids=ids[:SHOWN])
                told = f" ({exact} word for word, {own.near} nearly; first {ids[0]})" if ids else ""
                say(
                    f"evaluate: {benchmark.name}: {len(seen)} of {len(benchmark.comparisons)} comparisons have a query "
                    f"among the {n} that {who} learned from{told}"
                )
            found |= {(name, benchmark.name): own for name in names}
    return found


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
