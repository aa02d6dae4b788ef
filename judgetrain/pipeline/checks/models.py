"""Sources, prompts, models and packages: are they there, and do they go together?"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

from judgetrain.data.config import SourceConfig
from judgetrain.engines.config import EngineConfig, ModelConfig
from judgetrain.errors import ConfigError
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.reads import PACKAGE, is_local


def check_source(key: str, source: SourceConfig) -> None:
    """A source of rows, but for what is in its files."""
    if source.template and "{query}" not in source.template:
        raise ConfigError(f"{key}.template={source.template!r}: must hold {{query}}, where the query goes")
    if source.type == "hub" and not source.path:
        raise ConfigError(f"{key}.path is empty: give the data set's Hub id")
    if is_local(source):
        if not source.path:
            raise ConfigError(f"{key}.path is empty: give a file or a glob")
        if Path(source.path).expanduser().is_dir():
            raise ConfigError(f"{key}.path={source.path!r} is a directory: give its files, as in DIR/*.jsonl")


def check_judge_prompts(config: Config) -> None:
    """The judge's prompt set has every slot."""
    from judgetrain.judges.prompting.prompts import load_prompt_set

    load_prompt_set(config.prompts)


def check_tree(config: Config) -> None:
    """Whoever samples trees, and the package that an enforced form needs."""
    check_judge_prompts(config)
    check_engine("engine", replace(config.engine, model=replace(config.engine.model, path="world")))
    if config.tree.constrained and config.engine.type == "transformers":
        check_package("xgrammar", "tree.constrained=true")


def check_teacher(config: Config) -> None:
    """The teacher, unless its evaluations are written already."""
    check_judge_prompts(config)
    if not config.teacher.evaluations:
        check_engine("teacher.engine", config.teacher.engine)


def check_base(config: Config) -> None:
    """The base model."""
    check_model("train.base", config.train.base)


def check_scorer(config: Config) -> None:
    """The model that scorers read, and their prompt."""
    key, model = (
        ("scorer.model", config.scorer.model) if config.scorer.model.path else ("train.base", config.train.base)
    )
    check_model(key, model)
    check_revision_prompt(config)


def check_revision_prompt(config: Config) -> None:
    """The prompt that ProbDiff revises with."""
    from judgetrain.scorers.prompts import load_scorer_prompts

    revision = load_scorer_prompts(config.scorer.prompts).revision
    if config.scorer.revision_prompt not in revision:
        raise ConfigError(
            f"scorer.revision_prompt={config.scorer.revision_prompt!r}: allowed are {', '.join(revision)}"
        )


def check_engine(key: str, engine: EngineConfig) -> None:
    """An engine's model and package."""
    if engine.type == "openai" and not engine.model.path:
        raise ConfigError(f"{key}.model.path is empty: for type openai it is the model's name at the server")
    if engine.type == "vllm":
        check_package("vllm", f"{key}.type=vllm")
    if engine.type in ("transformers", "vllm"):
        check_model(f"{key}.model", engine.model)


def check_model(key: str, model: ModelConfig) -> None:
    """A model's directory or package, where it names one."""
    from judgetrain.engines.loading import looks_local

    path = model.path
    if not path:
        raise ConfigError(f"{key}.path is empty: give a directory, a Hub id, 'world' or 'package:NAME'")
    if path.startswith(PACKAGE):
        name = path.removeprefix(PACKAGE)
        if importlib.util.find_spec(name.replace("-", "_")) is None:
            raise ConfigError(f"{key}.path={path}: the package is not installed; pip install {name}")
    elif looks_local(path) and not Path(path).expanduser().exists():
        raise ConfigError(f"{key}.path={path}: no such directory; give a model directory or a Hub id")
    if model.attn_implementation == "flash_attention_2":
        check_package("flash_attn", f"{key}.attn_implementation=flash_attention_2")


def check_package(module: str, because: str) -> None:
    """Refuse what needs a package that is not installed."""
    if importlib.util.find_spec(module) is None:
        name = module.replace("_", "-")
        raise ConfigError(f"{because}: the package {name} is not installed; pip install {name}")
