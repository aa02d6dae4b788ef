"""Stage evaluate: what must hold before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from judgetrain.artifacts.stages import Stage
from judgetrain.data.stages import check_benchmarks, check_names
from judgetrain.errors import ConfigError
from judgetrain.evaluate.hooks import calls
from judgetrain.evaluate.settings import EvaluateSettings
from judgetrain.judges.checks import check_directories
from judgetrain.judges.method import Method


def _check_evaluate(found: EvaluateSettings) -> None:
    from judgetrain.evaluate.runners import known_methods, runner_of

    settings = found.evaluate
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
    methods = found.methods
    if any(method.has_branches for method in methods):
        check_branches(settings.branches, found.criteria or 0)
    for _, extra, section in calls("check", found):
        extra(section, settings)
    names = [method.name for method in methods]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"evaluate.methods: the name {twice!r} is used twice; names must differ")
    for method in methods:
        runner_of(method).check(method, found)


def check_branches(branches: Sequence[int], criteria: int) -> None:
    """Check the numbers of branches that judges are asked with.

    Raises:
        ConfigError: more than there are criteria, or none.
    """
    if not branches or min(branches) < 1 or max(branches) > criteria:
        raise ConfigError(
            f"evaluate.branches={list(branches)}: allowed are 1 to tree.criteria={criteria}, "
            "since a branch follows one criterion"
        )


def _check_evaluate_here(found: EvaluateSettings) -> None:
    """Read every row that the stage is going to read, its label too, and look at the directories of models."""
    from judgetrain.data.benchmarks.benchmark import load_benchmark
    from judgetrain.evaluate.runners.stored import stored_predictions

    settings, methods = found.evaluate, found.methods
    wanted = {m.target for m in methods if m.kind == "stored"}
    for i, benchmark in enumerate(settings.benchmarks):
        loaded = load_benchmark(benchmark, i, found.seed, found.world)
        for j, stored in enumerate(settings.stored):
            if stored.benchmark == benchmark.name and stored.name in wanted:
                stored_predictions(stored, benchmark, loaded.comparisons, f"evaluate.stored[{j}]")
    check_directories(found.engine, methods, "evaluate.methods")
    for _, extra, section in calls("check_here", found):
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
    check=_check_evaluate,
    check_here=_check_evaluate_here,
    format=4,
    estimate="judgetrain.evaluate.estimate:estimate",
    finished="judgetrain.evaluate.hooks:require_finished",
    without="judgetrain.evaluate.stages:without",
)
