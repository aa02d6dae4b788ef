"""What a stage's result depends on: a hash over its settings and the content of their files; versions of packages."""

import dataclasses
import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from os.path import exists
from pathlib import Path
from typing import Any, Self

from judgetrain.artifacts.files import named, read_json, sha256_of, write_json_atomic
from judgetrain.errors import ConfigError, DataError, JudgetrainError
from judgetrain.keys import PACKAGE, File

PACKAGES = ("judgetrain", "torch", "transformers", "trl", "peft", "datasets", "sentence-transformers", "scikit-learn")


@cache
def version_of(package: str) -> str | None:
    """The installed version of a package, or None."""
    from importlib.metadata import PackageNotFoundError, version  # a tenth of what completion takes

    with suppress(PackageNotFoundError):
        return version(package)
    return None


def check_package(module: str, because: str, extra: str | None = None) -> None:
    """Refuse (ConfigError) what needs a package that is not installed; ``extra``: the extra that brings it."""
    if importlib.util.find_spec(module) is None:
        name = module.replace("_", "-")
        alone = f"{name} --no-build-isolation" if module == "flash_attn" else name  # its build reads torch's version
        wanted = f"'judgetrain[{extra}]'" if extra else alone
        raise ConfigError(f"{because}: the package {name} is not installed; pip install {wanted}")


def versions() -> dict[str, str]:
    """The installed versions of :data:`PACKAGES`; those that are not installed are left out."""
    return {package: found for package in PACKAGES if (found := version_of(package))}


Content = Callable[[str, str], Any]
"""Given a configuration key and the path that it names: what stands for the file's content."""


def counted(owner: Any) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    """The fields of a settings or configuration object that decide results, with their values.

    Left out is what is not in fingerprints, and what ``active_if`` says has no use beside the other values.
    """
    for field in dataclasses.fields(owner):
        active_if = field.metadata.get("active_if")
        if field.metadata.get("in_fingerprint", True) and (active_if is None or active_if(owner)):
            yield field, getattr(owner, field.name)


