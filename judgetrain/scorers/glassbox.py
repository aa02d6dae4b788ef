"""The glass-box paper's scores: features of one pass, ensembles of several, and the rating that a model writes itself.

Features are functions of token statistics, after the equations of sections 2 and 3. Ensembles follow sections 2.2 and
A.3, the rating A.3.
"""

import math
import random
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Request, Sampling
from judgetrain.scorers.encode import (
    Messages,
    Result,
    Sample,
    TokenStatistics,
    Unscored,
    fill,
    load_scorer_prompts,
    with_system,
)
from judgetrain.scorers.estimator import Batch, Estimator, Scores, Value
from judgetrain.thoughts import answer_of

Read = Callable[[TokenStatistics], float]


@dataclass(frozen=True)
class Feature:
    """A feature of one response.

    Args:
        read: computes it from the response's statistics.
        better: 1 if more of it is better, -1 if less is.
        attention: it reads attention entropies.
    """

    read: Read
    better: int
    attention: bool = False


def mean(values: ArrayLike) -> float:
    """Return the mean, in double precision."""
    return float(np.mean(np.asarray(values, dtype=np.float64)))


def variance(values: ArrayLike) -> float:
    """Return E[x^2] - E[x]^2, in double precision."""
    # NumPy averages squared differences from the mean: the difference of the two terms would lose its digits.
    return float(np.var(np.asarray(values, dtype=np.float64)))


def _attention(statistics: TokenStatistics) -> NDArray[np.float64]:
    """Return the attention entropies of all heads of all layers [layers * heads], nats."""
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
"""Every feature of a single pass; a line here is a scorer.

Directions are the paper's argument: a confident model (probable tokens, low entropy, little dispersion, focused
attention) answers well.
"""


class SinglePass(Estimator):
    """Computes all features in one pass, in which attention is eager only if one of them reads it."""

    group = "single_pass"
    names: ClassVar = {name: feature.better for name, feature in FEATURES.items()}

    def compute(self, batch: Batch, names: Sequence[str]) -> dict[str, Scores]:
        """Return each feature of every sample.

        Raises:
            EngineError: a feature reads attention weights, and the model gives none.
        """
        reads_attention = any(FEATURES[name].attention for name in names)
        results = batch.scorer.statistics(batch.samples, reads_attention)
        return {name: read(results, name) for name in names}


def read(results: Sequence[Result], name: str) -> Scores:
    """Return one feature of token statistics; a feature that is infinite or NaN counts as missing."""
    feature = FEATURES[name]
    values: list[Value] = []
    for result in results:
        if isinstance(result, Unscored):
            values.append(result)
            continue
        value = feature.read(result)
        # Token statistics were checked when they were read; attention entropies were not.
        if math.isfinite(value):
            values.append(value)
        else:
            values.append(Unscored("non_finite"))
    return Scores(name, values, feature.better)


def reference_sentprob(reference: TokenStatistics) -> float:
    """Return SentProb-Ref, the model's uncertainty about the reference: -mean(p log p) of its tokens (section 3.2)."""
    logprobs = np.asarray(reference["logprob"], dtype=np.float64)
    return float(-np.mean(np.exp(logprobs) * logprobs))


def combine(*columns: Sequence[float | None]) -> list[float | None]:
    """Return the normalised sum of scores: each with mean 0 and standard deviation 1 over all items, then added.

    This is the paper's Softmax-combo, whose normalisation is not published. A column without spread adds 0.

    Args:
        columns: scores [n] in which higher is better. An item that misses one (None, infinite or NaN) is None in the
            result and counts in no mean.
    """
    rows = list(zip(*columns, strict=True))
    complete = [place for place, row in enumerate(rows) if _are_numbers(row)]
    # Means and deviations are of the items that all columns have, so that columns weigh the same.
    sums = np.zeros(len(complete))
    for column in columns:
        values = np.array([column[place] for place in complete], dtype=np.float64)
        spread = 0.0
        if complete:
            spread = values.std()
        if spread > 0:
            sums += (values - values.mean()) / spread

    result: list[float | None] = [None] * len(rows)
    for place, value in zip(complete, sums.tolist(), strict=True):
        result[place] = value
    return result


def _are_numbers(values: Sequence[float | None]) -> bool:
    """Return whether no value is None, infinite or NaN."""
    return all(value is not None and math.isfinite(value) for value in values)


PASSES = 10
"""Passes of either ensemble (section A.3)."""
# The paper says that texts are sampled among the most probable tokens, but neither how many nor how hot.
TOP_K = 50
"""Tokens that a decoding ensemble samples among."""
TEMPERATURE = 1.0
"""Temperature of a decoding ensemble."""
Passes = list[list[float] | Unscored]
"""SentProb of each pass, or the reason why there is none, by sample."""


class Ensemble(Estimator):
    """Computes Unt-Exp, the mean of the sentence scores of N passes, and Unt-Var, their variance E[x^2] - E[x]^2."""

    @abstractmethod
    def passes(self, batch: Batch) -> Passes:
        """Return SentProb of each sample in each pass."""

    def compute(self, batch: Batch, names: Sequence[str]) -> dict[str, Scores]:
        """Return both scores of every sample, whichever ``names`` holds: they share their passes."""
        passes = self.passes(batch)
        scores = {}
        for name, reduce in zip(self.names, (mean, variance), strict=True):
            values: list[Value] = []
            for sentprobs in passes:
                if isinstance(sentprobs, Unscored):
                    values.append(sentprobs)
                else:
                    values.append(reduce(sentprobs))
            scores[name] = Scores(name, values, self.names[name])
        return scores


