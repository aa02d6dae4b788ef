"""The factory of judges: any judge by its name, of a run (:class:`Models`) or in Python (:func:`load_judge`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.executor import share_cores
from judgetrain.engines.config import EngineConfig, LocalEngineConfig, ModelConfig
from judgetrain.engines.hub import snapshot
from judgetrain.errors import ConfigError
from judgetrain.judges.base import Given, Judge
from judgetrain.judges.config import JudgeConfig, JudgeOptions
from judgetrain.judges.kinds.kind import Arguments, Parts, judge_kind, kind_of
from judgetrain.judges.method import TARGETS, Method
from judgetrain.judges.parts import parts_of
from judgetrain.judges.prompting.prompts import FILE, PromptSet
from judgetrain.judges.settings import EXTERNAL, ModelSettings

if TYPE_CHECKING:
    from judgetrain.artifacts.fingerprint import ContentHashes
    from judgetrain.artifacts.stage_run import StageRun
    from judgetrain.engines.answers import Budget
    from judgetrain.engines.base import Engine
    from judgetrain.scorers.config import ScorerConfig
    from judgetrain.scorers.statistics import TokenScorer


@dataclass(frozen=True)
class Models:
    """Loads the judges and models that a run's methods name.

    Args:
        settings: of the stage.
        inputs: directories of this run's judges, by stage.
        out: where answers of external models are kept and looked up (``output_dir``).
        budget: what external models may be sent.
    """

    settings: ModelSettings
    inputs: Mapping[str, Path]
    out: StageRun
    budget: Budget | None = None

    def judge(self, method: Method, branches: int = 1) -> Any:
        """Return the judge of a method (ConfigError: there is none); ``branches``: of a judge that has branches."""
        kind = judge_kind(method)
        assert kind.build is not None
        options = self.options(method, branches)
        parts = Parts(
            engine=lambda: self.engine(method), prompts=lambda: self.prompts(method, options), scorer=self._scorer
        )
        return kind.build(method, options, parts)

    def _scorer(self, config: ScorerConfig) -> TokenScorer:
        from judgetrain.scorers.config import load_scorer, scored_model

        return load_scorer(scored_model(config, self.settings.base))

    def options(self, method: Method, branches: int = 1) -> JudgeOptions:
        """Return how the judge of a method is asked, as the settings say."""
        return kind_of(method).options(self, method, branches)

    def asking(self, method: Method) -> JudgeConfig:
        """``judge.*`` with what the options behind a branching judge's name change.

        What computes scores has no probabilities of tokens to read them off.
        """
        judge, external = self.settings.judge, self.external(method.target)
        assert judge is not None
        if external and external.computes:
            judge = replace(judge, score="parsed", constrained=False)
        return judge.changed(**method.asking)

    def external(self, target: str) -> EngineConfig | None:
        """The engine of a target that is no model of this run, which may be one that is paid for; else None."""
        return getattr(self.settings, target) if target in EXTERNAL else None

    def paid(self, method: Method) -> bool:
        """Whether what a method asks may be paid for."""
        engine = self.external(method.target)
        return engine is not None and engine.paid

    def own_engine(self, method: Method) -> EngineConfig | None:
        """The run's engine, if it is what generates for a method."""
        return None if method.target in EXTERNAL else self.settings.engine

    def gpus(self, method: Method) -> int:
        """How many GPUs a copy of the model that a method names runs on, where there are any."""
        engine = self.external(method.target) or self.settings.engine
        return 1 if engine is None else engine.gpus

    def engine(self, method: Method) -> Engine:
        """The engine of the model that a method names (ConfigError: its directory is not there)."""
        from judgetrain.engines.answers import answers_of
        from judgetrain.engines.lazy_model import make_engine

        if external := self.external(method.target):
            answers = answers_of(external, self.out.home, self.settings.seed)
            return make_engine(external, name=method.name, answers=answers, budget=self.budget)
        engine, base, directory = self.settings.engine, self.settings.base, self.directory(method)
        assert engine is not None
        if directory is not None:
            if not directory.is_dir():
                raise ConfigError(f"{method.text}: {directory} is no directory: name a model's")
            return make_engine(engine, model_path=str(directory), name=method.name)
        assert base is not None
        if isinstance(engine, LocalEngineConfig):  # it lies on as many GPUs as the engine's own
            return make_engine(replace(engine, model=replace(base, gpus=engine.model.gpus)), name=method.name)
        return make_engine(engine.with_model(base.path), name=method.name)

    def prompts(self, method: Method, options: JudgeOptions | None = None) -> PromptSet:
        """Return the prompts of a judge: those that its directory carries, or the run's for other models."""
        options = options or JudgeOptions()
        return kind_of(method).prompts(method, options, self.directory(method), self.settings.prompts or "")

    def directory(self, method: Method) -> Path | None:
        """Where the model that a method names lies; None for the base and external models."""
        if method.target in ("base", *EXTERNAL):
            return None
        if method.target in self.inputs:
            return self.inputs[method.target] / "model"
        if method.on_hub:
            return snapshot(method.target, FILE if kind_of(method).trained else "config.json")
        return Path(method.target).expanduser()

    def identity(self, method: Method, hashes: ContentHashes) -> object:
        """What identifies a method's model: a stage's fingerprint, its files' content, or the engine that runs it.

        Of a method without a model it is the method's name.
        """
        if not method.names_model:
            return method.text
        if method.target in self.inputs:
            return self.inputs[method.target].name
        if method.on_hub:  # the folder that it is fetched into has its commit's name
            directory = self.directory(method)
            assert directory is not None
            return [method.target, directory.name]
        if method.is_directory:
            return hashes.of(method.target)
        return hashes.identity(self.settings.base if method.target == "base" else self.external(method.target))