def plain(value: Any, content: Content | None = None, key: str = "") -> Any:
    """Settings as plain data, without what decides nothing.

    ``content`` is called for every file that a field's own ``content`` names (:func:`judgetrain.keys.key`), and what it
    gives stands in the file's place; without it, values stand as the configuration has them.
    """
    if isinstance(value, File):
        return content(key, value.path) if content else value.path
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {}
        for field, item in counted(value):
            name = field.metadata.get("key") or f"{key}.{field.name}".lstrip(".")
            found[field.name] = _field(field, item, value, content, name)
        return found
    if isinstance(value, Mapping):
        return {str(k): plain(v, content, f"{key}.{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v, content, key if isinstance(v, File) else f"{key}[{i}]") for i, v in enumerate(value)]
    return value


def _field(field: dataclasses.Field[Any], value: Any, owner: Any, content: Content | None, key: str) -> Any:
    if value is None:
        return None
    if only := field.metadata.get("only"):
        return _listed(plain(value, content, key), only)
    if content and (stands := field.metadata.get("content")):
        value = stands(value, owner)
    return plain(value, content, key)


def _listed(found: Any, only: Sequence[str]) -> Any:
    """Of plain data of an object, or of a list of them, the keys that a stage reads."""
    if isinstance(found, list):
        return [_listed(entry, only) for entry in found]
    return {name: value for name, value in found.items() if name in only}


def by_key(settings: Any) -> dict[str, Any]:
    """A stage's settings as plain data by the configuration keys that they are taken from, without what is not used."""
    found: dict[str, Any] = {}
    for field, value in counted(settings):
        if value is not None:
            found[field.metadata["key"]] = _field(field, value, settings, None, "")
    return found


def parts_of(settings: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The configuration objects in a stage's settings, with where they stand; an outer one before those in it.

    What decides nothing is left out (:func:`counted`).
    """
    if isinstance(settings, Mapping):
        for name, item in settings.items():
            yield from parts_of(item, f"{key}.{name}")
    elif isinstance(settings, (list, tuple)):
        for index, item in enumerate(settings):
            yield from parts_of(item, f"{key}[{index}]")
    elif dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        yield key, settings
        for field, item in counted(settings):
            yield from parts_of(item, field.metadata.get("key") or f"{key}.{field.name}")


def checks_of(settings: Any, key: str, checked: set[str]) -> Iterator[Callable[[], None]]:
    """What says whether the configuration objects in a stage's settings can be used here: each one's ``check_here``.

    What is in ``checked`` is left out; everything that is given is added to it. A call raises ConfigError where the
    object cannot be used, and names its key and the remedy.
    """
    for place, part in parts_of(settings, key):
        if (check := getattr(part, "check_here", None)) and repr(part) not in checked:
            checked.add(repr(part))
            yield partial(check, place)


def fingerprint(parts: Mapping[str, Any]) -> str:
    """16 hex digits of the SHA-256 over canonical JSON."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


ADAPTERS, BASE = "adapter_config.json", "base_model_name_or_path"
"""The file by which PEFT knows a directory of adapters, and under what it names the model that they are for."""
MOST = 10_000
"""Files of a directory whose content is hashed; one with more was named by mistake."""


class ContentHashes:
    """SHA-256 of files, remembered by path, size, modification time and inode so that big files are read once.

    What is remembered is a convenience: where it cannot be read, or not be written, files are read again.
    """

    def __init__(self, cache: Path | None) -> None:
        self._cache = cache
        self._known, self._new = _remembered(cache) if cache else {}, False

    @classmethod
    def of_run(cls, home: Path | None) -> Self:
        """The hashes that all runs of an ``output_dir`` share; None: nothing is remembered."""
        return cls(home / ".content-hashes.json" if home else None)

    def of(self, pattern: str, adapters: frozenset[Path] = frozenset()) -> dict[str, str]:
        """What counts of a path: hashes by file name of all files that a path or glob names; of a package its version.

        A directory stands for its files but README.md: a model's card is no part of the model, since evaluations write
        into it. Adapters stand for their base's files too (``adapters``: those that named this base, which are not read
        again). Empty when there is no such file. DataError: a directory of more than :data:`MOST` files.
        """
        if not pattern:
            return {}
        if pattern.startswith(PACKAGE):
            return {"version": version_of(pattern.removeprefix(PACKAGE)) or "not installed"}
        root = Path(pattern).expanduser()
        if root.is_dir():
            found_here = [*islice(root.rglob("*"), MOST + 1)]
            if len(found_here) > MOST:
                raise DataError(f"{pattern}: holds more than {MOST} files: it is no directory of a model or of data")
            files = [p for p in sorted(found_here) if p.is_file() and p != root / "README.md"]
            found = {str(p.relative_to(root)): self.file(p) for p in files}
            said, adapters = read_json(root / ADAPTERS) if ADAPTERS in found else None, adapters | {root.resolve()}
            base = said.get(BASE) if isinstance(said, dict) else None
            if isinstance(base, str) and Path(base).expanduser().resolve() not in adapters:
                found |= {f"{BASE}/{name}": content for name, content in self.of(base, adapters).items()}
        else:
            files = named(pattern)
            names = [p.name for p in files]
            # Files of one name in several directories are told apart by their place in the order.
            found = {n if names.count(n) == 1 else f"{i}/{n}": self.file(files[i]) for i, n in enumerate(names)}
        self.keep()
        return found

    def identity(self, value: Any) -> Any:
        """Settings as plain data with the content of their files in place of where they lie."""
        return plain(value, lambda key, path: self.of(path))

    def file(self, path: Path, again: bool = False) -> str:
        """SHA-256 of one file (OSError); ``again``: whatever is remembered. Call :meth:`keep` when all is read."""
        stat, place = path.stat(), str(path.resolve())
        seen = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
        if again or self._known.get(place, [])[:-1] != seen:
            self._known[place], self._new = [*seen, sha256_of(path)], True
        return str(self._known[place][-1])

    def keep(self) -> None:
        """Remember what was read, beside what other processes have meanwhile; files that are gone are forgotten."""
        if self._new and self._cache and self._cache.parent.is_dir():  # what only looks makes no directory
            known = {place: seen for place, seen in (_remembered(self._cache) | self._known).items() if exists(place)}
            # A disk that is full or may not be written to costs only the time to read again.
            with suppress(OSError, JudgetrainError):
                write_json_atomic(self._cache, {"checksum": fingerprint(known), "hashes": known})
                self._new = False


def _remembered(cache: Path) -> dict[str, list[Any]]:
    """What the file of hashes holds, by path; nothing where it is not what was written."""
    found = read_json(cache)
    if isinstance(found, dict) and found.get("checksum") == fingerprint(known := found.get("hashes", {})):
        return dict(known)
    return {}
