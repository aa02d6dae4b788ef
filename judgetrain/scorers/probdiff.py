"""ProbDiff: the change of a model's log-probability when it revises its own response (ProbDiff paper, section 3.2).

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
"""Discrepancies, or None where there is none."""

DELTA = -0.05
"""The paper's threshold (appendix B)."""
SWEEP = (0.0, -0.05, -0.1)
"""The thresholds that the paper compares (appendix B, table 7)."""


def confidence(d: Values, delta: float = DELTA) -> float | None:
    """Return the share of items with d >= ``delta`` (equations 3 and 4), 0 to 1; None if no item has a value.

    Args:
        d: discrepancies [n]; items without one are left out.
        delta: the threshold.
    """
    return average([value >= delta for value in d if value is not None])


def confidence_sweep(d: Values) -> dict[float, float | None]:
    """Return the confidence at each of the paper's thresholds."""
    return {delta: confidence(d, delta) for delta in SWEEP}


def average(d: Values) -> float | None:
    """Return the mean of a set (section 3.2), over the items that have a value; None if none has."""
    values = [value for value in d if value is not None]
    if not values:
        return None
    return float(np.mean(values))


@dataclass(frozen=True, kw_only=True)
class Discrepancy:
    """The discrepancy of one response.

    Args:
        logprob: mean log-probability per token of the response, given the prompt, nats (equation 1, with the log that
            it omits).
        revised_logprob: the same of its revision, given the original prompt.
        revision: the revised text.
        cut: the revision reached the limit of tokens.
    """

    logprob: float
    revised_logprob: float
    revision: str
    cut: bool = False

    @property
    def d(self) -> float:
        """Return log p(revised) - log p(response) (equation 2). Higher is better."""
        return self.revised_logprob - self.logprob


class ProbDiff(Estimator):
    """Computes the discrepancy; its details are the revisions and their log-probabilities."""

    group = "probdiff"
    names: ClassVar = {"probdiff": 1}
    references = False

    def compute(self, batch: Batch, names: Sequence[str]) -> dict[str, Scores]:
        """Return the discrepancies, nats a token (:func:`discrepancies`)."""
        values: list[Value] = []
        details: list[dict[str, Any]] = []
        for result in discrepancies(batch.scorer, batch.samples, batch.settings, batch.seed):
            if isinstance(result, Unscored):
                values.append(result)
                details.append({})
            else:
                values.append(result.d)
                details.append(vars(result))
        return {self.group: Scores(self.group, values, 1, details)}


def discrepancies(
    scorer: TokenScorer, samples: Sequence[Sample], settings: ScorerConfig, seed: int = 0
) -> list[Discrepancy | Unscored]:
    """Return the discrepancy of every sample, or the reason why it has none.

    The model revises each response once (the paper's K = 1). Response and revision are scored without surrounding white
    space. A response that is left as it is has d = 0 exactly.

    Args:
        scorer: the model that revises and scores.
        samples: the responses.
        settings: ``revision_prompt`` (section 3.2; ``simple``: appendix C) and ``revision_temperature``.
        seed: the seed of the revisions.

    Raises:
        ConfigError: the prompt set has no such revision prompt, or a temperature is not known.
    """
    template = revision_prompt(settings.prompts, settings.revision_prompt)
    # White space around a text is no part of the answer, and would change its score.
    samples = [replace(sample, response=sample.response.strip()) for sample in samples]
    before = scorer.statistics(samples)
    scored = [sample for sample, result in zip(samples, before, strict=True) if isinstance(result, TokenStatistics)]
    # Empty responses and such are not revised: there is nothing that a revision could be compared with.
    completions = revise(scorer, scored, template, settings, seed)
    texts = [completion.text.strip() for completion in completions]
    # Under the original prompt, not the one that asked for a revision: equation 2 compares two answers to one question.
    revised = [Sample(sample.prompt, text) for sample, text in zip(scored, texts, strict=True)]
    revisions = zip(completions, texts, scorer.statistics(revised), strict=True)

    results: list[Discrepancy | Unscored] = []
    for sample, result in zip(samples, before, strict=True):
        if isinstance(result, Unscored):
            # A response without a score was not revised.
            results.append(result)
            continue
        completion, text, after = next(revisions)
        if text == sample.response:
            # Two batches round differently; an unchanged response is to have the same score to the last digit.
            after = result
        if not isinstance(after, Unscored):
            results.append(
                Discrepancy(
                    logprob=result.mean_logprob,
                    revised_logprob=after.mean_logprob,
                    revision=text,
                    cut=completion.finish_reason == "length",
                )
            )
        # The response has a score: what failed is the revision, and the reason says so.
        elif after.reason == "empty_response":
            results.append(Unscored("no_revision"))
        else:
            results.append(Unscored(f"revision_{after.reason}"))
    return results


def revise(
    scorer: TokenScorer, samples: Sequence[Sample], template: str, settings: ScorerConfig, seed: int
) -> list[Completion]:
    """Return a revision of every response.

    Args:
        scorer: the model that revises.
        samples: the responses; each is revised at its own temperature if ``settings`` name none.
        template: the revision prompt.
        settings: the temperature and the most tokens of a revision.
        seed: the seed of the revisions.

    Raises:
        ConfigError: neither the settings nor a sample name a temperature.
    """
    requests = []
    for sample in samples:
        temperature = settings.revision_temperature
        if temperature is None:
            temperature = sample.temperature
        if temperature is None:
            raise ConfigError(
                "scorer.revision_temperature=null: the temperature that a given response was sampled at is not known; "
                "give one, or use stage=selfeval"
            )
        sampling = Sampling(temperature=temperature, max_new_tokens=settings.max_new_tokens)
        requests.append(Request(messages=fill(template, sample.prompt, sample.response), sampling=sampling))

    # The zeros numbered revisions of revisions, which there were once: without them all seeds would be others.
    return scorer.generate(requests, derive_seed(derive_seed(seed, "probdiff", 0), 0))
