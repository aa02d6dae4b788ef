"""What labels are worth without training a judge: regressions on an untrained model's hidden states.

The methods are ``probe:N`` and ``probe:N:MODEL``. The model reads each response once, behind its conversation, and
writes nothing. There is one logistic regression for each layer and place of
:func:`~judgetrain.scorers.states.response_states`, on what the states of A have more than those of B; the mean of their
log-odds decides. Pairs that were labelled by criteria of their own teach other regressions than pairs labelled by
others: a judge that is measured beside a probe reads by which criteria it is asked.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from judgetrain.artifacts.shards import read_rows, seconds_of
from judgetrain.artifacts.stage_run import ShardResult, tokens_of
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.prompt_keys import PromptKey, conversation_starts, key_of_dialogue
from judgetrain.engines.config import LocalEngineConfig, ModelConfig
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import ConfigError
from judgetrain.evaluate.metrics.rows import Learned
from judgetrain.evaluate.runners.base import Evaluation, Result, RowMaker, shards_of
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.extras.untrained.learned import FEWEST, are_enough, check_learned, found_pairs, without_verdicts
from judgetrain.extras.untrained.scorers import samples_of
from judgetrain.judges.kinds.kind import Use
from judgetrain.judges.method import Method, in_file_name
from judgetrain.judges.predictions import Cost, Prediction
from judgetrain.judges.settings import EXTERNAL
from judgetrain.rubrics import Rubric
from judgetrain.schema import Comparison
from judgetrain.scorers.config import load_scorer
from judgetrain.scorers.encode import DEPTHS, PLACES, Unscored

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from judgetrain.scorers.statistics import TokenScorer

    Floats = NDArray[np.float32]

STRENGTHS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
"""Inverse strengths of the L2 penalty among which folds choose, on differences of unit mean square."""
FOLDS = 10
"""The number of parts that prompts are put into, to choose a strength."""


def check(settings: EvaluateSettings, method: Method, use: Use) -> None:
    """Refuse a model whose states cannot be read, and too few pairs."""
    check_learned(method, settings)
    if method.target in EXTERNAL:
        raise ConfigError(
            f"evaluate.methods: {method.text!r}: reads a model's hidden states, which {EXTERNAL[method.target]} does "
            "not show; name base or a model's directory (./NAME)"
        )


def run(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield the method's results; the first probe of a model reads what all probes of it need.

    What A's states have more than B's is kept as ``states-BENCHMARK-MODEL`` shards, and that of the labelled pairs as
    ``states-learned-MODEL``. Where there are fewer pairs than a probe needs there are no verdicts, as of ``surface``.
    """
    of_model = [other for other in evaluation.methods if other.kind == method.kind and other.target == method.target]
    # The pairs of a smaller probe are the first of a larger one's.
    largest = max(other.labels for other in of_model)
    all_pairs, counts = found_pairs(largest, evaluation)
    pairs = all_pairs[: method.labels]
    if not are_enough(len(pairs), method, evaluation, counts):
        yield from without_verdicts(method, evaluation)
        return
    if method == of_model[0]:
        _read(method, evaluation, all_pairs)

    directory = evaluation.out.directory
    shards = _shards_of_pairs(method)
    kept = read_states(directory, shards)
    rows = kept.rows[: len(pairs)]
    learned_from = []
    for pair, row in zip(pairs, rows, strict=True):
        # A label beside another pair's states would go unnoticed in every figure.
        assert row["id"] == pair.id
        if row["is_read"]:
            learned_from.append(pair)
    evaluation.learned[method.name] = Learned(
        labels=len(learned_from),
        calls=2 * len(pairs),
        prompt_tokens=round(sum(row["tokens"] for row in rows)),
        seconds=round(seconds_of(directory, shards) * len(rows) / len(kept.rows), 3),
    )
    probes = Probes.fitted(learned_from, kept.states[: len(learned_from)], f"evaluate.methods: {method.text!r}")
    for benchmark in evaluation.benchmarks:
        shards = shards_of("states", benchmark, _reader(method))
        predictions = probes.predictions(benchmark.comparisons, read_states(directory, shards), method.name)
        yield benchmark, [(predictions, round(seconds_of(directory, shards) / len(predictions), 6))]


def _reader(method: Method) -> str:
    """Return the name, for files and for seeds, of what all probes of a model read: its path whole, as it is given."""
    return f"{method.kind}:{method.target}"


