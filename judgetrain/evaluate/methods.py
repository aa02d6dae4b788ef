"""Methods by name: what stands in the table, and the judge behind it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from judgetrain.config import Config, EngineConfig
from judgetrain.engines.registry import make_engine
from judgetrain.errors import ConfigError
from judgetrain.judges.branching import BranchingJudge
from judgetrain.judges.floors import FLOORS
from judgetrain.judges.settings import load_settings
from judgetrain.tree.prompts import FILE as PROMPTS
from judgetrain.tree.prompts import load_prompt_set


def is_directory(method: str) -> bool:
    """Whether a method is named by a judge's directory: it holds a path separator."""
    return not method.startswith("stored:") and ("/" in method or os.sep in method)


def method_name(method: str) -> str:
    """The name of a method in tables and file names.

    A directory is named by its last part; ``.../dpo/0123456789abcdef/model``, where the pipeline puts judges,
    becomes ``dpo-012345``, since all of those end in ``model``.
    """
    if not is_directory(method):
        return method
    path = Path(method)
    if path.name == "model" and len(path.parts) > 2:
        return f"{path.parts[-3]}-{path.parts[-2][:6]}"
    return path.resolve().name


def load_judge(method: str, config: Config, inputs: Mapping[str, Path]) -> BranchingJudge:
    """The branching judge of a method: a judge of this run, ``base``, ``teacher``, or a judge's directory.

    ``base`` (the untrained model of ``train.base``) and ``teacher`` are asked with the run's prompts and sampling, a
    trained judge with those that its directory carries.

    Raises:
        ConfigError: no such method, or a directory that holds no judge.
    """
    name, branches, sampled = method_name(method), max(config.evaluate.branches), config.tree
    if method == "teacher":
        engine, prompts = make_engine(config.teacher.engine, name=name), load_prompt_set(config.prompts)
    elif method == "base":
        settings = EngineConfig(**{**vars(config.engine), "model": config.train.base})
        engine, prompts = make_engine(settings, name=name), load_prompt_set(config.prompts)
    else:
        directory = inputs[method] / "model" if method in inputs else Path(method).expanduser()
        if not (directory / PROMPTS).is_file():
            known = "base, teacher, initial, sft, dpo, " + ", ".join(FLOORS)
            raise ConfigError(f"evaluate.methods: {method!r} is neither of {known} nor a trained judge's directory")
        engine = make_engine(config.engine, model_path=str(directory), name=name)
        prompts, sampled = load_prompt_set(directory / PROMPTS), load_settings(directory, config.tree)
    return BranchingJudge(engine, prompts, branches, sampled, name=name)
