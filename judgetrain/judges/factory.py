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
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.kinds.kind import Arguments, Parts, judge_kind, kind_of
from judgetrain.judges.method import TARGETS, Method
from judgetrain.judges.options import JudgeOptions
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
        # Kinds without a judge by itself were refused by judge_kind.
        assert kind.build is not None
        options = self.options(method, branches)
        # Functions, so that a judge loads only the parts that it has.
        parts = Parts(
            engine=lambda: self.engine(method),
            prompts=lambda: self.prompts(method, options),
            scorer=self._scorer,
            judge=self._member,
        )
        return kind.build(method, options, parts)

    def _member(self, text: str) -> Any:
        """Return the judge of a member of a cascade or a jury."""
        method = Method.parse(text)
        return self.judge(method, method.most or 1)

    def _scorer(self, config: ScorerConfig) -> TokenScorer:
        """Return the model whose probabilities scorers read."""
        from judgetrain.scorers.config import load_scorer, scored_model

        return load_scorer(scored_model(config, self.settings.base))

    def options(self, method: Method, branches: int = 1) -> JudgeOptions:
        """Return how the judge of a method is asked, as the settings say."""
        return kind_of(method).setup.options(self, method, branches)

    def asking(self, method: Method) -> JudgeConfig:
        """Return ``judge.*`` with the changes of the options behind a branching judge's name."""
        judge = self.settings.judge_asked
        external = self.external(method.target)
        if external and external.computes:
            # What computes scores has no probabilities of tokens to read them off.
            judge = replace(judge, score="parsed", constrained=False)
        return judge.changed(**method.asking)

    def external(self, target: str) -> EngineConfig | None:
        """Return the engine of a target that is no model of this run, which may be paid for; None for others."""
        if target not in EXTERNAL:
            return None
        engine: EngineConfig | None = getattr(self.settings, target)
        return engine

    def paid(self, method: Method) -> bool:
        """Return whether a method's requests may be paid for."""
        engine = self.external(method.target)
        return engine is not None and engine.paid

    def own_engine(self, method: Method) -> EngineConfig | None:
        """Return the run's engine, if it generates for a method; else None."""
        if method.target in EXTERNAL:
            return None
        return self.settings.engine

    def gpus(self, method: Method) -> int:
        """Return how many GPUs a copy of the model that a method names takes, where there are any."""
        engine = self.external(method.target) or self.settings.engine
        if engine is None:
            return 1
        return engine.gpus

    def engine(self, method: Method) -> Engine:
        """Return the engine of the model that a method names (ConfigError: its directory is not there)."""
        from judgetrain.engines.answers import answers_of
        from judgetrain.engines.lazy_model import make_engine

        external = self.external(method.target)
        if external:
            answers = answers_of(external, self.out.home, self.settings.seed)
            return make_engine(external, name=method.name, answers=answers, budget=self.budget)

        # From here on it is the run's own engine, for a model in a directory or the base.
        engine = self.settings.engine
        assert engine is not None
        directory = self.directory(method)
        if directory is not None:
            if not directory.is_dir():
                raise ConfigError(f"{method.text}: {directory} is no directory: name a model's")
            return make_engine(engine, model_path=str(directory), name=method.name)

        base = self.settings.base
        assert base is not None
        if isinstance(engine, LocalEngineConfig):
            # train.base says how the model is trained; it lies on as many GPUs as the engine's own.
            model = replace(base, gpus=engine.model.gpus)
            return make_engine(replace(engine, model=model), name=method.name)
        return make_engine(engine.with_model(base.path), name=method.name)

    def prompts(self, method: Method, options: JudgeOptions | None = None) -> PromptSet:
        """Return the prompts of a judge: those that its directory carries, or the run's for other models."""
        options = options or JudgeOptions()
        return kind_of(method).setup.prompts(method, options, self.directory(method), self.settings.prompts or "")

    def directory(self, method: Method) -> Path | None:
        """Return the directory of the model that a method names; None for the base and external models."""
        if method.target in ("base", *EXTERNAL):
            return None
        if method.target in self.inputs:
            return self.inputs[method.target] / "model"
        if method.on_hub:
            # A file that the model must have, so that a fetched folder can be told from a broken one.
            required = "config.json"
            if kind_of(method).target.trained:
                required = FILE
            return snapshot(method.target, required)
        return Path(method.target).expanduser()

    def identity(self, method: Method, hashes: ContentHashes) -> object:
        """Return what a fingerprint holds of a method's model.

        It is a stage's fingerprint, the content of the model's files, or the engine that runs it; of a method without a
        model it is the method's name.
        """
        # A baseline's name says all that it does.
        if not method.names_model:
            return method.text
        if method.target in self.inputs:
            # A stage's directory is named by its fingerprint.
            return self.inputs[method.target].name
        if method.on_hub:
            directory = self.directory(method)
            assert directory is not None
            # The folder that it is fetched into has its commit's name.
            return [method.target, directory.name]
        if method.is_directory:
            return hashes.of(method.target)
        if method.target == "base":
            return hashes.identity(self.settings.base)
        return hashes.identity(self.external(method.target))


