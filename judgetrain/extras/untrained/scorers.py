"""Scorers on benchmarks (``scorer:``): each group of scores computed once, every method read off it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from judgetrain.artifacts.shards import markers_of, read_rows
from judgetrain.artifacts.stage_run import ShardResult, tokens_of
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.evaluate.runners.base import Evaluation, Result, shards_of
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.kinds.baselines import predictions, samples_of
from judgetrain.judges.method import Method
from judgetrain.schema import Comparison
from judgetrain.scorers.config import check_scorer, load_scorer, scored_model
from judgetrain.scorers.encode import Usage
from judgetrain.scorers.estimator import Scores, value_of
from judgetrain.scorers.methods import OF_RESPONSES, assemble, better, check_scorers, groups, score


class ScorerRunner:
    """Keeps the scores as ``scores-BENCHMARK-GROUP`` shards; one model computes those of all scorers of a run."""

    forms = "scorer:SCORER"

    def check(self, method: Method, settings: EvaluateSettings) -> None:
        """That there is such a scorer, and the model that it reads."""
        check_scorers([method.target], OF_RESPONSES, f"evaluate.methods: {method.text!r}")
        assert settings.scorer is not None
        check_scorer(settings.scorer, settings.base)

    def run(self, method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
        """The first scorer of a run computes what all of them need."""
        scorers = [m for m in evaluation.methods if m.kind == method.kind]
        if method == scorers[0]:
            self._score_all([m.target for m in scorers], evaluation)
        for benchmark in evaluation.benchmarks:
            yield benchmark, [self._read(method, benchmark, evaluation)]

    def _score_all(self, names: Sequence[str], evaluation: Evaluation) -> None:
        settings = evaluation.settings.scorer
        assert settings is not None
        model = scored_model(settings, evaluation.settings.base)
        with loaded_once(lambda: load_scorer(model)) as scorer:
            for group, members in groups(names).items():

                def process(
                    ready: Any, items: Sequence[Comparison], seed: int, members: Sequence[str] = members
                ) -> ShardResult:
                    before = ready.usage
                    found = score(ready, samples_of(items), members, settings, seed)
                    usage = ready.usage - before
                    rows = [
                        {"id": c.id, **{m: [s.plain(2 * i), s.plain(2 * i + 1)] for m, s in found.items()}}
                        for i, c in enumerate(items)
                    ]
                    facts, missing = {"calls": usage.calls}, found[members[0]].unscored
                    return ShardResult(rows, len(rows), missing, **tokens_of([usage]), facts=facts)

                depends = {"members": list(members), "scorer": settings, "model": model}
                how: dict[str, Any] = {"depends": depends, "size": settings.shard_size, "gpus": model.gpus}
                list(evaluation.kept("scores", group, scorer, process, **how))

    def _read(self, method: Method, benchmark: Benchmark, evaluation: Evaluation) -> Result:
        """The predictions of one scorer, and seconds of a verdict: those of its group's passes."""
        out, found = evaluation.out, dict[str, Scores]()
        usage, seconds = Usage(), 0.0
        for group, members in groups([method.target]).items():
            shards = shards_of("scores", benchmark, group)
            rows = list(read_rows(out.directory, shards))
            for member in members:
                found[member] = Scores(member, [value_of(v) for row in rows for v in row[member]], better(member))
            for marker in markers_of(out.directory, shards):
                tokens, seconds = marker["tokens"], seconds + marker["seconds"]
                usage += Usage(tokens["prompt"], tokens["generated"], marker["facts"]["calls"])
        scores = replace(assemble(found, method.target), method=method.name)
        done = predictions(benchmark.comparisons, scores, method.name, usage)
        return done, round(seconds / len(done), 6)


RUNNER = ScorerRunner()
