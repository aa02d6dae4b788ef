"""The HTTP client under OpenAI's own: every try of every request passes one gate, which knows limits and budget.

OpenAI's client decides what is tried again, and when; a try that is refused for the rate (429) it never sees.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from judgetrain.artifacts.console import duration
from judgetrain.engines.answers import AnswerStore, Budget
from judgetrain.engines.base import Request
from judgetrain.engines.config import OpenAIEngineConfig, server_address
from judgetrain.engines.openai.reading import error_of, is_empty_account, words_of
from judgetrain.errors import EngineError

MAX_WAIT = 1800.0
"""Seconds that a rate limit may hold requests with no answer in between; half an hour outlasts limits by the minute."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds that the gate stays closed where the server does not say for how long: the first time, and at most."""
TIMEOUT = 600.0
"""Seconds from sending a request to the last byte of its answer: the client's own limit; reasoning takes minutes."""
SOON = 0.02
"""Seconds until a request looks again whether the budget has room for it."""
LARGEST, CHUNK = 64 << 20, 1 << 16
"""Bytes of an answer that are read, unpacked, and at a time: log-probabilities of a long context take some 10 MB."""
OWN = 8
"""Refusals of one request, with others let through after the first, that are taken for its own fault."""


class NotSentError(Exception):
    """The run has ended, or the answer is kept by now, or another process is asking for it."""


class Clock:
    """Time as the gate sees it; ``speed`` makes it pass faster, for tests."""

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic() * self._speed

    async def wait(self, ended: asyncio.Event, seconds: float) -> None:
        """Wait so many seconds, or until ``ended``."""
        if seconds > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), seconds / self._speed)


class Pending:
    """One request of a call: under which content its answer is kept, and what its tries have taken so far."""

    def __init__(self, request: Request, content: Mapping[str, Any], answers: AnswerStore | None) -> None:
        self.request, self.content, self._answers = request, content, answers
        self.claim = ExitStack()
        self.held, self.refusals, self.first_refused = 0, 0, math.inf

    @property
    def prompt(self) -> str:
        """All that the server is sent, as text."""
        return "\n".join(message["content"] for message in self.request.messages)

    def may_be_sent(self) -> bool:
        """Claim the answer; whether it is still to be had, and no other process has claimed it."""
        self.claim.close()
        if self._answers is None:
            return True
        free = self.claim.enter_context(self._answers.claimed(self.content))
        return free and self._answers.get(self.content) is None


ASKED: ContextVar[Pending] = ContextVar("asked")
"""The request that the running task asks."""


