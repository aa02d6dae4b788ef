"""Checks whether an artifact is as its stage left it: its manifest keeps the size and SHA-256 of every file.

Sizes and the content of small files are checked whenever an artifact is named; each file is read once and remembered by
its size, time and inode. The content of large files is checked when a stage reads the artifact.
"""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import described, read_json
from judgetrain.artifacts.fingerprint import ContentHashes, fingerprint
from judgetrain.artifacts.shards import SECONDS
from judgetrain.errors import DataError

MANIFEST = "manifest.json"
FILES = "files"
"""The manifest's entry of all files' sizes and hashes."""
CHECKSUM = "checksum"
"""The manifest's entry of its own hash."""
SMALL = 64 * 2**20
"""The largest file, in bytes, whose content is checked whenever its artifact is named."""
UNLISTED = (MANIFEST, ".lock", SECONDS, "model/README.md")
"""Files that are no part of an artifact's result. A judge's card changes with every evaluation."""


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """Return the manifest of an artifact; None where there is none, so that the artifact is unfinished.

    Raises:
        DataError: the manifest is not as it was written; says how to make the artifact again.
    """
    path = directory / MANIFEST
    if not path.is_file():
        return None

    manifest = read_json(path)
    difference = _difference_of_manifest(manifest)
    if difference:
        raise damaged(directory, difference)
    return dict(manifest)


def _difference_of_manifest(manifest: Any) -> str | None:
    """Return how the content of a manifest differs from what was written, or None."""
    if not isinstance(manifest, dict) or not manifest:
        return f"{MANIFEST} is no manifest"
    # The first manifests had neither files nor a checksum.
    has_files = FILES in manifest
    has_checksum = CHECKSUM in manifest
    if has_files != has_checksum or manifest.get(CHECKSUM) not in (None, _checksum(manifest)):
        return f"{MANIFEST} holds other text than was written"
    return None


def _difference_of_place(manifest: Mapping[str, Any], directory: Path) -> str | None:
    """Return how the artifact that a manifest describes differs from the one that its place names, or None.

    Two artifacts that were swapped are whole, and what they were made from is another thing than their name says.
    """
    # A copy elsewhere may have any name.
    if _output_dir(directory) is None:
        return None
    stage = manifest.get("stage")
    if stage is None:
        return f"{MANIFEST} is no manifest"
    # The first manifests had no fingerprint.
    mark = manifest.get("fingerprint", directory.name)
    if (stage, mark) == (directory.parent.name, directory.name):
        return None
    return f"{MANIFEST} is that of {stage}/{mark}"


def made_from(directory: Path) -> dict[str, Path]:
    """Return the directories of the artifacts that a finished one was made from, by stage.

    They lie beside it, as ``STAGE/FINGERPRINT``.
    """
    manifest = read_manifest(directory) or {}
    artifacts = directory.parent.parent
    return {stage: artifacts / stage / mark for stage, mark in manifest.get("upstream", {}).items()}


def lineage(*roots: Path) -> Iterator[Path]:
    """Yield artifacts and all that they were made from, as far as their manifests can be read."""
    visited: set[Path] = set()
    # Several inputs of one artifact are made from the same ones: a judge and its labels both lead to the dialogues.
    waiting = [*roots]
    while waiting:
        directory = waiting.pop().resolve()
        if directory in visited:
            continue
        visited.add(directory)
        yield directory
        # A damaged manifest is no list of inputs; whoever reads the artifact itself is told of the damage.
        with suppress(DataError):
            waiting += made_from(directory).values()


def sealed(directory: Path, manifest: Mapping[str, Any], hashes: ContentHashes) -> dict[str, Any]:
    """Return a manifest with the sizes and hashes of the artifact's files, and a checksum of itself."""
    files = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        # NFS keeps a file that was removed while it was open as ``.nfs...``.
        is_passing = path.suffix == ".tmp" or path.name.startswith(".nfs")
        if path.is_file() and name not in UNLISTED and not is_passing:
            files[name] = described(path, hashes.file(path))
    hashes.keep()

    whole = {**manifest, FILES: files}
    return {**whole, CHECKSUM: _checksum(whole)}


def damage(directory: Path, hashes: ContentHashes, *, large: bool) -> str | None:
    """Return how the first damaged file of a finished artifact differs from what was written; None: all are whole.

    Args:
        directory: the artifact's.
        hashes: files that were read before; they are not read again.
        large: whether files above :data:`SMALL` are read too, whose hashes are not remembered.
    """
    if not (directory / MANIFEST).is_file():
        return None
    manifest = read_json(directory / MANIFEST)
    difference_of_manifest = _difference_of_manifest(manifest) or _difference_of_place(manifest, directory)
    if difference_of_manifest:
        return difference_of_manifest

    # All files are compared before the answer, so that the message says how many have to be copied or made again.
    differences = []
    for name, file in manifest.get(FILES, {}).items():
        difference = _difference(directory / name, file, hashes, large)
        if difference:
            differences.append(difference)
    hashes.keep()

    if not differences:
        return None
    if len(differences) == 1:
        return differences[0]
    return f"{differences[0]} (and {len(differences) - 1} other files)"


def checked(directory: Path) -> dict[str, Any] | None:
    """Return the manifest of an artifact that is read without a pipeline; None: it is not finished.

    Raises:
        DataError: the artifact is damaged.
    """
    manifest = read_manifest(directory)
    if manifest is None:
        return None
    difference = damage(directory, ContentHashes.of_run(_output_dir(directory)), large=True)
    if difference:
        raise damaged(directory, difference)
    return manifest


def _output_dir(directory: Path) -> Path | None:
    """Return the ``output_dir`` of an artifact; None where it does not lie in one, as a copy elsewhere."""
    parents = directory.absolute().parents
    if len(parents) < 3 or parents[1].name != "artifacts":
        return None
    return parents[2]


def damaged(directory: Path, difference: str) -> DataError:
    """Return the error for a damaged artifact: what is wrong, which stage has to be made again, and how."""
    # A copy lies outside of any output_dir, so that no command would make it again in its place.
    if _output_dir(directory) is None:
        return DataError(f"{directory} is damaged: {difference}; copy it again from where it was made")
    return DataError(
        f"{directory} is damaged: {difference}; stage {directory.parent.name} has to be made again: "
        f"`rm -r {shlex.quote(str(directory))}`, and the same command as now makes it"
    )


def _checksum(manifest: Mapping[str, Any]) -> str:
    """Return the hash of a manifest without its own checksum."""
    return fingerprint({name: value for name, value in manifest.items() if name != CHECKSUM})


def _difference(path: Path, file: Mapping[str, Any], hashes: ContentHashes, large: bool) -> str | None:
    """Return how a file differs from its description in the manifest, or None."""
    try:
        size = path.stat().st_size
        if size != file["bytes"]:
            return f"{path.name} holds {size} of {file['bytes']} bytes"
        # Weights of gigabytes are read when a stage loads them; status and plans only look at their size.
        if not large and size > SMALL and not hashes.remembers(path):
            return None
        # What was remembered may be wrong: the file itself is read again before it is called damaged.
        if file["sha256"] != hashes.file(path) and file["sha256"] != hashes.file(path, again=True):
            return f"{path.name} holds other bytes than were written"
    except FileNotFoundError:
        return f"{path.name} is missing"
    return None