def load_judge(
    name: str | Path,
    branches: int = 1,
    *,
    engine: EngineConfig | None = None,
    criteria: Given = None,
    model: str | Path | ModelConfig | None = None,
    prompts: str | Path | None = None,
    **changes: Any,
) -> Judge:
    """Return the judge of this name.

    ``judge(prompt, response_a, response_b)`` asks it, ``judge.close()`` frees its model.

    Args:
        name: a directory that training wrote (``.../model``, or the artifact that holds it); the id of such a judge on
            the Hub; ``pairwise:MODEL`` or ``pointwise:MODEL``; ``external`` or
            ``pairwise:external``, which ask ``engine`` as it is; ``scorer:sentprob`` and the like; a baseline
            (``longer``). Options may follow a branching judge's name, as in ``./my-judge+sampled@3``.
        branches: k of a branching judge; what stands after ``@`` comes first.
        engine: what runs the model; by default Transformers. An ``OpenAIEngineConfig`` names an endpoint.
        criteria: the criteria of a branching judge where none come with the responses: a rubric, criteria in any shape
            that is read from files, or a file's name. None: its own criteria.
        model: whose probabilities a scorer reads: a directory or Hub id.
        prompts: another prompt set than the judge's own, or the packaged one: a name or a YAML file.
        changes: settings that override the judge's own ``judge.json``. Of a branching judge the keys of ``judge.*``
            (``temperature=1.0``) and ``plan``, of one that is asked once those of a sampling
            (``max_new_tokens=256``), of a scorer those of ``scorer.*``.

    Raises:
        ConfigError: no such judge, key or prompt set, a value out of range, or no model for what needs one.
        EngineError: the model or the server cannot be used.
    """
    # PyTorch reads the number of cores when it is imported: later it would be too late.
    if "torch" not in sys.modules:
        share_cores()

    text = str(name)
    method = Method.parse(text)
    is_name_of_method = "/" in text or text in TARGETS or text in kind_of(method).target.names
    if not is_name_of_method and Path(text).is_dir():
        # A directory that is there may be named without a slash.
        method = Method.parse(f"./{text}")
    # Criteria that nothing reads would look as if they had been judged by.
    if criteria is not None and not method.goes_by_criteria:
        raise ConfigError(f"{method.text!r} goes by no criteria; those that branch do")
    if engine is not None and not isinstance(engine, EngineConfig):
        raise ConfigError(
            f"engine={engine!r}: expected an engine's configuration, as TransformersEngineConfig(batch_size=8) of "
            "judgetrain.engines.config"
        )
    if model is not None and not isinstance(model, ModelConfig):
        model = ModelConfig(path=str(model))
    arguments = Arguments(
        branches=branches, engine=engine, criteria=criteria, model=model, prompts=prompts, changes=changes
    )
    options, parts = parts_of(method, arguments)
    build = judge_kind(method).build
    assert build is not None
    return build(method, options, parts)