def load_judge(
    name: str | Path,
    branches: int = 1,
    *,
    engine: EngineConfig | None = None,
    criteria: Given = None,
    model: str | Path | ModelConfig | None = None,
    prompts: str | Path | None = None,
    **asked: Any,
) -> Judge:
    """The judge of this name; ``judge(prompt, response_a, response_b)`` asks it, ``judge.close()`` frees its model.

    Args:
        name: a directory that training wrote (``.../model``, or the artifact that holds it); the id of such a judge on
            the Hub; ``pairwise:MODEL`` or ``pointwise:MODEL``; ``external`` or
            ``pairwise:external``, which ask ``engine`` as it is; ``scorer:sentprob`` and the like; a baseline
            (``longer``). Options may follow a branching judge's name, as in ``./my-judge+sampled@3``.
        branches: k of a branching judge; what stands after ``@`` comes first.
        engine: what runs the model; by default Transformers. An ``OpenAIEngineConfig`` names an endpoint.
        criteria: what a branching judge goes by where nothing else is given with the responses: a rubric, criteria in
            any shape that is read from files, or a file's name. None: its own criteria.
        model: whose probabilities a scorer reads: a directory or Hub id.
        prompts: another prompt set than the judge's own, or the packaged one: a name or a YAML file.
        asked: how it is asked, where that is to be otherwise than the judge's own ``judge.json`` says. Of a branching
            judge the keys of ``judge.*`` (``temperature=1.0``) and ``plan``, of one that is asked once
            those of a sampling (``max_new_tokens=256``), of a scorer those of ``scorer.*``.

    Raises:
        ConfigError: no such judge, key or prompt set, a value out of range, or no model for what needs one.
        EngineError: the model or the server cannot be used.
    """
    if "torch" not in sys.modules:
        share_cores()
    text = str(name)
    method = Method.parse(text)
    if "/" not in text and text not in TARGETS and text not in kind_of(method).names and Path(text).is_dir():
        method = Method.parse(f"./{text}")  # a directory that is there may be named without a slash
    if criteria is not None and not method.goes_by_criteria:
        raise ConfigError(f"{method.text!r} goes by no criteria; those that branch do")
    if model is not None and not isinstance(model, ModelConfig):
        model = ModelConfig(path=str(model))
    arguments = Arguments(
        branches=branches, engine=engine, criteria=criteria, model=model, prompts=prompts, changes=asked
    )
    options, parts = parts_of(method, arguments)
    build = judge_kind(method).build
    assert build is not None
    return build(method, options, parts)
