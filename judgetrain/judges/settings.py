"""What a stage reads whose methods name judges, and checks of those judges before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from judgetrain.artifacts.fingerprint import check_package
from judgetrain.artifacts.stages import StageSettings, at
from judgetrain.data.config import WorldConfig
from judgetrain.data.rubrics import read_rubric
from judgetrain.engines.config import EngineConfig, LocalEngineConfig, ModelConfig, TransformersEngineConfig
from judgetrain.engines.hub import check_on_hub, hub_id
from judgetrain.errors import ConfigError, EngineError
from judgetrain.judges.config import FITTED, LEVELS, JudgeConfig, OnceConfig, criteria_of
from judgetrain.judges.kinds.kind import find_kind, kind_of
from judgetrain.judges.method import JUDGE_STAGES, TARGETS, Method
from judgetrain.judges.prompting.prompts import FILE as PROMPTS
from judgetrain.judges.prompting.prompts import load_prompt_set, prompt_path
from judgetrain.keys import in_place, of_file
from judgetrain.scorers.config import ScorerConfig

EXTERNAL = {"teacher": "teacher.engine", "external": "evaluate.external"}
"""Targets that are no model of this run: the keys of their engines."""


def names_target(target: str) -> Callable[[ModelSettings], bool]:
    """Says of settings whether a method names this model."""
    return lambda settings: any(m.target == target for m in settings.methods if m.names_model)


def is_read(field: str) -> Callable[[ModelSettings], bool]:
    """Return what says of settings whether a method's kind reads this field of them."""
    return lambda settings: any(field in fields_read(method) for method in settings.methods)


def fields_read(method: Method) -> Sequence[str]:
    """Return the fields of :class:`ModelSettings` that a method's kind reads; none where there is no such kind."""
    kind = find_kind(method.kind)
    return () if kind is None else kind.settings


def _base(settings: ModelSettings) -> bool:
    """Return whether a method names the base model, or scorers read it for want of a model of their own."""
    if names_target("base")(settings):
        return True
    return is_read("scorer")(settings) and settings.scorer is not None and not settings.scorer.model.path


def _prompts(settings: ModelSettings) -> bool:
    """Return whether the run's prompts are used: a trained judge has its own."""
    others = ("base", *EXTERNAL)
    return any("prompts" in fields_read(method) and method.target in others for method in settings.methods)


@dataclass(frozen=True, kw_only=True)
class ModelSettings(StageSettings):
    """The models that methods may name and how judges are asked; what no method uses is no part of it.

    Judges are asked alike in all stages: as ``judge.*`` says, and ``evaluate.*`` where that says it already.
    """

    judge: JudgeConfig | None = at("judge", active_if=is_read("judge"))
    criteria: int | None = at("tree.criteria", active_if=is_read("criteria"))
    rubric: str | None = at("criteria", content=of_file, active_if=is_read("rubric"))
    engine: EngineConfig | None = at(
        "engine", active_if=lambda s: not {m.target for m in s.methods if m.names_model} <= {*EXTERNAL}
    )
    prompts: str | None = at("prompts", content=in_place(prompt_path), active_if=_prompts)
    base: ModelConfig | None = at("train.base", active_if=_base)
    teacher: EngineConfig | None = at("teacher.engine", active_if=names_target("teacher"))
    external: EngineConfig | None = at("evaluate.external", active_if=names_target("external"))
    pairwise: OnceConfig | None = at("evaluate.pairwise", active_if=is_read("pairwise"))
    pointwise: OnceConfig | None = at("evaluate.pointwise", active_if=is_read("pointwise"))
    scorer: ScorerConfig | None = at("scorer", active_if=is_read("scorer"))
    world: WorldConfig | None = at("dialogues.world", active_if=lambda s: s.reads_world)
    eval_comparisons: int | None = at(
        "dialogues.world.eval_comparisons", active_if=lambda settings: settings.reads_world
    )

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
        """The stages whose judges are among the methods, in the order of the pipeline: a stage's inputs."""
        targets = {m.target for m in self.methods if m.names_model}
        return [name for name in JUDGE_STAGES if name in targets]

    @property
    def beside_inputs(self) -> Sequence[str]:
        """Weights that a judge's directory may hold without having been made with it."""
        own = self.judge is not None and self.judge.aggregation == "fitted" and not self.judge.fitted
        return [f"model/{FITTED}"] if own else []

    @property
    def asked_engines(self) -> tuple[EngineConfig | None, ...]:
        """The engines that may be paid for."""
        return self.teacher, self.external


