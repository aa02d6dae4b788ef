"""Putting several evaluations together into one report."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgetrain.artifacts.stage_run import MANIFEST
from judgetrain.errors import ConfigError
from judgetrain.evaluate.metrics.statistics import over_seeds
from judgetrain.evaluate.report.lineage import lineage
from judgetrain.evaluate.report.report import Report
from judgetrain.evaluate.report.run_names import MEASURED, method_names, run_labels

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

    A method is called by the settings of its own that differ from one run to another (``dpo (beta=0.1)``), and rows
    of one name stand once (:mod:`judgetrain.evaluate.report.run_names`). Runs that differ
    in nothing but their seed are also put together as mean and standard deviation.
    """
    labels, called = run_labels([run.settings for run in runs]), _called(runs)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    paired: dict[tuple[Any, ...], dict[str, Any]] = {}
    chosen: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
    left_out: dict[str, Any] = {}
    for number, (run, label) in enumerate(zip(runs, labels, strict=True), 1):
        for row in run.rows:
            named = row | {"method": called[number, row["method"]], "run": label}
            rows.setdefault(_place(named), named)
        for row in run.paired:
            sides = {s: row[s] | {"method": called[number, row[s]["method"]]} for s in ("first", "second")}
            between = tuple((side["method"], side["branches"]) for side in sides.values())
            paired.setdefault((row["benchmark"], *between), row | sides)
        for benchmark, choices in run.summary.get("chosen", {}).items():
            for choice in choices:
                named = choice | {"method": called[number, choice["method"]]}
                chosen.setdefault(benchmark, {}).setdefault((named["method"], named["branches"]), named)
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
        list(paired.values()),
        left_out,
        {benchmark: list(choices.values()) for benchmark, choices in chosen.items()},
        {},
        list(made_from.values()),
        runs[0].manifest["versions"],
        facts,
        _over_seeds(runs),
    )


def _called(runs: Sequence[Run]) -> dict[tuple[int, str], str]:
    """Every method's name by the number of its run, from 1, and its name there."""
    results: dict[str, dict[int, dict[Hashable, Hashable]]] = {}
    for number, run in enumerate(runs, 1):
        for row in run.rows:
            results.setdefault(row["method"], {}).setdefault(number, {})[_place(row)] = _result(row)
    found: dict[tuple[int, str], str] = {}
    for method, by_run in results.items():
        names = method_names(method, {i: runs[i - 1].settings for i in by_run}, by_run)
        found |= {(number, method): name for number, name in zip(by_run, names, strict=True)}
    return found


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
