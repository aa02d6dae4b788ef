"""What becomes of the requests of one call to a server, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from judgetrain.engines.base import Completion, Request
from judgetrain.engines.openai.rate_limit import Refusals
from judgetrain.engines.openai.refusals import Failure

if TYPE_CHECKING:
    from openai import AsyncOpenAI

BROKEN = 3
"""Answers (200) to one request that are no chat completion: after so many, each of which may be charged, a call gives
the request up."""


class Asked:
    """One request of a call: under which content its answer is kept, and what became of it so far."""

    def __init__(self, request: Request, content: Mapping[str, Any]) -> None:
        self.request, self.content = request, content
        self.refusals, self.broken = Refusals(), 0
        self.outcome: Completion | Failure | None = None

    @property
    def due(self) -> bool:
        """Whether there is no answer yet, and asking may help."""
        return self.outcome is None or (
            isinstance(self.outcome, Failure) and self.outcome.again and self.broken < BROKEN
        )


class Call:
    """What the requests of one call share: the connection, the slots, and the error that ends the run."""

    def __init__(self, client: AsyncOpenAI, slots: asyncio.Semaphore) -> None:
        self.client, self.slots, self.ended = client, slots, asyncio.Event()
        self.one_by_one = asyncio.Lock()
        self.fatal: Exception | None = None
        self.served = False
        """Whether the server answered requests of this call, in a pass before this one or in an earlier run."""

    def end(self, error: Exception) -> None:
        """End the run with the first error; requests under way are finished, no other is begun."""
        self.fatal = self.fatal or error
        self.ended.set()
