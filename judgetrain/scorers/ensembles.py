"""Scores that need several passes or generated text: ensembles and self-generation (glass-box paper, 2.2 and A.3)."""

from __future__ import annotations

import logging
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Completion, Request, Sampling
from judgetrain.engines.thinking import answer_of
from judgetrain.scorers.encode import Sample, Unscored
from judgetrain.scorers.features import FEATURES, Formula
from judgetrain.scorers.prompts import ScorerPrompts, fill, with_system
from judgetrain.scorers.results import Result

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer

log = logging.getLogger(__name__)

PASSES: dict[Formula, int] = {"paper": 10, "released": 7}
RATING = re.compile(r"\[\[\s*(?:rating:?\s*)?(\d+(?:\.\d+)?)\s*(?:/\s*10\s*)?\]\]", re.IGNORECASE)


@dataclass(frozen=True)
class EnsembleSettings:
    """``passes`` None takes the paper's 10 or the released code's 7; ``rating_tokens`` bounds a self-rating."""

    passes: int | None = None
    top_k: int = 50
    temperature: float = 1.0
    max_new_tokens: int = 256
    rating_tokens: int = 256

    def count(self, formula: Formula) -> int:
        """How many passes."""
        return self.passes or PASSES[formula]


def prompt_ensemble(
    scorer: TokenScorer,
    samples: Sequence[Sample],
    prompts: ScorerPrompts,
    settings: EnsembleSettings,
    formula: Formula,
    seed: int,
) -> list[list[float] | Unscored]:
    """SentProb of each response under system prompts drawn at random from the pool, one for every pass.

    The draws are the same for all samples, so that responses to one prompt are compared under the same prompts.
    """
    rng = random.Random(derive_seed(seed, "prmensem"))
    drawn = [rng.choice(prompts.system_prompts) for _ in range(settings.count(formula))]
    distinct = list(dict.fromkeys(drawn))
    sentprob = FEATURES[formula]["sentprob"].read
    flat = scorer.statistics([with_system(sample, system) for sample in samples for system in distinct])
    results: list[list[float] | Unscored] = []
    for i in range(len(samples)):
        row = dict(zip(distinct, flat[i * len(distinct) : (i + 1) * len(distinct)], strict=True))
        gone = next((r for r in row.values() if isinstance(r, Unscored)), None)
        results.append(gone or [sentprob(row[system]) for system in drawn])  # type: ignore[arg-type]
    return results


def decoding_ensemble(
    scorer: TokenScorer, samples: Sequence[Sample], settings: EnsembleSettings, formula: Formula, seed: int
) -> list[list[float] | Unscored]:
    """SentProb of responses that the model itself decodes by random top-k sampling, one for every pass.

    The given response is not read: a pass that forces it would give the same probabilities each time.
    """
    count = settings.count(formula)
    sampling = Sampling(temperature=settings.temperature, max_new_tokens=settings.max_new_tokens, top_k=settings.top_k)
    chats = [_chat(sample) for sample in samples for _ in range(count)]
    written = scorer.generate(
        [Request(messages=chat, sampling=sampling) for chat in chats], derive_seed(seed, "decensem")
    )
    decoded = [Sample(chat, completion.text) for chat, completion in zip(chats, written, strict=True)]
    sentprob = FEATURES[formula]["sentprob"].read
    flat = scorer.statistics(decoded)
    results: list[list[float] | Unscored] = []
    for i in range(len(samples)):
        own = range(i * count, (i + 1) * count)
        passes = [sentprob(r) for r in (flat[k] for k in own) if not isinstance(r, Unscored)]
        results.append(passes or _why_none([(written[k], flat[k]) for k in own]))
    missing = Counter(_reason(*pair) for pair in zip(written, flat, strict=True) if isinstance(pair[1], Unscored))
    if missing:
        log.warning("decoding ensemble: passes without a score, of %d: %s", len(flat), dict(missing))
    return results


def _why_none(passes: Sequence[tuple[Completion, Result]]) -> Unscored:
    """The most frequent reason why no pass has a score."""
    return Unscored(Counter(_reason(*each) for each in passes).most_common(1)[0][0])


def _reason(completion: Completion, result: Result) -> str:
    if completion.finish_reason in UNANSWERED:
        return completion.finish_reason
    assert isinstance(result, Unscored)
    return result.reason


def self_generation(
    scorer: TokenScorer, samples: Sequence[Sample], prompts: ScorerPrompts, settings: EnsembleSettings, seed: int
) -> list[float | Unscored]:
    """The rating from 1 to 10 that the model writes about each response, decoded greedily; of empty ones none."""
    sampling = Sampling(temperature=0.0, max_new_tokens=settings.rating_tokens)
    rated = [i for i, sample in enumerate(samples) if sample.response.strip()]
    requests = [
        Request(messages=fill(prompts.self_generation, samples[i].prompt, samples[i].response), sampling=sampling)
        for i in rated
    ]
    results: list[float | Unscored] = [Unscored("empty_response")] * len(samples)
    for i, completion in zip(rated, scorer.generate(requests, derive_seed(seed, "self_generation")), strict=True):
        unanswered = completion.finish_reason in UNANSWERED
        read = Unscored(completion.finish_reason) if unanswered else rating(completion.text, samples[i].response)
        results[i] = read
    return results


def rating(text: str, response: str = "") -> float | Unscored:
    """The last rating in double brackets (``[[7]]``, ``[[7/10]]``, ``[[Rating: 7]]``); unreadable if there is none or
    it is not from 1 to 10.

    Reasoning before the answer is left out; ``response`` is what is rated (:func:`answer_start`).
    """
    found = RATING.findall(answer_of(text, response) or "")
    value = float(found[-1]) if found else 0.0
    return value if 1.0 <= value <= 10.0 else Unscored("unreadable_rating")


def _chat(sample: Sample) -> tuple[Any, ...]:
    return ({"role": "user", "content": sample.prompt},) if isinstance(sample.prompt, str) else sample.prompt
