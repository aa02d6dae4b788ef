"""The files of an artifact without what they say of time: what an interrupted run has in common with a whole one."""

from __future__ import annotations

import re
from pathlib import Path

from judgetrain.artifacts.shards import SECONDS


def contents(directory: Path) -> dict[str, bytes]:
    """The files of a directory by name, without the seconds that they took."""
    files = {p.name: p.read_bytes() for p in directory.iterdir() if p.is_file() and p.name != SECONDS}
    return {name: re.sub(rb'"seconds": [^,]*,', b"", content) for name, content in files.items()}