class PromptEnsemble(Ensemble):
    """Passes under system prompts drawn at random from the pool.

    The draws are the same for all samples, so that responses to one prompt are compared under the same prompts.
    """

    group = "prmensem"
    names: ClassVar = {"prmensem_exp": 1, "prmensem_var": -1}

    def passes(self, batch: Batch) -> Passes:
        """Return SentProb of each sample's response under each system prompt that is drawn."""
        rng = random.Random(derive_seed(batch.seed, "prmensem"))
        pool = load_scorer_prompts(batch.settings.prompts).system_prompts
        drawn = [rng.choice(pool) for _ in range(PASSES)]
        # A prompt that is drawn twice is read once, and counts twice.
        distinct = list(dict.fromkeys(drawn))
        prompted = [with_system(sample, system) for sample, system in product(batch.samples, distinct)]
        results = batch.scorer.statistics(prompted)

        passes: Passes = []
        for start in range(0, len(results), len(distinct)):
            of_sample = results[start : start + len(distinct)]
            passes.append(self._drawn(dict(zip(distinct, of_sample, strict=True)), drawn))
        return passes

    def _drawn(self, results: Mapping[str, Result], drawn: Sequence[str]) -> list[float] | Unscored:
        """Return SentProb of one sample under each drawn prompt; one prompt without a score leaves none at all."""
        sentprobs: dict[str, float] = {}
        for system, result in results.items():
            # A mean over fewer prompts than the other samples' would be compared with theirs.
            if isinstance(result, Unscored):
                return result
            sentprobs[system] = FEATURES["sentprob"].read(result)
        return [sentprobs[system] for system in drawn]


class DecodingEnsemble(Ensemble):
    """Passes over responses that the model itself decodes by random top-k sampling.

    The given response is not read: a pass that forces it would give the same probabilities each time.
    """

    group = "decensem"
    names: ClassVar = {"decensem_exp": 1, "decensem_var": -1}
    of_responses = False

    def passes(self, batch: Batch) -> Passes:
        """Return SentProb of each text that the model decoded for a sample; texts without one are left out."""
        sampling = Sampling(temperature=TEMPERATURE, max_new_tokens=batch.settings.max_new_tokens, top_k=TOP_K)
        # Equal requests get different texts: an engine numbers them.
        chats: list[Messages] = []
        for sample in batch.samples:
            chats += [sample.prompt] * PASSES
        requests = [Request(messages=chat, sampling=sampling) for chat in chats]
        completions = batch.scorer.generate(requests, derive_seed(batch.seed, self.group))
        decoded = [Sample(chat, completion.text) for chat, completion in zip(chats, completions, strict=True)]
        results = batch.scorer.statistics(decoded)
        for place, completion in enumerate(completions):
            # The engine's reason says more than that its text is empty.
            if completion.finish_reason in UNANSWERED:
                results[place] = Unscored(completion.finish_reason)
        values = read(results, "sentprob").values

        passes: Passes = []
        for start in range(0, len(values), PASSES):
            of_sample = values[start : start + PASSES]
            sentprobs = [value for value in of_sample if isinstance(value, float)]
            # Without any score, the first text's reason stands for all.
            passes.append(sentprobs or cast(Unscored, of_sample[0]))
        return passes


RATING = re.compile(r"\[\[\s*(?:rating:?\s*)?(\d+(?:\.\d+)?)\s*(?:/\s*10\s*)?\]\]", re.IGNORECASE)
"""A rating in double brackets: ``[[7]]``, ``[[7/10]]``, ``[[Rating: 7]]``."""


class SelfGeneration(Estimator):
    """Reads the rating from 1 to 10 that the model writes, decoded greedily, about each response that is not empty."""

    group = "self_generation"
    names: ClassVar = {"self_generation": 1}
    references = False

    def compute(self, batch: Batch, names: Sequence[str]) -> dict[str, Scores]:
        """Return the ratings, 1 to 10; ``unreadable_rating`` where the model wrote none."""
        template = load_scorer_prompts(batch.settings.prompts).self_generation
        sampling = Sampling(temperature=0.0, max_new_tokens=batch.settings.max_new_tokens)
        # A rating of nothing would cost a call and mean nothing.
        places = [place for place, sample in enumerate(batch.samples) if sample.response.strip()]
        requests = []
        for place in places:
            sample = batch.samples[place]
            chat = fill(template, sample.prompt, sample.response)
            requests.append(Request(messages=chat, sampling=sampling))
        completions = batch.scorer.generate(requests, derive_seed(batch.seed, self.group))

        values: list[Value] = [Unscored("empty_response")] * len(batch.samples)
        for place, completion in zip(places, completions, strict=True):
            if completion.finish_reason in UNANSWERED:
                values[place] = Unscored(completion.finish_reason)
            else:
                values[place] = rating(completion.text, batch.samples[place].response)
        return {self.group: Scores(self.group, values, 1)}


def rating(text: str, response: str = "") -> Value:
    """Return the last rating of a text, or ``unreadable_rating`` if there is none from 1 to 10.

    Args:
        text: what the model wrote; reasoning before its answer is left out.
        response: the response that is rated, which the text may repeat (:func:`answer_of`).
    """
    answer = answer_of(text, response) or ""
    # A text may weigh several ratings; the last one is its conclusion.
    ratings = RATING.findall(answer)
    if not ratings:
        return Unscored("unreadable_rating")
    value = float(ratings[-1])
    # Outside the scale that it was asked for: whoever writes 0 or 100 did not follow the prompt.
    if not 1.0 <= value <= 10.0:
        return Unscored("unreadable_rating")
    return value
