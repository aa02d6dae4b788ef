"""What a judge is made of that a caller in Python names: how it is asked, its engine and its prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from judgetrain.engines.base import Engine
from judgetrain.engines.config import EngineConfig, LocalEngineConfig, ModelConfig, TransformersEngineConfig
from judgetrain.engines.hub import hub_id, snapshot
from judgetrain.errors import ConfigError
from judgetrain.judges.config import JudgeOptions
from judgetrain.judges.kinds.kind import Arguments, Parts, judge_kind, unknown
from judgetrain.judges.method import JUDGE_STAGES, TARGETS, Method
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
    model = engine.model if isinstance(engine, LocalEngineConfig) else ModelConfig()
    directory = None
    if kind.trained and method.target not in TARGETS:
        directory = judge_directory(method.target, model.revision)
    options = kind.arguments(method, directory, arguments)

    def load_engine() -> Engine:
        from judgetrain.engines.lazy_model import make_engine

        if method.target in TARGETS:
            return make_engine(_served(method, engine), name=method.name)
        path = str(directory or method.target)
        if directory is None and method.on_hub and hub_id(path)[1]:
            path = str(snapshot(path, "config.json"))
        config = engine or TransformersEngineConfig(model=ModelConfig(path=path))
        return make_engine(config, model_path=path, name=method.name)

    def load_prompts() -> PromptSet:
        place = None if arguments.prompts else directory
        return kind.prompts(method, options, place, arguments.prompts or "multi_step")

    def load_scorer(config: ScorerConfig) -> TokenScorer:
        from judgetrain.scorers.config import load_scorer

        assert arguments.model is not None
        return load_scorer(arguments.model)

    return options, Parts(engine=load_engine, prompts=load_prompts, scorer=load_scorer)


def _served(method: Method, engine: EngineConfig | None) -> EngineConfig:
    """The engine of ``external`` and ``teacher``, which is given."""
    if method.target not in EXTERNAL:
        place = f"outputs/artifacts/{method.target}/FINGERPRINT" if method.target in JUDGE_STAGES else "pairwise:DIR"
        raise ConfigError(f"{method.text!r} is a model of a run: give its directory, as {place}")
    if engine is None:
        example = "engine=OpenAIEngineConfig(model='NAME', base_url=URL)"
        raise ConfigError(f"{method.text!r} needs engine=, as in {example}")
    engine.check("engine")
    return engine


def judge_directory(name: str, revision: str | None = None) -> Path:
    """The directory of a trained judge: a directory, the artifact that holds it as ``model``, or an id on the Hub (a
    ConfigError where it holds no judge, an EngineError where there is none)."""
    directory = snapshot(name, FILE, revision)
    for place in (directory, directory / "model"):
        if (place / FILE).is_file():
            return place
    raise ConfigError(f"{name!r}: {no_judge(directory)}")
