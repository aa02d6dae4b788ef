"""Lists what every room brings, as its ``room.yaml`` says: stages, commands, sections of the configuration and more.

Nothing here imports a room. ``--help`` reads these files alone, and a run imports the rooms that its stages need.
A room may stand anywhere in the package, below ``extras/`` too: adding one changes no other room.

A room may also stand in another installed package, which names it in its ``pyproject.toml``:

    [project.entry-points."judgetrain.rooms"]
    words = "judge_words"

``judge_words`` is the folder, as it is imported, that holds the ``room.yaml`` (docs/extending.md).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import yaml

from judgetrain.errors import ConfigError

PACKAGE = Path(__file__).parent
GROUP = "judgetrain.rooms"
"""The group of entry points by which installed packages name their rooms."""
CORE = ("data", "scorers", "judges", "label", "train")
"""Rooms whose configuration every run checks: all that ``stage=dpo`` can read."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A stage or a command, that is, what ``stage=`` may name.

    Args:
        name: as in ``stage=NAME``.
        does: one line for the help.
        code: ``module:NAME`` of a stage, or ``module:function`` of a command; the function is called with the pipeline.
        order: its place in lists; a stage stands after those that it needs.
        result: the stage makes something that users want for itself, and no step on the way to a judge.
            ``stage=clean`` keeps its artifacts, whatever the present settings are.
        judge: the stage makes a judge, which methods may name.
        takes: the key that a word behind a command's name sets, as in ``init DIR``.
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
        name: the section's key.
        code: ``module:Class`` of its dataclass.
        doc: one line for the help.
        core: every run checks it, whatever its stage.
        measured: its keys choose what is measured, so that reports do not name runs by them.
    """

    name: str
    code: str
    doc: str
    core: bool
    measured: bool = False

    def load(self) -> type[Any]:
        """Return the section's dataclass."""
        section_class: type[Any] = resolve_name(self.code)
        return section_class

    def default(self) -> Any:
        """Return the section with its defaults."""
        return self.load()()


@dataclass(frozen=True, kw_only=True)
class Room:
    """The content of one room's ``room.yaml``.

    Args:
        name: its folder below the package, or the name by which an installed package's folder is imported.
        stages: the stages that it brings.
        commands: the commands that it brings.
        sections: the sections of the configuration that it brings.
        evaluation: ``module:NAME`` of what it adds to stage evaluate (:mod:`judgetrain.evaluate.hooks`).
        card: ``module:NAME`` of its sections in a judge's card: a mapping from a section's title to a function that
            returns the text, given the directory of a finished artifact and the judge's name.
        kinds: ``module:NAME`` of every kind of judge (:class:`judgetrain.judges.kinds.kind.Kind`), by name.
        scorers: ``module:Class`` of every estimator (:class:`judgetrain.scorers.estimator.Estimator`), by its group.
        metrics: ``module:NAME`` of every metric (:class:`judgetrain.evaluate.metrics.rows.Metric`), by its name in
            ``metrics.json``.
        adapters: the folder of benchmark adapters; each is a YAML file called ``ADAPTER.yaml``.
        executors: ``module:Class`` of every executor of shards, by the value of ``executor.type``.
        trackers: ``module:function`` that begins a stage's run in a tracker, by the value of ``track.tracker``.
        stability: ``stable``, or ``experimental`` where the room may change or go without notice.
    """

    name: str
    stages: tuple[Entry, ...] = ()
    commands: tuple[Entry, ...] = ()
    sections: tuple[Section, ...] = ()
    evaluation: str = ""
    card: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    scorers: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
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
    all_rooms = [_read(name, folders[name]) for name in [*core, *others]]
    all_rooms += [_read(name, path) for name, path in _installed()]
    _refuse_equal_names(all_rooms)
    return tuple(all_rooms)


def _installed() -> Iterator[tuple[str, Path]]:
    """Yield the name by which each room of an installed package is imported, and its ``room.yaml``."""
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    # Sorted, since packages are found in an order that differs between machines.
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.value):
        # The folder is found without importing it: a package may be slow to import, or broken.
        spec = find_spec(point.value)
        folders = spec.submodule_search_locations if spec is not None else None
        files = [Path(folder) / "room.yaml" for folder in folders or ()]
        room_files = [file for file in files if file.is_file()]
        if not room_files:
            package = point.dist.name if point.dist is not None else point.value
            raise ConfigError(
                f"The installed package {package} names the room {point.value!r} for judgetrain, and there is no "
                f"room.yaml in that folder: put one there, or uninstall {package}."
            )
        yield point.value, room_files[0]


