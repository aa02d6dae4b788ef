"""How methods are checked and run on benchmarks; a kind says in its record what is its own."""

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
    if kind.ask is None:
        return ask_at_once(method, evaluation)
    return ask_judge(method, evaluation)


def check_evaluate(found: EvaluateSettings) -> None:
    """Refuse (ConfigError) methods and benchmarks that the stage cannot work with."""
    settings = found.evaluate
    use = Use(key="evaluate.methods", branches=settings.branches, labelled=True)
    check_benchmarks("evaluate.benchmarks", settings.benchmarks)
    if not settings.benchmarks:
        raise ConfigError("evaluate.benchmarks is empty: name labelled comparisons to evaluate on")
    if not settings.methods:
        forms = ", ".join(kind.forms.evaluate for kind in kinds())
        raise ConfigError(f"evaluate.methods is empty: allowed are {forms}")
    methods = found.evaluated
    if any(method.goes_by_criteria for method in methods):
        check_branches(settings.branches, found.criteria or 0)
    for _, extra, section in calls("check", found):
        extra(section, settings)
    names = [method.name for method in methods]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"evaluate.methods: the name {twice!r} is used twice; names must differ")
    for method in methods:
        kind_of(method, use).check(found, method, use)
