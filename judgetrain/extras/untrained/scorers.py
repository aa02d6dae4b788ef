"""Scorers as judges, ``scorer:NAME``: both responses are scored, and the better score wins.

On benchmarks each group of scores is computed once, and every method read off it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.shards import markers_of, read_rows
from judgetrain.artifacts.stage_run import ShardResult, tokens_of
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import ConfigError
from judgetrain.evaluate.runners.base import Evaluation, Result, shards_of
from judgetrain.judges.base import Cost, Judge, Prediction, verdict_of
from judgetrain.judges.config import JudgeOptions, changed
from judgetrain.judges.kinds.kind import Arguments, Parts, Use
from judgetrain.judges.method import Method
from judgetrain.judges.settings import ModelSettings
from judgetrain.schema import Comparison
from judgetrain.scorers.config import ScorerConfig, check_scorer, load_scorer, scored_model
from judgetrain.scorers.encode import Sample, Usage, sample_of
from judgetrain.scorers.estimator import Scores, value_of
from judgetrain.scorers.methods import (
    BY_NAME,
    COMBINED,
    OF_RESPONSES,
    SINGLE_PASS,
    assemble,
    better,
    check_scorers,
    groups,
    score,
)

if TYPE_CHECKING:
    from judgetrain.judges.factory import Models
    from judgetrain.scorers.statistics import TokenScorer


class ScorerJudge(Judge):
    """Prefers the response with the better score; the order in which they are shown plays no part.

    Args:
        scorer: the model whose probabilities are read.
        method: a scorer of given responses, as ``sentprob`` or ``probdiff``.
        settings: how the score is computed.

    Raises:
        ConfigError: no such scorer, or one that does not score a given response.
    """

    def __init__(self, scorer: TokenScorer, method: str = "sentprob", settings: ScorerConfig | None = None) -> None:
        check_scorers([method], OF_RESPONSES)
        self.scorer, self.method, self.name = scorer, method, f"scorer:{method}"
        self.settings = settings or ScorerConfig()

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """Return the verdicts on many comparisons; ``softmax_combo`` normalises over all their responses."""
        before = self.scorer.usage
        scores = score(self.scorer, samples_of(comparisons), [self.method], self.settings, seed)[self.method]
        return predictions(comparisons, scores, self.name, self.scorer.usage - before)

    def close(self) -> None:
        self.scorer.close()


def samples_of(comparisons: Sequence[Comparison]) -> list[Sample]:
    """Return the two responses of every comparison, A then B."""
    return [sample_of(c.dialogue, response) for c in comparisons for response in (c.response_a, c.response_b)]


def predictions(comparisons: Sequence[Comparison], scores: Scores, name: str, usage: Usage) -> list[Prediction]:
    """Predictions from the scores of :func:`samples_of`; ``usage`` is shared evenly among the comparisons."""
    oriented = scores.oriented
    share = max(1, len(comparisons))
    cost = Cost(usage.prompt_tokens / share, usage.generated_tokens / share, usage.calls / share)
    result = []
    for i, comparison in enumerate(comparisons):
        a, b = oriented[2 * i : 2 * i + 2]
        margin = None if a is None or b is None else a - b
        gone = Counter(v.reason for v in scores.values[2 * i : 2 * i + 2] if not isinstance(v, (int, float)))
        said = {"margin": margin, "cost": cost, "judgments": 2, "failures": dict(gone)}
        result.append(Prediction.of(comparison, name, verdict_of(margin), verdict_of(margin), **said))
    return result


def check(settings: ModelSettings, method: Method, use: Use) -> None:
    """Refuse (ConfigError) a name that is no scorer of responses, or cannot be used there, and a model that is not."""
    key = f"{use.key}: {method.text!r}" if use.labelled else use.key
    check_scorers([method.target], OF_RESPONSES, key)
    if method.target in COMBINED and not use.labelled:
        allowed = ", ".join(name for name in OF_RESPONSES if name not in COMBINED)
        raise ConfigError(f"{key}={method.text!r}: it compares all items with each other; choose one of {allowed}")
    assert settings.scorer is not None
    check_scorer(settings.scorer, settings.base)
    if use.alone and BY_NAME[method.target.partition("+")[0]] is not SINGLE_PASS:
        served = ", ".join(SINGLE_PASS.names)
        raise ConfigError(
            f"{key}={method.text!r}: what it samples depends on what is judged with it; scorers that can be served are "
            f"{served}"
        )


def options(models: Models, method: Method, branches: int) -> JudgeOptions:
    """Return how the score is computed in a run: as ``scorer.*`` says."""
    return JudgeOptions(scorer=models.settings.scorer)


def arguments(method: Method, directory: Path | None, call: Arguments) -> JudgeOptions:
    """Return how the score is computed for a caller in Python, who names the model and may change ``scorer.*``."""
    check_scorers([method.target], OF_RESPONSES, method.text)
    if call.model is None or not call.model.path:
        raise ConfigError(f"{method.text!r} reads a model's probabilities: name it with model=, a directory or Hub id")
    changes = dict(call.changes)
    if call.prompts:
        changes["prompts"] = str(call.prompts)
    return JudgeOptions(scorer=changed(ScorerConfig(), changes, "scorer."))


def build(method: Method, options: JudgeOptions, parts: Parts) -> Judge:
    """Return the judge."""
    assert options.scorer is not None
    return ScorerJudge(parts.scorer(options.scorer), method.target, options.scorer)


def run(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield the method's results; the first scorer of a run computes what all of them need.

    The scores are kept as ``scores-BENCHMARK-GROUP`` shards; one model computes those of all scorers of a run.
    """
    scorers = [m for m in evaluation.methods if m.kind == method.kind]
    if method == scorers[0]:
        _score_all([m.target for m in scorers], evaluation)
    for benchmark in evaluation.benchmarks:
        yield benchmark, [_read(method, benchmark, evaluation)]


def _score_all(names: Sequence[str], evaluation: Evaluation) -> None:
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


def _read(method: Method, benchmark: Benchmark, evaluation: Evaluation) -> Result:
    """Return the predictions of one scorer, and seconds of a verdict: those of its group's passes."""
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
