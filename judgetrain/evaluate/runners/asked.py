"""Judges that are asked once, on a benchmark: their replies in shards, and the predictions read from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from judgetrain.artifacts.console import duration
from judgetrain.artifacts.shards import read_rows, seconds_of
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.judges.base import Prediction
from judgetrain.judges.kinds.asked import AskedJudge, prediction_of
from judgetrain.judges.kinds.asking import Reply, errors_told
from judgetrain.judges.names import file_name, method_name, split_method
from judgetrain.schema import Comparison


def ask_benchmark(
    method: str, judge: Callable[[], AskedJudge], benchmark: Benchmark, shard_size: int, out: StageRun
) -> None:
    """Write ``replies-BENCHMARK-METHOD`` shards, with every text."""
    shards = replies_name(benchmark.name, method)

    def process(index: int, items: Sequence[Comparison]) -> ShardResult:
        asked = judge().ask(items, derive_seed(out.shard_seed(index), benchmark.name, method_name(method)))
        rows = [{"comparison_id": c.id, "replies": [r.to_row() for r in a]} for c, a in zip(items, asked, strict=True)]
        replies = [r for each in asked for r in each]
        failures = Counter(f"reply:{r.failure}" for r in replies if r.failure)
        return ShardResult(rows, len(rows), failures, **tokens_of(replies))

    spent = out.sharded(shards, benchmark.comparisons, shard_size, process, "comparisons", load=judge)
    if spent:
        size = f"{len(benchmark.comparisons)} comparisons"
        out.log(f"evaluate: {benchmark.name}: {method_name(method)}: {size}, in {duration(spent)}")


def read_replies(method: str, benchmark: Benchmark, out: StageRun) -> tuple[list[Prediction], float]:
    """The predictions on a benchmark, and the seconds that a verdict took: half of a comparison's, of one step.

    Replies that ended in an error are logged, with the reason of the first.
    """
    shards, way = replies_name(benchmark.name, method), split_method(method)[0]
    rows = list(read_rows(out.directory, shards))
    replies = [[Reply(**r) for r in row["replies"]] for row in rows]
    if told := errors_told(r for each in replies for r in each):
        out.log(f"evaluate: {benchmark.name}: {method_name(method)}: {told}")
    predictions = [
        prediction_of(way, method_name(method), row["comparison_id"], each)
        for row, each in zip(rows, replies, strict=True)
    ]
    verdicts = 2 if way == "one_step" else 1
    return predictions, round(seconds_of(out.directory, shards) / len(rows) / verdicts, 6)


def replies_name(benchmark: str, method: str) -> str:
    """The name of the shards of a method's replies on a benchmark."""
    return f"replies-{benchmark}-{file_name(method)}"
