"""The glass-box paper's scores: features of one pass, ensembles of several, and the rating that a model writes itself.

Features are functions of token statistics, as the equations of sections 2 and 3 say; ensembles are of sections 2.2 and
A.3, the rating is of A.3.
"""

import math
import random
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Request, Sampling
from judgetrain.engines.prompting import answer_of
from judgetrain.scorers.encode import Result, Sample, TokenStatistics, Unscored, fill, load_scorer_prompts, with_system
from judgetrain.scorers.estimator import Batch, Estimator, Scores, Value

Read = Callable[[TokenStatistics], float]


@dataclass(frozen=True)
class Feature:
    """A feature of one response: how to compute it, whether more of it is better (1) or less (-1), and whether it
    reads attention entropies."""

    read: Read
    better: int
    attention: bool = False


def mean(values: ArrayLike) -> float:
    """The mean, in double precision."""
    return float(np.mean(np.asarray(values, dtype=np.float64)))


def variance(values: ArrayLike) -> float:
    """E[x^2] - E[x]^2, computed without cancellation."""
    return float(np.var(np.asarray(values, dtype=np.float64)))


def _attention(statistics: TokenStatistics) -> NDArray[np.float64]:
    assert statistics.attention_entropy is not None
    return np.concatenate([np.asarray(layer, dtype=np.float64) for layer in statistics.attention_entropy])


FEATURES: dict[str, Feature] = {
    # Log of the response's probability.
    "sentprob": Feature(lambda s: float(np.sum(s["logprob"], dtype=np.float64)), 1),
    "sentprob_mean": Feature(lambda s: mean(s["logprob"]), 1),
    "softmax_ent": Feature(lambda s: mean(s["entropy"]), -1),
    # The paper's equation has the variance of the tokens' probabilities, its text that of their log-probabilities.
    "softmax_var": Feature(lambda s: variance(np.exp(s["logprob"], dtype=np.float64)), -1),
    "softmax_var_log": Feature(lambda s: variance(s["logprob"]), -1),
    "attnent_min": Feature(lambda s: float(_attention(s).min()), -1, attention=True),
    "attnent_avg": Feature(lambda s: float(_attention(s).mean()), -1, attention=True),
}
"""Every feature that one pass gives; a line here is a scorer.

Directions are the paper's argument: a confident model (probable tokens, low entropy, little dispersion, focused
attention) answers well.
"""


class SinglePass(Estimator):
    """All features in one pass, in which attention is eager only if one of them reads it."""

    group = "single_pass"
    names: ClassVar = {name: feature.better for name, feature in FEATURES.items()}

    def compute(self, batch: Batch, names: Sequence[str]) -> dict[str, Scores]:
        """Each feature of every sample; an EngineError where attention weights are asked for and cannot be had."""
        results = batch.scorer.statistics(batch.samples, any(FEATURES[name].attention for name in names))
        return {name: read(results, name) for name in names}


def read(results: Sequence[Result], name: str) -> Scores:
    """One feature of token statistics that are there already; there is none where it would be infinite or NaN."""
    feature = FEATURES[name]
    values: list[Value] = [r if isinstance(r, Unscored) else feature.read(r) for r in results]
    finite = [v if isinstance(v, Unscored) or math.isfinite(v) else Unscored("non_finite") for v in values]
    return Scores(name, finite, feature.better)


def reference_sentprob(reference: TokenStatistics) -> float:
    """SentProb-Ref, how unsure the model is of the reference: -mean(p log p) of its tokens (section 3.2)."""
    logprobs = np.asarray(reference["logprob"], dtype=np.float64)
    return float(-np.mean(np.exp(logprobs) * logprobs))


def combine(*columns: Sequence[float | None]) -> list[float | None]:
    """The normalised sum of scores: each made mean 0 and standard deviation 1 over all items, then added.

    Columns ``[n]`` in which higher is better; an item that misses a score (None, infinite or NaN) is None in the result
    and counts in no mean. A column without spread adds 0. For the paper's Softmax-combo, whose normalisation is not
    published.
    """
    complete = [all(v is not None and np.isfinite(v) for v in row) for row in zip(*columns, strict=True)]
    total = np.zeros(sum(complete))
    for column in columns:
        values = np.array([v for v, there in zip(column, complete, strict=True) if there], dtype=np.float64)
        spread = values.std() if len(values) else 0.0
        if spread > 0:
            total += (values - values.mean()) / spread
    found = iter(total.tolist())
    return [next(found) if there else None for there in complete]


PASSES = 10
"""Of either ensemble, as the paper says."""
TOP_K, TEMPERATURE = 50, 1.0
"""Of a decoding ensemble's texts; the paper names neither."""
Passes = list[list[float] | Unscored]
"""By sample the SentProb of each pass, or why there is none."""