class GatedClient(httpx2.AsyncClient):
    """Sends each try within the slots, the rate limit and the budget, and reads its whole answer in time.

    Requests pass while the server takes them; all are held while it refuses for their number (429), as long as it says.
    Afterwards they pass one by one until one is answered: a server that still refuses is asked once, not by all.
    A request that pauses between tries leaves its slot and its claim.

    Args:
        config: the server, and how many requests are under way at once.
        secret: the key, which no message may hold.
        clock: the time that the gate waits by.
        budget: what may be sent.
        options: of the client.
    """

    def __init__(
        self, config: OpenAIEngineConfig, secret: str, clock: Clock, budget: Budget | None, **options: Any
    ) -> None:
        slots = config.concurrency
        super().__init__(limits=httpx2.Limits(max_connections=slots), **options)
        self._address, self._secret = server_address(config.base_url)[0], secret
        self.clock, self._budget = clock, budget
        self._slots, self._one_by_one, self.ended = asyncio.Semaphore(slots), asyncio.Lock(), asyncio.Event()
        self._refusals = 0
        self._closed = self._opens = self._let_through = -math.inf
        self._since: float | None = None

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """One try, once the server may be asked (NotSentError: nothing is to be sent; EngineError: the budget is spent,
        or the rate limit outlasts :data:`MAX_WAIT`)."""
        asked = ASKED.get()
        while True:
            async with self._slots, self._passing() as sent:
                if self.ended.is_set() or not asked.may_be_sent():
                    raise NotSentError
                response = await self._try(request, asked, options)
                if response.status_code != 429:
                    self.heard(sent, response.status_code)
                    return response
                if self._is_its_own(asked, response):
                    response.headers["x-should-retry"] = "false"
                    return response
                self.refused(sent, retry_after(response.headers), words_of(response.text, self._secret))

    async def _try(self, request: httpx2.Request, asked: Pending, options: Any) -> httpx2.Response:
        """One try, paid for from the budget; what an answer took is settled where it is read.

        The server may charge for a try that was cut or took too long.
        """
        while self._budget and self._budget.waits(asked.request) and not self.ended.is_set():
            await asyncio.sleep(SOON)
        if self.ended.is_set():
            raise NotSentError
        asked.held = self._budget.send(asked.request) if self._budget else 0
        charged: bool | None = True
        try:
            async with asyncio.timeout(TIMEOUT):  # the client's own is for each read: a server may drip
                response = await super().send(request, **options | {"stream": True})
                await read_whole(response)
            if response.status_code == 200:
                response.status_code = error_of(response.content) or 200
            charged = None if response.status_code == 200 else False
            return response
        except TimeoutError as error:
            raise httpx2.ReadTimeout("the answer is not there in time", request=request) from error
        except httpx2.ConnectError:
            charged = False
            raise
        finally:
            if charged is not None:
                asked.claim.close()
                if self._budget:
                    self._budget.settle(asked.held, None, charged)

    @asynccontextmanager
    async def _passing(self) -> AsyncIterator[float]:
        """Wait until the server may be asked, or the run has ended; gives the time of sending."""
        if self._refusals and not self.ended.is_set():
            async with self._one_by_one:
                if self._refusals:  # else the one before was answered
                    await self.clock.wait(self.ended, self._opens - self.clock.now())
                    yield self.clock.now()
                    return
        yield self.clock.now()

    def heard(self, sent: float, status: int) -> None:
        """The server said to a request sent then something else than to wait."""
        self._since = None
        if status == 200:
            self._let_through = max(self._let_through, sent)
        if status < 500 and sent >= self._closed:  # one that was sent before the gate closed does not open it
            self._refusals = 0

    def refused(self, sent: float, after: float | None, said: str) -> None:
        """Close the gate, for longer each time and for ``after`` seconds at least, as a request sent then was refused
        (EngineError: the server wants a longer wait than is allowed, or has been waited for that long)."""
        now = self.clock.now()
        self._since = now if self._since is None else self._since
        if sent >= self._closed:  # else it went out with others that were refused, and says nothing new
            self._refusals += 1
            self._closed = now
            pause = min(FIRST_PAUSE * 2.0 ** min(self._refusals - 1, 16), LONGEST_PAUSE) * random.uniform(0.75, 1.0)
            self._opens = now + max(pause, after or 0.0)
        elif after is not None:
            self._opens = max(self._opens, now + after)
        if self._opens - self._since > MAX_WAIT:
            long = after is not None and after > MAX_WAIT
            wants = f"wants to be left alone for {duration(after or 0.0)}" if long else "lets no request through"
            told = f"{self._address} limits the rate of requests and {wants} (HTTP 429{f': {said}' if said else ''})"
            waited = f"{duration(MAX_WAIT)} without an answer are waited for"
            raise EngineError(f"{told}; {waited}; every answer is kept: run the same command again later")

    def _is_its_own(self, asked: Pending, response: httpx2.Response) -> bool:
        """Whether to wait helps no request, or not this one: the server lets others through, and never it."""
        asked.refusals += 1
        asked.first_refused = min(asked.first_refused, self.clock.now())
        alone = asked.refusals >= OWN and self._let_through >= asked.first_refused
        return alone or "too large" in response.text.lower() or is_empty_account(429, response.text, asked.prompt)


async def read_whole(response: httpx2.Response) -> None:
    """Read an answer, of which no more is kept than :data:`LARGEST` bytes: what is longer is no completion."""
    body = bytearray()
    async for part in response.aiter_bytes(CHUNK):
        body += part
        if len(body) > LARGEST:
            break
    response._content = bytes(body[:LARGEST])
    await response.aclose()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a refusing server asks to wait, from ``retry-after-ms`` or ``Retry-After`` (seconds or a date)."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(ValueError):
            if math.isfinite(seconds := float(headers.get(name, "")) * unit):
                return max(0.0, seconds)
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    return None
