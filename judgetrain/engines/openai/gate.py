"""The HTTP client below OpenAI's: every try of every request passes one gate, which knows limits and budget.

OpenAI's client decides what is tried again, and when. It does not see tries that are refused for the rate (429).
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
from judgetrain.engines.openai.reading import error_of, is_empty_account, words_of, wrapped_status
from judgetrain.errors import EngineError

MAX_WAIT = 1800.0
"""Seconds that a rate limit may hold requests without any answer; half an hour outlasts limits by the minute."""
FIRST_PAUSE = 1.0
"""Seconds that the gate stays closed the first time, where the server does not say for how long."""
LONGEST_PAUSE = 30.0
"""The most seconds that the gate stays closed, where the server does not say for how long."""
SOON = 0.02
"""Seconds between two looks whether the budget has room for a request."""
LARGEST = 64 << 20
"""The most bytes of an unpacked answer that are read; log-probabilities of a long context take some 10 MB."""
CHUNK = 1 << 16
"""Bytes of an answer that are read at a time."""
OWN = 8
"""Refusals of one request that count as its own fault, if the server has let others through since the first."""


class NotSentError(Exception):
    """A request was not sent: the run has ended, the answer is kept by now, or another process is asking for it."""


class NoConnectionError(Exception):
    """A server that has never answered opens no connection in time; it is not tried again."""


class WholeAnswerTimeout(httpx2.ReadTimeout):
    """An answer is not there as a whole in time, although its parts may keep coming."""


class Clock:
    """The gate's clock; ``speed`` makes time pass faster, for tests."""

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed

    def now(self) -> float:
        """Return the seconds since some moment."""
        return time.monotonic() * self._speed

    async def wait(self, ended: asyncio.Event, seconds: float) -> None:
        """Wait for some seconds, or until ``ended`` is set."""
        if seconds > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), seconds / self._speed)


class Pending:
    """One request of a call that has no answer yet, and the state of its tries.

    Args:
        request: what is asked.
        content: the request's content, by which its answer is kept.
        answers: keeps answers, if the model is paid for.
    """

    def __init__(self, request: Request, content: Mapping[str, Any], answers: AnswerStore | None) -> None:
        self.request = request
        self.content = content
        self._answers = answers
        # Holds the claim on the answer while a try is under way.
        self.claim = ExitStack()
        # Tokens of the budget that the try under way holds.
        self.held = 0
        # How often the request was refused for the rate, and when first.
        self.refusals = 0
        self.first_refused = math.inf

    @property
    def prompt(self) -> str:
        """Return the text of all messages."""
        return "\n".join(message["content"] for message in self.request.messages)

    def may_be_sent(self) -> bool:
        """Claim the answer, and return whether nobody has it or has claimed it."""
        self.claim.close()
        if self._answers is None:
            return True
        # Claimed before the answer is looked for again: in between, another process could ask for it.
        free = self.claim.enter_context(self._answers.claimed(self.content))
        return free and self._answers.get(self.content) is None


ASKED: ContextVar[Pending] = ContextVar("asked")
"""The request of the running task, for the HTTP client, which OpenAI's client gives no more than bytes."""


