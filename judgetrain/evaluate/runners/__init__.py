"""How each kind of method is run on benchmarks. A new kind is a file here, and a line in :data:`RUNNERS`."""

from __future__ import annotations

from collections.abc import Iterator

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.errors import ConfigError
from judgetrain.evaluate.runners.base import Evaluation, Result, Runner
from judgetrain.evaluate.runners.judges import AskedOnceRunner, BranchingRunner, PromptedByCriterion
from judgetrain.evaluate.runners.learned import FewshotRunner, RubricRunner
from judgetrain.evaluate.runners.scorers import ScorerRunner
from judgetrain.evaluate.runners.stored import StoredRunner
from judgetrain.evaluate.stages import EvaluateSettings
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
    "single_token": ASKED_ONCE,
    "pointwise": ASKED_ONCE,
    "prompted": PromptedByCriterion(),
    "rubric": RubricRunner(),
    "fewshot": FewshotRunner(),
    "scorer": ScorerRunner(),
    "stored": StoredRunner(),
    BASELINE: BaselineRunner(),
}
"""By the kind of a method, which is its prefix where it has one."""


def known_methods() -> str:
    """What a method may be, for messages."""
    return ", ".join(dict.fromkeys(runner.forms for runner in RUNNERS.values()))


def runner_of(method: Method) -> Runner:
    """What runs a method.

    Raises:
        ConfigError: no such kind.
    """
    if method.kind not in RUNNERS:
        raise ConfigError(f"evaluate.methods: {method.text!r} is none of {known_methods()}")
    return RUNNERS[method.kind]