def _shards_of_pairs(method: Method) -> str:
    """Return the name of the shards with the states of labelled pairs."""
    return f"states-learned-{in_file_name(_reader(method))}"


def _read(method: Method, evaluation: Evaluation, pairs: Sequence[Comparison]) -> None:
    """Fill the shards of labelled pairs, and of all benchmarks.

    Args:
        method: whose model is read.
        evaluation: that goes on.
        pairs: labelled.
    """
    model = _model(method, evaluation)
    with loaded_once(lambda: load_scorer(model)) as scorer:
        maker = RowMaker(
            kind="states",
            name=_reader(method),
            load=scorer,
            process=states_shard,
            depends={
                "model": evaluation.models.identity(method, evaluation.hashes),
                "dtype": model.dtype,
                "depths": DEPTHS,
                "places": PLACES,
            },
            gpus=model.gpus,
        )
        evaluation.fill(_shards_of_pairs(method), pairs, maker)
        # Shards are filled while the iterator runs; what they hold is read method by method.
        for _ in evaluation.kept(maker):
            pass


def _model(method: Method, evaluation: Evaluation) -> ModelConfig:
    """Return the model that a method names, as it is loaded."""
    directory = evaluation.models.directory(method)
    gpus = evaluation.models.gpus(method)
    if directory is None:
        assert evaluation.settings.base is not None
        return replace(evaluation.settings.base, gpus=gpus)
    engine = evaluation.settings.engine
    if isinstance(engine, LocalEngineConfig):
        return engine.model.at(directory)
    return ModelConfig(path=str(directory), gpus=gpus)


def states_shard(scorer: TokenScorer, comparisons: Sequence[Comparison], seed: int) -> ShardResult:
    """Return what the states of A have more than those of B as a finished shard; nothing is drawn by the seed.

    A row has the comparison's ``id``, ``tokens`` that were read, ``failures`` by reason, and ``states``: float32
    numbers [layers x places, width] in base64, with ``columns``, the number of layers x places. Of a response that
    cannot be read there are none.
    """
    from judgetrain.scorers.states import response_states

    usage_before = scorer.usage
    read = response_states(scorer, samples_of(comparisons))
    usage = scorer.usage - usage_before
    rows = []
    missing = Counter[str]()
    for place, comparison in enumerate(comparisons):
        of_both = read[2 * place : 2 * place + 2]
        failures = Counter(states.reason for states in of_both if isinstance(states, Unscored))
        missing.update(failures)
        row: dict[str, Any] = {"id": comparison.id, "failures": dict(failures), "states": None, "columns": 0}
        # Responses are read in batches, of which no single comparison's part is known.
        row["tokens"] = usage.prompt_tokens / len(comparisons)
        if not failures:
            states_a, states_b = of_both
            difference = (states_a - states_b).astype("<f4")  # type: ignore[operator]
            row["columns"] = difference.shape[0] * difference.shape[1]
            row["states"] = base64.b64encode(difference.tobytes()).decode("ascii")
        rows.append(row)
    return ShardResult(rows, len(rows), missing, **tokens_of([usage]), facts={"calls": usage.calls})


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What was kept of comparisons.

    Args:
        rows: of all comparisons, with ``is_read`` in place of the states.
        states: what A's have more than B's, of those that could be read, float32 [comparisons, columns, width].
    """

    rows: Sequence[Mapping[str, Any]]
    states: Floats


def read_states(directory: Path, shards: str) -> Kept:
    """Return what :func:`states_shard` kept under a name, each row decoded as it is read: text takes more memory."""
    rows = []
    states = []
    for row in read_rows(directory, shards):
        encoded = row.pop("states")
        rows.append({**row, "is_read": encoded is not None})
        if encoded is not None:
            numbers = np.frombuffer(base64.b64decode(encoded), dtype="<f4")
            states.append(numbers.reshape(row["columns"], -1))
    if not states:
        return Kept(rows=rows, states=np.zeros((0, 0, 0), dtype=np.float32))
    return Kept(rows=rows, states=np.stack(states))


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Regressions, one for each column of states.

    Args:
        weights: of differences of states [columns, width]; the mean over columns of their products is the log-odds of A
            being better, nats.
    """

    weights: Floats

    @classmethod
    def fitted(cls, states: Floats, signs: Sequence[float], prompts: Sequence[PromptKey], where: str) -> Self:
        """Return a probe of labelled pairs, its strengths chosen by ten folds of prompts.

        Args:
            states: what A's states have more than B's [pairs, columns, width].
            signs: 1 where A is better, -1 where B is [pairs].
            prompts: of the pairs, no one of which is in two folds.
            where: begins a message.

        Raises:
            ConfigError: the pairs have one prompt, which no folds can be made of.
        """
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV, GroupKFold

        numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
        if len(numbers) < 2:
            raise ConfigError(f"{where}: the labelled pairs that can be read have one prompt; give pairs on several")
        groups = [numbers[prompt] for prompt in prompts]
        # Each pair stands there both ways round, so that no order is preferred and every fold has both classes.
        targets = np.concatenate([signs, np.negative(signs)])
        folds = list(GroupKFold(min(FOLDS, len(numbers))).split(targets, groups=[*groups, *groups]))
        weights = []
        for column in range(states.shape[1]):
            differences = states[:, column].astype(np.float64)
            scale = np.sqrt((differences**2).mean(axis=0)) + 1e-6
            features = differences / scale
            search = GridSearchCV(
                LogisticRegression(fit_intercept=False, max_iter=1000),
                {"C": STRENGTHS},
                cv=folds,
                scoring="neg_log_loss",
                error_score="raise",
            )
            search.fit(np.concatenate([features, -features]), targets)
            weights.append(search.best_estimator_.coef_[0] / scale)
        return cls(weights=np.stack(weights))

    def margins(self, states: Floats) -> Floats:
        """Return the log-odds of A being better, nats [pairs]; ``states``: of pairs [pairs, columns, width]."""
        if not len(states):
            return np.zeros(0, dtype=np.float32)
        by_column = np.einsum("pcw,cw->pc", states, self.weights)
        margins: Floats = by_column.mean(axis=1)
        return margins


