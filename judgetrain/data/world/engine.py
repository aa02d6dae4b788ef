"""The world as an engine: scripted response writers, the rule-based annotator and the referee."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from judgetrain.data.config import WorldEngineConfig
from judgetrain.data.world.annotator import Annotator, criterion_name
from judgetrain.data.world.language import GRADE_SCORES, Language, load_language
from judgetrain.data.world.writers import sentence, write_response
from judgetrain.engines.base import Completion, Request, places
from judgetrain.errors import EngineError

BEST_QUALITY = 6
"""The highest quality by the hidden rule: both crucial properties shown strongly."""


@dataclass(frozen=True)
class Referee:
    """The quickstart's external judge and corrector, in the place of a strong model behind an endpoint.

    Unlike the annotator it knows the hidden rule: what decides for each kind of query. It errs in ``error_rate`` of its
    answers, half of the time in favour of what it sees first. That a strong model is right this often about real text
    is an assumption; here it stands in so that everything around it runs without a network.
    """

    language: Language
    error_rate: float

    def pairwise(self, query: str, first: str, second: str, rng: random.Random) -> str:
        """Which of two responses is better, by the hidden rule."""
        a, b = (self.language.quality(query, response) for response in (first, second))
        mark = self._slip("ABC", rng) or ("C" if a == b else "A" if a > b else "B")
        crucial = self.language.kinds[self.language.kind_of(query)].primary
        return f"What counts most here is {crucial}. [[{mark}]]"

    def pointwise(self, query: str, response: str, lowest: int, highest: int, rng: random.Random) -> str:
        """How good a response is, by the hidden rule, on a scale of whole numbers."""
        share = self.language.quality(query, response) / BEST_QUALITY
        if rng.random() < self.error_rate:
            share = rng.random()
        return f"[[{lowest + round(share * (highest - lowest))}]]"

    def preference(
        self, criterion: str, responses: tuple[str, str], critiques: tuple[str, str], rng: random.Random
    ) -> str:
        """Which of two critiques says what the responses show; by chance where neither is closer to it.

        Raises:
            KeyError: the world has no such criterion.
        """
        name = criterion_name(criterion)
        words = self.language.properties[name].grades
        grades = [(side, self.language.grade(response, name)) for side, response in zip("AB", responses, strict=True)]
        findings = [f"Response {side}: it {words[grade]}." for side, grade in grades]
        findings += [f"Response {side} Score: {GRADE_SCORES[grade]}\n" for side, grade in grades]
        x, y = (sum(finding in critique for finding in findings) for critique in critiques)
        mark = self._slip("XY", rng) or ("X" if x > y else "Y" if y > x else rng.choice("XY"))
        return f"[[{mark}]]"

    def correction(self, response: str, judgment: str, skill: float, rng: random.Random) -> str:
        """The response with a sentence for each property that the judgment finds missing or weak.

        Each is written strongly with chance ``skill``, else left out; what the judgment does not name stays as it is.
        """
        lacking = [p for p in self.language.properties.values() if any(words in judgment for words in p.grades[:2])]
        added = [sentence(self.language, p.name, 2, rng) for p in lacking if rng.random() < skill]
        return " ".join([response, *added])

    def _slip(self, marks: str, rng: random.Random) -> str | None:
        """A wrong answer in a share of :attr:`error_rate`: half the first mark, half any of them."""
        if rng.random() >= self.error_rate:
            return None
        return marks[0] if rng.random() < 0.5 else rng.choice(marks)


class WorldEngine:
    """Answers with the world's own rules; no model. Token counts are words.

    Step ``response`` writes a response with ``config.skill``; ``criteria``, ``guideline``, ``judgment`` and ``score``
    are the annotator's, which errs in ``config.error_rate`` of its judgments; ``pairwise``, ``pointwise``,
    ``preference`` and ``correction`` are the referee's, which errs as often, and corrects with ``config.skill``.
    """

    def __init__(self, config: WorldEngineConfig) -> None:
        self.name = config.name or "world"
        self._language = load_language()
        self._annotator = Annotator(self._language, config.error_rate)
        self._referee = Referee(self._language, config.error_rate)
        self._skill, self._rambling = config.skill, config.rambling

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request; each depends on the seed, its place and its slots only."""
        return [self._complete(r, seed, place) for r, place in zip(requests, places(requests), strict=True)]

    def close(self) -> None:
        """Nothing to free."""

    def _complete(self, request: Request, seed: int, place: int) -> Completion:
        digest = hashlib.sha256(f"{seed} {place} {request.step} {sorted(request.slots.items())}".encode()).digest()
        rng = random.Random(digest)
        try:
            text = self._text(request, rng)
        except KeyError as error:
            return Completion(finish_reason="error", error=f"the world does not know {error}")
        prompt = " ".join(m["content"] for m in request.messages)
        return Completion(
            text=text, prompt_tokens=len(prompt.split()), generated_tokens=len(text.split()), finish_reason="stop"
        )

    def _text(self, request: Request, rng: random.Random) -> str:
        slot, annotator, referee = request.slots, self._annotator, self._referee
        match request.step:
            case "response":
                return write_response(self._language, slot["query"], self._skill, rng, self._rambling)
            case "criteria":
                return annotator.criteria(slot["query"], int(slot["count"]), rng)
            case "guideline":
                return annotator.guideline(slot["criterion"], rng)
            case "judgment":
                shown = slot["response_a"], slot["response_b"]
                return annotator.judgment(slot["criterion"], slot["guideline"], *shown, rng)
            case "score":
                return annotator.score(slot["criterion"], slot["guideline"], slot["response"], rng)
            case "pairwise":
                return referee.pairwise(slot["query"], slot["response_a"], slot["response_b"], rng)
            case "pointwise":
                scale = int(slot["lowest"]), int(slot["highest"])
                return referee.pointwise(slot["query"], slot["response"], *scale, rng)
            case "preference":
                shown, critiques = (slot["response_a"], slot["response_b"]), (slot["judgment_x"], slot["judgment_y"])
                return referee.preference(slot["criterion"], shown, critiques, rng)
            case "correction":
                return referee.correction(slot["response"], slot["judgment"], self._skill, rng)
        raise EngineError(f"the world's engine cannot do step {request.step!r}; choose another engine type")
