"""Where results come from: the manifests of their inputs and of theirs, and the tables that say so."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from judgetrain.artifacts.stage_run import MANIFEST
from judgetrain.evaluate.report.sections import Table, number, percent

KEPT = ("stage", "fingerprint", "recipe", "seed", "counts", "tokens", "seconds", "config", "upstream")
Row = Mapping[str, Any]


def lineage(directories: Iterable[Path]) -> list[dict[str, Any]]:
    """The artifacts that these were made from, and they themselves, inputs first: what their manifests say.

    Artifacts lie as ``STAGE/FINGERPRINT``; a directory without a manifest tells nothing and is left out.
    """
    found: dict[Path, dict[str, Any]] = {}

    def visit(directory: Path) -> None:
        path = directory / MANIFEST
        if directory in found or not path.is_file():
            return
        manifest = json.loads(path.read_text(encoding="utf-8"))
        for stage, mark in manifest["upstream"].items():
            visit(directory.parent.parent / stage / mark)
        found[directory] = {name: manifest.get(name) for name in KEPT}

    for directory in directories:
        visit(directory)
    return list(found.values())


def lineage_table(rows: Sequence[Row]) -> Table:
    """The artifacts that results were made from; a dash for what an older manifest does not have."""
    cells = []
    for row in rows:
        counts, tokens = row.get("counts") or {}, row.get("tokens") or {}
        amounts = counts.get("in"), counts.get("out"), tokens.get("generated"), row.get("seconds")
        cells.append((str(row["stage"]), str(row["fingerprint"]), *(number(amount, 0) for amount in amounts)))
    headers = ("stage", "fingerprint", "in", "out", "tokens generated", "seconds")
    return Table("Made from", headers, cells, "artifacts/STAGE/FINGERPRINT/manifest.json holds every setting.")


def run_table(rows: Sequence[Row]) -> Table:
    """The runs that were put together."""
    headers = ("run", "recipe", "seed", "fingerprint")
    cells = [tuple(str(row[name]) for name in headers) for row in rows]
    return Table("Runs", headers, cells, "Evaluations that this report puts together.")


def scenario_table(facts: Mapping[str, float]) -> Table:
    """The classifier that groups benchmarks without groups."""
    cells = []
    if facts:
        shares = percent(facts["accuracy"]), percent(facts["most_common"])
        cells.append((str(facts["queries"]), str(facts["scenarios"]), *shares))
    explanation = (
        "Trained on labelled queries; it names the group of comparisons that have none. Accuracy: cross-validated; "
        "most common: of always naming the most common scenario."
    )
    headers = ("queries", "scenarios", "accuracy %", "most common %")
    return Table("Scenario classifier", headers, cells, explanation, names=0)


def version_table(found: Mapping[str, str]) -> Table:
    """The versions of packages."""
    return Table("Versions", ("package", "version"), list(found.items()), "Of the evaluation.")
