"""The models that methods name, and the judges made of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from judgetrain.artifacts.stages import StageSettings, at, value_at
from judgetrain.data.config import WorldConfig
from judgetrain.engines.config import (
    EngineConfig,
    LocalEngineConfig,
    ModelConfig,
    SamplingConfig,
    TransformersEngineConfig,
    check_package,
)
from judgetrain.errors import ConfigError, EngineError
from judgetrain.judges.base import Plan
from judgetrain.judges.config import Aggregation, JudgeConfig, criteria_of
from judgetrain.judges.lengths import check_lengths
from judgetrain.judges.method import BRANCHING, JUDGE_STAGES, TARGETS, Method
from judgetrain.judges.prompting.prompts import FILE as PROMPTS
from judgetrain.judges.prompting.prompts import has_step, load_prompt_set, prompt_path
from judgetrain.keys import in_place
from judgetrain.scorers.config import ScorerConfig

if TYPE_CHECKING:
    from judgetrain.artifacts.fingerprint import ContentHashes
    from judgetrain.artifacts.stage_run import StageRun
    from judgetrain.engines.answers import Budget
    from judgetrain.engines.base import Engine
    from judgetrain.judges.kinds.branching import BranchingJudge
    from judgetrain.judges.kinds.prompted import PromptedJudge

EXTERNAL = {"teacher": "teacher.engine", "external": "evaluate.external"}
"""Targets that are no model of this run: the keys of their engines."""


@dataclass(frozen=True, kw_only=True)
class ModelSettings(StageSettings):
    """What a stage reads whose methods name models; a model that none of them names is no part of it."""

    judge: JudgeConfig | None = at("judge")
    criteria: int | None = at("tree.criteria")
    engine: EngineConfig | None = at("engine")
    prompts: str | None = at("prompts", content=in_place(prompt_path))
    base: ModelConfig | None = at("train.base")
    teacher: EngineConfig | None = at("teacher.engine")
    external: EngineConfig | None = at("evaluate.external")

    @classmethod
    def methods_of(cls, config: Any) -> Iterable[Method]:
        """The methods whose models the stage may load."""
        return ()

    @classmethod
    def judges(cls, config: Any) -> list[str]:
        """The stages whose judges are among the methods: a stage's inputs."""
        return judges_of(cls.methods_of(config))

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """What no method uses: models, how judges are asked, and prompts where every branching judge has its own."""
        methods = [m for m in cls.methods_of(config) if m.names_model]
        targets = {m.target for m in methods}
        unused = {name for name in ("base", *EXTERNAL) if name not in targets}
        if targets <= set(EXTERNAL):
            unused.add("engine")
        if not any(m.kind == BRANCHING for m in methods):
            unused |= {"judge", "criteria"}
        if not any(m.kind == BRANCHING and m.target in ("base", *EXTERNAL) for m in methods):
            unused.add("prompts")
        return unused


@dataclass(frozen=True, kw_only=True)
class WorldSettings(ModelSettings):
    """What a stage reads that may judge the held-out split of the generated world."""

    world: WorldConfig | None = at("dialogues.world")
    eval_comparisons: int | None = at("dialogues.world.eval_comparisons")

    @classmethod
    def of_world(cls, config: Any) -> bool:
        """Whether the stage reads the world."""
        return False

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """The world, where it is not read."""
        world = () if cls.of_world(config) else ("world", "eval_comparisons")
        return {*super().unused(config), *world}


@dataclass(frozen=True, kw_only=True)
class ScoredSettings(WorldSettings):
    """What a stage reads among whose methods may be scorers."""

    scorer: ScorerConfig | None = at("scorer")

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """Scorers, where no method is one; else the base model counts if it is the one that they read."""
        unused = {*super().unused(config)}
        if not any(m.kind == "scorer" for m in cls.methods_of(config)):
            return unused | {"scorer"}
        return unused - ({"base"} if not config.scorer.model.path else set())

    @property
    def asked_engines(self) -> tuple[EngineConfig | None, ...]:
        """The engines that may be paid for."""
        return self.teacher, self.external, self.scorer.engine if self.scorer else None


