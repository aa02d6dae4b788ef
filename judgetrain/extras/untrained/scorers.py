"""Scorers as judges, ``scorer:NAME``: both responses are scored, and the better score wins.

On benchmarks each group of scores is computed once, and every method read off it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.shards import markers_of, read_rows
from judgetrain.artifacts.stage_run import ShardResult, tokens_of
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import ConfigError
from judgetrain.evaluate.runners.base import Evaluation, Result, RowMaker, shards_of
from judgetrain.judges.base import Judge
from judgetrain.judges.kinds.kind import Arguments, Parts, Use
from judgetrain.judges.method import Method
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import Cost, Prediction
from judgetrain.judges.settings import ModelSettings
from judgetrain.keys import changed
from judgetrain.schema import Comparison
from judgetrain.scorers.config import ScorerConfig, check_scorer, load_scorer, scored_model
from judgetrain.scorers.encode import Sample, Unscored, Usage, sample_of
from judgetrain.scorers.estimator import Scores, Value, value_of
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
        self.scorer = scorer
        self.method = method
        self.name = f"scorer:{method}"
        self.settings = settings or ScorerConfig()

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """Return the verdicts on many comparisons; ``softmax_combo`` normalises over all their responses."""
        # A scorer counts what it has used since it was loaded.
        usage_before = self.scorer.usage
        scores = score(self.scorer, samples_of(comparisons), [self.method], self.settings, seed)[self.method]
        return predictions(comparisons, scores, self.name, self.scorer.usage - usage_before)

    def close(self) -> None:
        """Free the model."""
        self.scorer.close()


def samples_of(comparisons: Sequence[Comparison]) -> list[Sample]:
    """Return the two responses of every comparison, A then B."""
    samples = []
    for comparison in comparisons:
        samples.append(sample_of(comparison.dialogue, comparison.response_a))
        samples.append(sample_of(comparison.dialogue, comparison.response_b))
    return samples


def predictions(comparisons: Sequence[Comparison], scores: Scores, name: str, usage: Usage) -> list[Prediction]:
    """Return the predictions that scores make.

    Args:
        comparisons: what was judged.
        scores: of :func:`samples_of` the comparisons.
        name: the method's.
        usage: of all scores together, which is shared evenly among the comparisons.
    """
    # Turned so that higher is better, whatever the score.
    oriented = scores.oriented
    count = max(1, len(comparisons))
    # Responses are scored in batches, of which no single comparison's part is known.
    cost = Cost(usage.prompt_tokens / count, usage.generated_tokens / count, usage.calls / count)
    of_comparisons = []
    for index, comparison in enumerate(comparisons):
        score_a, score_b = oriented[2 * index : 2 * index + 2]
        margin = None
        if score_a is not None and score_b is not None:
            margin = score_a - score_b
        failures = Counter[str]()
        for value in scores.values[2 * index : 2 * index + 2]:
            if isinstance(value, Unscored):
                failures[value.reason] += 1
        of_comparisons.append(Prediction.by_margin(comparison, name, margin, cost, failures))
    return of_comparisons


def check(settings: ModelSettings, method: Method, use: Use) -> None:
    """Refuse (ConfigError) a name that is no scorer of responses, or cannot be used there, and a model that is not."""
    key = use.key
    if use.labelled:
        # There it is one of a list of methods.
        key = f"{use.key}: {method.text!r}"
    check_scorers([method.target], OF_RESPONSES, key)
    # Stage evaluate has a benchmark whole; elsewhere rows come one by one, or in shards.
    if method.target in COMBINED and not use.labelled:
        allowed = ", ".join(name for name in OF_RESPONSES if name not in COMBINED)
        raise ConfigError(f"{key}={method.text!r}: it compares all items with each other; choose one of {allowed}")
    # A run has the settings of scorers where one of its methods is a scorer.
    assert settings.scorer is not None
    check_scorer(settings.scorer, settings.base)
    name_without_variants = method.target.partition("+")[0]
    if use.alone and BY_NAME[name_without_variants] is not SINGLE_PASS:
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
    return JudgeOptions(scorer=changed(ScorerConfig(), changes, ""))


def build(method: Method, options: JudgeOptions, parts: Parts) -> Judge:
    """Return the judge."""
    assert options.scorer is not None
    return ScorerJudge(parts.scorer(options.scorer), method.target, options.scorer)


def run(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield the method's results; the first scorer of a run computes what all of them need.

    The scores are kept as ``scores-BENCHMARK-GROUP`` shards; one model computes those of all scorers of a run.
    """
    scorers = [candidate for candidate in evaluation.methods if candidate.kind == method.kind]
    # The model is loaded once: the first method fills the shards that the others read.
    if method == scorers[0]:
        _score_all([scorer.target for scorer in scorers], evaluation)
    for benchmark in evaluation.benchmarks:
        yield benchmark, [_read(method, benchmark, evaluation)]


