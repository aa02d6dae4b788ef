"""The world as an engine: scripted response writers, the rule-based annotator and the referee."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

from judgetrain.data.config import WorldEngineConfig
from judgetrain.data.world.annotator import Annotator
from judgetrain.data.world.language import load_language
from judgetrain.data.world.referee import Referee
from judgetrain.data.world.writers import write_response
from judgetrain.engines.base import Completion, Request, places
from judgetrain.errors import EngineError


class WorldEngine:
    """Answers with the world's own rules; no model. Token counts are words.

    Step ``response`` writes a response with ``config.skill``; ``criteria``, ``guideline`` and ``judgment`` are
    the annotator's, which errs in ``config.error_rate`` of its judgments; ``one_step``, ``rating``, ``preference`` and
    ``correction`` are the referee's, which errs as often, and corrects with ``config.skill``.
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
        slots = request.slots
        match request.step:
            case "response":
                return write_response(self._language, slots["query"], self._skill, rng, self._rambling)
            case "criteria":
                return self._annotator.criteria(slots["query"], int(slots["count"]), rng)
            case "guideline":
                return self._annotator.guideline(slots["criterion"], rng)
            case "judgment":
                return self._annotator.judgment(
                    slots["criterion"], slots["guideline"], slots["response_a"], slots["response_b"], rng
                )
            case "one_step":
                return self._referee.one_step(slots["query"], slots["response_a"], slots["response_b"], rng)
            case "rating":
                lowest, highest = int(slots["lowest"]), int(slots["highest"])
                return self._referee.rating(slots["query"], slots["response"], lowest, highest, rng)
            case "preference":
                responses = slots["response_a"], slots["response_b"]
                critiques = slots["judgment_x"], slots["judgment_y"]
                return self._referee.preference(slots["criterion"], responses, critiques, rng)
            case "correction":
                return self._referee.correction(slots["response"], slots["judgment"], self._skill, rng)
        raise EngineError(f"the world's engine cannot do step {request.step!r}; choose another engine type")