def _refuse_equal_names(all_rooms: Iterable[Room]) -> None:
    """Raise ConfigError where two rooms bring a thing of the same sort and name, since one would hide the other."""
    room_by_name: dict[tuple[str, str], str] = {}
    for room in all_rooms:
        names = [("stage or command", entry.name) for entry in (*room.stages, *room.commands)]
        names += [("section", section.name) for section in room.sections]
        names += [("kind of judge", name) for name in room.kinds]
        names += [("scorer", name) for name in room.scorers]
        names += [("metric", name) for name in room.metrics]
        names += [("tracker", name) for name in room.trackers]
        names += [("executor", name) for name in room.executors]
        names += [("adapter", name) for name in _adapters_in(room)]
        for sort, name in names:
            if (sort, name) in room_by_name:
                raise ConfigError(
                    f"The rooms {room_by_name[sort, name]} and {room.name} both bring the {sort} {name!r}: rename one "
                    f"in its room.yaml, or uninstall the package that it came with."
                )
            room_by_name[sort, name] = room.name


def _adapters_in(room: Room) -> dict[str, Path]:
    """Return the files of a room's benchmark adapters, by the adapters' names."""
    if room.adapters is None:
        return {}
    return {path.stem: path for path in sorted(room.adapters.glob("*.yaml"))}


def _read(name: str, path: Path) -> Room:
    """Read a room's ``room.yaml``; ``name`` is the room's."""
    with path.open(encoding="utf-8") as file:
        # The loader in C is the faster one. It is missing where PyYAML was built without libyaml.
        content: Mapping[str, Any] = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    stage_rows = content.get("stages", {})
    command_rows = content.get("commands", {})
    section_rows = content.get("sections", {})
    is_core = name in CORE
    return Room(
        name=name,
        stages=tuple(Entry(name=stage, **row) for stage, row in stage_rows.items()),
        commands=tuple(Entry(name=command, **row) for command, row in command_rows.items()),
        sections=tuple(Section(name=section, core=is_core, **row) for section, row in section_rows.items()),
        evaluation=content.get("evaluation", ""),
        card=content.get("card", ""),
        kinds=content.get("kinds", {}),
        scorers=content.get("scorers", {}),
        metrics=content.get("metrics", {}),
        adapters=path.parent / content["adapters"] if "adapters" in content else None,
        executors=content.get("executors", {}),
        trackers=content.get("trackers", {}),
        stability=content.get("stability", "stable"),
    )


def stages() -> dict[str, Entry]:
    """Return every stage by its name; a stage stands after those that it needs."""
    return _ordered(chain.from_iterable(room.stages for room in rooms()))


def commands() -> dict[str, Entry]:
    """Return every command by its name, in the order of the help."""
    return _ordered(chain.from_iterable(room.commands for room in rooms()))


@cache
def sections() -> dict[str, Section]:
    """Return every section of the configuration by its name."""
    all_sections = chain.from_iterable(room.sections for room in rooms())
    return {section.name: section for section in all_sections}


@cache
def kinds() -> dict[str, str]:
    """Return ``module:NAME`` of every kind of judge by its name, the core's first."""
    codes: dict[str, str] = {}
    for room in rooms():
        codes |= room.kinds
    return codes


def scorers() -> dict[str, str]:
    """Return ``module:Class`` of every estimator by its group's name."""
    codes: dict[str, str] = {}
    for room in rooms():
        codes |= room.scorers
    return codes


@cache
def metrics() -> dict[str, str]:
    """Return ``module:NAME`` of every room's metrics by their names; those of stage evaluate itself are not among them.

    Raises:
        ConfigError: two rooms bring one.
    """
    codes: dict[str, str] = {}
    for room in rooms():
        codes |= room.metrics
    return codes


@cache
def adapters() -> dict[str, Path]:
    """Return the file of every benchmark adapter by its name."""
    files: dict[str, Path] = {}
    for room in rooms():
        files |= _adapters_in(room)
    return files


def _ordered(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return entries by their names, sorted by ``order``."""
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: entry.order)}


def shipped(name: str) -> Path:
    """Return a directory of shipped files: ``conf``, ``recipes`` or ``launch``.

    A wheel holds it as ``_NAME`` inside the package. In a checkout it lies beside the package.
    """
    installed = PACKAGE / f"_{name}"
    return installed if installed.is_dir() else PACKAGE.parent / name
