"""What attacks may be called, and where their wordings are: what configurations need, and nothing heavy."""

from __future__ import annotations

from pathlib import Path

KINDS = ("rerun", "control", "edit", "empty", "forgery")
"""What :class:`~judgetrain.extras.robustness.attacks.attack.Attack` says of each."""
DEFAULT = "english"
WORDINGS = Path(__file__).parent / "wordings"
FORGERIES = Path(__file__).parent / "forgeries.yaml"
"""Texts that try to pass for a judge's own output or for a part of its prompt; part of every wording."""


def wording_file(name: str, owner: object = None) -> str | None:
    """The file of a wording: the packaged one of this name, else the path itself."""
    packaged = WORDINGS / f"{name}.yaml"
    return str(packaged) if packaged.exists() else name or None
