"""Stages of the pipeline as records: name, inputs, settings, and where the code is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from judgetrain.artifacts.stage_run import StageRun


def at(
    key: str,
    *,
    in_fingerprint: bool = True,
    active_if: Callable[[Any], Any] | None = None,
    content: Callable[[Any, Any], Any] | None = None,
    only: Sequence[str] = (),
    counted_if: Callable[[Any], Any] | None = None,
) -> Any:
    """Return a field of :class:`StageSettings` that is taken from a key of the configuration.

    Args:
        key: the dotted key of a value, of a configuration object, or of a list of them.
        in_fingerprint: False for what changes only how fast or where something is computed, or is only checked.
        active_if: returns whether the stage has any use for the value, given the settings. A value without use is None
            in the settings.
        content: returns what stands in fingerprints in place of the value (:func:`judgetrain.keys.key`). Keys inside
            configuration objects are marked where they are defined.
        only: the keys of the object that the stage reads. The other keys have their defaults in the settings.
        counted_if: returns whether the value stands in fingerprints, given the settings; None: always. So a field that
            a stage gets later leaves the artifacts of those who do not use it as they are.
    """
    marks: dict[str, Any] = {
        "key": key,
        "in_fingerprint": in_fingerprint,
        "use_if": active_if,
        "content": content,
        "only": tuple(only),
    }
    if counted_if:
        marks["active_if"] = counted_if
    return dataclasses.field(metadata=marks)


@dataclass(frozen=True, kw_only=True)
class StageSettings:
    """All keys of the configuration that a stage reads; its fingerprint covers them."""

    seed: int = at("seed")

    @property
    def judges(self) -> Sequence[str]:
        """Return the stages whose judges the settings name. They are the stage's inputs unless it names others."""
        return ()

    @property
    def beside_inputs(self) -> Sequence[str]:
        """Return the files that users may put into an input's directory, and on which the result then depends."""
        return ()

    @classmethod
    def of(cls, config: Any) -> Self:
        """Return the settings from a whole configuration, each field from its key."""
        values = {}
        for item in dataclasses.fields(cls):
            # Reading a key imports its section, so that a run imports only rooms whose keys its stages read.
            value = attrgetter(item.metadata["key"])(config)
            values[item.name] = _part(value, item.metadata["only"])
        return cls(**values).active()

    def active(self) -> Self:
        """Return these settings with None for every value that the stage has no use for."""
        idle: dict[str, Any] = {}
        for item in dataclasses.fields(self):
            # An unused value would otherwise change the fingerprint, and with it make the stage anew.
            use_if = item.metadata["use_if"]
            if use_if and not use_if(self):
                idle[item.name] = None
        if not idle:
            return self
        return dataclasses.replace(self, **idle)


def _part(value: Any, only: Sequence[str]) -> Any:
    """Return a configuration object, or a list of them, with the keys in ``only`` and defaults for the others.

    Without ``only``, the value comes back as it is.
    """
    if not only:
        return value
    if isinstance(value, list):
        return [_part(entry, only) for entry in value]
    return type(value)(**{name: getattr(value, name) for name in only})


S = TypeVar("S", bound=StageSettings)


def needs(*names: str) -> Callable[[Any], Sequence[str]]:
    """Return a function that gives the names of a stage's inputs, whatever the settings."""
    return lambda settings: names


def by_name(code: str) -> Callable[[Any], None]:
    """Return a check that imports ``module:function`` when it is called, and passes the settings on to it."""
    return lambda settings: resolve_name(code)(settings)


def _no_check(settings: Any) -> None:
    """Accept all settings; their types and ranges are checked elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[S]):
    """One stage of the pipeline.

    Args:
        name: as in ``stage=NAME``; also the folder of its artifacts.
        settings: the class of its settings.
        code: ``module:function`` of ``run(settings, inputs, out)``, imported when the stage runs. By default, ``run``
            in the module ``stage`` beside the module ``stages`` that holds the settings.
        inputs: returns the names of the stages that it needs, given its settings. By default, those whose judges the
            settings name.
        input_parts: the part of an input that this stage depends on, by the input's name; inputs that count as a whole
            are left out.
        parts: by the name of a part of the result, a function from all settings to those that decide the part.
        check: raises ConfigError, before anything runs, where the stage cannot work with its settings.
        format: a number that is raised when the stage's code changes what it writes.
        trains: several processes do it together under ``train.distributed``.
        check_here: raises an error where this machine cannot do the stage, or a file has a row that it cannot read. It
            is called only if the stage is about to run. Configuration objects have checks of their own.
        artifact: W&B's type of the result: ``dataset``, ``model`` or ``evaluation``.
        tracked: whether trackers get a run. Asking a judge is no experiment, and nobody wants to wait for one.
        estimate: ``module:function`` of ``estimate(settings, inputs)``, which returns the lines of a dry run. Calling
            ``inputs()`` makes the stage's inputs and returns their directories.
        finished: ``module:function`` of ``finished(directory)``, which may fail a command whose stage is finished.
        without: ``module:function`` of ``without(config, lost, needed)``. It returns the configuration that does
            without a stage that came to nothing, or None; ``needed(config)`` returns the stages a configuration needs.
    """

    name: str
    settings: type[S]
    code: str = ""
    inputs: Callable[[S], Sequence[str]] = attrgetter("judges")
    input_parts: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, Callable[[S], S]] = field(default_factory=dict)
    check: Callable[[S], None] = _no_check
    format: int = 1
    trains: bool = False
    check_here: Callable[[S], None] = _no_check
    artifact: str = "dataset"
    tracked: bool = True
    estimate: str = ""
    finished: str = ""
    without: str = ""

    def __post_init__(self) -> None:
        if not self.code:
            # A frozen dataclass lets no field be set otherwise.
            object.__setattr__(self, "code", f"{self.settings.__module__.removesuffix('s')}:run")

    def run(self, settings: S, inputs: Mapping[str, Path], out: StageRun) -> None:
        """Import the stage's code and make the artifact.

        Args:
            settings: what the stage reads of the configuration.
            inputs: the directories of the stages that it needs, by name.
            out: writes and counts the result.
        """
        resolve_name(self.code)(settings, inputs, out)
