"""Scores from several passes: their mean and variance (glass-box paper, sections 2.2 and A.3)."""

from __future__ import annotations

import logging
import random
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Completion, Request, Sampling
from judgetrain.scorers.encode import Sample, Unscored
from judgetrain.scorers.estimator import Batch, Estimator, Result, Scores, Value
from judgetrain.scorers.features import FEATURES, mean, variance
from judgetrain.scorers.prompts import load_scorer_prompts, with_system

log = logging.getLogger(__name__)

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
        """SentProb of each text that the model decoded for a sample; texts without one are left out, and logged."""
        samples, settings = batch.samples, batch.settings
        sampling = Sampling(temperature=TEMPERATURE, max_new_tokens=settings.max_new_tokens, top_k=TOP_K)
        chats = [sample.chat for sample in samples for _ in range(PASSES)]
        written = batch.scorer.generate(
            [Request(messages=chat, sampling=sampling) for chat in chats], derive_seed(batch.seed, "decensem")
        )
        sentprob = FEATURES["sentprob"].read
        flat = batch.scorer.statistics([Sample(chat, c.text) for chat, c in zip(chats, written, strict=True)])
        results: Passes = []
        for start in range(0, len(flat), PASSES):
            own = slice(start, start + PASSES)
            read = [sentprob(r) for r in flat[own] if not isinstance(r, Unscored)]
            results.append(read or Unscored(_missing(written[own], flat[own]).most_common(1)[0][0]))
        if missing := _missing(written, flat):
            log.warning("decoding ensemble: passes without a score, of %d: %s", len(flat), dict(missing))
        return results


def _missing(written: Sequence[Completion], results: Sequence[Result]) -> Counter[str]:
    """Why passes have no score: what became of the generation, else of the pass over its text."""
    return Counter(
        completion.finish_reason if completion.finish_reason in UNANSWERED else result.reason
        for completion, result in zip(written, results, strict=True)
        if isinstance(result, Unscored)
    )
