"""ProbDiff: how far a model's log-probability moves when it revises its own response (ProbDiff paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

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

    ``logprob`` and ``revised_logprob``: mean log-probability per token of the response and of its last revision, both
    given the original prompt, nats (equation 1, with the log that it omits). ``cut``: revisions that reached
    ``max_new_tokens``.
    """

    logprob: float
    tokens: int
    revised_logprob: float
    revised_tokens: int
    revision: str
    cut: int = 0

    @property
    def d(self) -> float:
        """log p(revised) - log p(response) (equation 2). Higher is better."""
        return self.revised_logprob - self.logprob

    @property
    def details(self) -> dict[str, Any]:
        """What ``scores-probdiff`` shards hold beside the score; ``length_ratio``: revised length / length, tokens."""
        found = {name: getattr(self, name) for name in ("logprob", "revised_logprob", "revision", "cut")}
        return found | {"length_ratio": self.revised_tokens / self.tokens}


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
    """The discrepancy of every sample, or why it has none (``no_revision``: there is no text).

    The model of ``scorer`` revises the responses and scores them, without surrounding white space; a response that is
    left as it is has d = 0 exactly. ``settings`` says how: ``revisions``, each of the one before it, with
    ``revision_prompt`` (section 3.2; ``simple``: appendix C) at ``revision_temperature``.

    Raises:
        ConfigError: the prompt set has no such revision prompt.
    """
    wording, prompt = load_scorer_prompts(settings.prompts), settings.revision_prompt
    if prompt not in wording.revision:
        raise ConfigError(f"revision prompt {prompt!r}: the prompt set has {', '.join(wording.revision)}")
    samples = [replace(sample, response=sample.response.strip()) for sample in samples]
    results: list[Any] = list(scorer.statistics(samples))
    open_ = [i for i, result in enumerate(results) if isinstance(result, TokenStatistics)]
    seed = derive_seed(seed, "probdiff", 0)
    revised = revise(scorer, [samples[i] for i in open_], wording.revision[prompt], settings, seed)
    after = scorer.statistics([Sample(samples[i].prompt, r.text) for i, r in zip(open_, revised, strict=True)])
    for i, revision, result in zip(open_, revised, after, strict=True):
        # Two batches round differently; an unchanged response is to have the same log-probability to the last digit.
        unchanged = revision.text == samples[i].response
        results[i] = _discrepancy(results[i], revision, results[i] if unchanged else result)
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
    fixed, sampling = settings.revision_temperature, list[Sampling]()
    for sample in samples:
        temperature = sample.temperature if fixed is None else fixed
        if temperature is None:
            raise ConfigError(
                "scorer.revision_temperature=null: the temperature that a given response was sampled at is not known; "
                "give one, or use stage=selfeval"
            )
        sampling.append(Sampling(temperature=temperature, max_new_tokens=settings.max_new_tokens))
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


def _discrepancy(
    first: TokenStatistics, revision: Revision, result: TokenStatistics | Unscored
) -> Discrepancy | Unscored:
    if isinstance(result, Unscored):
        return Unscored("no_revision" if result.reason == "empty_response" else f"revision_{result.reason}")
    return Discrepancy(
        logprob=first.mean_logprob,
        tokens=first.response_tokens,
        revised_logprob=result.mean_logprob,
        revised_tokens=result.response_tokens,
        revision=revision.text,
        cut=revision.cut,
    )
