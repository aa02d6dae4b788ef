"""Stages evaluate, correct, selfeval and studies."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from judgetrain.data.config import BenchmarkConfig
from judgetrain.engines.abilities import check_readout, check_step
from judgetrain.engines.config import EngineConfig
from judgetrain.errors import ConfigError
from judgetrain.judges.names import ASKED_WAYS, TARGETS, base_method, is_directory, method_name, split_method
from judgetrain.pipeline.checks.models import (
    check_base,
    check_engine,
    check_scorer,
    check_source,
    check_teacher,
    check_tree,
)
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.reads import names_model


def check_evaluate(config: Config) -> None:
    """Benchmarks, methods and whoever they ask."""
    from judgetrain.judges.methods import known_methods

    check_tree(config)
    settings = config.evaluate
    if not settings.benchmarks:
        raise ConfigError("evaluate.benchmarks is empty: name labelled comparisons to evaluate on")
    if not settings.methods:
        raise ConfigError(f"evaluate.methods is empty: allowed are {known_methods()}")
    for i, benchmark in enumerate(settings.benchmarks):
        _benchmark(f"evaluate.benchmarks[{i}]", benchmark)
    for i, stored in enumerate(settings.stored):
        if stored.benchmark not in [b.name for b in settings.benchmarks]:
            listed = ", ".join(b.name for b in settings.benchmarks)
            raise ConfigError(
                f"evaluate.stored[{i}].benchmark={stored.benchmark!r}: no such benchmark; there are {listed}"
            )
    _methods(config)
    for method in settings.methods:
        _target(config, method)
    _ways({split_method(method)[0] for method in settings.methods}, config)


def _ways(used: Collection[str], config: Config) -> None:
    """The prompt sets of judges that are asked once."""
    from judgetrain.judges.prompting.prompts import load_prompt_set

    for way in ASKED_WAYS:
        if way in used:
            load_prompt_set(getattr(config.evaluate, way).prompts, way, f"evaluate.{way}.prompts")


def _methods(config: Config) -> None:
    from judgetrain.evaluate.runners.stored import PREFIX, stored_named
    from judgetrain.judges.kinds.baselines import BASELINES
    from judgetrain.judges.kinds.scorer import PREFIX as SCORER
    from judgetrain.judges.methods import known_methods
    from judgetrain.scorers.methods import OF_RESPONSES

    methods, scorers = config.evaluate.methods, [f"{SCORER}{name}" for name in OF_RESPONSES]
    if any(method in scorers for method in methods):
        check_scorer(config)
    names = [method_name(m) for m in methods]
    for method, name in zip(methods, names, strict=True):
        way, target = split_method(method)
        other = not way and (method in BASELINES or method in scorers)
        if method.startswith(PREFIX):
            stored_named(config, method)
        elif not is_directory(method) and target not in TARGETS and not other:
            raise ConfigError(f"evaluate.methods: {method!r} is none of {known_methods()} (./{method})")
        if names.count(name) > 1:
            raise ConfigError(f"evaluate.methods: the name {name!r} is used twice; names must differ")


def check_correct(config: Config) -> None:
    """Responses to correct, their judge and their writer."""
    from judgetrain.judges.prompting.prompts import load_prompt_set

    settings = config.correct
    if settings.source.type != "world" and not settings.source.path:
        raise ConfigError("correct.source.path is empty: give comparisons whose responses are to be corrected")
    check_source("correct.source", settings.source)
    target = base_method(settings.judge)
    if not is_directory(target) and target not in TARGETS:
        known = ", ".join(TARGETS)
        raise ConfigError(f"correct.judge={settings.judge!r}: allowed are {known} or a judge's directory (./NAME)")
    _target(config, settings.judge)
    if settings.branches > config.tree.criteria:
        raise ConfigError(f"correct.branches={settings.branches}: at most tree.criteria={config.tree.criteria}")
    if names_model(settings.engine):
        check_step("correct.engine", settings.engine, "correction")
        check_engine("correct.engine", settings.engine)
    else:
        check_step(*_engine_of(config, target), "correction")
    load_prompt_set(settings.prompts, "correction", "correct.prompts")


def _target(config: Config, method: str) -> None:
    """Check the model that a method names, and that it can do what the method asks of it."""
    way, target = split_method(method)
    if target not in TARGETS and not is_directory(method):
        return
    if target == "base":
        check_base(config)
    elif target == "teacher":
        check_teacher(config)
    elif target == "external":
        check_engine("evaluate.external", config.evaluate.external)
    key, engine = _engine_of(config, target)
    check_readout(key, engine, method)
    for asked in ASKED_WAYS:
        if way == asked:
            check_step(key, engine, asked)


def _engine_of(config: Config, target: str) -> tuple[str, EngineConfig]:
    """The engine of the model that a method names, and its key."""
    if target == "teacher":
        return "teacher.engine", config.teacher.engine
    return ("evaluate.external", config.evaluate.external) if target == "external" else ("engine", config.engine)


def _benchmark(key: str, benchmark: BenchmarkConfig) -> None:
    from judgetrain.data.benchmarks.adapter import load_adapter
    from judgetrain.data.benchmarks.reading import source_of

    if benchmark.adapter is not None:
        load_adapter(benchmark.adapter)
    check_source(f"{key}.source", source_of(benchmark))
    if benchmark.answers is not None and not Path(benchmark.answers).expanduser().is_file():
        raise ConfigError(f"{key}.answers={benchmark.answers!r}: no such file")
    if benchmark.adapter is None and (benchmark.answers or benchmark.where):
        raise ConfigError(f"{key}: answers and where are read with an adapter; set {key}.adapter")


def check_selfeval(config: Config) -> None:
    """Scores and their model."""
    from judgetrain.scorers.methods import check_scorers

    settings = config.selfeval
    if not settings.methods:
        raise ConfigError("selfeval.methods is empty: name a score")
    check_scorers(settings.methods, key="selfeval.methods")
    for category, temperature in settings.temperatures.items():
        if not 0 <= temperature <= 10:
            raise ConfigError(f"selfeval.temperatures.{category}={temperature}: must be at least 0 and at most 10")
    check_scorer(config)


def check_studies(config: Config) -> None:
    """What the studies read, and who judges revisions."""
    from judgetrain.judges.methods import known_methods

    settings = config.studies
    if "probdiff" not in config.selfeval.methods:
        raise ConfigError("selfeval.methods holds no probdiff, which stage=studies is about: add it")
    if any(not t >= 0 for t in settings.thresholds):
        raise ConfigError(f"studies.thresholds={list(settings.thresholds)}: must be at least 0")
    if not settings.judge:
        return
    way, target = split_method(settings.judge)
    if not is_directory(settings.judge) and target not in ("base", "teacher", "external"):
        raise ConfigError(f"studies.judge={settings.judge!r} is none of {known_methods()}: name a model or a directory")
    _target(config, settings.judge)
    _ways({way}, config)
