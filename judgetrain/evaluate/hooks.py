"""What extras add to stage ``evaluate``: settings, benchmarks, columns of ``metrics.json``, files, sections.

The core knows extras by these hooks alone, each ``"module:function"`` or a function. Kinds of methods are another
matter (:mod:`judgetrain.judges.kinds.kind`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeVar

from judgetrain import rooms
from judgetrain.artifacts.stages import at
from judgetrain.judges.method import Method

if TYPE_CHECKING:  # completion of keys imports this module
    from judgetrain.data.benchmarks.benchmark import Benchmark
    from judgetrain.judges.base import Prediction

Hook = str | Callable[..., Any]
C = TypeVar("C", bound=type)


@dataclass(frozen=True, kw_only=True)
class Further:
    """A benchmark that an extra makes ``of`` another, and the methods that run on it.

    Its results are given to the extra; pages of its trees are linked from the other's. ``made`` is
    whatever the extra needs to know of it.
    """

    benchmark: Benchmark
    of: str
    methods: Sequence[Method]
    made: Any = None


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What an extra measures: all predictions on a benchmark.

    ``results``: of a method with one number of branches each, over the development split and ``test``, in the
    benchmark's order. ``further``: the benchmarks that the extra made of this one, with
    their results. ``settings``: of the stage; ``inputs``: the directories of this run's judges, by stage.
    """

    settings: Any
    test: Benchmark
    results: Sequence[list[Prediction]]
    further: Sequence[tuple[Further, Sequence[list[Prediction]]]] = ()
    inputs: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What an extra found on a benchmark: a column's values by method, and records, of which it writes its files."""

    values: Mapping[Any, Any] = field(default_factory=dict)
    records: Sequence[Any] = ()


@dataclass(frozen=True, kw_only=True)
class EvaluationExtra:
    """An extra of stage ``evaluate``; ``name``: of its section of the configuration, of a field of the settings,
    and of its column of ``metrics.json``."""

    name: str
    active: Callable[[Any], bool] = lambda section: True
    """Given the section, whether there is anything to do."""
    check: Hook | None = None
    """Given the section and ``evaluate``; refuses before anything runs (``ConfigError``)."""
    check_here: Hook | None = None
    """Given the section and the stage's settings, looks at what is on this machine; reads files."""
    benchmarks: Hook | None = None
    """Given the settings, the benchmarks and the methods, a list of :class:`Further`."""
    measure: Hook | None = None
    """Given :class:`Predicted`, returns :class:`Measured`."""
    column: Hook | None = None
    """The class of the column's values."""
    sections: Hook | None = None
    """Given a benchmark's metric rows and records, returns :class:`~judgetrain.evaluate.report.table.Sections`."""
    write: Hook | None = None
    """Given all records, the section and the stage's run; writes files."""
    finished: Hook | None = None
    """Given the artifact, once it is there; may fail the command."""
    settings: Any = None
    """Its field of the stage's settings; None: its section, where it has one."""


@cache
def extras() -> tuple[EvaluationExtra, ...]:
    """What the rooms name as ``evaluation`` (``room.yaml``), in the order in which columns and sections stand."""
    return tuple(resolve_name(room.evaluation) for room in rooms.rooms() if room.evaluation)


def with_sections(settings: C) -> C:
    """A class decorator: the section of each extra as a field of the stage's settings."""
    for extra in extras():
        if extra.settings or extra.name in rooms.sections():
            settings.__annotations__[extra.name] = "object"
            setattr(settings, extra.name, extra.settings or at(extra.name))
    return settings


def calls(hook: str, config: Any) -> Iterator[tuple[EvaluationExtra, Callable[..., Any], Any]]:
    """The extras that have a hook and are active: each with its function and its section of ``config``, or settings."""
    for extra in extras():
        section, found = getattr(config, extra.name, None), getattr(extra, hook)
        if found and extra.active(section):
            yield extra, resolved(found), section


def resolved(hook: Hook) -> Any:
    """What a hook names."""
    return resolve_name(hook) if isinstance(hook, str) else hook


def require_finished(directory: Path) -> None:
    """Let every extra look at the finished artifact (JudgetrainError: one is not content with it)."""
    for extra in extras():
        if extra.finished:
            resolved(extra.finished)(directory)
