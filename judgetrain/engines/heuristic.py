"""An annotator without a model: weak supervision by labelling functions, where there is no key and no strong model.

It stands in the teacher's place (``teacher.engine.type=heuristic``). What it knows is shallow; it teaches the form of
an evaluation and a few checkable properties, no more.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence

from judgetrain.config import EngineConfig
from judgetrain.engines.base import Completion, Request
from judgetrain.engines.labelling import CRITERIA, Criterion, completeness, relevance

_LEVELS = ((5, "fully"), (4, "mostly"), (3, "partly"), (2, "hardly"), (1, "not"))


class HeuristicEngine:
    """Writes criteria, guidelines and judgments from text statistics. Token counts are words.

    ``config.error_rate`` of its judgments carry random scores. A criterion that it does not know is scored by
    relevance and completeness.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.name = config.name or "heuristic"
        self._error_rate = config.error_rate
        self._by_name = {c.name.casefold(): c for c in CRITERIA}

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request; each depends on the seed, its position and its slots only."""
        return [self._complete(request, seed, index) for index, request in enumerate(requests)]

    def close(self) -> None:
        """Nothing to free."""

    def _complete(self, request: Request, seed: int, index: int) -> Completion:
        key = f"{seed} {index} {request.step} {sorted(request.slots.items())}"
        rng = random.Random(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest())
        writers = {"criteria": self._criteria, "guideline": self._guideline, "judgment": self._judgment}
        writer = writers.get(request.step)
        if writer is None:
            return Completion("", 0, 0, "error", f"the heuristic annotator cannot do step {request.step!r}")
        text = writer(request.slots, rng)
        prompt = " ".join(m["content"] for m in request.messages)
        return Completion(text, len(prompt.split()), len(text.split()), "stop")

    def _criteria(self, slots: Mapping[str, str], rng: random.Random) -> str:
        """Criteria that suit the query first, in a varied order."""
        query = slots["query"].casefold()

        def rank(criterion: Criterion) -> float:
            suits = bool(criterion.when) and bool(re.search(criterion.when, query))
            return rng.random() + 0.8 * suits + 0.4 * (not criterion.when)

        chosen = sorted(CRITERIA, key=rank, reverse=True)[: int(slots["count"])]
        return "\n".join(f"{i}. {c.line}" for i, c in enumerate(chosen, start=1))

    def _find(self, criterion: str) -> Criterion | None:
        return self._by_name.get(criterion.split(":", 1)[0].strip().casefold())

    def _guideline(self, slots: Mapping[str, str], rng: random.Random) -> str:
        known = self._find(slots["criterion"])
        what = known.looks_for if known else "meets the criterion"
        return f"5 if the answer clearly {what}. 3 if it partly does. 1 if it does not."

    def _judgment(self, slots: Mapping[str, str], rng: random.Random) -> str:
        known = self._find(slots["criterion"])
        scores = [self._score(known, slots["query"], slots[f"response_{side}"]) for side in "ab"]
        if rng.random() < self._error_rate:
            scores = [rng.randint(1, 5) for _ in scores]
        what = known.looks_for if known else "meets the criterion"
        degree = [next(word for level, word in _LEVELS if score >= level) for score in scores]
        better = (
            "A is better." if scores[0] > scores[1] else "B is better." if scores[1] > scores[0] else "Both are equal."
        )
        return (
            f"Response A Score: {scores[0]}\nAnalysis of Response A: it {degree[0]} {what}.\n"
            f"Response B Score: {scores[1]}\nAnalysis of Response B: it {degree[1]} {what}.\nComparison: {better}"
        )

    @staticmethod
    def _score(criterion: Criterion | None, query: str, response: str) -> int:
        if criterion is None:
            value = (relevance(query, response) + completeness(query, response)) / 2
        else:
            value = criterion.check(query, response)
        return 1 + round(4 * max(0.0, min(1.0, value)))
