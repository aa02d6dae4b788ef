"""Putting several evaluations together into one report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgetrain.artifacts import MANIFEST
from judgetrain.errors import ConfigError
from judgetrain.evaluate.lineage import lineage
from judgetrain.evaluate.report import Report
from judgetrain.evaluate.statistics import over_seeds

MEASURED = ("evaluate.methods", "evaluate.branches", "evaluate.bootstrap", "evaluate.stored")
"""Settings that say what is measured and not what it is like."""
UNTOLD = (*MEASURED, "evaluate.benchmarks")
"""Settings that stand in no label."""
SEED = "seed"


@dataclass(frozen=True)
class Run:
    """A finished evaluation: its manifest, its files, and every setting of it and of what it was made from."""

    directory: Path
    manifest: Mapping[str, Any]
    rows: list[dict[str, Any]]
    paired: list[dict[str, Any]]
    summary: Mapping[str, Any]
    settings: Mapping[str, str]


def merged(runs: Sequence[Run], name: str) -> Report:
    """One report of several runs.

    A method is called by what its run differs in from the others (``dpo (beta=0.1)``); one that gives the same numbers
    in all of them stands there once. Runs that differ in nothing but their seed are also put together as mean and
    standard deviation.
    """
    labels = run_labels([run.settings for run in runs])
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    paired: list[dict[str, Any]] = []
    chosen: dict[str, list[Any]] = {}
    left_out: dict[str, Any] = {}
    everywhere = Counter(_result(row) for run in runs for row in {_result(r): r for r in run.rows}.values())
    for run, label in zip(runs, labels, strict=True):

        def called(method: str, label: str = label) -> str:
            return f"{method} ({label})" if label else method

        for row in run.rows:
            shared = everywhere[_result(row)] == len(runs)
            named = row | {"method": row["method"] if shared else called(row["method"]), "run": label}
            rows.setdefault((row["benchmark"], named["method"], row["branches"]), named)
        for row in run.paired:
            sides = {side: row[side] | {"method": called(row[side]["method"])} for side in ("first", "second")}
            paired.append(row | sides)
        for benchmark, choices in run.summary.get("chosen", {}).items():
            chosen.setdefault(benchmark, []).extend(c | {"method": called(c["method"])} for c in choices)
        left_out |= run.summary.get("left_out", {})
    made_from = {row["fingerprint"]: row for run in runs for row in lineage([run.directory])}
    facts = [
        {"run": label, **{k: run.manifest[k] for k in ("recipe", "seed", "fingerprint")}}
        for run, label in zip(runs, labels, strict=True)
    ]
    seeds = {run.manifest["seed"] for run in runs}
    return Report(
        name,
        seeds.pop() if len(seeds) == 1 else None,
        list(rows.values()),
        paired,
        left_out,
        chosen,
        {},
        list(made_from.values()),
        runs[0].manifest["versions"],
        facts,
        _over_seeds(runs),
    )


def run_labels(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """What tells each run from the others: the settings that differ, by the shortest name that is not ambiguous."""
    keys = sorted({key for each in settings for key in each if not key.startswith(UNTOLD)})
    differing = [key for key in keys if len({each.get(key) for each in settings}) > 1]
    last = Counter(key.rpartition(".")[2] for key in differing)
    names = {k: k.rpartition(".")[2] if last[k.rpartition(".")[2]] == 1 else k for k in differing}
    labels = [", ".join(f"{names[k]}={each[k]}" for k in differing if k in each) for each in settings]
    twice = Counter(labels)
    return [
        f"{label}{', ' if label else ''}run {i}" if twice[label] > 1 else label for i, label in enumerate(labels, 1)
    ]


def _over_seeds(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Rows of means and standard deviations, of runs that differ in nothing but the seed."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        rest = {k: v for k, v in run.settings.items() if k != SEED and not k.startswith(MEASURED)}
        groups.setdefault(json.dumps(rest, sort_keys=True), []).append(run)
    several = [group for group in groups.values() if len(group) > 1]
    labels = run_labels([{k: v for k, v in group[0].settings.items() if k != SEED} for group in several])
    found = []
    for group, label in zip(several, labels, strict=True):
        for first in group[0].rows:
            same = [r for run in group for r in run.rows if _place(r) == _place(first) and "agreement" in r]
            if len(same) < 2:
                continue
            row = {k: first[k] for k in ("benchmark", "branches")} | {"seeds": len(same)}
            row["method"] = f"{first['method']} ({label})" if len(several) > 1 and label else first["method"]
            for metric in ("agreement", "consistency"):
                row[metric], row[f"{metric}_std"] = over_seeds([r[metric] for r in same])
            found.append(row)
    return found


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["benchmark"], row["method"], row["branches"]


def _result(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        *_place(row),
        row["n"],
        *(str(row.get(m)) for m in ("agreement", "consistency", "pearson", "conflict_as_tie")),
    )


def read_run(directory: Path) -> Run:
    """A finished evaluation.

    Raises:
        ConfigError: it is none.
    """
    if not (directory / MANIFEST).is_file() or not (directory / "metrics.json").is_file():
        raise ConfigError(f"report.runs: {str(directory)!r} is no finished evaluation; run stage=evaluate first")
    files = {n: directory / f"{n}.json" for n in ("manifest", "metrics", "paired", "summary")}
    read = {n: json.loads(p.read_text(encoding="utf-8")) if p.is_file() else {} for n, p in files.items()}
    manifest = read["manifest"]
    settings = {SEED: str(manifest["seed"]), "recipe": str(manifest["recipe"])}
    for made in lineage([directory]):
        settings |= _flat(made["config"] or {})
    return Run(directory, manifest, read["metrics"], read["paired"] or [], read["summary"], settings)


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Settings by their full names, as text."""
    if isinstance(value, Mapping):
        return {
            k: v for name, part in value.items() for k, v in _flat(part, f"{prefix}.{name}" if prefix else name).items()
        }
    return {prefix: str(value)}
