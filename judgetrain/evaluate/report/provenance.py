"""The tables that say where results come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from judgetrain.evaluate.report.sections import Row, Table, percent


def runs(rows: Sequence[Row]) -> Table:
    """The runs that were put together."""
    cells = [(str(r["run"]), str(r["recipe"]), str(r["seed"]), str(r["fingerprint"])) for r in rows]
    return Table("Runs", ("run", "recipe", "seed", "fingerprint"), cells, "Evaluations that this report puts together.")


def scenarios(facts: Mapping[str, float]) -> Table:
    """The classifier that groups benchmarks without groups."""
    if not facts:
        return Table("Scenario classifier", (), [], "")
    headers = ("queries", "scenarios", "accuracy %", "most common %")
    cells = [
        (str(facts["queries"]), str(facts["scenarios"]), *(percent(facts[n]) for n in ("accuracy", "most_common")))
    ]
    explanation = (
        "Trained on labelled queries; it names the group of comparisons that have none. Accuracy: cross-validated; "
        "most common: of always naming the most common scenario."
    )
    return Table("Scenario classifier", headers, cells, explanation, names=0)


def lineage(rows: Sequence[Row]) -> Table:
    """The artifacts that results were made from."""
    cells = [
        (str(r["stage"]), str(r["fingerprint"]), *(_amount(r, *at) for at in _AMOUNTS), _amount(r, "seconds"))
        for r in rows
    ]
    headers = ("stage", "fingerprint", "in", "out", "tokens generated", "seconds")
    return Table("Made from", headers, cells, "artifacts/STAGE/FINGERPRINT/manifest.json holds every setting.")


_AMOUNTS = (("counts", "in"), ("counts", "out"), ("tokens", "generated"))


def _amount(row: Row, *names: str) -> str:
    """A number of a manifest; a dash where an older one has it not."""
    value: Any = row
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return "–" if value is None else f"{value:.0f}"


def versions(found: Mapping[str, str]) -> Table:
    """The versions of packages."""
    return Table("Versions", ("package", "version"), list(found.items()), "Of the evaluation.")
