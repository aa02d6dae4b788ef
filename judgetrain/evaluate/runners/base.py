"""An evaluation under way, which keeps what methods make of benchmarks in shards, and reads it from them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from judgetrain.artifacts.console import duration
from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.fingerprint import ContentHashes, fingerprint
from judgetrain.artifacts.shards import read_rows, seconds_of
from judgetrain.artifacts.stage_run import ShardResult, StageRun, adopt, derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.answers import Budget
from judgetrain.engines.lazy_model import Loaded, loaded_once
from judgetrain.evaluate.metrics.rows import Learned
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.factory import Models
from judgetrain.judges.method import Method, in_file_name
from judgetrain.judges.predictions import Prediction
from judgetrain.schema import Comparison

FORMAT = 2
"""The format of kept shards, a higher number whenever the code changes what is sampled, asked or scored."""

Result = tuple[list[Prediction], float]
"""Predictions of a method with one number of branches on one benchmark, and the seconds a verdict took."""

Load = Callable[[], Any]
Process = Callable[[Any, Sequence[Comparison], int], ShardResult]
Shown = Callable[[Benchmark], Sequence[Comparison]]
Kept = Iterator[tuple[Benchmark, list[dict[str, Any]], float]]


@dataclass(frozen=True, kw_only=True)
class RowMaker:
    """Makes the rows of a method, a shard at a time, for :meth:`Evaluation.kept`.

    Args:
        kind: what the rows are: ``trees``, ``replies``, ``scores``.
        name: the method's, in file names, for seeds and for the log.
        load: loads the model, once for all benchmarks, and only where a shard is missing; what
            :func:`~judgetrain.engines.lazy_model.loaded_once` gives stays loaded.
        process: makes a shard of the model, the comparisons and a seed. It can be pickled.
        depends: what the rows depend on besides comparisons and seed, by name.
        shown: returns a benchmark's comparisons as the model is shown them; None: as they are.
        progress: follows the number of comparisons in the log.
        size: comparisons a shard; None: the evaluation's.
        gpus: that a copy of the model runs on.
        unit: the comparisons' name in the plural.
    """

    kind: str
    name: str
    load: Load
    process: Process
    depends: Mapping[str, Any]
    shown: Shown | None = None
    progress: str = ""
    size: int | None = None
    gpus: int | None = None
    unit: str = "comparisons"


def shards_of(kind: str, benchmark: Benchmark, name: str) -> str:
    """Return the name of the shards that hold what a method made of a benchmark."""
    return f"{kind}-{benchmark.name}-{in_file_name(name)}"


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
    # Shared by the copies that are made of an evaluation, so that what one method learned is seen by all.
    learned: dict[str, Learned] = field(default_factory=dict)

    @cached_property
    def models(self) -> Models:
        """Return the loader of the models that methods name."""
        return Models(self.settings, self.inputs, self.out, self.budget)

    @cached_property
    def hashes(self) -> ContentHashes:
        """Return the hashes of files' content, which all runs of an ``output_dir`` share."""
        return ContentHashes.of_run(self.out.home)

    @property
    def shard_size(self) -> int:
        """Return how many comparisons are finished together."""
        # A judge's tree is small beside one that is grown for labels.
        return self.settings.evaluate.shard_size or self.settings.shard_size * 2

    def kept(self, maker: RowMaker) -> Kept:
        """Yield every benchmark with the rows that are made of it, and the seconds that they took.

        The rows are kept in shards ``KIND-BENCHMARK-NAME``. The model is freed before the first benchmark is yielded.
        """
        # All benchmarks first and results then: what measures them must not have the model in memory beside it.
        lasting: AbstractContextManager[Load]
        if isinstance(maker.load, Loaded):
            # Whoever loaded it frees it.
            lasting = nullcontext(maker.load)
        else:
            lasting = loaded_once(maker.load)
        with lasting as model:
            for benchmark in self.benchmarks:
                items: Sequence[Comparison] = benchmark.comparisons
                if maker.shown is not None:
                    items = maker.shown(benchmark)
                shards = shards_of(maker.kind, benchmark, maker.name)
                self.fill(shards, items, replace(maker, load=model), benchmark.name)
        for benchmark in self.benchmarks:
            shards = shards_of(maker.kind, benchmark, maker.name)
            yield benchmark, list(read_rows(self.out.directory, shards)), seconds_of(self.out.directory, shards)

    def fill(self, shards: str, items: Sequence[Comparison], maker: RowMaker, benchmark: str | None = None) -> None:
        """Fill shards with the rows that a method makes of comparisons.

        Those that an earlier evaluation filled are taken over: new metrics, another method in the table, or a sweep
        that leaves a judge as it is need no new inference.

        Args:
            shards: their name.
            items: the comparisons.
            maker: makes the rows.
            benchmark: that they are of, for seeds and the log; None: of none.
        """
        # A corrected label asks nobody again: no judge is shown it.
        unlabelled = [asdict(replace(item, label=None, group=None)) for item in items]
        # What the rows depend on, so that an equal one elsewhere holds the same rows.
        key = {"format": FORMAT, "seed": self.settings.seed, "comparisons": unlabelled}
        for name, value in maker.depends.items():
            key[name] = self.hashes.identity(value)
        adopt(shards, fingerprint(key), self.out)

        # Bound here, as another process may get the function: the record holds whole benchmarks by ``shown``.
        out = self.out
        load = maker.load
        make_shard = maker.process
        method = maker.name

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            seed = out.shard_seed(index)
            if benchmark is not None:
                # Shards of two benchmarks, or of two methods, have the same numbers.
                seed = derive_seed(seed, benchmark, method)
            return make_shard(load(), items, seed)

        # What is paid for is asked by one process, which counts what it spends.
        spread = self.budget is None
        work = Work(process=process, load=load, spread=spread, gpus=maker.gpus)
        size = maker.size or self.shard_size
        seconds = out.sharded(shards, items, size, work, maker.unit)
        if seconds:
            who = method
            if benchmark is not None:
                who = f"{benchmark}: {method}"
            out.log(f"evaluate: {who}: {len(items)} {maker.unit}{maker.progress}, in {duration(seconds)}")
