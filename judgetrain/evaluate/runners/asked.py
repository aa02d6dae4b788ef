"""Judges that are asked once (``one_step:``, ``rating:``) on benchmarks: their replies in shards, read to verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

from judgetrain.artifacts.console import duration
from judgetrain.artifacts.reuse import adopt
from judgetrain.artifacts.shards import read_rows, seconds_of
from judgetrain.artifacts.stage_run import ShardResult, derive_seed, tokens_of
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.once import loaded_once
from judgetrain.evaluate.config import AskConfig
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.judges.kinds.prompted import prediction_of
from judgetrain.judges.loading import check_model
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import Dialect, load_prompt_set
from judgetrain.judges.prompting.replies import Reply, errors_told
from judgetrain.schema import Comparison


class AskedRunner:
    """Keeps the replies, with every text, as ``replies-BENCHMARK-METHOD`` shards."""

    forms = "a model or directory after one_step: or rating:"

    def check(self, method: Method, config: Any) -> None:
        """The model that it names, that it can be asked so, and the prompt set."""
        check_model(config, method, "evaluate.methods", step=method.kind)
        key = f"evaluate.{method.kind}.prompts"
        load_prompt_set(getattr(config.evaluate, method.kind).prompts, cast(Dialect, method.kind), key)

    def run(self, method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
        """Ask about every benchmark with one model, then read the replies."""
        ask: AskConfig = getattr(evaluation.settings.evaluate, method.kind)
        key = f"evaluate.{method.kind}.prompts"
        with loaded_once(lambda: evaluation.models.asked(method, ask.prompts, ask.sampling, key)) as judge:
            for benchmark in evaluation.benchmarks:
                adopt(shards_of(benchmark, method), self._key(method, ask, benchmark, evaluation), evaluation.out)
                self._ask(method, judge, benchmark, evaluation)
        for benchmark in evaluation.benchmarks:
            yield benchmark, [self._read(method, benchmark, evaluation)]

    def _key(self, method: Method, ask: AskConfig, benchmark: Benchmark, evaluation: Evaluation) -> str:
        """What the replies depend on: the model, the prompts and the sampling."""
        return evaluation.key(
            benchmark,
            kind=method.kind,
            name=None if method.is_directory else method.text,
            judge=evaluation.models.identity(method, evaluation.hashes),
            shard_size=evaluation.shard_size,
            asked=ask,
            engine=evaluation.settings.engine,
        )

    def _ask(self, method: Method, judge: Any, benchmark: Benchmark, evaluation: Evaluation) -> None:
        out = evaluation.out

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            asked = judge().ask(items, derive_seed(out.shard_seed(index), benchmark.name, method.name))
            rows = [
                {"comparison_id": c.id, "replies": [r.to_row() for r in each]}
                for c, each in zip(items, asked, strict=True)
            ]
            replies = [r for each in asked for r in each]
            failures = Counter(f"reply:{r.failure}" for r in replies if r.failure)
            return ShardResult(rows, len(rows), failures, **tokens_of(replies))

        shards, size = shards_of(benchmark, method), evaluation.shard_size
        if spent := out.sharded(shards, benchmark.comparisons, size, process, "comparisons", load=judge):
            done = f"{len(benchmark.comparisons)} comparisons, in {duration(spent)}"
            out.log(f"evaluate: {benchmark.name}: {method.name}: {done}")

    def _read(self, method: Method, benchmark: Benchmark, evaluation: Evaluation) -> Result:
        """The predictions on a benchmark, and the seconds that a verdict took: half of a comparison's, of one step.

        Replies that ended in an error are logged, with the reason of the first.
        """
        out, shards = evaluation.out, shards_of(benchmark, method)
        rows = list(read_rows(out.directory, shards))
        replies = [[Reply(**r) for r in row["replies"]] for row in rows]
        if told := errors_told(r for each in replies for r in each):
            out.log(f"evaluate: {benchmark.name}: {method.name}: {told}")
        predictions = [
            prediction_of(method.kind, method.name, row["comparison_id"], each)
            for row, each in zip(rows, replies, strict=True)
        ]
        verdicts = 2 if method.kind == "one_step" else 1
        return predictions, round(seconds_of(out.directory, shards) / len(rows) / verdicts, 6)


def shards_of(benchmark: Benchmark, method: Method) -> str:
    """The name of the shards of a method's replies on a benchmark."""
    return f"replies-{benchmark.name}-{method.file_name}"
