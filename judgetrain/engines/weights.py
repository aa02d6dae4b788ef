"""Whether a judge's weights are those that training wrote: their digests lie beside them, wherever they are copied."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from judgetrain.artifacts.files import read_json, write_text_atomic
from judgetrain.errors import EngineError

DIGESTS = "weights.json"
"""The file of digests (XXH3, 128 bits: a gigabyte takes a quarter of a second)."""


def note_weights(directory: Path) -> None:
    """Write the digests of a directory's safetensors beside them."""
    digests = {file.name: _digest(file) for file in sorted(directory.glob("*.safetensors"))}
    write_text_atomic(directory / DIGESTS, json.dumps(digests, indent=1))


def check_weights(directory: Path) -> None:
    """Check the weights of a directory that has digests.

    Raises:
        EngineError: a file is missing, or holds other bytes than were written.
    """
    if not (directory / DIGESTS).is_file():
        return
    found = read_json(directory / DIGESTS)
    if not isinstance(found, dict):
        raise EngineError(f"{directory / DIGESTS} is damaged: copy the judge again")
    for name, digest in found.items():
        if not (directory / name).is_file() or _digest(directory / name) != digest:
            raise EngineError(
                f"{directory / name} is missing or holds other bytes than training wrote: copy the judge again (or "
                f"remove {DIGESTS}, where you changed the weights yourself)"
            )


def _digest(file: Path) -> str:
    import xxhash

    with file.open("rb") as opened:
        return hashlib.file_digest(opened, xxhash.xxh3_128).hexdigest()
