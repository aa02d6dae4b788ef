"""An evaluation under way: what is asked of a method on benchmarks is kept in shards, and read from them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from judgetrain.artifacts.console import duration
from judgetrain.artifacts.fingerprint import ContentHashes, fingerprint
from judgetrain.artifacts.shards import read_rows, seconds_of
from judgetrain.artifacts.stage_run import ShardResult, StageRun, adopt, derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.answers import Budget
from judgetrain.engines.lazy_model import Loaded, loaded_once
from judgetrain.evaluate.metrics.rows import Learned
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.base import Prediction
from judgetrain.judges.factory import Models
from judgetrain.judges.method import Method
from judgetrain.schema import Comparison

FORMAT = 2
"""Raised when the code changes what is sampled, asked or scored."""

Result = tuple[list[Prediction], float]
"""Predictions of a method with one number of branches on one benchmark, and the seconds a verdict took."""

Load = Callable[[], Any]
Process = Callable[[Any, Sequence[Comparison], int], ShardResult]
Shown = Callable[[Benchmark], Sequence[Comparison]]
Kept = Iterator[tuple[Benchmark, list[dict[str, Any]], float]]


def shards_of(kind: str, benchmark: Benchmark, name: str) -> str:
    """The name of the shards that hold what a method made of a benchmark."""
    return f"{kind}-{benchmark.name}-{name.replace(':', '.')}"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """An evaluation under way: what every kind of method works with.

    Args:
        settings: the stage's settings.
        benchmarks: loaded, in the order of the configuration.
        methods: parsed, in the order of the configuration.
        inputs: directories of this run's judges, by stage.
        out: where shards are written.
        budget: what external models may be sent.
        learned: what methods learned from without training, by their names, once they have run.
    """

    settings: EvaluateSettings
    benchmarks: Sequence[Benchmark]
    methods: Sequence[Method]
    inputs: Mapping[str, Path]
    out: StageRun
    budget: Budget | None = None
    learned: dict[str, Learned] = field(default_factory=dict)

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
        return self.settings.evaluate.shard_size or self.settings.shard_size * 2

    def kept(self, kind: str, name: str, load: Load, process: Process, shown: Shown | None = None, **how: Any) -> Kept:
        """What a method makes of every benchmark, kept in shards ``KIND-BENCHMARK-NAME`` and read from them.

        Args:
            kind: what the rows are: ``trees``, ``replies``, ``scores``.
            name: the method's, in file names and for seeds.
            load: loads the model, once for all benchmarks, and only where a shard is missing; what
                :func:`~judgetrain.engines.lazy_model.loaded_once` gives stays loaded.
            process: makes a shard of the model, the comparisons and a seed. It can be pickled.
            shown: a benchmark's comparisons as the model is shown them; None: as they are.
            how: as of :meth:`fill`.

        Returns:
            by benchmark the rows and the seconds that they took; the model is freed before the first is given.
        """
        with nullcontext(load) if isinstance(load, Loaded) else loaded_once(load) as model:
            for benchmark in self.benchmarks:

                def ask(seed: int, items: Sequence[Comparison], about: str = benchmark.name) -> ShardResult:
                    return process(model(), items, derive_seed(seed, about, name))

                items = shown(benchmark) if shown else benchmark.comparisons
                self.fill(shards_of(kind, benchmark, name), items, ask, model, f"{benchmark.name}: {name}", **how)
        for benchmark in self.benchmarks:
            shards = shards_of(kind, benchmark, name)
            yield benchmark, list(read_rows(self.out.directory, shards)), seconds_of(self.out.directory, shards)

    def fill(
        self,
        shards: str,
        items: Sequence[Comparison],
        process: Callable[[int, Sequence[Comparison]], ShardResult],
        load: Callable[[], object],
        who: str,
        depends: Mapping[str, Any],
        told: str = "",
        size: int | None = None,
        gpus: int | None = None,
    ) -> None:
        """Fill shards with what a method makes of comparisons.

        Those that an earlier evaluation filled are taken over: new metrics, another method in the table, or a sweep
        that leaves a judge as it is need no new inference. ``depends`` is what the rows depend on besides comparisons
        and seed; ``who`` and ``told`` are for the log; ``gpus``: that a copy of the model runs on.
        """
        # A corrected label asks nobody again: no judge is shown it.
        given = [asdict(replace(c, label=None, group=None)) for c in items]
        key = {"format": FORMAT, "seed": self.settings.seed, "comparisons": given}
        key |= {name: self.hashes.identity(value) for name, value in depends.items()}
        adopt(shards, fingerprint(key), self.out)
        out, of, spread = self.out, size or self.shard_size, self.budget is None

        def seeded(index: int, items: Sequence[Comparison]) -> ShardResult:
            return process(out.shard_seed(index), items)

        if spent := out.sharded(shards, items, of, seeded, "comparisons", load, spread=spread, gpus=gpus):
            self.out.log(f"evaluate: {who}: {len(items)} comparisons{told}, in {duration(spent)}")
