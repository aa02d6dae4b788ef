"""What a result was made from: the manifests of its inputs, and of theirs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from judgetrain.artifacts.stage_run import MANIFEST

KEPT = ("stage", "fingerprint", "recipe", "seed", "counts", "tokens", "seconds", "config", "upstream")


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
