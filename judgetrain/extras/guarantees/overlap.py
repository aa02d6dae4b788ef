"""Which queries of a benchmark the judges were trained on, whatever training left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from judgetrain.artifacts.integrity import checked, made_from, read_manifest
from judgetrain.artifacts.shards import read_rows
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
    methods: Sequence[Method], inputs: Mapping[str, Path], name: str, comparisons: Sequence[Comparison]
) -> tuple[dict[str, Overlap], list[str]]:
    """The overlaps with a benchmark by the names of methods that name a trained judge, and what is to be said of them.

    Every training dialogue is looked up among the benchmark's queries, as ``dialogues.decontaminate`` does.
    """
    groups: dict[tuple[Path, bool] | None, list[str]] = {}
    for method in methods:
        if method.target in inputs or method.is_directory:
            artifact = inputs.get(method.target) or Path(method.target).expanduser().resolve().parent
            source = _teacher(artifact)
            # The Initial judge learned from the teacher's evaluations alone.
            key = (source, _manifest(artifact).get("stage") == "initial") if source else None
            groups.setdefault(key, []).append(method.name)
    found, told = dict[str, Overlap](), list[str]()
    for key, names in groups.items():
        who, dialogues, own = ", ".join(names), _dialogues(*key) if key else None, Overlap(training_queries=None)
        if dialogues is None:
            told.append(f"{name}: what {who} learned from is not known here, so that overlaps are not looked up")
        else:
            seen = _seen(comparisons, dialogues)
            n, exact, ids = len(dialogues), sum(seen.values()), sorted(seen, key=lambda name: not seen[name])
            own = Overlap(training_queries=n, exact=exact, near=len(seen) - exact, ids=ids[:SHOWN])
            first = f" ({exact} word for word, {own.near} nearly; first {ids[0]})" if ids else ""
            told.append(
                f"{name}: {len(seen)} of {len(comparisons)} comparisons have a query among the {n} that {who} learned "
                f"from{first}"
            )
        found |= dict.fromkeys(names, own)
    return found, told


def _manifest(artifact: Path) -> Mapping[str, Any]:
    return read_manifest(artifact) or {}


def _teacher(artifact: Path) -> Path | None:
    """The stage upstream that says which comparisons were learned from, if it is still there."""
    if _manifest(artifact).get("stage") == "teacher":
        return artifact
    return next((found for found in map(_teacher, made_from(artifact).values()) if found), None)


@lru_cache(maxsize=2)  # of several benchmarks: the Initial judge's, and all that the others learned from
def _dialogues(teacher: Path, only_taught: bool) -> list[Dialogue] | None:
    """What was learned from; None where the stage's artifact is damaged, as a part of it would say too little."""
    try:
        checked(teacher)
    except DataError:
        return None
    rows = [row["comparison"] for row in read_rows(teacher, "evaluations")]
    rows += [] if only_taught else list(read_rows(teacher, "remaining"))
    return list({normalised(turns(d)): d for d in (Comparison.from_row(row).dialogue for row in rows)}.values())


def _seen(comparisons: Sequence[Comparison], dialogues: Iterable[Dialogue]) -> dict[str, bool]:
    """The ids of comparisons with a query that a dialogue holds, and whether one does word for word."""
    by_query: dict[str, list[str]] = {}
    for comparison in comparisons:
        for text in asked(comparison.dialogue):
            by_query.setdefault(normalised(text), []).append(comparison.id)
    index, found = BenchmarkQueries([("", text) for text in by_query]), dict[str, bool]()
    for match in (match for dialogue in dialogues for match in index.matches(dialogue)):
        for name in by_query[match.query]:
            found[name] = found.get(name, False) or match.exact
    return found
