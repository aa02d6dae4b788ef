"""Text generation by an OpenAI-compatible server (a provider's API, vLLM, llama.cpp, …)."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from judgetrain.config import EngineConfig
from judgetrain.engines.base import Completion, FinishReason, Request
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    import httpx

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
FATAL = {401: "the key is wrong or missing", 403: "the key may not use it", 404: "no such model or endpoint"}
LONGEST_WAIT = 60.0
"""Upper bound of one pause between tries, seconds (``Retry-After`` may ask for up to twice it)."""
OUTAGE = 8
"""Requests given up in a row, with no answer between them, that are taken for an outage of the server."""


@dataclass(frozen=True)
class _Failure:
    """Why a try gave nothing; ``after`` is the server's Retry-After, seconds; ``again`` whether to try again.

    ``unreachable``: there was no connection, which no single request can be the cause of.
    """

    reason: str
    after: float | None = None
    again: bool = True
    unreachable: bool = False


class OpenAIEngine:
    """Asks ``config.base_url`` for chat completions of the model ``config.model.path``, several at once.

    A request that keeps failing becomes a completion with ``finish_reason`` "error"; a key, model or endpoint that
    is refused, and a server that is gone, end the run, since every request would fail: what is finished stays, and
    the same command goes on from there. The key is read from the environment when needed and appears in no message.

    Raises:
        EngineError: httpx is missing or no model is named.
    """

    def __init__(self, config: EngineConfig) -> None:
        try:
            import httpx  # noqa: F401
        except ImportError as error:
            raise EngineError("engine.type=openai needs httpx: pip install 'judgetrain[openai]'") from error
        if not config.model.path:
            raise EngineError("engine.model.path is empty: for engine.type=openai it is the model's name at the server")
        self.name = config.name or config.model.path
        self._config = config
        self._first_wait = 0.5
        self._answers = 0
        self._given_up = 0
        self._limit_key = "max_tokens"

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request, in order; request ``i`` sends ``seed + i``, which servers may ignore.

        Raises:
            EngineError: 401, 403 or 404 from the server; or it cannot be reached, or gives up on ``OUTAGE`` requests
                in a row, though each was tried ``engine.max_retries`` times more.
        """
        if not requests:
            return []
        return asyncio.run(self._generate(requests, seed))

    def close(self) -> None:
        """Nothing to free: connections live as long as a call."""

    async def _generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        import httpx

        key = os.environ.get(self._config.api_key_env, "").strip()
        if not (key.isascii() and (key.isprintable() or not key)):
            raise EngineError(f"the environment variable {self._config.api_key_env} does not hold a usable key")
        limits = httpx.Limits(max_connections=self._config.concurrency)
        slots = asyncio.Semaphore(self._config.concurrency)
        base = self._config.base_url.rstrip("/") + "/"
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with httpx.AsyncClient(
            base_url=base, headers=headers, limits=limits, timeout=self._config.timeout
        ) as client:
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(self._complete(client, slots, request, (seed + i) % 2**31, i))
                        for i, request in enumerate(requests)
                    ]
            except* EngineError as errors:
                fatal = errors.exceptions[0]
                while isinstance(fatal, BaseExceptionGroup):
                    fatal = fatal.exceptions[0]
                raise fatal from None
        return [task.result() for task in tasks]

    async def _complete(
        self, client: httpx.AsyncClient, slots: asyncio.Semaphore, request: Request, seed: int, index: int
    ) -> Completion:
        """Try until there is an answer or the tries are used up; a waiting request leaves its slot to others."""
        jitter = random.Random(f"{seed} {index}")
        failure = _Failure("not tried")
        answers = self._answers
        for attempt in range(self._config.max_retries + 1):
            async with slots:
                outcome = await self._try(client, request, seed)
            if isinstance(outcome, Completion):
                self._answers, self._given_up = self._answers + 1, 0
                return outcome
            failure = outcome
            if not failure.again or attempt == self._config.max_retries:
                break
            await asyncio.sleep(self._pause(attempt, failure.after, jitter))
        self._stop_at_an_outage(failure, answers)
        return Completion("", 0, 0, "error", failure.reason)

    def _stop_at_an_outage(self, failure: _Failure, answers: int) -> None:
        """End the run when nothing was answered while this request was tried, unless it may itself be the cause."""
        if not failure.again:
            return
        self._given_up += 1
        if self._answers == answers and (failure.unreachable or self._given_up >= OUTAGE):
            raise EngineError(
                f"{failure.reason}, {self._config.max_retries + 1} times; check that the server runs and that "
                "engine.base_url is its address, then run the same command again: it goes on where it stopped"
            )

    def _pause(self, attempt: int, after: float | None, jitter: random.Random) -> float:
        """Seconds before the next try: exponential with full jitter above half, never less than Retry-After."""
        backoff: float = min(self._first_wait * 2**attempt, LONGEST_WAIT) * jitter.uniform(0.5, 1.0)
        return max(backoff, min(after or 0.0, 2 * LONGEST_WAIT))

    async def _try(self, client: httpx.AsyncClient, request: Request, seed: int) -> Completion | _Failure:
        import httpx

        try:
            response = await client.post("chat/completions", json=self._body(request, seed))
        except httpx.TimeoutException:
            return _Failure(f"no answer within {self._config.timeout:g} s")
        except httpx.HTTPError as error:
            return _Failure(
                f"cannot reach {self._config.base_url}: {type(error).__name__}",
                unreachable=isinstance(error, httpx.ConnectError),
            )
        if response.status_code in FATAL:
            reason = FATAL[response.status_code]
            raise EngineError(
                f"{self._config.base_url} answered {response.status_code} "
                f"for model {self._config.model.path}: {reason}; "
                f"check engine.base_url, engine.model.path and the environment variable {self._config.api_key_env}"
            )
        if response.status_code == 400:
            return self._bad_request(response.text)
        if response.status_code != 200:
            again = response.status_code in RETRIED or response.status_code >= 500
            return _Failure(f"HTTP {response.status_code}", _retry_after(response.headers), again)
        try:
            return _read(response.json(), request.sampling.stop)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return _Failure("the answer is not a chat completion")

    def _bad_request(self, text: str) -> Completion | _Failure:
        """What a 400 means: a prompt past the context, a newer name of the length limit, or a request to give up."""
        lowered = text.lower()
        if "context_length" in lowered or "context length" in lowered:
            return Completion("", 0, 0, "too_long")
        if "max_completion_tokens" in lowered and self._limit_key == "max_tokens":
            self._limit_key = "max_completion_tokens"
            return _Failure("HTTP 400: the server wants max_completion_tokens")
        return _Failure("HTTP 400", again="max_completion_tokens" in lowered)

    def _body(self, request: Request, seed: int) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self._config.model.path,
            "messages": [dict(message) for message in request.messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            **({"top_k": sampling.top_k} if sampling.top_k else {}),
            self._limit_key: sampling.max_new_tokens,
            "seed": seed,
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        return body


def _read(answer: Mapping[str, Any], stops: Sequence[str]) -> Completion:
    """The completion of a parsed answer; raises what a malformed answer raises."""
    choice = answer["choices"][0]
    text = choice["message"]["content"]
    if not isinstance(text, str):
        raise TypeError("no content")
    usage = answer.get("usage") or {}
    reason: FinishReason = "length" if choice.get("finish_reason") == "length" else "stop"
    cut = min((at for at in (text.find(stop) for stop in stops) if at >= 0), default=None)
    if cut is not None:  # a server that returns the stop string or ignores it
        text, reason = text[:cut], "stop"
    return Completion(text, int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0), reason)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header, given as a number or as a date."""
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
