"""Whether an artifact is what its stage left: every file's size and SHA-256, kept in its manifest.

Sizes are looked at whenever an artifact is named, the content of small files too (each is read once and remembered by
its size, time and inode), and the content of large ones when a stage reads the artifact.
"""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import read_json, sha256_of
from judgetrain.artifacts.fingerprint import ContentHashes, fingerprint
from judgetrain.artifacts.shards import SECONDS
from judgetrain.errors import DataError

MANIFEST = "manifest.json"
FILES, CHECKSUM = "files", "checksum"
SMALL = 64 * 2**20
"""Bytes of the largest file whose content is looked at whenever its artifact is named."""
UNLISTED = (MANIFEST, ".lock", SECONDS, "model/README.md")
"""Files of an artifact that are no part of its result: a judge's card changes with what is measured of it."""


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest of a finished artifact, or None (DataError: not what was written; how to make it again)."""
    path = directory / MANIFEST
    if not path.is_file():
        return None
    manifest = read_json(path)
    if not isinstance(manifest, dict) or not manifest:
        raise damaged(directory, f"{MANIFEST} is no manifest")
    if (FILES in manifest) != (CHECKSUM in manifest) or manifest.get(CHECKSUM) not in (None, _checksum(manifest)):
        raise damaged(directory, f"{MANIFEST} holds other text than was written")
    return manifest


def made_from(directory: Path) -> dict[str, Path]:
    """What a finished artifact was made from, by stage: ``STAGE/FINGERPRINT`` beside it."""
    upstream = (read_manifest(directory) or {}).get("upstream", {})
    return {stage: directory.parent.parent / stage / mark for stage, mark in upstream.items()}


def lineage(*roots: Path) -> Iterator[Path]:
    """Artifacts, and all that they were made from, as far as their manifests can be read."""
    seen, waiting = set[Path](), [*roots]
    while waiting:
        directory = waiting.pop().resolve()
        if directory not in seen:
            seen.add(directory)
            yield directory
            with suppress(DataError):
                waiting += made_from(directory).values()


def sealed(directory: Path, manifest: Mapping[str, Any], hashes: ContentHashes) -> dict[str, Any]:
    """A manifest with the sizes and hashes of the artifact's files, and a checksum of itself."""
    files = {}
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        name, passing = str(path.relative_to(directory)), path.suffix == ".tmp" or path.name.startswith(".nfs")
        if name not in UNLISTED and not passing:  # NFS: removed, and still open
            files[name] = described(path, hashes.file(path))
    hashes.keep()
    whole = {**manifest, FILES: files}
    return {**whole, CHECKSUM: _checksum(whole)}


def damage(directory: Path, hashes: ContentHashes, *, large: bool) -> str | None:
    """What is wrong with a finished artifact, if anything: its file, and how it differs from what was written.

    ``large``: whether the content of files above :data:`SMALL` is read too, unless ``hashes`` has it from before. A
    damaged manifest is a DataError.
    """
    listed = (read_manifest(directory) or {}).get(FILES, {})
    found = [what for name, file in listed.items() if (what := _difference(directory / name, file, hashes, large))]
    hashes.keep()
    return f"{found[0]}{f' (and {len(found) - 1} other files)' if found[1:] else ''}" if found else None


def checked(directory: Path) -> dict[str, Any] | None:
    """The manifest of an artifact that is read without a pipeline (DataError: damaged); None: not finished."""
    manifest = read_manifest(directory)
    if manifest and (what := damage(directory, ContentHashes.of_run(_output_dir(directory)), large=True)):
        raise damaged(directory, what)
    return manifest


def _output_dir(directory: Path) -> Path | None:
    """The ``output_dir`` of an artifact; None where it does not lie in one, as a copy elsewhere."""
    places = directory.absolute().parents
    return places[2] if len(places) > 2 and places[1].name == "artifacts" else None


def damaged(directory: Path, what: str) -> DataError:
    """The error of a damaged artifact: what is wrong, which stage is to be made again, and how."""
    if _output_dir(directory) is None:
        return DataError(f"{directory} is damaged: {what}; copy it again from where it was made")
    again = f"`rm -r {shlex.quote(str(directory))}`, and the same command as now makes it"
    return DataError(f"{directory} is damaged: {what}; stage {directory.parent.name} has to be made again: {again}")


def described(path: Path, sha256: str | None = None) -> dict[str, Any]:
    """A file's size and SHA-256."""
    return {"bytes": path.stat().st_size, "sha256": sha256 or sha256_of(path)}


def _checksum(manifest: Mapping[str, Any]) -> str:
    return fingerprint({name: value for name, value in manifest.items() if name != CHECKSUM})


def _difference(path: Path, file: Mapping[str, Any], hashes: ContentHashes, large: bool) -> str | None:
    try:
        size = path.stat().st_size
        if size != file["bytes"]:
            return f"{path.name} holds {size} of {file['bytes']} bytes"
        if not large and size > SMALL:
            return None
        # What was remembered may be wrong: the file itself is read again before it is called damaged.
        if file["sha256"] != hashes.file(path) and file["sha256"] != hashes.file(path, again=True):
            return f"{path.name} holds other bytes than were written"
    except FileNotFoundError:
        return f"{path.name} is missing"
    return None


def whole_shard(path: Path, marker: Path) -> bool:
    """Whether a shard is there as its marker says."""
    said = read_json(marker)
    return isinstance(said, dict) and path.is_file() and described(path) == said.get("file")