@dataclass(frozen=True)
class Models:
    """Loads what methods name.

    Args:
        settings: the models' part of a stage's settings.
        inputs: directories of this run's judges, by stage.
        out: where answers of external models are kept and looked up (``output_dir``).
        budget: what external models may be sent.
    """

    settings: ModelSettings
    inputs: Mapping[str, Path]
    out: StageRun
    budget: Budget | None = None

    def external(self, target: str) -> EngineConfig | None:
        """The engine of a target that is no model of this run, which may be one that is paid for; else None."""
        return getattr(self.settings, target) if target in EXTERNAL else None

    def paid(self, method: Method) -> bool:
        """Whether what a method asks may be paid for."""
        settings, engine = self.settings, self.external(method.target)
        if method.kind == "scorer" and isinstance(settings, ScoredSettings) and settings.scorer:
            engine = settings.scorer.engine
        return engine is not None and engine.paid

    def own_engine(self, method: Method) -> EngineConfig | None:
        """The run's engine, if it is what generates for a method."""
        return None if method.target in EXTERNAL else self.settings.engine

    def gpus(self, method: Method) -> int:
        """How many GPUs a copy of the model that a method names runs on, where there are any."""
        engine = self.external(method.target) or self.settings.engine
        return 1 if engine is None else engine.gpus

    def engine(self, method: Method) -> Engine:
        """The engine of the model that a method names.

        Raises:
            ConfigError: its directory is not there.
        """
        from judgetrain.engines.answers import answers_of
        from judgetrain.engines.registry import make_engine

        if external := self.external(method.target):
            answers = answers_of(external, self.out.home, self.settings.seed)
            return make_engine(external, name=method.name, answers=answers, budget=self.budget)
        assert self.settings.engine is not None
        if method.target == "base":
            return make_engine(_of_base(self.settings), name=method.name)
        directory = self._directory(method)
        if not directory.is_dir():
            raise ConfigError(f"{method.text}: {directory} is no directory: name a model's")
        return make_engine(self.settings.engine, model_path=str(directory), name=method.name)

    def asking(self, method: Method) -> JudgeConfig:
        """How the branching judge of a method is asked: as the run's ``judge.*`` and the method's options say.

        What computes scores has no probabilities of tokens to read them off, and prefers no position.
        """
        judge, external = self.settings.judge, self.external(method.target)
        assert judge is not None
        if external and external.computes:
            judge = replace(judge, readout="parsed", constrained=False, position_offset=0.0)
        return judge.changed(**method.asking)

    def branching(
        self,
        method: Method,
        branches: int,
        aggregation: Aggregation = "vote",
        early_stop: bool = False,
        top_up: bool = False,
    ) -> BranchingJudge:
        """The branching judge of a method, asked as the run's ``judge.*`` and the method's options say.

        Models that are no trained judge (``base``: the untrained model of ``train.base``) are asked with the run's
        prompts, a trained judge with those that its directory carries, and for as many criteria as it was trained on.

        Raises:
            ConfigError: a directory that holds no judge.
        """
        from judgetrain.judges.kinds.branching import BranchingJudge

        criteria, judge = self.settings.criteria, self.asking(method)
        assert criteria is not None
        if method.target in ("base", *EXTERNAL):
            prompts = load_prompt_set(self.settings.prompts or "")
        else:
            directory = self._directory(method)
            if not (directory / PROMPTS).is_file():
                raise ConfigError(f"{method.text}: {directory} holds no {PROMPTS}: it is no trained judge")
            prompts = load_prompt_set(directory / PROMPTS)
            criteria = criteria_of(directory, criteria)
        asking, plan = judge.asking(criteria), cast(Plan, judge.plan)
        engine = self.engine(method)
        how = early_stop, top_up, plan, judge.position_offset, judge.retries, judge.layout, judge.verdict
        return BranchingJudge(engine, prompts, branches, asking, aggregation, method.name, *how)

    def asked(self, method: Method, prompts: str, sampling: SamplingConfig, key: str) -> PromptedJudge:
        """The judge of a method such as ``one_step:base``, ``at_once:dpo`` or ``rating:DIRECTORY``.

        A directory may hold any model; one that carries a prompt set with the step that is asked for is asked by that.
        ``prompts`` names the set for the others; ``key`` is where the configuration has it, for messages.
        """
        from judgetrain.judges.kinds.prompted import PROMPTED

        judge = PROMPTED[method.kind]
        if method.is_directory and has_step(own := self._directory(method) / PROMPTS, judge.dialect):
            prompts, key = str(own), method.text
        return judge(self.engine(method), load_prompt_set(prompts, judge.dialect, key), sampling, method.name)

    def identity(self, method: Method, hashes: ContentHashes) -> object:
        """What identifies a method's model: a stage's fingerprint, its files' content, or the engine that runs it.

        Of a method without a model it is the method's name.
        """
        if not method.names_model:
            return method.text
        if method.target in self.inputs:
            return self.inputs[method.target].name
        if method.on_hub:  # the folder that it is fetched into has its commit's name
            return [method.target, self._directory(method).name]
        if method.is_directory:
            return hashes.of(method.target)
        return hashes.identity(self.settings.base if method.target == "base" else self.external(method.target))

    def _directory(self, method: Method) -> Path:
        from judgetrain.engines.reachable import snapshot

        if method.target in self.inputs:
            return self.inputs[method.target] / "model"
        if method.on_hub:
            return snapshot(method.target, PROMPTS if method.kind == BRANCHING else "config.json")
        return Path(method.target).expanduser()


def _of_base(settings: ModelSettings) -> EngineConfig:
    """The run's engine for the untrained model, which lies on as many GPUs as the engine's own."""
    engine, base = settings.engine, settings.base
    assert engine is not None and base is not None
    if isinstance(engine, LocalEngineConfig):
        return replace(engine, model=replace(base, gpus=engine.model.gpus))
    return engine.with_model(base.path)


