"""Fingerprints of stages: a hash over the settings and the content of their files. And versions of packages."""

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
"""Packages whose versions every manifest names."""


@cache
def version_of(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    # Importing it takes a tenth of the time of the shell's completion, which needs no versions.
    from importlib.metadata import PackageNotFoundError, version

    with suppress(PackageNotFoundError):
        return version(package)
    return None


def check_package(module: str, because: str, extra: str | None = None) -> None:
    """Refuse a setting that needs a package which is not installed.

    Args:
        module: the name by which the package is imported.
        because: the setting that needs it, as ``KEY=VALUE``.
        extra: the extra of judgetrain that brings the package; None: it is installed by itself.

    Raises:
        ConfigError: the package is not installed; says what to install.
    """
    # Finding a package does not import it, which takes seconds for those that need PyTorch.
    if importlib.util.find_spec(module) is not None:
        return

    package = module.replace("_", "-")
    requirement = package
    if extra:
        requirement = f"'judgetrain[{extra}]'"
    elif module == "flash_attn":
        # Its build reads the version of the installed torch.
        requirement = f"{package} --no-build-isolation"
    raise ConfigError(f"{because}: the package {package} is not installed; pip install {requirement}")


def versions() -> dict[str, str]:
    """Return the version of every installed package of :data:`PACKAGES`."""
    installed = {package: version_of(package) for package in PACKAGES}
    return {package: version for package, version in installed.items() if version}


Content = Callable[[str, str], Any]
"""Returns what stands for a file's content, given a configuration key and the path that the key names."""


def counted(owner: Any) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    """Yield the fields of a settings or configuration object that decide results, with their values.

    Fields with ``in_fingerprint=False`` are left out, and those that ``active_if`` calls idle beside the other values.
    """
    for field in dataclasses.fields(owner):
        if not field.metadata.get("in_fingerprint", True):
            continue
        active_if = field.metadata.get("active_if")
        if active_if is None or active_if(owner):
            yield field, getattr(owner, field.name)


def plain(value: Any, content: Content | None = None, key: str = "") -> Any:
    """Return settings as plain data, without the fields that decide nothing (:func:`counted`).

    Args:
        value: a settings or configuration object, or anything that one holds.
        content: called for every file that a field's own ``content`` names (:func:`judgetrain.keys.key`); its result
            stands in the file's place. None: values stand as the configuration has them.
        key: the configuration key that the value is taken from.
    """
    # File first: it is a dataclass, too, and would otherwise give its fields.
    if isinstance(value, File):
        if content:
            return content(key, value.path)
        return value.path

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {}
        for field, item in counted(value):
            field_key = field.metadata.get("key") or f"{key}.{field.name}".lstrip(".")
            fields[field.name] = _field(field, item, value, content, field_key)
        return fields

    if isinstance(value, Mapping):
        return {str(name): plain(entry, content, f"{key}.{name}") for name, entry in value.items()}

    if isinstance(value, (list, tuple)):
        entries = []
        for index, entry in enumerate(value):
            entry_key = f"{key}[{index}]"
            if isinstance(entry, File):
                # A file beside its own value (``keys.beside``) is no entry of a list in the configuration.
                entry_key = key
            entries.append(plain(entry, content, entry_key))
        return entries

    return value


def _field(field: dataclasses.Field[Any], value: Any, owner: Any, content: Content | None, key: str) -> Any:
    """Return one field's value as plain data; ``owner`` holds the field, ``key`` is its configuration key."""
    if value is None:
        return None

    only = field.metadata.get("only")
    if only:
        return _listed(plain(value, content, key), only)

    replacement = field.metadata.get("content")
    # For fingerprints alone: manifests and trackers show the path, as the user wrote it.
    if content and replacement:
        value = replacement(value, owner)
    return plain(value, content, key)


def _listed(value: Any, only: Sequence[str]) -> Any:
    """Return the plain data of an object, or of each object in a list, with the keys in ``only`` alone."""
    if isinstance(value, list):
        return [_listed(entry, only) for entry in value]
    return {name: entry for name, entry in value.items() if name in only}


def by_key(settings: Any) -> dict[str, Any]:
    """Return a stage's settings as plain data by their configuration keys; idle ones (None) are left out."""
    values: dict[str, Any] = {}
    for field, value in counted(settings):
        if value is not None:
            values[field.metadata["key"]] = _field(field, value, settings, None, "")
    return values


def parts_of(settings: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the configuration objects in a stage's settings with their keys, an outer one before those in it.

    Fields that decide nothing are left out (:func:`counted`).
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
    """Yield a check for every configuration object in a stage's settings that has a method ``check_here``.

    A check takes no arguments. It raises ConfigError where the object cannot be used on this machine, and names the key
    and the remedy.

    Args:
        settings: a stage's settings, or a configuration object.
        key: the key that the settings stand under.
        checked: objects (their ``repr``) that were checked before; they are left out, and new ones are added.
    """
    for place, part in parts_of(settings, key):
        check = getattr(part, "check_here", None)
        # By their text: configuration objects can be changed, so Python has no hash of them.
        if check is None or repr(part) in checked:
            continue
        checked.add(repr(part))
        yield partial(check, place)


def fingerprint(parts: Mapping[str, Any]) -> str:
    """Return 16 hex digits of the SHA-256 over canonical JSON."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    # Texts of data may hold half of a surrogate pair, as JSON can. With 64 bits two of a million artifacts have the
    # same fingerprint with a chance of one in 37 million.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


ADAPTERS = "adapter_config.json"
"""The file that makes a directory one of PEFT's adapters."""
BASE = "base_model_name_or_path"
"""The entry of :data:`ADAPTERS` that names the model which the adapters change."""
MOST = 10_000
"""The largest number of files that a model or data directory may hold; one with more was named by mistake."""


class ContentHashes:
    """SHA-256 of files, remembered by path, size, modification time and inode so that big files are read once.

    The memory is a convenience: where it cannot be read or written, files are read again.

    Args:
        cache: the file that keeps hashes between runs; None: nothing is kept.
    """

    def __init__(self, cache: Path | None) -> None:
        self._cache = cache
        # By a file's path: size, modification time (ns), inode and hash.
        self._known: dict[str, list[Any]] = {}
        if cache:
            self._known = _remembered(cache)
        self._has_new = False

    @classmethod
    def of_run(cls, home: Path | None) -> Self:
        """Return the hashes that all runs of ``output_dir`` share; without one (None), nothing is remembered."""
        if home is None:
            return cls(None)
        return cls(home / ".content-hashes.json")

    def of(self, pattern: str, adapters: frozenset[Path] = frozenset()) -> dict[str, str]:
        """Return the hashes of all files that a path or glob names, by file name; a package gives its version.

        A directory stands for all files in it but README.md: a model's card is no part of the model, since evaluations
        write into it. A directory of adapters stands for the files of its base model too. The result is empty where
        there is no such file.

        Args:
            pattern: a file, a glob, a directory or ``package:NAME``.
            adapters: the directories of adapters that led to this one as their base. They are not read again, so that
                adapters which name each other end.

        Raises:
            DataError: a directory holds more than :data:`MOST` files.
        """
        if not pattern:
            return {}
        if pattern.startswith(PACKAGE):
            return {"version": version_of(pattern.removeprefix(PACKAGE)) or "not installed"}

        if Path(pattern).expanduser().is_dir():
            hashes = self._of_directory(pattern, adapters)
        else:
            hashes = self._of_files(named(pattern))
        self.keep()
        return hashes

    def _of_directory(self, pattern: str, adapters: frozenset[Path]) -> dict[str, str]:
        """Return the hashes of a directory's files by their relative paths, and of its base's if it holds adapters."""
        root = Path(pattern).expanduser()
        # One more than is allowed is enough to know; all files below / would take minutes to list.
        paths = [*islice(root.rglob("*"), MOST + 1)]
        if len(paths) > MOST:
            raise DataError(f"{pattern}: holds more than {MOST} files: it is no directory of a model or of data")

        hashes = {}
        for path in sorted(paths):
            if path.is_file() and path != root / "README.md":
                hashes[str(path.relative_to(root))] = self.file(path)

        # Adapters are half a model: the same ones upon other base weights are another judge.
        base = None
        if ADAPTERS in hashes:
            base = _base_of(root)
        adapters = adapters | {root.resolve()}
        if base is not None and Path(base).expanduser().resolve() not in adapters:
            for name, file_hash in self.of(base, adapters).items():
                hashes[f"{BASE}/{name}"] = file_hash
        return hashes

    def _of_files(self, paths: Sequence[Path]) -> dict[str, str]:
        """Return the hashes of files by their names."""
        names = [path.name for path in paths]
        hashes = {}
        for index, path in enumerate(paths):
            # Files of one name in several directories are told apart by their place in the order.
            name = path.name if names.count(path.name) == 1 else f"{index}/{path.name}"
            hashes[name] = self.file(path)
        return hashes

    def identity(self, value: Any) -> Any:
        """Return settings as plain data, with the content of their files in place of the paths."""
        return plain(value, lambda key, path: self.of(path))

    def file(self, path: Path, again: bool = False) -> str:
        """Return the SHA-256 of one file. Call :meth:`keep` when all files are read.

        Args:
            path: the file.
            again: read the file, whatever is remembered.

        Raises:
            OSError: the file cannot be read.
        """
        place = str(path.resolve())
        # A hit costs one stat; reading the weights of a judge anew takes seconds to minutes.
        if again or not self.remembers(path):
            # Taken before the file is read: a change meanwhile is noticed the next time.
            stamp = _stamp(path)
            self._known[place] = [*stamp, sha256_of(path)]
            self._has_new = True
        return str(self._known[place][-1])

    def remembers(self, path: Path) -> bool:
        """Return whether :meth:`file` needs not read a file: its size, time and inode are those of its hash.

        Raises:
            OSError: the file is not there.
        """
        return self._known.get(str(path.resolve()), [])[:-1] == _stamp(path)

    def keep(self) -> None:
        """Write down what was read, beside what other processes have written meanwhile; forget files that are gone."""
        if not self._has_new or self._cache is None:
            return
        if not self._cache.parent.is_dir():
            # A command that only looks makes no output_dir.
            return

        # Read again, since another process may have added its files to the memory after this one began.
        entries = _remembered(self._cache) | self._known
        hashes = {place: entry for place, entry in entries.items() if exists(place)}
        # A disk that is full or may not be written to costs only the time to read again.
        with suppress(OSError, JudgetrainError):
            write_json_atomic(self._cache, {"checksum": fingerprint(hashes), "hashes": hashes})
            self._has_new = False


def _stamp(path: Path) -> list[int]:
    """Return a file's size, time and inode, which change when somebody writes another file in its place."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


def _base_of(directory: Path) -> str | None:
    """Return the model that a directory of adapters names as its base, or None."""
    config = read_json(directory / ADAPTERS)
    if not isinstance(config, dict) or not isinstance(config.get(BASE), str):
        return None
    return str(config[BASE])


def _remembered(cache: Path) -> dict[str, list[Any]]:
    """Return the entries of the file of hashes by path; nothing where it is not as it was written."""
    content = read_json(cache)
    if not isinstance(content, dict):
        return {}
    hashes = content.get("hashes", {})
    # A wrong hash would pass a changed file as the one that was read.
    if content.get("checksum") != fingerprint(hashes):
        return {}
    return dict(hashes)