class Ensemble(Estimator):
    """Unt-Exp, the mean of the sentence scores of N passes, and Unt-Var, their variance E[x^2] - E[x]^2."""

    @abstractmethod
    def passes(self, batch: Batch) -> Passes:
        """SentProb of each sample in each pass."""

    def compute(self, batch: Batch, names: Sequence[str]) -> dict[str, Scores]:
        """Both scores, of every sample, whichever is asked for: they share their passes."""
        passes = self.passes(batch)
        result = {}
        for (name, better), of in zip(self.names.items(), (mean, variance), strict=True):
            values: list[Value] = [p if isinstance(p, Unscored) else of(p) for p in passes]
            result[name] = Scores(name, values, better)
        return result


class PromptEnsemble(Ensemble):
    """Passes under system prompts drawn at random from the pool.

    The draws are the same for all samples, so that responses to one prompt are compared under the same prompts.
    """

    group = "prmensem"
    names: ClassVar = {"prmensem_exp": 1, "prmensem_var": -1}

    def passes(self, batch: Batch) -> Passes:
        """SentProb of each sample's response under each system prompt drawn; a prompt drawn twice is read once."""
        samples, settings = batch.samples, batch.settings
        rng = random.Random(derive_seed(batch.seed, "prmensem"))
        pool = load_scorer_prompts(settings.prompts).system_prompts
        drawn = [rng.choice(pool) for _ in range(PASSES)]
        distinct, sentprob = list(dict.fromkeys(drawn)), FEATURES["sentprob"].read
        flat = batch.scorer.statistics([with_system(sample, system) for sample in samples for system in distinct])
        results: Passes = []
        for i in range(len(samples)):
            row = dict(zip(distinct, flat[i * len(distinct) : (i + 1) * len(distinct)], strict=True))
            gone = next((r for r in row.values() if isinstance(r, Unscored)), None)
            results.append(gone or [sentprob(row[system]) for system in drawn])  # type: ignore[arg-type]
        return results


class DecodingEnsemble(Ensemble):
    """Passes over responses that the model itself decodes by random top-k sampling.

    The given response is not read: a pass that forces it would give the same probabilities each time.
    """

    group = "decensem"
    names: ClassVar = {"decensem_exp": 1, "decensem_var": -1}
    of_responses = False

    def passes(self, batch: Batch) -> Passes:
        """SentProb of each text that the model decoded for a sample; texts without one are left out."""
        samples, settings = batch.samples, batch.settings
        sampling = Sampling(temperature=TEMPERATURE, max_new_tokens=settings.max_new_tokens, top_k=TOP_K)
        chats = [sample.prompt for sample in samples for _ in range(PASSES)]
        requests = [Request(messages=chat, sampling=sampling) for chat in chats]
        written = batch.scorer.generate(requests, derive_seed(batch.seed, self.group))
        found = batch.scorer.statistics([Sample(chat, c.text) for chat, c in zip(chats, written, strict=True)])
        pairs = zip(written, found, strict=True)
        found = [Unscored(c.finish_reason) if c.finish_reason in UNANSWERED else r for c, r in pairs]
        flat = read(found, "sentprob").values
        each = [flat[start : start + PASSES] for start in range(0, len(flat), PASSES)]
        return [[v for v in own if isinstance(v, float)] or cast(Unscored, own[0]) for own in each]


RATING = re.compile(r"\[\[\s*(?:rating:?\s*)?(\d+(?:\.\d+)?)\s*(?:/\s*10\s*)?\]\]", re.IGNORECASE)


class SelfGeneration(Estimator):
    """The rating from 1 to 10 that the model writes, decoded greedily, about each response that is not empty."""

    group = "self_generation"
    names: ClassVar = {"self_generation": 1}
    references = False

    def compute(self, batch: Batch, names: Sequence[str]) -> dict[str, Scores]:
        """The ratings, 1 to 10; ``unreadable_rating`` where the model wrote none."""
        samples, sampling = batch.samples, Sampling(temperature=0.0, max_new_tokens=batch.settings.max_new_tokens)
        template = load_scorer_prompts(batch.settings.prompts).self_generation
        rated = [i for i, sample in enumerate(samples) if sample.response.strip()]
        chats = [fill(template, samples[i].prompt, samples[i].response) for i in rated]
        values: list[Value] = [Unscored("empty_response")] * len(samples)
        requests = [Request(messages=chat, sampling=sampling) for chat in chats]
        written = batch.scorer.generate(requests, derive_seed(batch.seed, self.group))
        for i, completion in zip(rated, written, strict=True):
            unanswered = completion.finish_reason in UNANSWERED
            values[i] = (
                Unscored(completion.finish_reason) if unanswered else rating(completion.text, samples[i].response)
            )
        return {self.group: Scores(self.group, values, 1)}


def rating(text: str, response: str = "") -> Value:
    """The last rating in double brackets (``[[7]]``, ``[[7/10]]``, ``[[Rating: 7]]``); unreadable if there is none or
    it is not from 1 to 10.

    Reasoning before the answer is left out; ``response`` is what is rated (see ``answer_of``).
    """
    found = RATING.findall(answer_of(text, response) or "")
    value = float(found[-1]) if found else 0.0
    return value if 1.0 <= value <= 10.0 else Unscored("unreadable_rating")
