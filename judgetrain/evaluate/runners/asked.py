"""Judges that are asked once (``pairwise:``, ``single_token:``, ``pointwise:``): replies in shards, and verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from judgetrain.artifacts.shards import read_rows, seconds_of
from judgetrain.artifacts.stage_run import ShardResult, derive_seed, tokens_of
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.checks import check_model
from judgetrain.judges.config import OnceConfig
from judgetrain.judges.kinds.prompted import PromptedJudge, prediction_of
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
        ask: OnceConfig = getattr(evaluation.settings, method.kind)
        with loaded_once(lambda: evaluation.models.judge(method)) as judge:
            for benchmark in evaluation.benchmarks:
                self._ask(method, ask, judge, benchmark, evaluation)
        for benchmark in evaluation.benchmarks:
            yield benchmark, [self._read(method, benchmark, evaluation)]

    def _ask(
        self,
        method: Method,
        ask: OnceConfig,
        judge: Callable[[], PromptedJudge],
        benchmark: Benchmark,
        evaluation: Evaluation,
    ) -> None:
        about = benchmark.name

        def process(seed: int, items: Sequence[Comparison]) -> ShardResult:
            asked = judge().ask(items, derive_seed(seed, about, method.name))
            replies = [r for each in asked for r in each]
            rows = [
                {"comparison_id": c.id, "replies": [r.to_row() for r in a]} for c, a in zip(items, asked, strict=True)
            ]
            failures = Counter(f"reply:{r.failure}" for r in replies if r.failure)
            return ShardResult(rows, len(rows), failures, **tokens_of(replies))

        depends = {
            "kind": method.kind,
            "name": None if method.is_directory else method.text,
            "judge": evaluation.models.identity(method, evaluation.hashes),
            "shard_size": evaluation.shard_size,
            "asked": ask,
            "engine": evaluation.models.own_engine(method),
        }
        gpus = evaluation.models.gpus(method)
        evaluation.fill(_shards(benchmark, method), benchmark, depends, process, judge, method.name, gpus=gpus)

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
