"""ProbDiff: how far a model's log-probability moves when it revises its own response (ProbDiff paper, section 3.2).

Sign convention, everywhere: d = log p(revised) - log p(response), equation 2, in nats per token. Equations 3 and 4
count d >= delta as confident, so a higher d is better; a weak model's revisions fall, and its d is far below zero.
(Where the paper says that a larger discrepancy is worse, it means the size of that fall.) Missing values are None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import Completion, Request, Sampling
from judgetrain.errors import ConfigError
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import Sample, TokenStatistics, Unscored, fill, revision_prompt
from judgetrain.scorers.estimator import Batch, Estimator, Scores, Value

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer

Values = Sequence[float | None]

DELTA = -0.05
"""The paper's threshold (appendix B)."""
SWEEP = (0.0, -0.05, -0.1)
"""The thresholds that the paper compares (appendix B, table 7)."""


def confidence(d: Values, delta: float = DELTA) -> float | None:
    """Share of items ``[n]`` with d >= ``delta`` (equations 3 and 4), over those that have one; None if none has."""
    return average([x >= delta for x in d if x is not None])


def confidence_sweep(d: Values) -> dict[float, float | None]:
    """The confidence at each of the paper's thresholds."""
    return {delta: confidence(d, delta) for delta in SWEEP}


def average(d: Values) -> float | None:
    """The mean of a set (section 3.2), over the items that have a value; None if none has."""
    found = [x for x in d if x is not None]
    return float(np.mean(found)) if found else None


@dataclass(frozen=True, kw_only=True)
class Discrepancy:
    """The discrepancy of one response.

    ``logprob`` and ``revised_logprob``: mean log-probability per token of the response and of its revision, both given
    the original prompt, nats (equation 1, with the log that it omits). ``cut``: it reached the limit of tokens.
    """

    logprob: float
    revised_logprob: float
    revision: str
    cut: bool = False

    @property
    def d(self) -> float:
        """log p(revised) - log p(response) (equation 2). Higher is better."""
        return self.revised_logprob - self.logprob


class ProbDiff(Estimator):
    """The discrepancy; its details are the revisions and their log-probabilities."""

    group = "probdiff"
    names: ClassVar = {"probdiff": 1}
    references = False

    def compute(self, batch: Batch, names: Sequence[str]) -> dict[str, Scores]:
        """The discrepancies (:func:`discrepancies`), nats a token."""
        done = discrepancies(batch.scorer, batch.samples, batch.settings, batch.seed)
        values: list[Value] = [r if isinstance(r, Unscored) else r.d for r in done]
        details = [{} if isinstance(r, Unscored) else vars(r) for r in done]
        return {self.group: Scores(self.group, values, 1, details)}


def discrepancies(
    scorer: TokenScorer, samples: Sequence[Sample], settings: ScorerConfig, seed: int = 0
) -> list[Discrepancy | Unscored]:
    """The discrepancy of every sample, or why it has none (``no_revision``: there is no text) (ConfigError: the prompt
    set has no such revision prompt).

    The model of ``scorer`` revises the responses and scores them, without surrounding white space; a response that is
    left as it is has d = 0 exactly. It is revised once (the paper's K = 1), with ``revision_prompt`` (section 3.2;
    ``simple``: appendix C) at ``revision_temperature``.
    """
    template = revision_prompt(settings.prompts, settings.revision_prompt)
    samples = [replace(sample, response=sample.response.strip()) for sample in samples]
    results: list[Any] = list(scorer.statistics(samples))
    open_ = [i for i, result in enumerate(results) if isinstance(result, TokenStatistics)]
    revised = revise(scorer, [samples[i] for i in open_], template, settings, seed)
    texts = [completion.text.strip() for completion in revised]
    after = scorer.statistics([Sample(samples[i].prompt, text) for i, text in zip(open_, texts, strict=True)])
    for i, completion, text, result in zip(open_, revised, texts, after, strict=True):
        # Two batches round differently; an unchanged response is to have the same log-probability to the last digit.
        second = results[i] if text == samples[i].response else result
        if isinstance(second, Unscored):
            results[i] = Unscored("no_revision" if second.reason == "empty_response" else f"revision_{second.reason}")
        else:
            means = {"logprob": results[i].mean_logprob, "revised_logprob": second.mean_logprob}
            results[i] = Discrepancy(**means, revision=text, cut=completion.finish_reason == "length")
    return results


def revise(
    scorer: TokenScorer, samples: Sequence[Sample], template: str, settings: ScorerConfig, seed: int
) -> list[Completion]:
    """A revision of every response."""
    requests = []
    for sample in samples:
        fixed = settings.revision_temperature
        temperature = sample.temperature if fixed is None else fixed
        if temperature is None:
            told = "scorer.revision_temperature=null: the temperature that a given response was sampled at is not known"
            raise ConfigError(f"{told}; give one, or use stage=selfeval")
        sampling = Sampling(temperature=temperature, max_new_tokens=settings.max_new_tokens)
        requests.append(Request(messages=fill(template, sample.prompt, sample.response), sampling=sampling))
    return scorer.generate(requests, derive_seed(derive_seed(seed, "probdiff", 0), 0))
