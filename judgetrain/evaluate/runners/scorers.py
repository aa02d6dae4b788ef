"""Scorers on benchmarks (``scorer:``): each group of scores computed once, every method read off it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.shards import markers_of, read_rows
from judgetrain.artifacts.stage_run import ShardResult, derive_seed, tokens_of
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.method import Method
from judgetrain.schema import Comparison

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgetrain.scorers.config import ScorerConfig
    from judgetrain.scorers.estimator import Scores
    from judgetrain.scorers.statistics import TokenScorer


class ScorerRunner:
    """Keeps the scores as ``scores-BENCHMARK-GROUP`` shards; one model computes those of all scorers of a run."""

    forms = "scorer:SCORER"

    def check(self, method: Method, settings: EvaluateSettings) -> None:
        """That there is such a scorer, and the model that it reads."""
        from judgetrain.scorers.methods import OF_RESPONSES, check_scorers
        from judgetrain.scorers.stages import check_scorer

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
        from judgetrain.scorers.methods import groups
        from judgetrain.scorers.stages import load_scorer, scored_model

        settings, whole = _settings(evaluation), evaluation.settings
        model = scored_model(settings, whole.base)
        with loaded_once(lambda: load_scorer(model)) as scorer:
            for group, members in groups(names).items():
                depends = {"members": list(members), "scorer": settings, "model": model}
                for benchmark in evaluation.benchmarks:
                    process = _scores(group, members, benchmark.name, scorer, settings)
                    shards, who = _shards(benchmark, group), ", ".join(members)
                    evaluation.fill(
                        shards, benchmark, depends, process, scorer, who, size=settings.shard_size, gpus=model.gpus
                    )

    def _read(self, method: Method, benchmark: Benchmark, evaluation: Evaluation) -> Result:
        """The predictions of one scorer, and seconds of a verdict: those of its group's passes."""
        from judgetrain.judges.kinds.scorer import predictions
        from judgetrain.scorers.encode import Unscored
        from judgetrain.scorers.estimator import Scores
        from judgetrain.scorers.methods import assemble, better, groups
        from judgetrain.scorers.results import Usage

        out, found = evaluation.out, dict[str, Scores]()
        usage, seconds = Usage(), 0.0
        for group, members in groups([method.target]).items():
            shards = _shards(benchmark, group)
            rows = list(read_rows(out.directory, shards))
            for member in members:
                values = [Unscored(v) if isinstance(v, str) else float(v) for row in rows for v in row[member]]
                found[member] = Scores(member, values, better(member))
            for marker in markers_of(out.directory, shards):
                tokens, seconds = marker["tokens"], seconds + marker["seconds"]
                usage += Usage(tokens["prompt"], tokens["generated"], marker["facts"]["calls"])
        scores = replace(assemble(found, method.target), method=method.name)
        done = predictions(benchmark.comparisons, scores, method.name, usage)
        return done, round(seconds / len(done), 6)


def _scores(
    group: str, members: Sequence[str], benchmark: str, scorer: Callable[[], TokenScorer], settings: ScorerConfig
) -> Callable[[int, Sequence[Comparison]], ShardResult]:
    """What computes a shard of a group's scores."""
    from judgetrain.judges.kinds.scorer import samples_of
    from judgetrain.scorers.methods import score

    def process(seed: int, items: Sequence[Comparison]) -> ShardResult:
        ready = scorer()
        before = ready.usage
        found = score(ready, samples_of(items), members, settings, derive_seed(seed, benchmark, group))
        usage = ready.usage - before
        rows = [{"id": c.id, **{m: _pair(found[m], i) for m in members}} for i, c in enumerate(items)]
        return ShardResult(
            rows, len(rows), found[members[0]].unscored, **tokens_of([usage]), facts={"calls": usage.calls}
        )

    return process


def _settings(evaluation: Evaluation) -> ScorerConfig:
    assert evaluation.settings.scorer is not None
    return evaluation.settings.scorer


def _pair(scores: Scores, index: int) -> list[Any]:
    from judgetrain.scorers.encode import Unscored

    pair = scores.values[2 * index : 2 * index + 2]
    return [v.reason if isinstance(v, Unscored) else v for v in pair]


def _shards(benchmark: Benchmark, group: str) -> str:
    return f"scores-{benchmark.name}-{group}"
