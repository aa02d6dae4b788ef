"""The whole configuration, the keys that every run has, and the stages by name."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from judgetrain import rooms
from judgetrain.artifacts.executor import ExecutorConfig
from judgetrain.artifacts.stages import Stage
from judgetrain.artifacts.tracker import TrackConfig
from judgetrain.engines.auto import AutoEngineConfig
from judgetrain.engines.config import AnyEngine, engine_key
from judgetrain.keys import in_place, key, of_file
from judgetrain.pipeline.auto_engine import AutoEngine
from judgetrain.pipeline.environment import FromEnvironment

C = TypeVar("C")


@dataclass
class RunConfig:
    """The keys of every run, whatever its stage."""

    stage: str = key("dpo", "what to make (with whatever it needs)", choices=(*rooms.stages(), *rooms.commands()))
    recipe_name: str = key("quickstart", "set by the recipe; shown in reports")
    seed: int = key(17, "every seed derives from it", low=0)
    output_dir: str = key("outputs", "artifacts, paid answers, reports and tracking files", in_fingerprint=False)
    name: str | None = key("judge", "the link in output_dir to this run's judge; null: none", in_fingerprint=False)
    prompts: str = key(
        "multi_step",
        "prompt set: a name in judgetrain/judges/prompting/prompt_sets or a YAML file",
        content=in_place(lambda *values: resolve_name("judgetrain.judges.prompting.prompts:prompt_path")(*values)),
    )
    criteria: str | None = key(
        None,
        "YAML or JSON file of criteria for rows that bring none: judges are taught by it, and judge by it; None: the "
        "judge's own",
        content=of_file,
    )
    data_dir: str = key("", "root of recipes' source paths; fingerprints hold the content, not the place")
    data_files: dict[str, str] = key(
        {},
        "where files below data_dir are published, by their path there: said of one that is missing",
        in_fingerprint=False,
    )
    engine: AnyEngine = engine_key(AutoEngineConfig(), "how trained judges generate; the model is the stage's")
    dry_run: bool = key(False, "say what the first paid model will take, and ask it nothing", in_fingerprint=False)
    executor: ExecutorConfig = key(ExecutorConfig, "where work that goes by shards is done")
    track: TrackConfig = key(TrackConfig, "tracking")
    yes: bool = key(False, "stage=clean: remove what is listed; without it nothing is removed", in_fingerprint=False)
    hub: str | None = key(
        None, "OWNER/NAME on the Hub that the judge is pushed to when trained, or measured", in_fingerprint=False
    )
    objective: str | None = key(
        None, "what a search goes by, as world/dpo@1/agreement, over the development split", in_fingerprint=False
    )


@dataclass(frozen=True)
class Untyped:
    """A section that no stage has read yet; ``read`` returns its typed, checked object."""

    read: Callable[[], Any]


def _with_sections(cls: type[C]) -> type[C]:
    """Return a dataclass with every room's sections as further fields."""
    for section in rooms.sections().values():
        untyped = partial(Untyped, section.default)
        # The type of a section is not imported before it is read.
        cls.__annotations__[section.name] = Any
        setattr(cls, section.name, dataclasses.field(default_factory=untyped, metadata={"doc": section.doc}))
    return dataclass(cls)


@_with_sections
class Config(RunConfig):
    """The whole configuration. A section is read when it is first used, so a run imports the rooms that it needs."""

    environment: ClassVar[FromEnvironment] = FromEnvironment()
    """The values that it took from the environment; a composed configuration has an attribute of its own."""

    auto_engine: ClassVar[AutoEngine] = AutoEngine("outputs", "quickstart")
    """What its engines of type ``auto`` stand for; a composed configuration has an attribute of its own."""

    asking: ClassVar[tuple[str, ...]] = ()
    """The words of its command line that a command which asks a judge of this run repeats; see ``compose.asking``."""

    def __getattribute__(self, name: str) -> Any:
        """Return a value; a section that was not read yet is read and kept."""
        value = object.__getattribute__(self, name)
        if isinstance(value, Untyped):
            value = value.read()
            setattr(self, name, value)
        return value

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values; sections that nothing has read stay unread."""
        # dataclasses.replace would read every section.
        other = copy.copy(self)
        for name, value in values.items():
            setattr(other, name, value)
        return other

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class Stages(Mapping[str, Stage[Any]]):
    """Every room's stages by name, those that others need first; a stage's code is imported when it is used."""

    def __getitem__(self, name: str) -> Stage[Any]:
        stage: Stage[Any] = resolve_name(rooms.stages()[name].code)
        return stage

    def __iter__(self) -> Iterator[str]:
        return iter(rooms.stages())

    def __len__(self) -> int:
        return len(rooms.stages())


STAGES = Stages()
"""Every stage by name."""