def check_model(settings: ModelSettings, method: Method, key: str) -> None:
    """Check that the model which a method names is there, and can do what the method asks of it.

    A ConfigError names the ``key`` where the method stands, its value and the remedy.
    """
    if method.target not in TARGETS and not method.is_directory:
        known = ", ".join(TARGETS)
        raise ConfigError(f"{key}={method.text!r}: allowed are {known} or a model's directory (./NAME)")
    if method.is_directory:
        _check_directory(method, key)
    if method.target == "base":
        assert settings.base is not None
        settings.base.check("train.base")
    if "rubric" in fields_read(method) and settings.rubric:
        read_rubric(settings.rubric)
    if "prompts" in fields_read(method) and method.target in ("base", *EXTERNAL):
        load_prompt_set(settings.prompts or "")
    where = EXTERNAL.get(method.target, "engine")
    engine: EngineConfig = getattr(settings, method.target if method.target in EXTERNAL else "engine")
    if method.target in EXTERNAL:
        if engine.type == "given":
            raise ConfigError(f"{key}={method.text!r}: {where}.type=given knows training labels alone; leave it out")
        engine.check(where)
    else:
        asked = (settings.judge or JudgeConfig()).changed(**method.asking)
        check_asking(engine, "judge.constrained=true, +constrained" if asked.constrained else "")
    if engine.computes and "expected" in method.options:
        told = f"{where}.type={engine.type}: gives no probabilities of tokens, which {method.text!r} reads"
        raise ConfigError(f"{told}; leave out +expected or choose transformers, vllm or openai")


def _check_directory(method: Method, key: str) -> None:
    """Check that a directory is there, and where the kind needs a trained judge, that it is one's."""
    directory = Path(method.target).expanduser()
    if method.on_hub:  # looked at in check_directories
        return
    if not directory.is_dir():
        raise ConfigError(f"{key}={method.target!r}: there is no such directory; stage=status shows where judges are")
    if not kind_of(method).trained:
        return
    if not (directory / PROMPTS).is_file():
        raise ConfigError(f"{key}={method.text!r}: {no_judge(directory)}")
    load_prompt_set(directory / PROMPTS)


def no_judge(directory: Path) -> str:
    """That a directory holds no trained judge, and which one lies inside it: of an output_dir the one by DPO."""
    found = [p.parent for w in ("model", "artifacts/*/*/model") for p in sorted(directory.glob(f"{w}/{PROMPTS}"))]
    hint = f"; did you mean {found[0]}?" if found else ": a model that is asked once is pairwise:DIRECTORY"
    return f"it holds no {PROMPTS}, so that it is no trained judge{hint}"


def check_criteria(criteria: int, method: Method, branches: int, key: str) -> None:
    """Refuse (ConfigError) more branches than the criteria that a judge in a directory was trained to name."""
    if method.is_directory and not method.on_hub:
        criteria = criteria_of(Path(method.target).expanduser())
        if branches > criteria:
            raise ConfigError(f"{key}={branches}: at most {criteria}, the criteria {method.text} was trained to name")


def check_directories(engine: EngineConfig | None, methods: Iterable[Method], key: str) -> None:
    """Check that the models in the directories, or on the Hub, that methods name can be loaded (ConfigError)."""
    from judgetrain.engines.model_check import check_loadable

    for method in methods:
        if method.on_hub and kind_of(method).trained:
            try:
                names = check_on_hub(*hub_id(method.target), PROMPTS)
            except EngineError as error:
                raise ConfigError(f"{key}={method.text!r}: {error}") from error
            if names is not None and PROMPTS not in names:
                raise ConfigError(f"{key}={method.text!r}: it holds no {PROMPTS}, so that it is no trained judge")
        if method.is_directory and isinstance(engine, LocalEngineConfig):
            path, revision = hub_id(method.target) if method.on_hub else (Path(method.target).expanduser(), None)
            model = replace(engine.model.at(path), revision=revision)
            check_loadable(model, f"{key}={method.text!r}")


def check_asking(engine: EngineConfig, constrained: str = "") -> None:
    """Check the engine that this run's judges generate with, and the package that an enforced form needs.

    ``constrained``: what asks for such a form, for the message; empty where nothing does.
    """
    engine.with_model("world").check("engine")
    if constrained and isinstance(engine, TransformersEngineConfig):
        check_package("xgrammar", f"an enforced form ({constrained})")


def too_long_hint(failures: Mapping[str, int]) -> str | None:
    """What to lower where comparisons did not fit into the context, by the reasons of predictions' ``failures``; None
    where all did. A server's and a scorer's failures name no step, and get no hint."""
    found = {step: n for step in LEVELS if (n := failures.get(f"{step}:too_long", 0))}
    if not found:
        return None
    keys = " and ".join(f"judge.{step}_tokens" for step in found)
    told = ", ".join(f"{n} {step}:too_long" for step, n in found.items())
    return f"{told}: a prompt and {keys} together exceed the model's context, so that it was not asked: lower {keys}"
