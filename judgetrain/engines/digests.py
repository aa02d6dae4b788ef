"""Digests of weights: what training wrote is what is loaded later, wherever the files have been copied to since."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from judgetrain.artifacts.files import read_json, write_text_atomic
from judgetrain.errors import EngineError

DIGESTS = "weights.json"
"""The file of a judge's weights' digests (XXH3, 128 bits: a gigabyte takes a quarter of a second)."""


def note_weights(directory: Path) -> None:
    """Write the digests of a directory's safetensors into :data:`DIGESTS`, beside them."""
    digests = {file.name: digest_of(file) for file in sorted(directory.glob("*.safetensors"))}
    write_text_atomic(directory / DIGESTS, json.dumps(digests, indent=1))


def check_weights(directory: Path) -> None:
    """Raise EngineError where weights are missing or differ from a directory's digests.

    A directory without digests is not checked.
    """
    if not (directory / DIGESTS).is_file():
        return
    digests = read_json(directory / DIGESTS)
    if not isinstance(digests, dict):
        raise EngineError(f"{directory / DIGESTS} is damaged: copy the judge again")
    # Transformers loads every such file that its index names, also one that was put there since.
    for file in sorted(directory.glob("*.safetensors")):
        if file.name not in digests:
            raise EngineError(
                f"{directory / DIGESTS} does not name {file.name}, so that nobody knows whether it is what training "
                f"wrote: copy the judge again (or remove {DIGESTS}, if you changed the weights)"
            )

    for name, digest in digests.items():
        file = directory / name
        if not file.is_file() or digest_of(file) != digest:
            raise EngineError(
                f"{file} is missing or holds other bytes than training wrote: copy the judge again (or remove "
                f"{DIGESTS}, if you changed the weights)"
            )


def digest_of(file: Path) -> str:
    """Return the XXH3 digest of a file, 128 bits in hex."""
    import xxhash

    with file.open("rb") as opened:
        return hashlib.file_digest(opened, xxhash.xxh3_128).hexdigest()
