"""What a stage is: its name, its inputs, the settings that it reads, and where its code is."""

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
) -> Any:
    """A field of :class:`StageSettings`: the dotted configuration key that it is taken from.

    Args:
        key: of a value, or of a configuration object (or a list of them).
        in_fingerprint: False for what changes how fast or where something is computed, or is only checked.
        active_if: given the settings, whether the stage has any use for the value; it is None in them where not.
        content: what stands in fingerprints in the value's place, as :func:`judgetrain.keys.key` has it; keys inside
            configuration objects are marked where they are defined.
        only: the keys of the object that the stage reads; the others have their defaults in the settings.
    """
    marks = {"key": key, "in_fingerprint": in_fingerprint, "use_if": active_if, "content": content, "only": tuple(only)}
    return dataclasses.field(metadata=marks)


@dataclass(frozen=True, kw_only=True)
class StageSettings:
    """All that a stage reads of the configuration, which is also what its fingerprint covers."""

    seed: int = at("seed")

    @property
    def judges(self) -> Sequence[str]:
        """The stages whose judges the settings name: the stage's inputs, where it does not say others."""
        return ()

    @property
    def beside_inputs(self) -> Sequence[str]:
        """Files that people may put into an input's directory, on which the result then depends as well."""
        return ()

    @classmethod
    def of(cls, config: Any) -> Self:
        """The settings that a stage reads of the whole configuration, each field from its own key."""
        marks = ((field.name, field.metadata) for field in dataclasses.fields(cls))
        return cls(**{name: _part(attrgetter(m["key"])(config), m["only"]) for name, m in marks}).active()

    def active(self) -> Self:
        """These settings with None for every value that they have no use for."""
        conditions = {field.name: field.metadata["use_if"] for field in dataclasses.fields(self)}
        idle: dict[str, Any] = {name: None for name, use_if in conditions.items() if use_if and not use_if(self)}
        return dataclasses.replace(self, **idle) if idle else self


def _part(value: Any, only: Sequence[str]) -> Any:
    """A value; of a configuration object, or each of a list, where there are ``only`` some keys, with defaults else."""
    if only and isinstance(value, list):
        return [_part(entry, only) for entry in value]
    return value if not only else type(value)(**{name: getattr(value, name) for name in only})


S = TypeVar("S", bound=StageSettings)


def needs(*names: str) -> Callable[[Any], Sequence[str]]:
    """Inputs that are the same whatever the settings."""
    return lambda settings: names


def by_name(code: str) -> Callable[[Any], None]:
    """A check that stands beside the stage's code: ``module:function``, imported when it is asked."""
    return lambda settings: resolve_name(code)(settings)


def _no_check(settings: Any) -> None:
    """Nothing to check beyond types and ranges."""


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[S]):
    """One stage of the pipeline.

    Args:
        name: as in ``stage=NAME``, and the folder of its artifacts.
        settings: the class of its settings.
        code: ``module:function`` of ``run(settings, inputs, out)``, imported when it runs; by default ``run`` of the
            module ``stage`` beside the ``stages`` that has the settings.
        inputs: the stages that it needs, given its settings; by default those whose judges they name.
        reads: by the name of an input, the part of it that this stage reads, where it does not read all.
        parts: by name, the settings that decide a part of the result, given those that decide all of it.
        check: refuses, before anything runs, settings that the stage cannot work with (``ConfigError``).
        format: raised when the stage's code changes what it writes.
        trains: several processes do it together under ``train.distributed``.
        check_here: refuses what this machine cannot do, and files with a row that the stage cannot read; asked only of
            a stage that is about to be made. What single configuration objects need they say themselves.
        artifact: what W&B calls the result: ``dataset``, ``model`` or ``evaluation``.
        tracked: whether it is a run for trackers; to ask a judge is no experiment, and not to wait for.
        estimate: ``module:function`` of ``estimate(settings, inputs)``, the lines of a dry run; ``inputs()`` makes the
            stage's inputs and gives their directories.
        finished: ``module:function`` of ``finished(directory)``, which may fail a command whose stage is there.
        without: ``module:function`` of ``without(config, lost, needed)``: the configuration that does without a stage
            that came to nothing, or None; ``needed(config)`` are the stages that a configuration needs.
    """

    name: str
    settings: type[S]
    code: str = ""
    inputs: Callable[[S], Sequence[str]] = attrgetter("judges")
    reads: Mapping[str, str] = field(default_factory=dict)
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
            object.__setattr__(self, "code", f"{self.settings.__module__.removesuffix('s')}:run")

    def run(self, settings: S, inputs: Mapping[str, Path], out: StageRun) -> None:
        """Make the artifact: ``inputs`` are the directories of the stages it needs, ``out`` is where it writes."""
        resolve_name(self.code)(settings, inputs, out)
