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

    def again(self, completion: Completion, seed: int, reason: str) -> Sampled:
        """The same request's further answer in place of this one, which is of no use for ``reason``."""
        both = replace(
            completion,
            prompt_tokens=self.completion.prompt_tokens + completion.prompt_tokens,
            generated_tokens=self.completion.generated_tokens + completion.generated_tokens,
        )
        return Sampled(both, seed, self.place, (*self.retried, reason))


def sample(requests: Sequence[Request], engine: Engine, seed: int) -> list[Sampled]:
    """Every request's completion, in their order; an engine that has nothing to do is not called."""
    if not requests:
        return []
    done = zip(engine.generate(requests, seed), places(requests), strict=True)
    return [Sampled(completion, seed, place) for completion, place in done]


def retry(
    sampled: Sequence[Sampled],
    requests: Sequence[Request],
    engine: Engine,
    seed: int,
    attempts: int,
    failure: Callable[[Request, Completion], str | None],
) -> list[Sampled]:
    """Ask again, up to ``attempts`` times, whatever ``failure`` gives a reason for: all such requests as one batch.

    ``seed`` is that of the first answers; each further attempt has its own, which follows from it.
    """
    result = list(sampled)
    for attempt in range(1, attempts + 1):
        useless = [(i, reason) for i, s in enumerate(result) if (reason := failure(requests[i], s.completion))]
        fresh_seed = derive_seed(seed, "retry", attempt)
        asked = [replace(requests[i], place=result[i].place, attempt=attempt) for i, _ in useless]
        for (i, reason), fresh in zip(useless, sample(asked, engine, fresh_seed), strict=True):
            result[i] = result[i].again(fresh.completion, fresh_seed, reason)
    return result
