"""One interface for every kind of method: how it is checked, run on benchmarks, and read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from judgetrain.artifacts.fingerprint import ContentHashes, fingerprint
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.answers import Budget
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.base import Prediction
from judgetrain.judges.loading import Models
from judgetrain.judges.method import Method

FORMAT = 2
"""Raised when the code changes what is sampled, asked or scored."""

Result = tuple[list[Prediction], float]
"""Predictions of a method with one number of branches on one benchmark, and the seconds a verdict took."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """An evaluation under way: what every runner works with.

    Args:
        settings: the stage's settings.
        benchmarks: loaded, in the order of the configuration.
        methods: parsed, in the order of the configuration.
        inputs: directories of this run's judges, by stage.
        out: where shards are written.
        budget: what external models may be sent.
    """

    settings: EvaluateSettings
    benchmarks: Sequence[Benchmark]
    methods: Sequence[Method]
    inputs: Mapping[str, Path]
    out: StageRun
    budget: Budget | None = None

    @cached_property
    def models(self) -> Models:
        """Loads the models that methods name."""
        return Models(self.settings, self.inputs, self.out, self.budget)

    @cached_property
    def hashes(self) -> ContentHashes:
        """The content of files, hashed once for all runs."""
        return ContentHashes.of_run(self.out.home)

    @property
    def shard_size(self) -> int:
        """Comparisons finished together: a judge's tree is small beside one that is grown for labels."""
        return self.settings.shard_size * 2

    def key(self, benchmark: Benchmark, **parts: Any) -> str:
        """A hash of what shards on a benchmark depend on, so that the next evaluation takes them over.

        New metrics, another method in the table, or a sweep that leaves a judge as it is then need no new inference.
        """
        comparisons = [asdict(c) for c in benchmark.comparisons]
        common = {"format": FORMAT, "seed": self.settings.seed, "comparisons": comparisons}
        return fingerprint(common | {name: self.hashes.identity(value) for name, value in parts.items()})


class Runner(Protocol):
    """Runs the methods of one kind, or of several that work alike."""

    forms: str
    """How such methods are written, for messages."""

    def check(self, method: Method, config: Any) -> None:
        """Check, before anything runs, what the method names; ``config`` is the whole configuration.

        Raises:
            ConfigError: names the method and what is allowed.
        """
        ...

    def run(self, method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
        """The method's results on every benchmark; its model is freed before the first is given."""
        ...