def _score_all(names: Sequence[str], evaluation: Evaluation) -> None:
    """Fill the shards of all scores that these scorers need, group by group."""
    settings = evaluation.settings.scorer
    assert settings is not None
    model = scored_model(settings, evaluation.settings.base)
    with loaded_once(lambda: load_scorer(model)) as scorer:
        for group, members in groups(names).items():
            process = partial(_score_shard, members=members, settings=settings)
            maker = RowMaker(
                kind="scores",
                name=group,
                load=scorer,
                process=process,
                depends={"members": list(members), "scorer": settings, "model": model},
                size=settings.shard_size,
                gpus=model.gpus,
            )
            # Shards are filled while the iterator runs; what they hold is read method by method.
            for _ in evaluation.kept(maker):
                pass


def _score_shard(
    scorer: TokenScorer, comparisons: Sequence[Comparison], seed: int, members: Sequence[str], settings: ScorerConfig
) -> ShardResult:
    """Return the scores of comparisons by one group of scorers as a finished shard.

    Args:
        scorer: the model whose probabilities are read.
        comparisons: what to score.
        seed: of what is sampled.
        members: the scores of the group.
        settings: how scores are computed.
    """
    usage_before = scorer.usage
    scores = score(scorer, samples_of(comparisons), members, settings, seed)
    usage = scorer.usage - usage_before
    rows = []
    for index, comparison in enumerate(comparisons):
        row: dict[str, Any] = {"id": comparison.id}
        for member, of_member in scores.items():
            row[member] = [of_member.plain(2 * index), of_member.plain(2 * index + 1)]
        rows.append(row)
    # The scores of a group are missing together.
    missing = scores[members[0]].unscored
    return ShardResult(rows, len(rows), missing, **tokens_of([usage]), facts={"calls": usage.calls})


def _read(method: Method, benchmark: Benchmark, evaluation: Evaluation) -> Result:
    """Return the predictions of one scorer, and seconds of a verdict: those of its groups' passes."""
    directory = evaluation.out.directory
    scores: dict[str, Scores] = {}
    usage = Usage()
    seconds = 0.0
    for group, members in groups([method.target]).items():
        shards = shards_of("scores", benchmark, group)
        rows = list(read_rows(directory, shards))
        for member in members:
            values: list[Value] = []
            for row in rows:
                values.extend(value_of(written) for written in row[member])
            scores[member] = Scores(member, values, better(member))
        for marker in markers_of(directory, shards):
            tokens = marker["tokens"]
            usage += Usage(tokens["prompt"], tokens["generated"], marker["facts"]["calls"])
            seconds += marker["seconds"]
    # Combined scores are made of all answers' single ones, which must all be there first.
    of_method = replace(assemble(scores, method.target), method=method.name)
    results = predictions(benchmark.comparisons, of_method, method.name, usage)
    return results, round(seconds / len(results), 6)
