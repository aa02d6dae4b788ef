"""Judges that are asked once (``pairwise:``, ``single_token:``, ``pointwise:``): replies in shards, and verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import cast

from judgetrain.artifacts.shards import read_rows, seconds_of
from judgetrain.artifacts.stage_run import ShardResult, derive_seed, tokens_of
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.checks import check_model
from judgetrain.judges.kinds.prompted import prediction_of
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import Dialect, load_prompt_set
from judgetrain.judges.prompting.replies import Reply, errors_told
from judgetrain.schema import Comparison


class AskedOnceRunner:
    """Keeps the replies, with every text, as ``replies-BENCHMARK-METHOD`` shards."""

    forms = "a model or directory after pairwise:, single_token: or pointwise:"

    def check(self, method: Method, settings: EvaluateSettings) -> None:
        """The model that it names, that it can be asked so, and the prompt set."""
        check_model(settings, method, "evaluate.methods")
        key = f"evaluate.{method.kind}.prompts"
        load_prompt_set(getattr(settings, method.kind).prompts, cast(Dialect, method.kind), key)

    def run(self, method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
        """Ask about every benchmark with one model, then read the replies."""
        models = evaluation.models
        depends = {
            "kind": method.kind,
            "name": None if method.is_directory else method.text,
            "judge": models.identity(method, evaluation.hashes),
            "shard_size": evaluation.shard_size,
            "asked": getattr(evaluation.settings, method.kind),
            "engine": models.own_engine(method),
        }
        with loaded_once(lambda: models.judge(method)) as judge:
            for benchmark in evaluation.benchmarks:

                def process(seed: int, items: Sequence[Comparison], about: str = benchmark.name) -> ShardResult:
                    asked = judge().ask(items, derive_seed(seed, about, method.name))
                    rows = [
                        {"comparison_id": c.id, "replies": [reply.to_row() for reply in replies]}
                        for c, replies in zip(items, asked, strict=True)
                    ]
                    every = [reply for replies in asked for reply in replies]
                    failures = Counter(f"reply:{reply.failure}" for reply in every if reply.failure)
                    return ShardResult(rows, len(rows), failures, **tokens_of(every))

                gpus = models.gpus(method)
                evaluation.fill(_shards(benchmark, method), benchmark, depends, process, judge, method.name, gpus=gpus)
        for benchmark in evaluation.benchmarks:
            yield benchmark, [self._read(method, benchmark, evaluation)]

    def _read(self, method: Method, benchmark: Benchmark, evaluation: Evaluation) -> Result:
        """The predictions on a benchmark, and the seconds that a verdict took: half of a comparison's, of one step.

        Replies that ended in an error are logged, with the reason of the first.
        """
        out, shards = evaluation.out, _shards(benchmark, method)
        replies = {
            row["comparison_id"]: [Reply(**r) for r in row["replies"]] for row in read_rows(out.directory, shards)
        }
        if told := errors_told(r for each in replies.values() for r in each):
            out.log(f"evaluate: {benchmark.name}: {method.name}: {told}")
        sampling = getattr(evaluation.settings, method.kind).sampling
        how = method.kind, method.name
        predictions = [prediction_of(*how, c, replies[c.id], sampling) for c in benchmark.comparisons]
        verdicts = 1 if method.kind == "pointwise" else 2
        return predictions, round(seconds_of(out.directory, shards) / len(replies) / verdicts, 6)


def _shards(benchmark: Benchmark, method: Method) -> str:
    return f"replies-{benchmark.name}-{method.file_name}"
