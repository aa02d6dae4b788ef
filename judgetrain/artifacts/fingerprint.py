"""Fingerprints: what a stage's result depends on, as a hash."""

from __future__ import annotations

import copy
import dataclasses
import glob
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import write_json_atomic


def slice_of(config: Any, keys: Iterable[str]) -> dict[str, Any]:
    """The values of dotted keys (``a.b[0].c``), as plain data without the neutral ones."""
    values: dict[str, Any] = {}
    for dotted in keys:
        value = config
        for part in re.findall(r"[^.\[\]]+", dotted):
            value = value[int(part)] if isinstance(value, list) else getattr(value, part)
        values[dotted] = _plain(value)
    return values


def without(values: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """A copy of what :func:`slice_of` gives, with the values of full keys (``a.b[0].c``) set to None.

    For paths whose content is hashed: where a file lies changes nothing.
    """
    result = copy.deepcopy(dict(values))
    for key in keys:
        for dotted in result:
            if key == dotted:
                result[dotted] = None
            elif key.startswith(f"{dotted}."):
                *parents, last = re.findall(r"[^.\[\]]+", key[len(dotted) + 1 :])
                node = result[dotted]
                for part in parents:
                    node = node[int(part)] if isinstance(node, list) else node[part]
                node[last] = None
    return result


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {f.name: _plain(getattr(value, f.name)) for f in fields if not f.metadata.get("neutral")}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def fingerprint(parts: Mapping[str, Any]) -> str:
    """16 hex digits of the SHA-256 over canonical JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


class ContentHashes:
    """SHA-256 of files, remembered by path, size and modification time so that big files are read once."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._known: dict[str, str] = json.loads(cache.read_text()) if cache.exists() else {}

    def of(self, pattern: str) -> dict[str, str]:
        """Hashes by file name of all files that a path or glob names; a directory stands for its files but README.md.

        A model's card is no part of the model: evaluations write into it. Empty when there is no such file.
        """
        if not pattern:
            return {}
        root = Path(pattern).expanduser()
        if root.is_dir():
            files = [p for p in sorted(root.rglob("*")) if p.is_file() and p != root / "README.md"]
            return {str(p.relative_to(root)): self._hash(p) for p in files}
        files = [Path(p) for p in sorted(glob.glob(str(root)))]
        names = [p.name for p in files]
        # Files of one name in several directories are told apart by their place in the order.
        return {n if names.count(n) == 1 else f"{i}/{n}": self._hash(files[i]) for i, n in enumerate(names)}

    def _hash(self, path: Path) -> str:
        stat = path.stat()
        key = f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"
        if key not in self._known:
            with path.open("rb") as file:
                self._known[key] = hashlib.file_digest(file, "sha256").hexdigest()
            write_json_atomic(self._cache, self._known)
        return self._known[key]
