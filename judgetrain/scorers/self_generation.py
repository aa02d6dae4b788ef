"""Self-generation: the rating that the model itself writes about a response (glass-box paper, A.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Request, Sampling
from judgetrain.engines.thinking import answer_of
from judgetrain.scorers.encode import Unscored
from judgetrain.scorers.estimator import Batch, Estimator, Scores, Value
from judgetrain.scorers.prompts import fill, load_scorer_prompts

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
        requests = [
            Request(messages=fill(template, samples[i].prompt, samples[i].response), sampling=sampling) for i in rated
        ]
        values: list[Value] = [Unscored("empty_response")] * len(samples)
        written = batch.scorer.generate(requests, derive_seed(batch.seed, self.group))
        for i, completion in zip(rated, written, strict=True):
            unanswered = completion.finish_reason in UNANSWERED
            read = Unscored(completion.finish_reason) if unanswered else rating(completion.text, samples[i].response)
            values[i] = read
        return {self.group: Scores(self.group, values, 1)}


def rating(text: str, response: str = "") -> Value:
    """The last rating in double brackets (``[[7]]``, ``[[7/10]]``, ``[[Rating: 7]]``); unreadable if there is none or
    it is not from 1 to 10.

    Reasoning before the answer is left out; ``response`` is what is rated (see ``answer_of``).
    """
    found = RATING.findall(answer_of(text, response) or "")
    value = float(found[-1]) if found else 0.0
    return value if 1.0 <= value <= 10.0 else Unscored("unreadable_rating")
