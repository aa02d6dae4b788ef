"""What every room brings, as data: its stages, commands and sections of the configuration (``room.yaml``).

Nothing here imports a room. ``--help`` reads these files alone, and a run imports the rooms that its stages need.
A room may stand anywhere in the package, ``extras/`` among it: whoever adds one edits no other.

A room may also stand in another installed package, which names it in its ``pyproject.toml``:

    [project.entry-points."judgetrain.rooms"]
    words = "judge_words"

``judge_words`` is the folder, as it is imported, that holds the ``room.yaml`` (docs/extending.md).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import yaml

from judgetrain.errors import ConfigError

PACKAGE = Path(__file__).parent
GROUP = "judgetrain.rooms"
"""The entry points by which installed packages name their rooms."""
CORE = ("data", "scorers", "judges", "label", "train")
"""Rooms whose sections every run types: all that ``stage=dpo`` can read."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What ``stage=`` may name: a stage or a command.

    Args:
        name: as in ``stage=NAME``.
        does: one line for the help.
        code: ``module:NAME`` of the stage, or ``module:function`` of a command, which is given the pipeline.
        order: where it stands in lists; stages after those that they need.
        result: of a stage, that it is what a user asked for and no step on the way to a judge: ``stage=clean`` keeps
            what it made, whatever the present settings are.
        judge: of a stage, that it makes a judge, which methods may name.
        takes: of a command, the key that a word behind its name sets, as in ``init DIR``.
    """

    name: str
    does: str
    code: str
    order: int = 0
    result: bool = False
    judge: bool = False
    takes: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A top-level section of the configuration.

    Args:
        name: of the section.
        code: ``module:Class`` of its dataclass.
        doc: one line for the help.
        core: every run types it.
        measured: it says what is measured, not what it is like: reports do not tell runs apart by it.
    """

    name: str
    code: str
    doc: str
    core: bool
    measured: bool = False

    def load(self) -> type[Any]:
        """The dataclass."""
        found: type[Any] = resolve_name(self.code)
        return found

    def default(self) -> Any:
        """The section with its defaults."""
        return self.load()()


@dataclass(frozen=True, kw_only=True)
class Room:
    """One room's ``room.yaml``.

    Args:
        evaluation: ``module:NAME`` of what it adds to stage evaluate (:mod:`judgetrain.evaluate.hooks`).
        card: ``module:NAME`` of what it says in a judge's card: by a section's title, a function that gives its text
            from the directory of a finished artifact and the judge's name.
        kinds: by name, ``module:NAME`` of a kind of judge (:class:`judgetrain.judges.kinds.kind.Kind`).
        scorers: by the name of its group, ``module:Class`` of an estimator
            (:class:`judgetrain.scorers.estimator.Estimator`).
        adapters: the folder of benchmark adapters, a YAML file each, which is called as the adapter.
        executors: by the value of ``executor.type``, ``module:Class`` of what processes shards.
        trackers: by the value of ``track.tracker``, ``module:function`` of what makes a stage's run.
        stability: ``stable``, or ``experimental``: it may change or go without notice.
    """

    name: str
    stages: tuple[Entry, ...] = ()
    commands: tuple[Entry, ...] = ()
    sections: tuple[Section, ...] = ()
    evaluation: str = ""
    card: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    scorers: Mapping[str, str] = field(default_factory=dict)
    adapters: Path | None = None
    executors: Mapping[str, str] = field(default_factory=dict)
    trackers: Mapping[str, str] = field(default_factory=dict)
    stability: str = "stable"


@cache
def rooms() -> tuple[Room, ...]:
    """Return every room that has a ``room.yaml``: the core's, the extras, then those of installed packages.

    Raises:
        ConfigError: an installed package names a folder without a ``room.yaml``, or brings what another room brings.
    """
    folders = {path.parent.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("room.yaml")}
    core = [name for name in CORE if name in folders]
    others = sorted(set(folders) - set(core))
    every = [_read(name, folders[name]) for name in [*core, *others]]
    every += [_read(name, path) for name, path in _installed()]
    _refuse_equal_names(every)
    return tuple(every)