def judges_of(methods: Iterable[Method]) -> list[str]:
    """The stages whose judges are among the methods, in the order of the pipeline."""
    targets = {m.target for m in methods if m.names_model}
    return [name for name in JUDGE_STAGES if name in targets]


def check_model(config: Any, method: Method, key: str) -> None:
    """Check that the model which a method names is there, and that it can do what the method asks of it.

    Args:
        config: the whole configuration.
        method: one whose target is a model.
        key: where the method stands.

    Raises:
        ConfigError: names the key, its value and the remedy.
    """
    if method.target not in TARGETS and not method.is_directory:
        known = ", ".join(TARGETS)
        raise ConfigError(f"{key}={method.text!r}: allowed are {known} or a model's directory (./NAME)")
    if method.is_directory:
        _check_directory(config, method, key)
    if method.target == "base":
        config.train.base.check("train.base")
    if method.kind == BRANCHING and method.target in ("base", *EXTERNAL):
        load_prompt_set(config.prompts)
    where, engine = engine_of(config, method.target)
    if method.target in EXTERNAL:
        if engine.type == "given":
            raise ConfigError(
                f"{key}={method.text!r}: {where}.type=given knows labels of training data alone; leave the method out"
            )
        engine.check(where)
        if method.kind == "at_once" and isinstance(engine, TransformersEngineConfig):
            check_package("xgrammar", f"an enforced form ({method.text})")
    else:
        asked = config.judge.changed(**method.asking)
        forced = "judge.constrained=true, +constrained" if asked.constrained else ""
        check_asking(config, method.text if method.kind == "at_once" else forced)
        if method.kind == BRANCHING and isinstance(engine, LocalEngineConfig) and not method.on_hub:
            check_lengths(asked, method.target if method.is_directory else config.train.base.path, method.text)
    if engine.computes and (method.kind == "at_once" or "expected" in method.options):
        instead = "" if method.kind == "at_once" else "leave out +expected or "
        raise ConfigError(
            f"{where}.type={engine.type}: gives no probabilities of tokens, which {method.text!r} reads; "
            f"{instead}choose transformers, vllm or openai"
        )


def _check_directory(config: Any, method: Method, key: str) -> None:
    """Check that a directory is there, and of one that is to grow branches that it is a trained judge's."""
    directory = Path(method.target).expanduser()
    if method.on_hub:  # looked at in check_directories
        return
    if not directory.is_dir():
        raise ConfigError(
            f"{key}={method.text!r}: there is no such directory; give that of a model, as "
            "OUTPUT_DIR/artifacts/dpo/FINGERPRINT/model (stage=status shows fingerprints)"
        )
    if method.kind != BRANCHING:
        return
    if not (directory / PROMPTS).is_file():
        inside = directory / "model"
        hint = f"; did you mean {inside}?" if (inside / PROMPTS).is_file() else ": one asked once is one_step:DIRECTORY"
        raise ConfigError(f"{key}={method.text!r}: it holds no {PROMPTS}, so that it is no trained judge{hint}")
    load_prompt_set(directory / PROMPTS)


def check_criteria(config: Any, method: Method, branches: int, key: str) -> None:
    """Check that a judge in a directory names as many criteria as there are to be branches.

    Raises:
        ConfigError: it was trained to name fewer.
    """
    if method.is_directory:
        criteria = criteria_of(Path(method.target).expanduser(), config.tree.criteria)
        if branches > criteria:
            raise ConfigError(
                f"{key}={branches}: at most {criteria}, the criteria that {method.text} was trained to name"
            )


def check_directories(config: Any, methods: Iterable[Method], key: str) -> None:
    """Check that the models in the directories, or on the Hub, that methods name can be loaded.

    Raises:
        ConfigError: names the key, the directory and what is wrong with it.
    """
    from judgetrain.engines.reachable import check_loadable, check_on_hub

    for method in methods:
        if method.on_hub and method.kind == BRANCHING:
            try:
                names = check_on_hub(method.target, None, PROMPTS)
            except EngineError as error:
                raise ConfigError(f"{key}={method.text!r}: {error}") from error
            if names is not None and PROMPTS not in names:
                raise ConfigError(f"{key}={method.text!r}: it holds no {PROMPTS}, so that it is no trained judge")
        if method.is_directory and isinstance(config.engine, LocalEngineConfig):
            model = config.engine.model.at(Path(method.target).expanduser())
            check_loadable(model, f"{key}={method.text!r}")


def check_asking(config: Any, constrained: str = "") -> None:
    """Check the engine that this run's judges generate with, and the package that an enforced form needs.

    ``constrained``: what asks for such a form, for the message; empty where nothing does.

    Raises:
        ConfigError: names the key and the remedy.
    """
    config.engine.with_model("world").check("engine")
    if constrained and isinstance(config.engine, TransformersEngineConfig):
        check_package("xgrammar", f"an enforced form ({constrained})")


def engine_of(config: Any, target: str) -> tuple[str, EngineConfig]:
    """The key and the engine of the model that a method names, out of the whole configuration."""
    key = EXTERNAL.get(target, "engine")
    return key, value_at(config, key)
