"""Judges that are asked once, on a benchmark: their replies in shards, and the predictions read from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from judgetrain.artifacts.console import duration
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.evaluate.runners.timing import ShardTimes
from judgetrain.judges.base import Prediction
from judgetrain.judges.kinds.prompted import PromptedJudge, prediction_of
from judgetrain.judges.names import file_name, method_name, split_method
from judgetrain.judges.prompting.replies import Reply, errors_told
from judgetrain.schema import Comparison


def ask_benchmark(
    method: str, judge: Callable[[], PromptedJudge], benchmark: Benchmark, shard_size: int, out: StageRun
) -> None:
    """Write ``replies-BENCHMARK-METHOD`` shards, with every text; a shard's time is kept beside it."""
    shards = replies_name(benchmark.name, method)
    times = ShardTimes(shards, out)

    def process(index: int, items: Sequence[Comparison]) -> ShardResult:
        ready = judge()
        with times.measured(index):
            asked = ready.ask(items, derive_seed(out.shard_seed(index), benchmark.name, method_name(method)))
        rows = [{"comparison_id": c.id, "replies": [r.to_row() for r in a]} for c, a in zip(items, asked, strict=True)]
        replies = [r for each in asked for r in each]
        failures = Counter(f"reply:{r.failure}" for r in replies if r.failure)
        prompt, generated = (sum(getattr(r, f"{kind}_tokens") for r in replies) for kind in ("prompt", "generated"))
        return ShardResult(rows, len(rows), dict(failures), prompt, generated)

    out.sharded(shards, benchmark.comparisons, shard_size, process, "comparisons")
    if times.spent:
        size = f"{len(benchmark.comparisons)} comparisons"
        out.log(f"evaluate: {benchmark.name}: {method_name(method)}: {size}, in {duration(times.spent)}")


def read_replies(method: str, benchmark: Benchmark, shard_size: int, out: StageRun) -> tuple[list[Prediction], float]:
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
    seconds = ShardTimes(shards, out).total(len(rows), shard_size)
    verdicts = 2 if way == "one_step" else 1
    return predictions, round(seconds / len(rows) / verdicts, 6)


def replies_name(benchmark: str, method: str) -> str:
    """The name of the shards of a method's replies on a benchmark."""
    return f"replies-{benchmark}-{file_name(method)}"
