"""ProbDiff: how far a model's log-probability moves when it revises its own response (ProbDiff paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import Request, Sampling
from judgetrain.errors import ConfigError
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import Sample, Unscored
from judgetrain.scorers.estimator import Batch, Estimator, Scores, Value
from judgetrain.scorers.prompts import fill, load_scorer_prompts
from judgetrain.scorers.results import TokenStatistics

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer


@dataclass(frozen=True, kw_only=True)
class Discrepancy:
    """The discrepancy of one response.

    ``logprob``: mean log-probability per token of the response, nats (equation 1, with the log that it omits).
    ``revised_logprobs``, ``revised_tokens`` and ``texts``: of the last revision of each chain that gave one; all
    log-probabilities are given the original prompt. ``cut``: revisions that reached ``max_new_tokens``.
    """

    logprob: float
    tokens: int
    revised_logprobs: tuple[float, ...]
    revised_tokens: tuple[int, ...]
    texts: tuple[str, ...]
    cut: int = 0

    @property
    def d(self) -> float:
        """log p(revised) - log p(response), mean over chains (equation 2). Higher is better."""
        return float(np.mean(self.revised_logprobs)) - self.logprob

    @property
    def length_ratio(self) -> float:
        """Revised length / length in tokens, mean over chains."""
        return float(np.mean(self.revised_tokens)) / self.tokens

    @property
    def details(self) -> dict[str, Any]:
        """What ``scores-probdiff`` shards hold beside the score."""
        found = {"length_ratio": self.length_ratio, "cut": self.cut, "logprob": self.logprob}
        return found | {"revised_logprobs": list(self.revised_logprobs), "revisions": list(self.texts)}


class ProbDiff(Estimator):
    """The discrepancy; its details are the revisions and their log-probabilities."""

    group = "probdiff"
    names: ClassVar = {"probdiff": 1}
    illustrated = calibrated = False

    def compute(self, batch: Batch, names: Sequence[str]) -> dict[str, Scores]:
        """The discrepancies (:func:`discrepancies`), nats a token."""
        done = discrepancies(batch.scorer, batch.samples, batch.settings, batch.seed)
        values: list[Value] = [r if isinstance(r, Unscored) else r.d for r in done]
        none = {"length_ratio": None, "cut": 0}
        details = [none if isinstance(r, Unscored) else r.details for r in done]
        return {self.group: Scores(self.group, values, 1, details)}


def discrepancies(
    scorer: TokenScorer, samples: Sequence[Sample], settings: ScorerConfig, seed: int = 0
) -> list[Discrepancy | Unscored]:
    """The discrepancy of every sample, or why it has none (``no_revision``: no chain gave a text).

    The model of ``scorer`` revises the responses and scores them, without surrounding white space; a response that is
    left as it is has d = 0 exactly. ``settings`` says how: ``chains`` of ``revisions``, each of the one before it, with
    ``revision_prompt`` (section 3.2; ``simple``: appendix C) at ``revision_temperature``. A chain depends on the seed
    and on its number.

    Raises:
        ConfigError: the prompt set has no such revision prompt.
    """
    wording, prompt = load_scorer_prompts(settings.prompts), settings.revision_prompt
    if prompt not in wording.revision:
        raise ConfigError(f"revision prompt {prompt!r}: the prompt set has {', '.join(wording.revision)}")
    template = wording.revision[prompt]
    samples = [replace(sample, response=sample.response.strip()) for sample in samples]
    first = scorer.statistics(samples)
    open_ = [i for i, result in enumerate(first) if isinstance(result, TokenStatistics)]
    chains = [
        revise(scorer, [samples[i] for i in open_], template, settings, derive_seed(seed, "probdiff", chain))
        for chain in range(settings.chains)
    ]
    revised = [Sample(samples[i].prompt, chain[k].text) for chain in chains for k, i in enumerate(open_)]
    after = scorer.statistics(revised)
    results: list[Discrepancy | Unscored] = [r if isinstance(r, Unscored) else Unscored("no_revision") for r in first]
    for k, i in enumerate(open_):
        own = [(chain[k], after[c * len(open_) + k]) for c, chain in enumerate(chains)]
        results[i] = _discrepancy(cast(TokenStatistics, first[i]), samples[i].response, own)
    return results


@dataclass(frozen=True)
class Revision:
    """The last text of a chain (an error or an empty text ends it), and how many of its texts were cut."""

    text: str
    cut: int = 0


def revise(
    scorer: TokenScorer, samples: Sequence[Sample], template: str, settings: ScorerConfig, seed: int
) -> list[Revision]:
    """K revisions of every response, one after the other."""
    temperatures = [sample.temperature for sample in samples]
    if settings.revision_temperature is not None:
        temperatures = [settings.revision_temperature] * len(samples)
    sampling = [_sampling(temperature, settings) for temperature in temperatures]
    chain = [Revision(sample.response) for sample in samples]
    for step in range(settings.revisions):
        going = [i for i, revision in enumerate(chain) if revision.text]
        requests = [
            Request(messages=fill(template, samples[i].prompt, chain[i].text), sampling=sampling[i]) for i in going
        ]
        done = scorer.generate(requests, derive_seed(seed, step))
        for i, completion in zip(going, done, strict=True):
            chain[i] = Revision(completion.text.strip(), chain[i].cut + (completion.finish_reason == "length"))
    return chain


def _sampling(temperature: float | None, settings: ScorerConfig) -> Sampling:
    if temperature is None:
        raise ConfigError(
            "scorer.revision_temperature=null: the temperature that a given response was sampled at is not known; "
            "give one, or use stage=selfeval"
        )
    return Sampling(temperature=temperature, max_new_tokens=settings.max_new_tokens)


def _discrepancy(
    first: TokenStatistics, response: str, chains: Sequence[tuple[Revision, TokenStatistics | Unscored]]
) -> Discrepancy | Unscored:
    # Two batches round differently; an unchanged response is to have the same log-probability to the last digit.
    chains = [(revision, first if revision.text == response else result) for revision, result in chains]
    kept = [(revision, result) for revision, result in chains if isinstance(result, TokenStatistics)]
    if not kept:
        reasons = [result.reason for _, result in chains if isinstance(result, Unscored)]
        reason = reasons[0] if reasons else "empty_response"
        return Unscored("no_revision" if reason == "empty_response" else f"revision_{reason}")
    return Discrepancy(
        logprob=first.mean_logprob,
        tokens=first.response_tokens,
        revised_logprobs=tuple(result.mean_logprob for _, result in kept),
        revised_tokens=tuple(result.response_tokens for _, result in kept),
        texts=tuple(revision.text for revision, _ in kept),
        cut=sum(revision.cut for revision, _ in kept),
    )
