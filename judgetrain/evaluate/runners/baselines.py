"""Baselines on benchmarks: they load no model, and need no shards."""

from __future__ import annotations

from collections.abc import Iterator

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.errors import ConfigError
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.settings import EvaluateSettings
from judgetrain.judges.kinds.baselines import BASELINES
from judgetrain.judges.method import Method, meant


class BaselineRunner:
    """Takes every name that no other kind has."""

    forms = ", ".join(BASELINES)

    def check(self, method: Method, settings: EvaluateSettings) -> None:
        """That there is such a baseline."""
        if method.target not in BASELINES:
            from judgetrain.evaluate.runners import known_methods

            near = meant(method.text, BASELINES)
            raise ConfigError(f"evaluate.methods: {method.text!r} is none of {known_methods()}{near}")

    def run(self, method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
        """Their verdicts cost nothing."""
        for benchmark in evaluation.benchmarks:
            found = BASELINES[method.target]().compare_all(benchmark.comparisons, evaluation.settings.seed)
            evaluation.out.count(in_=len(found), out=len(found))
            yield benchmark, [(found, 0.0)]