@dataclass(frozen=True, kw_only=True)
class Probes:
    """The probes of labelled pairs.

    Args:
        of_all: of all pairs.
        by_criteria: of the pairs that were labelled by the same criteria of their own (None: by none), where there are
            enough of them and others beside them. Rows by any other criteria get the verdict of ``of_all``.
    """

    of_all: Probe
    by_criteria: Mapping[Rubric | None, Probe]

    @classmethod
    def fitted(cls, pairs: Sequence[Comparison], states: Floats, where: str) -> Self:
        """Return the probes of labelled pairs.

        Args:
            pairs: with labels A and B.
            states: what A's states have more than B's [pairs, columns, width].
            where: begins a message.

        Raises:
            ConfigError: the pairs have one prompt (:meth:`Probe.fitted`).
        """
        signs = np.array([1.0 if pair.label == "A" else -1.0 for pair in pairs])
        prompts = conversation_starts([key_of_dialogue(pair.dialogue) for pair in pairs])
        of_all = Probe.fitted(states, signs.tolist(), prompts, where)
        places: dict[Rubric | None, list[int]] = {}
        for place, pair in enumerate(pairs):
            places.setdefault(pair.rubric, []).append(place)
        by_criteria = {}
        for rubric, of_rubric in places.items():
            prompts_of_rubric = [prompts[place] for place in of_rubric]
            is_enough = len(of_rubric) >= FEWEST["probe"] and len(set(prompts_of_rubric)) > 1
            if is_enough and len(of_rubric) < len(pairs):
                by_criteria[rubric] = Probe.fitted(
                    states[of_rubric], signs[of_rubric].tolist(), prompts_of_rubric, where
                )
        return cls(of_all=of_all, by_criteria=by_criteria)

    def predictions(self, comparisons: Sequence[Comparison], kept: Kept, name: str) -> list[Prediction]:
        """Return the verdicts on comparisons, of which the states are kept, under the method's name."""
        states = iter(kept.states)
        predictions = []
        for comparison, row in zip(comparisons, kept.rows, strict=True):
            margin = None
            if row["is_read"]:
                probe = self.by_criteria.get(comparison.rubric, self.of_all)
                margin = float(probe.margins(next(states)[np.newaxis])[0])
            cost = Cost(prompt_tokens=row["tokens"], calls=2)
            predictions.append(Prediction.by_margin(comparison, name, margin, cost, row["failures"]))
        return predictions
