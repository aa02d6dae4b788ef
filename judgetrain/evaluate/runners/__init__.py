"""How each kind of method is run on benchmarks. A new kind is an extra's (:mod:`judgetrain.evaluate.hooks`)."""

from collections.abc import Iterator

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.stages import check_benchmarks
from judgetrain.errors import ConfigError
from judgetrain.evaluate.hooks import calls, extras, resolved
from judgetrain.evaluate.runners.base import Evaluation, Result, Runner
from judgetrain.evaluate.runners.judges import AskedOnceRunner, BranchingRunner
from judgetrain.evaluate.stages import EvaluateSettings, check_branches
from judgetrain.judges.kinds.baselines import BASELINES
from judgetrain.judges.method import BASELINE, BRANCHING, Method, meant


class BaselineRunner:
    """Takes every name that no other kind has; loads no model, and needs no shards."""

    forms = ", ".join(BASELINES)

    def check(self, method: Method, settings: EvaluateSettings) -> None:
        """That there is such a baseline."""
        if method.target not in BASELINES:
            near = meant(method.text, BASELINES)
            raise ConfigError(f"evaluate.methods: {method.text!r} is none of {known_methods()}{near}")

    def run(self, method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
        """Their verdicts cost nothing."""
        for benchmark in evaluation.benchmarks:
            found = BASELINES[method.target]().compare_all(benchmark.comparisons, evaluation.settings.seed)
            evaluation.out.count(in_=len(found), out=len(found))
            yield benchmark, [(found, 0.0)]


ASKED_ONCE = AskedOnceRunner()
RUNNERS: dict[str, Runner] = {
    BRANCHING: BranchingRunner(),
    "pairwise": ASKED_ONCE,
    "pointwise": ASKED_ONCE,
    BASELINE: BaselineRunner(),
}
"""By the kind of a method, which is its prefix where it has one."""


def runners() -> dict[str, Runner]:
    """Those of the core and those of extras."""
    return RUNNERS | {kind: resolved(runner) for extra in extras() for kind, runner in extra.runners.items()}


def known_methods() -> str:
    """What a method may be, for messages."""
    return ", ".join(dict.fromkeys(runner.forms for runner in runners().values()))


def runner_of(method: Method) -> Runner:
    """What runs a method (ConfigError: no such kind)."""
    found = runners().get(method.kind)
    if found is None:
        raise ConfigError(f"evaluate.methods: {method.text!r} is none of {known_methods()}")
    return found


def check_evaluate(found: EvaluateSettings) -> None:
    """Refuse (ConfigError) methods and benchmarks that the stage cannot work with."""
    settings = found.evaluate
    check_benchmarks("evaluate.benchmarks", settings.benchmarks)
    if not settings.benchmarks:
        raise ConfigError("evaluate.benchmarks is empty: name labelled comparisons to evaluate on")
    if not settings.methods:
        raise ConfigError(f"evaluate.methods is empty: allowed are {known_methods()}")
    methods = found.evaluated
    if any(method.kind == BRANCHING for method in methods):
        check_branches(settings.branches, found.criteria or 0)
    for _, extra, section in calls("check", found):
        extra(section, settings)
    names = [method.name for method in methods]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"evaluate.methods: the name {twice!r} is used twice; names must differ")
    for method in methods:
        runner_of(method).check(method, found)
