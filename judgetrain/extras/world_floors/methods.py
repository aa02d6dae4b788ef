"""Methods whose verdicts are a rule's: floors, bounds and ceilings of the generated world (``world:NAME``)."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.world import of_source, world_of
from judgetrain.data.world.floors import (
    BOUND,
    FEW_LABELS,
    NO_LABEL,
    THE_RULE,
    Reading,
    agreement,
    all_floors,
    read,
    verdicts,
)
from judgetrain.data.world.language import load_language
from judgetrain.errors import ConfigError
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.judges.base import Cost, Prediction
from judgetrain.judges.kinds.kind import Use
from judgetrain.judges.method import Method
from judgetrain.keys import did_you_mean

HIGHEST = {"no_label": NO_LABEL, "few_labels": FEW_LABELS}
"""Methods that are whichever floor is highest on the comparisons themselves."""
SINGLE = {
    NO_LABEL: (
        "always_tie", "random", "longer", "shorter", "how_many_shown", "sum_of_all", "decoy", "better_writer",
        "named_most", "named_least", "named_least_reversed", "shown_most", "shown_least", "shown_least_reversed",
        "moved_most", "moved_least", "moved_least_reversed",
    ),
    FEW_LABELS: ("ridge", "ridge_by_kind", "best_property_by_kind", "length"),
    BOUND: ("agreement",),
    THE_RULE: ("primary", "both_alike", "rule"),
}  # fmt: skip
"""Methods that are one floor, bound or ceiling."""


def names() -> list[str]:
    """Return what may follow ``world:``."""
    properties = [f"only_{name}" for name in load_language().properties]
    single = [name for group in SINGLE.values() for name in group]
    return [*HIGHEST, *single, *properties]


def check_method(settings: Any, method: Method, use: Use) -> None:
    """Refuse (ConfigError) a rule that there is not, and an evaluation without a benchmark of the world."""
    known = names()
    if method.target not in known:
        hint = did_you_mean(method.target, known)
        raise ConfigError(f"{use.key}: {method.text!r}: there is no such rule; allowed are {', '.join(known)}{hint}")
    if not settings.reads_world:
        raise ConfigError(f"{use.key}: {method.text!r} knows the generated world alone; add a benchmark of type world")


def run(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield each benchmark of the world with the rule's verdicts, which cost nothing."""
    settings = evaluation.settings
    configs = settings.evaluate.benchmarks
    for config, benchmark in zip(configs, evaluation.benchmarks, strict=True):
        if config.source.type != "world":
            continue
        assert settings.world is not None
        world = world_of(of_source(settings.world, config.source), settings.seed)
        floors = all_floors(world, benchmark.comparisons, settings.seed)
        reading = read(world, benchmark.comparisons)
        name, leads = _chosen(method.target, floors, reading)
        if method.target in HIGHEST:
            share = 100 * agreement(leads, reading)
            evaluation.out.log(f"evaluate: {benchmark.name}: {method.text} is {name}, {share:.1f}%")
        predictions = []
        for comparison, verdict in zip(benchmark.comparisons, verdicts(leads), strict=True):
            prediction = Prediction.of(comparison, method.text, verdict, verdict)
            predictions.append(replace(prediction, cost=Cost()))
        yield benchmark, [(predictions, math.nan)]


def _chosen(target: str, floors: Mapping[str, Mapping[str, Any]], reading: Reading) -> tuple[str, Any]:
    """Return the name and the leads of a method's rule: the highest of its group, or the one that it names."""
    if target in HIGHEST:
        group = floors[HIGHEST[target]]
        name = max(group, key=lambda rule: agreement(group[rule], reading))
        return name, group[name]
    for needs, group in floors.items():
        if target in group and (needs in SINGLE or target.startswith("only_")):
            return target, group[target]
    raise KeyError(target)
