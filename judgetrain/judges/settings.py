"""What a stage reads of the configuration whose methods name judges."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from judgetrain.artifacts.stages import StageSettings, at
from judgetrain.data.config import WorldConfig
from judgetrain.engines.config import EngineConfig, ModelConfig
from judgetrain.judges.config import Aggregation, JudgeConfig, OnceConfig
from judgetrain.judges.method import ASKED_ONCE, BRANCHING, JUDGE_STAGES, Method
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.keys import in_place
from judgetrain.scorers.config import ScorerConfig

EXTERNAL = {"teacher": "teacher.engine", "external": "evaluate.external"}
"""Targets that are no model of this run: the keys of their engines."""


@dataclass(frozen=True, kw_only=True)
class ModelSettings(StageSettings):
    """The models that methods may name and how judges are asked; what no method uses is no part of it.

    Judges are asked alike in all stages: as ``judge.*`` says, and ``evaluate.*`` where that says it already.
    """

    judge: JudgeConfig | None = at("judge")
    criteria: int | None = at("tree.criteria")
    engine: EngineConfig | None = at("engine")
    prompts: str | None = at("prompts", content=in_place(prompt_path))
    base: ModelConfig | None = at("train.base")
    teacher: EngineConfig | None = at("teacher.engine")
    external: EngineConfig | None = at("evaluate.external")
    aggregation: Aggregation | None = at("evaluate.aggregation")
    early_stop: bool | None = at("evaluate.early_stop")
    one_step: OnceConfig | None = at("evaluate.one_step")
    at_once: OnceConfig | None = at("evaluate.at_once")
    rating: OnceConfig | None = at("evaluate.rating")
    scorer: ScorerConfig | None = at("scorer")
    world: WorldConfig | None = at("dialogues.world")
    eval_comparisons: int | None = at("dialogues.world.eval_comparisons")

    @classmethod
    def methods_of(cls, config: Any) -> Iterable[Method]:
        """The methods whose models the stage may load."""
        return ()

    @classmethod
    def of_world(cls, config: Any) -> bool:
        """Whether the stage reads the held-out split of the generated world."""
        return False

    @classmethod
    def judges(cls, config: Any) -> list[str]:
        """The stages whose judges are among the methods: a stage's inputs."""
        return judges_of(cls.methods_of(config))

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """What no method uses: models, how judges of other kinds are asked, and the world."""
        methods = list(cls.methods_of(config))
        kinds, targets = {m.kind for m in methods}, {m.target for m in methods if m.names_model}
        unused = {name for name in ("base", *EXTERNAL) if name not in targets} | ({*ASKED_ONCE} - kinds)
        if targets <= set(EXTERNAL):
            unused.add("engine")
        if BRANCHING not in kinds:
            unused |= {"judge", "criteria", "aggregation", "early_stop"}
        if not any(m.kind == BRANCHING and m.target in ("base", *EXTERNAL) for m in methods):
            unused.add("prompts")  # every branching judge has its own
        if "scorer" not in kinds:
            unused.add("scorer")
        elif not config.scorer.model.path:
            unused.discard("base")  # it is the one that scorers read
        return unused if cls.of_world(config) else unused | {"world", "eval_comparisons"}

    @property
    def asks(self) -> Any:
        """What has the fields ``aggregation``, ``early_stop``, ``one_step``, ``at_once`` and ``rating``."""
        return self

    @property
    def asked_engines(self) -> tuple[EngineConfig | None, ...]:
        """The engines that may be paid for."""
        return self.teacher, self.external, self.scorer.engine if self.scorer else None


def judges_of(methods: Iterable[Method]) -> list[str]:
    """The stages whose judges are among the methods, in the order of the pipeline."""
    targets = {m.target for m in methods if m.names_model}
    return [name for name in JUDGE_STAGES if name in targets]
