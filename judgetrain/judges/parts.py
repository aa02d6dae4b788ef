"""The parts of a judge that a caller in Python names: how it is asked, its engine and its prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from judgetrain.engines.base import Engine
from judgetrain.engines.config import EngineConfig, LocalEngineConfig, ModelConfig, TransformersEngineConfig
from judgetrain.engines.hub import hub_id, snapshot
from judgetrain.errors import ConfigError
from judgetrain.judges.base import Judge
from judgetrain.judges.kinds.kind import Arguments, Parts, judge_kind, unknown
from judgetrain.judges.method import JUDGE_STAGES, TARGETS, Method
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import FILE, PromptSet
from judgetrain.judges.settings import EXTERNAL, no_judge

if TYPE_CHECKING:
    from judgetrain.scorers.config import ScorerConfig
    from judgetrain.scorers.statistics import TokenScorer


def parts_of(method: Method, arguments: Arguments) -> tuple[JudgeOptions, Parts]:
    """Return how the judge of a method is asked, and its parts (ConfigError: there is no such judge or setting)."""
    kind = judge_kind(method)
    if not method.target:
        raise unknown(method)
    engine = arguments.engine
    directory = None
    # Read now, for the settings that the judge was trained with; its model is loaded later.
    if kind.target.trained and method.target not in TARGETS:
        revision = None
        if isinstance(engine, LocalEngineConfig):
            revision = engine.model.revision
        directory = judge_directory(method.target, revision)
    options = kind.setup.arguments(method, directory, arguments)

    # Each part is loaded when the kind calls for it: a judge that is refused has loaded nothing.
    def load_engine() -> Engine:
        from judgetrain.engines.lazy_model import make_engine

        if method.target in TARGETS:
            return make_engine(_caller_engine(method, engine), name=method.name)
        path = str(directory or method.target)
        if directory is None and method.on_hub:
            _, revision = hub_id(path)
            if revision:
                # An engine's loader takes an id and a revision apart: a fetched folder says both.
                path = str(snapshot(path, "config.json"))
        config = engine or TransformersEngineConfig(model=ModelConfig(path=path))
        return make_engine(config, model_path=path, name=method.name)

    def load_prompts() -> PromptSet:
        if arguments.prompts:
            # The caller's prompts come before those of a trained judge's directory.
            return kind.setup.prompts(method, options, None, arguments.prompts)
        return kind.setup.prompts(method, options, directory, "multi_step")

    def load_scorer(config: ScorerConfig) -> TokenScorer:
        from judgetrain.scorers.config import load_scorer

        # The scorer's kind has refused a call without a model.
        assert arguments.model is not None
        return load_scorer(arguments.model)

    def load_member(name: str) -> Judge:
        from judgetrain.judges.factory import load_judge

        return load_judge(name, engine=engine)

    return options, Parts(engine=load_engine, prompts=load_prompts, scorer=load_scorer, judge=load_member)


def _caller_engine(method: Method, engine: EngineConfig | None) -> EngineConfig:
    """Return the caller's engine, for ``external`` and ``teacher`` (ConfigError: another target, or no engine)."""
    if method.target in JUDGE_STAGES:
        directory = f"outputs/artifacts/{method.target}/FINGERPRINT"
        raise ConfigError(f"{method.text!r} is a model of a run: give its directory, as {directory}")
    if method.target not in EXTERNAL:
        raise ConfigError(f"{method.text!r} is a model of a run: give its directory, as pairwise:DIR")
    if engine is None:
        raise ConfigError(f"{method.text!r} needs engine=, as in engine=OpenAIEngineConfig(model='NAME', base_url=URL)")
    engine.check("engine")
    return engine


def judge_directory(name: str, revision: str | None = None) -> Path:
    """Return the directory of a trained judge.

    Args:
        name: the directory, the artifact that holds it as ``model``, or an id on the Hub.
        revision: of the id.

    Raises:
        ConfigError: it holds no judge.
        EngineError: the Hub has no such model.
    """
    directory = snapshot(name, FILE, revision)
    # An artifact holds its judge as "model".
    for place in (directory, directory / "model"):
        if (place / FILE).is_file():
            return place
    raise ConfigError(f"{name!r}: {no_judge(directory)}")