def _installed() -> Iterator[tuple[str, Path]]:
    """Yield the rooms of installed packages: each with the name by which it is imported, and its file."""
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    for point in sorted(entry_points(group=GROUP), key=lambda point: point.value):
        spec = find_spec(point.value)
        folders = spec.submodule_search_locations if spec is not None else None
        files = [Path(folder) / "room.yaml" for folder in folders or ()]
        there = [file for file in files if file.is_file()]
        if not there:
            package = point.dist.name if point.dist is not None else point.value
            raise ConfigError(
                f"The installed package {package} names the room {point.value!r} for judgetrain, and there is no "
                f"room.yaml in that folder: put one there, or uninstall {package}."
            )
        yield point.value, there[0]


def _refuse_equal_names(every: Iterable[Room]) -> None:
    """Raise ConfigError where two rooms bring something of one name, which one of them would hide."""
    brought: dict[tuple[str, str], str] = {}
    for room in every:
        names = [("stage or command", entry.name) for entry in (*room.stages, *room.commands)]
        names += [("section", section.name) for section in room.sections]
        names += [("kind of judge", name) for name in room.kinds]
        names += [("scorer", name) for name in room.scorers]
        names += [("tracker", name) for name in room.trackers]
        names += [("executor", name) for name in room.executors]
        names += [("adapter", name) for name in _adapters_in(room)]
        for what in names:
            if what in brought:
                raise ConfigError(
                    f"The rooms {brought[what]} and {room.name} both bring the {what[0]} {what[1]!r}: rename one in "
                    f"its room.yaml, or uninstall the package that it came with."
                )
            brought[what] = room.name


def _adapters_in(room: Room) -> dict[str, Path]:
    if room.adapters is None:
        return {}
    return {path.stem: path for path in sorted(room.adapters.glob("*.yaml"))}


def _read(name: str, path: Path) -> Room:
    with path.open(encoding="utf-8") as file:
        content: Mapping[str, Any] = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return Room(
        name=name,
        stages=tuple(Entry(name=n, **entry) for n, entry in content.get("stages", {}).items()),
        commands=tuple(Entry(name=n, **entry) for n, entry in content.get("commands", {}).items()),
        sections=tuple(Section(name=n, core=name in CORE, **entry) for n, entry in content.get("sections", {}).items()),
        evaluation=content.get("evaluation", ""),
        card=content.get("card", ""),
        kinds=content.get("kinds", {}),
        scorers=content.get("scorers", {}),
        adapters=path.parent / content["adapters"] if "adapters" in content else None,
        executors=content.get("executors", {}),
        trackers=content.get("trackers", {}),
        stability=content.get("stability", "stable"),
    )


def stages() -> dict[str, Entry]:
    """Every stage by name, in order."""
    return _ordered(entry for room in rooms() for entry in room.stages)


def commands() -> dict[str, Entry]:
    """Every command by name, in order."""
    return _ordered(entry for room in rooms() for entry in room.commands)


@cache
def sections() -> dict[str, Section]:
    """Every section of the configuration by name."""
    return {section.name: section for room in rooms() for section in room.sections}


@cache
def kinds() -> dict[str, str]:
    """Return ``module:NAME`` of every kind of judge by its name, the core's first."""
    return {name: code for room in rooms() for name, code in room.kinds.items()}


def scorers() -> dict[str, str]:
    """Return ``module:Class`` of every estimator by its group's name."""
    return {name: code for room in rooms() for name, code in room.scorers.items()}


@cache
def adapters() -> dict[str, Path]:
    """Return the file of every benchmark adapter by its name."""
    return {name: path for room in rooms() for name, path in _adapters_in(room).items()}


def _ordered(entries: Iterator[Entry]) -> dict[str, Entry]:
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: entry.order)}


def shipped(name: str) -> Path:
    """A directory of files that are no Python (conf, recipes, launch): in the installed package, else beside it."""
    installed = PACKAGE / f"_{name}"
    return installed if installed.is_dir() else PACKAGE.parent / name