class GatedClient(httpx2.AsyncClient):
    """Sends each try within the slots, the rate limit and the budget, and reads its whole answer in time.

    Requests pass while the server takes them. All are held while it refuses them for their number (429), for as long as
    it says. Afterwards they pass one by one until one is answered, so that a server that still refuses is asked once. A
    request that pauses between tries gives up its slot and its claim.

    Args:
        config: the server, and how many requests are under way at once.
        secret: the key, which no message may hold.
        clock: measures the gate's time.
        budget: limits what is sent.
        reached: whether the server has answered before.
        options: further arguments of the client.
    """

    def __init__(
        self,
        config: OpenAIEngineConfig,
        secret: str,
        clock: Clock,
        budget: Budget | None,
        *,
        reached: bool = False,
        **options: Any,
    ) -> None:
        slots = config.concurrency
        # As many connections as requests under way: fewer would have them wait inside the client, on its clock.
        super().__init__(limits=httpx2.Limits(max_connections=slots), **options)
        self._address = server_address(config.base_url)[0]
        self._seconds_for_answer = config.timeout
        # Whether the server has answered anything, be it that it is busy.
        self.reached = reached
        self._secret = secret
        self.clock = clock
        self._budget = budget
        self._slots = asyncio.Semaphore(slots)
        self._one_by_one = asyncio.Lock()
        # Set when the run ends: no further request is sent.
        self.ended = asyncio.Event()
        # How often the gate was closed since a request passed.
        self._refusals = 0
        # When the gate was closed last, when it opens, and when the last answered request was sent.
        self._closed = -math.inf
        self._opens = -math.inf
        self._let_through = -math.inf
        # Since when every answer was a refusal for the rate; None: the last one was not.
        self._since: float | None = None

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send one try of a request once the gate is open, and return the response.

        Tries that are refused for the rate are repeated here.

        Raises:
            NotSentError: nothing is to be sent.
            NoConnectionError: no connection opens in time, and the server has never answered.
            EngineError: the budget is spent, or the rate limit outlasts :data:`MAX_WAIT`.
        """
        pending = ASKED.get()
        while True:
            async with self._slots, self._passing() as sent:
                # Looked at again, as the request may have waited for minutes.
                if self.ended.is_set() or not pending.may_be_sent():
                    raise NotSentError
                response = await self._try(request, pending, options)
                if response.status_code != 429:
                    self.heard(sent, response.status_code)
                    return response
                if self._is_its_own(pending, response):
                    # OpenAI's client reads this header.
                    response.headers["x-should-retry"] = "false"
                    return response
                self.refused(sent, retry_after(response.headers), words_of(response.text, self._secret))

    async def _try(self, request: httpx2.Request, pending: Pending, options: Any) -> httpx2.Response:
        """Send a request once within the budget, and return the response.

        The tokens of a completion are settled where it is read; those of other outcomes, here. The server may charge
        for a try that was cut or took too long.
        """
        # Requests under way hold the most that they may take, and give back what they did not.
        while self._budget and self._budget.waits(pending.request) and not self.ended.is_set():
            await asyncio.sleep(SOON)
        if self.ended.is_set():
            raise NotSentError

        pending.held = 0
        if self._budget:
            pending.held = self._budget.send(pending.request)
        is_completion = False
        may_be_charged = True
        try:
            # The client's time-out is for each read, and a server may send byte by byte.
            async with asyncio.timeout(self._seconds_for_answer):
                response = await super().send(request, **options | {"stream": True})
                self.reached = True
                await read_whole(response)
            if response.status_code == 200:
                # So that OpenAI's client sees an error, and tries again as it would.
                response.status_code = error_of(response.content) or 200
            # So that it does not try again what the service behind a gateway refuses.
            body = response.content.decode("utf-8", "replace")
            response.status_code = wrapped_status(response.status_code, body, pending.prompt)
            is_completion = response.status_code == 200
            may_be_charged = False
            return response
        except TimeoutError as error:
            raise WholeAnswerTimeout("the answer is not there in time", request=request) from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            # Nothing was sent.
            may_be_charged = False
            # One limit is waited for, and not one a try: nothing says that the address is right.
            if isinstance(error, httpx2.ConnectTimeout) and not self.reached:
                raise NoConnectionError from error
            raise
        finally:
            if not is_completion:
                pending.claim.close()
                if self._budget:
                    self._budget.settle(pending.held, None, may_be_charged)

    @asynccontextmanager
    async def _passing(self) -> AsyncIterator[float]:
        """Wait until the gate is open or the run has ended, and yield the time of sending."""
        if self._refusals and not self.ended.is_set():
            async with self._one_by_one:
                # The gate is open again if the request before was answered.
                if self._refusals:
                    await self.clock.wait(self.ended, self._opens - self.clock.now())
                    yield self.clock.now()
                    return
        yield self.clock.now()

    def heard(self, sent: float, status: int) -> None:
        """Note an answer that is no refusal for the rate; a success opens the gate.

        Args:
            sent: when the request was sent.
            status: the answer's HTTP status.
        """
        self._since = None
        # By the time of sending: requests that went out together may be answered in any order.
        if status == 200:
            self._let_through = max(self._let_through, sent)
        # A request that was sent before the gate closed does not open it.
        if status < 500 and sent >= self._closed:
            self._refusals = 0

    def refused(self, sent: float, after: float | None, words: str) -> None:
        """Close the gate, for longer each time, since a request was refused for the rate.

        Args:
            sent: when the request was sent.
            after: the least number of seconds that the server wants to be left alone; None: it does not say.
            words: the server's message.

        Raises:
            EngineError: the server wants a longer wait than :data:`MAX_WAIT`, or has been waited for that long.
        """
        now = self.clock.now()
        # The clock of MAX_WAIT runs from the first refusal that no answer has followed.
        if self._since is None:
            self._since = now

        # A request that went out with others that were refused says nothing new.
        if sent >= self._closed:
            self._refusals += 1
            self._closed = now
            # The exponent is limited, since a float overflows.
            doubled = FIRST_PAUSE * 2.0 ** min(self._refusals - 1, 16)
            # Drawn, so that several runs that were refused together do not come back together.
            pause = min(doubled, LONGEST_PAUSE) * random.uniform(0.75, 1.0)
            self._opens = now + max(pause, after or 0.0)
        # It may still know better how long to wait.
        elif after is not None:
            self._opens = max(self._opens, now + after)

        if self._opens - self._since > MAX_WAIT:
            behaviour = "lets no request through"
            if after is not None and after > MAX_WAIT:
                behaviour = f"wants to be left alone for {duration(after)}"
            message = ""
            if words:
                message = f": {words}"
            raise EngineError(
                f"{self._address} limits the rate of requests and {behaviour} (HTTP 429{message}); "
                f"{duration(MAX_WAIT)} without an answer are waited for; every answer is kept: run the same command "
                f"again later"
            )

    def _is_its_own(self, pending: Pending, response: httpx2.Response) -> bool:
        """Return whether a refusal for the rate is one that waiting does not help.

        The request is too large, the account is empty, or the server lets others through and never this one.
        """
        pending.refusals += 1
        pending.first_refused = min(pending.first_refused, self.clock.now())
        others_pass = pending.refusals >= OWN and self._let_through >= pending.first_refused
        is_too_large = "too large" in response.text.lower()
        return others_pass or is_too_large or is_empty_account(429, response.text, pending.prompt)


async def read_whole(response: httpx2.Response) -> None:
    """Read an answer into its response, up to :data:`LARGEST` bytes: anything longer is no completion."""
    body = bytearray()
    async for part in response.aiter_bytes(CHUNK):
        body += part
        if len(body) > LARGEST:
            break
    response._content = bytes(body[:LARGEST])
    await response.aclose()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait; None where it does not say.

    They stand in the header ``retry-after-ms`` or ``Retry-After``, the second of which may be a date.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(ValueError):
            seconds = float(headers.get(name, "")) * unit
            if math.isfinite(seconds):
                return max(0.0, seconds)
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    return None
