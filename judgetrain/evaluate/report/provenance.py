"""Where results come from: the manifests of their inputs and of theirs, and the tables that say so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from judgetrain.artifacts.integrity import made_from, read_manifest
from judgetrain.evaluate.report.table import Columns, Table, number

KEPT = ("stage", "fingerprint", "recipe", "seed", "counts", "tokens", "seconds", "config", "upstream")
Row = Mapping[str, Any]


def lineage(directories: Iterable[Path]) -> list[dict[str, Any]]:
    """The artifacts that these were made from, and they themselves, inputs first: what their manifests say.

    Artifacts lie as ``STAGE/FINGERPRINT``; a directory without a manifest tells nothing and is left out.
    """
    found: dict[Path, dict[str, Any]] = {}

    def visit(directory: Path) -> None:
        if directory in found or not (manifest := read_manifest(directory)):
            return
        for source in made_from(directory).values():
            visit(source)
        found[directory] = {name: manifest.get(name) for name in KEPT}

    for directory in directories:
        visit(directory)
    return list(found.values())


def lineage_table(rows: Sequence[Row]) -> Table:
    """The artifacts that results were made from; a dash for what an older manifest does not have."""

    def amount(part: str, name: str) -> Callable[[Row], str]:
        return lambda row: number((row.get(part) or {}).get(name), 0)

    columns: Columns = {"stage": itemgetter("stage"), "fingerprint": itemgetter("fingerprint")}
    columns |= {"in": amount("counts", "in"), "out": amount("counts", "out")}
    columns |= {"tokens generated": amount("tokens", "generated"), "seconds": lambda r: number(r.get("seconds"), 0)}
    return Table.of("Made from", rows, columns)


def run_table(rows: Sequence[Row]) -> Table:
    """The runs that were put together."""
    columns: Columns = {name: itemgetter(name) for name in ("run", "recipe", "seed", "fingerprint")}
    return Table.of("Runs", rows, columns)


def version_table(found: Mapping[str, str]) -> Table:
    """The versions of packages."""
    return Table.of("Versions", found.items(), {"package": itemgetter(0), "version": itemgetter(1)})
