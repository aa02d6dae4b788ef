"""Methods whose verdicts are a rule's: floors, bounds and ceilings of the generated world."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.config import SourceConfig
from judgetrain.data.world import of_source, world_of
from judgetrain.data.world.floors import (
    BOTH,
    BOUND,
    FEW_LABELS,
    FORM,
    LABELS,
    NO_LABEL,
    THE_RULE,
    PerfectReading,
    agreement,
    all_floors,
    floor_names,
    read,
    verdicts,
)
from judgetrain.errors import ConfigError
from judgetrain.evaluate.metrics.rows import Learned
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.kinds.kind import Use
from judgetrain.judges.method import Method
from judgetrain.judges.predictions import Cost, Prediction
from judgetrain.keys import did_you_mean

Computed = tuple[Mapping[str, Mapping[str, Any]], PerfectReading]
"""The leads of all rules, by what they need and by name, and what the comparisons show."""
HIGHEST = "highest"
"""The floor that is highest of its kind on the comparisons themselves."""
GROUPS = {"floor": (NO_LABEL,), "fitted_floor": (FEW_LABELS,), "ceiling": (BOUND, BOTH, FORM, THE_RULE)}
"""The needs of the rules, by kind of method."""


def names(kind: str) -> list[str]:
    """Return what may follow the name of a kind and its colon."""
    by_need = floor_names()
    rules = []
    for need in GROUPS[kind]:
        rules += by_need[need]
    if kind == "ceiling":
        return rules
    return [HIGHEST, *rules]


def check_method(settings: Any, method: Method, use: Use) -> None:
    """Refuse (ConfigError) a rule that there is not, and an evaluation without a benchmark of the world."""
    allowed = names(method.kind)
    if method.target not in allowed:
        hint = did_you_mean(method.target, allowed)
        raise ConfigError(f"{use.key}: {method.text!r}: there is no such rule; allowed are {', '.join(allowed)}{hint}")
    if not settings.uses_world:
        raise ConfigError(f"{use.key}: {method.text!r} knows the generated world alone; add a benchmark of type world")


def run(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield each benchmark of the world with the rule's verdicts, which cost nothing."""
    configs = {config.name: config for config in evaluation.settings.evaluate.benchmarks}
    if GROUPS[method.kind] == (FEW_LABELS,):
        evaluation.learned[method.name] = Learned(labels=LABELS)
    for benchmark in evaluation.benchmarks:
        config = configs[benchmark.name]
        # Other benchmarks have texts that the rules cannot read; the method has no rows there.
        if config.source.type != "world":
            continue
        floors, reading = _kept(evaluation.settings, config.source, benchmark)
        name, leads = _chosen(method, floors, reading)
        if method.target == HIGHEST:
            share = 100 * agreement(leads, reading)
            evaluation.out.log(f"evaluate: {benchmark.name}: {method.text} is {name}, {share:.1f}%")
        predictions = []
        for comparison, verdict in zip(benchmark.comparisons, verdicts(leads), strict=True):
            prediction = Prediction.of(comparison, method.text, verdict, verdict)
            predictions.append(replace(prediction, cost=Cost()))
        yield benchmark, [(predictions, math.nan)]


def _kept(settings: EvaluateSettings, source: SourceConfig, benchmark: Benchmark) -> Computed:
    """Return all rules' leads on a benchmark, and its reading, which the methods of an evaluation share."""
    # Reading a benchmark takes seconds, and there may be a method for each of its rules.
    computed: dict[str, Computed] = settings.read.setdefault("world_floors", {})
    if benchmark.name not in computed:
        assert settings.world is not None
        world = world_of(of_source(settings.world, source), settings.seed)
        floors = all_floors(world, benchmark.comparisons, settings.seed)
        computed[benchmark.name] = (floors, read(world, benchmark.comparisons))
    return computed[benchmark.name]


def _chosen(method: Method, floors: Mapping[str, Mapping[str, Any]], reading: PerfectReading) -> tuple[str, Any]:
    """Return the name and the leads of a method's rule: the highest of its group, or the one that it names."""
    leads: dict[str, Any] = {}
    for need in GROUPS[method.kind]:
        leads |= floors[need]
    name = method.target
    if name == HIGHEST:
        name = max(leads, key=lambda rule: agreement(leads[rule], reading))
    return name, leads[name]
