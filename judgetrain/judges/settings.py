"""What a stage reads of the configuration whose methods name judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from judgetrain.artifacts.stages import StageSettings, at
from judgetrain.data.config import WorldConfig
from judgetrain.engines.config import EngineConfig, ModelConfig, SamplingConfig
from judgetrain.judges.config import JudgeConfig, OnceConfig
from judgetrain.judges.method import BRANCHING, JUDGE_STAGES, Method
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.keys import in_place, of_file
from judgetrain.scorers.config import ScorerConfig

EXTERNAL = {"teacher": "teacher.engine", "external": "evaluate.external"}
"""Targets that are no model of this run: the keys of their engines."""


def _names(target: str) -> Callable[[ModelSettings], bool]:
    """Whether a method names a model."""
    return lambda settings: any(m.target == target for m in settings.methods if m.names_model)


def _has(kind: str) -> Callable[[ModelSettings], bool]:
    """Whether a method is of a kind."""
    return lambda settings: any(m.kind == kind for m in settings.methods)


def _own_engine(settings: ModelSettings) -> bool:
    return not {m.target for m in settings.methods if m.names_model} <= set(EXTERNAL)


def _run_prompts(settings: ModelSettings) -> bool:
    """Whether a model grows branches that is no trained judge, which has its own prompts."""
    return any(m.kind == BRANCHING and m.target in ("base", *EXTERNAL) for m in settings.methods)


def _base(settings: ModelSettings) -> bool:
    """Whether a method names the base model, or scorers read it."""
    read = settings.scorer is not None and not settings.scorer.model.path
    return _names("base")(settings) or (_has("scorer")(settings) and read)


def _world(settings: ModelSettings) -> bool:
    return settings.reads_world


@dataclass(frozen=True, kw_only=True)
class ModelSettings(StageSettings):
    """The models that methods may name and how judges are asked; what no method uses is no part of it.

    Judges are asked alike in all stages: as ``judge.*`` says, and ``evaluate.*`` where that says it already.
    """

    judge: JudgeConfig | None = at("judge", active_if=_has(BRANCHING))
    criteria: int | None = at("tree.criteria", active_if=_has(BRANCHING))
    rubric: str | None = at("criteria", content=of_file, active_if=_has(BRANCHING))
    engine: EngineConfig | None = at("engine", active_if=_own_engine)
    prompts: str | None = at("prompts", content=in_place(prompt_path), active_if=_run_prompts)
    base: ModelConfig | None = at("train.base", active_if=_base)
    base_path: str = at("train.base.path", in_fingerprint=False)
    teacher: EngineConfig | None = at("teacher.engine", active_if=_names("teacher"))
    external: EngineConfig | None = at("evaluate.external", active_if=_names("external"))
    pairwise: OnceConfig | None = at("evaluate.pairwise", active_if=_has("pairwise"))
    pointwise: OnceConfig | None = at("evaluate.pointwise", active_if=_has("pointwise"))
    scorer: ScorerConfig | None = at("scorer", active_if=_has("scorer"))
    world: WorldConfig | None = at("dialogues.world", active_if=_world)
    eval_comparisons: int | None = at("dialogues.world.eval_comparisons", active_if=_world)

    single_token: ClassVar[OnceConfig] = OnceConfig("single_token", SamplingConfig(0.0, 1.0, 2))
    """A letter and the end of the text, greedily."""
    own_criteria: ClassVar[bool] = False
    """Whether judges go by their own criteria, also where a file of others is given (``criteria``)."""
    whole_trees: ClassVar[bool] = False
    """Whether every branch is to be judged, also where ``judge.early_stop`` would do with fewer."""

    @property
    def methods(self) -> Sequence[Method]:
        """The methods whose models the stage may load."""
        return ()

    @property
    def reads_world(self) -> bool:
        """Whether the stage reads the held-out split of the generated world."""
        return False

    @property
    def judges(self) -> Sequence[str]:
        """The stages whose judges are among the methods: a stage's inputs."""
        return judges_of(self.methods)

    @property
    def asked_engines(self) -> tuple[EngineConfig | None, ...]:
        """The engines that may be paid for."""
        return self.teacher, self.external


def judges_of(methods: Iterable[Method]) -> list[str]:
    """The stages whose judges are among the methods, in the order of the pipeline."""
    targets = {m.target for m in methods if m.names_model}
    return [name for name in JUDGE_STAGES if name in targets]
