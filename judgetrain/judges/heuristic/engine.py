"""An annotator without a model: weak supervision by labelling functions, where there is no key and no strong model.

It stands in the teacher's place (``teacher.engine.type=heuristic``). What it knows is shallow; it teaches the form of
an evaluation and a few checkable properties, no more.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence

from judgetrain.engines.base import Completion, Request, places
from judgetrain.judges.config import HeuristicEngineConfig
from judgetrain.judges.heuristic.labelling import CRITERIA, Criterion, completeness, relevance
from judgetrain.judges.prompting.parsing import normalise, render_criteria, render_judgment

_DEGREES = {5: "fully", 4: "mostly", 3: "partly", 2: "hardly", 1: "never"}
"""What a score says, in guidelines and in analyses alike."""

_UNKNOWN = "meets the criterion"
"""What a criterion looks for that is not among :data:`CRITERIA`."""


def _tight(text: str) -> str:
    """The text without blank lines and without blanks around lines.

    No labelling function looks at these, but their patterns take quadratic time on long runs of them, such as a weak
    model's response of nothing but line breaks.
    """
    return "\n".join(line for line in map(str.strip, text.split("\n")) if line)


class HeuristicEngine:
    """Writes criteria, guidelines and judgments from text statistics. Token counts are words.

    ``config.error_rate`` of its judgments carry random scores. A criterion that it does not know is scored by
    relevance and completeness.
    """

    def __init__(self, config: HeuristicEngineConfig) -> None:
        self.name = config.name or "heuristic"
        self._error_rate = config.error_rate
        self._by_name = {normalise(c.name): c for c in CRITERIA}

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request; each depends on the seed, its place and its slots only."""
        return [self._complete(r, seed, place) for r, place in zip(requests, places(requests), strict=True)]

    def close(self) -> None:
        """Nothing to free."""

    def _complete(self, request: Request, seed: int, place: int) -> Completion:
        key = f"{seed} {place} {request.step} {sorted(request.slots.items())}"
        rng = random.Random(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest())
        writers = {"criteria": self._criteria, "guideline": self._guideline, "judgment": self._judgment}
        writer = writers.get(request.step)
        if writer is None:
            return Completion(finish_reason="error", error=f"the heuristic annotator cannot do step {request.step!r}")
        try:
            text = writer(request.slots, rng)
        except KeyError as error:
            return Completion(finish_reason="error", error=f"step {request.step!r} needs the slot {error}")
        prompt = " ".join(m["content"] for m in request.messages)
        return Completion(
            text=text, prompt_tokens=len(prompt.split()), generated_tokens=len(text.split()), finish_reason="stop"
        )

    def _criteria(self, slots: Mapping[str, str], rng: random.Random) -> str:
        """Criteria that suit the query first, in a varied order."""
        query = slots["query"].casefold()

        def rank(criterion: Criterion) -> float:
            suits = bool(criterion.when) and bool(re.search(criterion.when, query))
            return rng.random() + 0.8 * suits + 0.4 * (not criterion.when)

        chosen = sorted(CRITERIA, key=rank, reverse=True)[: int(slots["count"])]
        return render_criteria([c.line for c in chosen])

    def _find(self, criterion: str) -> Criterion | None:
        return self._by_name.get(normalise(criterion))

    def _guideline(self, slots: Mapping[str, str], rng: random.Random) -> str:
        known = self._find(slots["criterion"])
        (best, fully), *lower = _DEGREES.items()
        rest = ", ".join(f"{score} if {degree}" for score, degree in lower)
        return f"{best} if it {fully} {known.looks_for if known else _UNKNOWN}, {rest}."

    def _judgment(self, slots: Mapping[str, str], rng: random.Random) -> str:
        known = self._find(slots["criterion"])
        first, second = (self._score(known, slots["query"], slots[f"response_{side}"]) for side in "ab")
        if rng.random() < self._error_rate:
            first, second = rng.randint(1, 5), rng.randint(1, 5)
        what = known.looks_for if known else _UNKNOWN
        better = "A is better." if first > second else "B is better." if second > first else "Both are equal."
        one, other = (f"it {_DEGREES[score]} {what}." for score in (first, second))
        return render_judgment(first, second, one, other, better)

    @staticmethod
    def _score(criterion: Criterion | None, query: str, response: str) -> int:
        response = _tight(response)
        if criterion is None:
            value = (relevance(query, response) + completeness(query, response)) / 2
        else:
            value = criterion.check(query, response)
        return 1 + round(4 * max(0.0, min(1.0, value)))
