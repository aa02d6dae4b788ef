"""Methods by name: what stands in the table, and the judge behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from judgetrain.engines.answers import Budget, answers_of
from judgetrain.engines.base import Engine
from judgetrain.engines.config import EngineConfig
from judgetrain.engines.registry import make_engine
from judgetrain.errors import ConfigError
from judgetrain.judges.config import TreeConfig
from judgetrain.judges.kinds.baselines import BASELINES
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.kinds.early_stop import Aggregation
from judgetrain.judges.kinds.prompted import PROMPTED, PromptedJudge
from judgetrain.judges.names import ASKED_WAYS, TARGETS, base_method, is_directory, method_name, split_method
from judgetrain.judges.prompting.prompts import FILE as PROMPTS
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.settings import load_settings
from judgetrain.pipeline.config import Config


def with_readout(method: str, settings: TreeConfig) -> TreeConfig:
    """A judge's settings with the readouts that follow the method's name: ``+parsed``, ``+expected``, ``+constrained``.

    So one judge can be evaluated under several readouts side by side.
    """
    changes: dict[str, Any] = {}
    for readout in method.removeprefix(base_method(method)).split("+")[1:]:
        changes |= {"constrained": True} if readout == "constrained" else {"readout": readout}
    return replace(settings, **changes)


def known_methods() -> str:
    """What a method may be, for messages."""
    ways = " or ".join(f"{way}:" for way in ASKED_WAYS)
    others = "scorer:SCORER, stored:NAME"
    named = ", ".join((*TARGETS, *BASELINES))
    return f"{named}, {others}, a judge's directory (./NAME), or a model or directory after {ways}"


def load_judge(
    method: str,
    config: Config,
    inputs: Mapping[str, Path],
    branches: int | None = None,
    budget: Budget | None = None,
) -> BranchingJudge:
    """The branching judge of a method: a judge of this run, ``base``, ``teacher``, ``external``, or a directory.

    Readouts may follow the name, as in ``dpo+expected``: see :func:`with_readout`. Models that are no trained judge
    (``base``: the untrained model of ``train.base``) are asked with the run's prompts and sampling, a trained judge
    with those that its directory carries. ``branches`` stands in for the most of ``evaluate.branches``; all of them
    are then grown. Answers of an external model are kept and looked up in ``output_dir``; ``budget`` limits what it is
    sent.

    Raises:
        ConfigError: no such method, or a directory that holds no judge.
    """
    name, sampled = method_name(method), config.tree
    asked, method = method, base_method(method)
    if method in ("base", "teacher", "external"):
        engine, prompts = _engine(method, name, config, inputs, budget), load_prompt_set(config.prompts)
        if _engine_type(method, config) in ("world", "heuristic"):  # they compute scores, no probabilities of tokens
            sampled = replace(sampled, readout="parsed", constrained=False)
    else:
        directory = _directory(method, inputs)
        if not (directory / PROMPTS).is_file():
            raise ConfigError(f"evaluate.methods: {method!r} is none of {known_methods()}")
        engine = make_engine(config.engine, model_path=str(directory), name=name)
        prompts, sampled = load_prompt_set(directory / PROMPTS), load_settings(directory, config.tree)
    aggregation, sampled = cast(Aggregation, config.evaluate.aggregation), with_readout(asked, sampled)
    early_stop = branches is None and config.evaluate.early_stop
    branches = branches or max(config.evaluate.branches)
    top_up = config.evaluate.top_up
    return BranchingJudge(engine, prompts, branches, sampled, aggregation, name, early_stop, top_up)


def load_asked_judge(
    method: str, config: Config, inputs: Mapping[str, Path], budget: Budget | None = None
) -> PromptedJudge:
    """The judge of a method such as ``one_step:base``, ``rating:external`` or ``one_step:DIRECTORY``.

    It is asked with the prompts and sampling of ``evaluate.one_step`` or ``evaluate.rating``; the directory may hold
    any model. Answers and ``budget`` are as for :func:`load_judge`.

    Raises:
        ConfigError: no such method, or a directory that is not there.
    """
    way, target = split_method(method)
    settings = {"one_step": config.evaluate.one_step, "rating": config.evaluate.rating}[way]
    judge = PROMPTED[way]
    prompts = load_prompt_set(settings.prompts, judge.dialect, f"evaluate.{way}.prompts")
    name = method_name(method)
    return judge(_engine(target, name, config, inputs, budget), prompts, settings.sampling, name)


def external_engine(target: str, config: Config) -> EngineConfig | None:
    """The engine of a model that a method names and that is no judge of this run: it may be one that is paid for."""
    return {"teacher": config.teacher.engine, "external": config.evaluate.external}.get(target)


def _engine_type(target: str, config: Config) -> str:
    return (external_engine(target, config) or config.engine).type


def _engine(target: str, name: str, config: Config, inputs: Mapping[str, Path], budget: Budget | None) -> Engine:
    """The engine of a model that a method names."""
    if external := external_engine(target, config):
        answers = answers_of(external, config.output_dir, config.seed)
        return make_engine(external, name=name, answers=answers, budget=budget)
    if target == "base":
        return make_engine(replace(config.engine, model=config.train.base), name=name)
    directory = _directory(target, inputs)
    if not directory.is_dir():
        raise ConfigError(f"evaluate.methods: {target!r} is none of {known_methods()}")
    return make_engine(config.engine, model_path=str(directory), name=name)


def _directory(target: str, inputs: Mapping[str, Path]) -> Path:
    return inputs[target] / "model" if target in inputs else Path(target).expanduser()


__all__ = ["base_method", "is_directory", "known_methods", "load_asked_judge", "load_judge", "method_name"]
