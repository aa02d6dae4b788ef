"""A server's rate limit: one gate for all requests, which waits as long as the server says."""

from __future__ import annotations

import asyncio
import math
import random
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from email.utils import parsedate_to_datetime

from judgetrain.artifacts.console import duration
from judgetrain.errors import EngineError

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds that the gate stays closed where the server does not say for how long: the first time, and at most."""

OWN = 8
"""Refusals of one request, with others let through after the first, that are taken for its own fault."""

WEEK = 7 * 86400.0

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_DURATION = re.compile(f"(?:{_PART.pattern})+")


class Clock:
    """Time as the pauses of an engine see it; ``speed`` makes it pass faster, for tests."""

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


class Gate:
    """Lets requests pass while the server takes them, and holds all of them while it refuses for their number (429).

    Afterwards they pass one by one until one is answered: a server that still refuses is asked once, not by all.

    Args:
        max_wait: seconds that requests may be held without any answer in between.
        clock: the time.
        address: the server's, for messages.
    """

    def __init__(self, max_wait: float, clock: Clock, address: str) -> None:
        self._max_wait, self.clock, self._address = max_wait, clock, address
        self._refusals = 0
        self._closed = self._opens = -math.inf
        self._since: float | None = None
        self.let_through = -math.inf
        """When the latest of the requests that were answered was sent."""

    def begin(self) -> None:
        """A call begins: how long an earlier one was held says nothing about it."""
        self._since = None

    @asynccontextmanager
    async def passing(self, ended: asyncio.Event, one_by_one: asyncio.Lock) -> AsyncIterator[float]:
        """Wait until the server may be asked, or the run has ended; gives the time of sending."""
        if self._refusals and not ended.is_set():
            async with one_by_one:
                if self._refusals:  # else the one before was answered
                    await self.clock.wait(ended, self._opens - self.clock.now())
                    yield self.clock.now()
                    return
        yield self.clock.now()

    def answered(self, sent: float) -> None:
        """A request sent at this time was answered; one that was sent before the gate closed does not open it."""
        self.let_through = max(self.let_through, sent)
        self.heard(sent, taken=True)

    def heard(self, sent: float, taken: bool) -> None:
        """The server said to a request sent then something else than to wait; ``taken``: it looked at the request."""
        self._since = None
        if taken and sent >= self._closed:
            self._refusals = 0

    def refused(self, sent: float, after: float | None, said: str) -> None:
        """Close the gate, for longer each time and for ``after`` seconds at least, as a request sent then was refused.

        Raises:
            EngineError: the server wants a longer wait than is allowed, or has been waited for that long.
        """
        now = self.clock.now()
        self._since = now if self._since is None else self._since
        if sent >= self._closed:  # else it went out with others that were refused, and says nothing new
            self._refusals += 1
            self._closed = now
            pause = min(FIRST_PAUSE * 2.0 ** min(self._refusals - 1, 16), LONGEST_PAUSE) * random.uniform(0.75, 1.0)
            self._opens = now + max(pause, after or 0.0)
        elif after is not None:
            self._opens = max(self._opens, now + after)
        if self._opens - self._since > self._max_wait:
            long = after is not None and after > self._max_wait
            wants = f"wants to be left alone for {duration(after or 0.0)}" if long else "lets no request through"
            raise EngineError(
                f"{self._address} limits the rate of requests and {wants}, engine.max_wait={self._max_wait:g} s are "
                f"allowed without an answer (HTTP 429{said}); every answer is kept: raise engine.max_wait, or run the "
                "same command again later, and it goes on where it stopped"
            )


class Refusals:
    """The times that one request was refused for the rate (429)."""

    def __init__(self) -> None:
        self._number, self._first = 0, math.inf

    def are_its_own(self, gate: Gate) -> bool:
        """Count one more; whether the request itself is the cause: the server lets others through, and never it."""
        self._number += 1
        self._first = min(self._first, gate.clock.now())
        return self._number >= OWN and gate.let_through >= self._first


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a refusing server asks to wait; None where it does not say.

    From ``retry-after-ms``, ``Retry-After`` (seconds or an HTTP date), else from ``x-ratelimit-reset-*``
    (``1m30s``, ``20ms``, seconds, or a time): of the limits that have nothing remaining, the last; where none says
    so, the first.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        seconds = _number(headers.get(name))
        if seconds is not None:
            return seconds * unit
    with suppress(ValueError, TypeError, OverflowError):
        date = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, date.timestamp() - time.time())
    resets, exhausted = [], []
    for name, value in headers.items():
        prefix, reset, limit = name.lower().partition("ratelimit-reset")
        seconds = _duration(value) if reset else None
        if seconds is not None:
            resets.append(seconds)
            if _number(headers.get(f"{prefix}ratelimit-remaining{limit}")) == 0:
                exhausted.append(seconds)
    return max(exhausted) if exhausted else min(resets, default=None)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


def _duration(text: str) -> float | None:
    """Seconds of a duration (``6m0s``), a number of seconds, or until a time in seconds or milliseconds since 1970.

    A number that would mean more than a week is in some other unit, and None.
    """
    number = _number(text)
    if number is None:
        parts = _PART.findall(text) if _DURATION.fullmatch(text.strip()) else []
        return sum(float(value) * _UNITS[unit] for value, unit in parts) if parts else None
    number = number / 1000 if number > 1e12 else number
    seconds = max(0.0, number - time.time()) if number > 1e9 else number
    return seconds if seconds <= WEEK else None
