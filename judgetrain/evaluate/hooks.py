"""Hooks for extras of stage ``evaluate``: settings, benchmarks, columns of ``metrics.json``, files and sections.

The core knows extras by these hooks alone, each ``"module:function"`` or a function. Kinds of methods are another
matter (:mod:`judgetrain.judges.kinds.kind`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeVar

from judgetrain import rooms
from judgetrain.artifacts.stages import at
from judgetrain.judges.method import Method

# The completion of keys imports this module, so that it must be quick to import.
if TYPE_CHECKING:
    from judgetrain.data.benchmarks.benchmark import Benchmark
    from judgetrain.data.benchmarks.responses import ResponseBenchmark
    from judgetrain.evaluate.runners.responses import ScoreResult
    from judgetrain.judges.predictions import Prediction

Hook = str | Callable[..., Any]
# The class that is decorated.
C = TypeVar("C", bound=type)


@dataclass(frozen=True, kw_only=True)
class Further:
    """A benchmark that an extra makes of another one.

    Its results go to the extra; pages of its trees are linked from the other's.

    Args:
        benchmark: the new one.
        of: the name of the other one.
        methods: those that run on it.
        made: whatever the extra needs to know of it.
    """

    benchmark: Benchmark
    of: str
    methods: Sequence[Method]
    made: Any = None


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """All predictions on a benchmark, which an extra measures.

    Args:
        settings: of the stage.
        test: the benchmark's test split.
        results: by method and number of branches the predictions over the development split and ``test``, in the
            benchmark's order.
        further: the benchmarks that the extra made of this one, with their results.
        inputs: the directories of this run's judges, by stage.
    """

    settings: Any
    test: Benchmark
    results: Sequence[list[Prediction]]
    further: Sequence[tuple[Further, Sequence[list[Prediction]]]] = ()
    inputs: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Rated:
    """All scores of a benchmark of single responses, which an extra measures.

    Args:
        settings: of the stage.
        benchmark: with the labels.
        results: the scores of each method that gives any, in the benchmark's order.
        development: the prompts of the development split, which nothing that is reported is over.
    """

    settings: Any
    benchmark: ResponseBenchmark
    results: Sequence[ScoreResult]
    development: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The findings of an extra on a benchmark.

    Args:
        values: of its column of ``metrics.json``, by method.
        records: of which it writes its files.
    """

    values: Mapping[Any, Any] = field(default_factory=dict)
    records: Sequence[Any] = ()


@dataclass(frozen=True, kw_only=True)
class EvaluationExtra:
    """An extra of stage ``evaluate``.

    Args:
        name: of its section of the configuration, of a field of the settings, and of its column of ``metrics.json``.
        active: given the section, returns whether there is anything to do.
        check: given the section and ``evaluate``, refuses before anything runs (ConfigError).
        check_here: given the section and the stage's settings, looks at what is on this machine; reads files.
        benchmarks: given the settings, the benchmarks and the methods, returns a list of :class:`Further`.
        measure: given :class:`Predicted`, returns :class:`Measured`.
        measure_responses: given :class:`Rated`, returns records.
        column: the class of the column's values.
        sections: given a benchmark's metric rows and records, returns
            :class:`~judgetrain.evaluate.report.table.Sections`.
        write: given all records, the section and the stage's run, writes files.
        finished: given the artifact, once it is there, may fail the command.
        settings: its field of the stage's settings; None: its section, where it has one.
    """

    name: str
    active: Callable[[Any], bool] = lambda section: True
    check: Hook | None = None
    check_here: Hook | None = None
    benchmarks: Hook | None = None
    measure: Hook | None = None
    measure_responses: Hook | None = None
    column: Hook | None = None
    sections: Hook | None = None
    write: Hook | None = None
    finished: Hook | None = None
    settings: Any = None


# The rooms' files are read once a process.
@cache
def extras() -> tuple[EvaluationExtra, ...]:
    """Return the extras of all rooms (``evaluation`` in ``room.yaml``), in the order of columns and sections."""
    return tuple(resolve_name(room.evaluation) for room in rooms.rooms() if room.evaluation)


def with_sections(settings: C) -> C:
    """Give a class of settings a field for the section of each extra, as its decorator."""
    for extra in extras():
        if extra.settings or extra.name in rooms.sections():
            # Before the class becomes a dataclass, which reads its fields off these two.
            settings.__annotations__[extra.name] = "object"
            setattr(settings, extra.name, extra.settings or at(extra.name))
    return settings


def calls(hook: str, config: Any) -> Iterator[tuple[EvaluationExtra, Callable[..., Any], Any]]:
    """Yield the active extras that have a hook, each with the hook's function and its section.

    Args:
        hook: the name of a field of :class:`EvaluationExtra`.
        config: the configuration or the stage's settings, which hold the sections.
    """
    for extra in extras():
        # An extra without a section of its own is always there.
        section = getattr(config, extra.name, None)
        function = getattr(extra, hook)
        # An extra that the configuration leaves out costs nothing, not even an import.
        if function and extra.active(section):
            yield extra, resolved(function), section


def resolved(hook: Hook) -> Any:
    """Return the function or class that a hook names."""
    if isinstance(hook, str):
        return resolve_name(hook)
    return hook


def require_finished(directory: Path) -> None:
    """Let every extra look at the finished artifact (JudgetrainError: one is not content with it)."""
    for extra in extras():
        if extra.finished:
            resolved(extra.finished)(directory)
