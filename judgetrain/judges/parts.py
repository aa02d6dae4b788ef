"""What a judge is made of that asks a model, by its name: how it is asked, its engine and its prompts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from judgetrain.data.rubrics import given_rubric
from judgetrain.engines.base import Engine
from judgetrain.engines.config import EngineConfig, LocalEngineConfig, ModelConfig, TransformersEngineConfig
from judgetrain.engines.hub import hub_id, snapshot
from judgetrain.errors import ConfigError
from judgetrain.judges.base import Given
from judgetrain.judges.config import JudgeOptions, OnceConfig, changed
from judgetrain.judges.method import ASKED_ONCE, BRANCHING, JUDGE_STAGES, TARGETS, Method
from judgetrain.judges.prompting.prompts import FILE, Dialect, PromptSet, has_step, load_prompt_set
from judgetrain.judges.settings import EXTERNAL, no_judge

Parts = tuple[JudgeOptions, Callable[[], Engine], Callable[[], PromptSet]]


def parts_of(
    method: Method,
    branches: int = 1,
    *,
    engine: EngineConfig | None = None,
    criteria: Given = None,
    prompts: str | Path | None = None,
    **asked: Any,
) -> Parts:
    """How the judge of a method is asked, and what loads its engine and its prompts; arguments and errors as of
    :func:`~judgetrain.judges.factory.load_judge`."""
    own = engine.model if isinstance(engine, LocalEngineConfig) else ModelConfig()
    directory, options = None, JudgeOptions()
    if method.kind in ASKED_ONCE:
        sampling = changed(OnceConfig().sampling, asked, "sampling.")
        options = JudgeOptions(once=OnceConfig(str(prompts or method.kind), sampling))
    elif method.kind == BRANCHING:
        if method.target not in TARGETS:
            directory = judge_directory(method.target, own.revision)
        how = {"branches": branches if method.most is None else method.most, "rubric": given_rubric(criteria)}
        options = JudgeOptions.of_directory(directory, {**method.changes, **asked}, **how)

    def load() -> Engine:
        from judgetrain.engines.lazy_model import make_engine

        if method.target in TARGETS:
            return make_engine(_served(method, engine), name=method.name)
        path = str(directory or method.target)
        if directory is None and method.on_hub and hub_id(path)[1]:
            path = str(snapshot(path, "config.json"))
        config = engine or TransformersEngineConfig(model=ModelConfig(path=path))
        return make_engine(config, model_path=path, name=method.name)

    place = None if prompts else directory
    return options, load, lambda: prompts_of(method, place, options.once, prompts or "multi_step")


def prompts_of(method: Method, directory: Path | None, once: OnceConfig | None, others: str | Path) -> PromptSet:
    """The prompts of a model in a directory that carries some (a branching judge's must), or ``others`` or ``once``."""
    if once is not None:
        dialect = cast(Dialect, method.kind)
        if directory is not None and has_step(directory / FILE, dialect):
            return load_prompt_set(directory / FILE, dialect, method.text)
        return load_prompt_set(once.prompts, dialect, f"evaluate.{dialect}.prompts")
    if directory is None:
        return load_prompt_set(others)
    if not (directory / FILE).is_file():
        raise ConfigError(f"{method.text}: {no_judge(directory)}")
    return load_prompt_set(directory / FILE)


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
