"""Sampling one level of many trees as a batch: which random numbers made what, and what is asked again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import Completion, Engine, Request, places


@dataclass(frozen=True)
class Sampled:
    """A completion and the random numbers that made it: the batch's ``seed`` and the request's ``place`` in it.

    Asked again, it is the last answer; its tokens are those of all, and ``retried`` says why each earlier one was of no
    use.
    """

    completion: Completion
    seed: int
    place: int
    retried: tuple[str, ...] = ()

    @property
    def record(self) -> dict[str, Any]:
        """The fields of the node that it becomes, but for its text."""
        return {
            "prompt_tokens": self.completion.prompt_tokens,
            "generated_tokens": self.completion.generated_tokens,
            "finish_reason": self.completion.finish_reason,
            "seed": self.seed,
            "place": self.place,
        }

    def again(self, other: Sampled, reason: str) -> Sampled:
        """The same request's further answer in place of this one, which is of no use for ``reason``."""
        both = replace(
            other.completion,
            prompt_tokens=self.completion.prompt_tokens + other.completion.prompt_tokens,
            generated_tokens=self.completion.generated_tokens + other.completion.generated_tokens,
        )
        return Sampled(both, other.seed, self.place, (*self.retried, reason))


def sample(
    requests: Sequence[Request],
    engine: Engine,
    seed: int,
    attempts: int = 0,
    failure: Callable[[Request, Completion], str | None] | None = None,
) -> list[Sampled]:
    """Every request's completion, in their order; an engine that has nothing to do is not called.

    Whatever ``failure`` gives a reason for is asked again, up to ``attempts`` times: all such requests as one batch,
    each attempt with its own seed, which follows from that of the first answers.
    """
    if not requests:
        return []
    done = zip(engine.generate(requests, seed), places(requests), strict=True)
    result = [Sampled(completion, seed, place) for completion, place in done]
    for attempt in range(1, attempts + 1 if failure else 1):
        useless = [(i, r) for i, s in enumerate(result) if failure and (r := failure(requests[i], s.completion))]
        asked = [replace(requests[i], place=result[i].place, attempt=attempt) for i, _ in useless]
        fresh = sample(asked, engine, derive_seed(seed, "retry", attempt))
        for (i, reason), again in zip(useless, fresh, strict=True):
            result[i] = result[i].again(again, reason)
    return result
