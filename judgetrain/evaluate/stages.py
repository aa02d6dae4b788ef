"""Stage evaluate: what it reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from judgetrain.artifacts.stages import Stage, at
from judgetrain.data.stages import check_benchmarks, check_names
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.hooks import calls, with_sections
from judgetrain.judges.checks import check_directories
from judgetrain.judges.method import ASKED_ONCE, Method
from judgetrain.judges.settings import ModelSettings


@dataclass(frozen=True, kw_only=True)
@with_sections
class EvaluateSettings(ModelSettings):
    """Stage evaluate."""

    evaluate: EvaluateConfig = at("evaluate")
    shard_size: int = at("tree.shard_size")

    @classmethod
    def methods_of(cls, config: Any) -> Iterable[Method]:
        """``evaluate.methods``."""
        return map(Method.parse, config.evaluate.methods)

    @classmethod
    def of_world(cls, config: Any) -> bool:
        """Whether a benchmark is of the world."""
        return any(b.source.type == "world" for b in config.evaluate.benchmarks)

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """What ``evaluate`` says already."""
        return {*super().unused(config), "aggregation", "early_stop", *ASKED_ONCE}

    @property
    def asks(self) -> EvaluateConfig:
        """``evaluate`` says how judges are asked."""
        return self.evaluate


def _check_evaluate(config: Any) -> None:
    from judgetrain.evaluate.runners import known_methods, runner_of

    settings = config.evaluate
    check_benchmarks("evaluate.benchmarks", settings.benchmarks)
    check_names("evaluate.stored", [s.name for s in settings.stored])
    if not settings.benchmarks:
        raise ConfigError("evaluate.benchmarks is empty: name labelled comparisons to evaluate on")
    if not settings.methods:
        raise ConfigError(f"evaluate.methods is empty: allowed are {known_methods()}")
    benchmarks = [b.name for b in settings.benchmarks]
    for i, stored in enumerate(settings.stored):
        if stored.benchmark not in benchmarks:
            listed = ", ".join(benchmarks)
            raise ConfigError(
                f"evaluate.stored[{i}].benchmark={stored.benchmark!r}: no such benchmark; there are {listed}"
            )
    methods = [Method.parse(text) for text in settings.methods]
    if any(method.has_branches for method in methods):
        check_branches(config)
    for _, extra, section in calls("check", config):
        extra(section, settings)
    names = [method.name for method in methods]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"evaluate.methods: the name {twice!r} is used twice; names must differ")
    for method in methods:
        runner_of(method).check(method, config)


def check_branches(config: Any) -> None:
    """Check the numbers of branches that judges are asked with.

    Raises:
        ConfigError: more than there are criteria, or none.
    """
    branches, criteria = config.evaluate.branches, config.tree.criteria
    if not branches or min(branches) < 1 or max(branches) > criteria:
        raise ConfigError(
            f"evaluate.branches={branches}: allowed are 1 to tree.criteria={criteria}, "
            "since a branch follows one criterion"
        )


def _check_evaluate_here(config: Any) -> None:
    """Read every row that the stage is going to read, its label too, and look at the directories of models."""
    from judgetrain.data.benchmarks.benchmark import load_benchmark
    from judgetrain.data.benchmarks.scenarios import labelled_queries
    from judgetrain.evaluate.runners.stored import stored_predictions

    settings, methods = config.evaluate, list(EvaluateSettings.methods_of(config))
    wanted = {m.target for m in methods if m.kind == "stored"}
    for i, benchmark in enumerate(settings.benchmarks):
        loaded = load_benchmark(benchmark, i, config.seed, config.dialogues.world)
        for j, stored in enumerate(settings.stored):
            if stored.benchmark == benchmark.name and stored.name in wanted:
                stored_predictions(stored, benchmark, loaded.comparisons, f"evaluate.stored[{j}]")
    if settings.scenarios.path:
        labelled_queries(settings.scenarios, "evaluate.scenarios")
    check_directories(config, methods, "evaluate.methods")
    for _, extra, section in calls("check_here", config):
        extra(section, settings)


def without(config: Any, lost: str, needed: Callable[[Any], Iterable[str]]) -> Any:
    """The configuration without the methods that need a stage which came to nothing, where ``evaluate.partial`` asks
    for it and a judge is left; else None."""
    if not config.evaluate.partial:
        return None

    def only(methods: list[str]) -> Any:
        return config.changed(evaluate=replace(config.evaluate, methods=methods))

    left = [m for m in config.evaluate.methods if lost not in needed(only([m]))]
    return only(left) if {"initial", "sft", "dpo"} & {Method.parse(m).target for m in left} else None


EVALUATE = Stage(
    name="evaluate",
    settings=EvaluateSettings,
    code="judgetrain.evaluate.stage:run",
    artifact="evaluation",
    inputs=EvaluateSettings.judges,
    check=_check_evaluate,
    check_here=_check_evaluate_here,
    format=4,
    estimate="judgetrain.evaluate.estimate:estimate",
    finished="judgetrain.evaluate.hooks:require_finished",
    without="judgetrain.evaluate.stages:without",
)
