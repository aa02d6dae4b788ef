"""Checking methods and running them on benchmarks; a kind's own part stands in its record."""

from collections import Counter
from collections.abc import Iterator

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.stages import check_benchmarks
from judgetrain.errors import ConfigError
from judgetrain.evaluate.hooks import calls
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.runners.judges import ask_at_once, ask_judge
from judgetrain.evaluate.stages import EvaluateSettings, check_branches
from judgetrain.judges.kinds.kind import Use, kind_of, kinds
from judgetrain.judges.method import Method


def run_method(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield the method's results on every benchmark; its model is freed before the first is given."""
    kind = kind_of(method)
    if kind.run is not None:
        return kind.run(method, evaluation)
    # What costs nothing need not be kept.
    if kind.ask is None:
        return ask_at_once(method, evaluation)
    return ask_judge(method, evaluation)


def check_evaluate(settings: EvaluateSettings) -> None:
    """Refuse (ConfigError) methods and benchmarks that the stage cannot work with."""
    config = settings.evaluate
    check_benchmarks("evaluate.benchmarks", config.benchmarks)
    if not config.benchmarks:
        raise ConfigError("evaluate.benchmarks is empty: name labelled comparisons to evaluate on")
    if not config.methods:
        forms = ", ".join(kind.forms.evaluate for kind in kinds())
        raise ConfigError(f"evaluate.methods is empty: allowed are {forms}")
    methods = settings.evaluated
    # evaluate.branches is about judges with branches alone.
    if any(method.goes_by_criteria for method in methods):
        check_branches(config.branches, settings.criteria or 0)
    # Before the methods: a section may name what a method needs.
    for _, check, section in calls("check", settings):
        check(section, config)

    # Results and shards are kept by the methods' names.
    for name, count in Counter(method.name for method in methods).items():
        if count > 1:
            raise ConfigError(f"evaluate.methods: the name {name!r} is used twice; names must differ")
    use = Use(key="evaluate.methods", branches=config.branches, labelled=True)
    for method in methods:
        kind_of(method, use).check(settings, method, use)
