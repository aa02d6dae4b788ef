"""Files that come with the project but are no Python: ``conf``, ``recipes`` and ``launch``."""

from __future__ import annotations

from pathlib import Path


def shipped(name: str) -> Path:
    """A shipped directory: inside the installed package, else beside it in the checkout."""
    package = Path(__file__).parents[1]
    installed = package / f"_{name}"
    return installed if installed.is_dir() else package.parent / name
