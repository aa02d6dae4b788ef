"""Text generation by an OpenAI-compatible server (a provider's API, vLLM, llama.cpp, …)."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from judgetrain.config import EngineConfig
from judgetrain.engines.answers import AnswerStore, Budget
from judgetrain.engines.base import Choice, Completion, FinishReason, Request, Sampling, places
from judgetrain.engines.choices import LOGPROBS, choices_of
from judgetrain.engines.neutralise import neutralise_known
from judgetrain.errors import EngineError, JudgetrainError

if TYPE_CHECKING:
    import httpx

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
FATAL = {401: "the key is wrong or missing", 403: "the key may not use it", 404: "no such model or endpoint"}
LONGEST_WAIT = 60.0
"""Upper bound of one pause between tries, seconds (``Retry-After`` may ask for up to twice it)."""
OUTAGE = 8
"""Requests given up in a row, with no answer between them, that are taken for an outage of the server."""

SAID = 200
"""Characters of a refusing server's message that are repeated."""


@dataclass(frozen=True)
class _Failure:
    """Why a try gave nothing; ``after``: the server's Retry-After, seconds; ``again``: whether to try again;
    ``unreachable``: there was no connection, which no single request can be the cause of."""

    reason: str
    after: float | None = None
    again: bool = True
    unreachable: bool = False


class _Call:
    """What the requests of one call share: the connection, the slots, and the error that ends the run."""

    def __init__(self, client: httpx.AsyncClient, slots: asyncio.Semaphore) -> None:
        self.client, self.slots, self.ended = client, slots, asyncio.Event()
        self.fatal: JudgetrainError | None = None

    def end(self, error: JudgetrainError) -> None:
        """End the run with the first error; requests under way are finished, no other is begun."""
        self.fatal = self.fatal or error
        self.ended.set()


class OpenAIEngine:
    """Asks ``config.base_url`` for chat completions of the model ``config.model.path``, several at once.

    A request that keeps failing becomes a completion with ``finish_reason`` "error"; a key, model or endpoint that
    is refused, a server that is gone and a budget that is spent end the run: requests under way are waited for, what
    is finished stays, and the same command goes on from there. The key is read from the environment when needed and
    appears in no message.

    Args:
        config: server, model and how to try again.
        answers: where answers are kept, and looked up before anything is sent. A request's seed then follows from its
            content, whatever else is asked with it.
        budget: what may be sent.

    Raises:
        EngineError: httpx is missing or no model is named.
    """

    def __init__(self, config: EngineConfig, answers: AnswerStore | None = None, budget: Budget | None = None) -> None:
        try:
            import httpx
        except ImportError as error:
            raise EngineError("engine.type=openai needs httpx: pip install 'judgetrain[openai]'") from error
        if not config.model.path:
            raise EngineError("engine.model.path is empty: for engine.type=openai it is the model's name at the server")
        self.name = config.name or config.model.path
        self._config = config
        self._tls = httpx.create_ssl_context()  # made once: reading the certificates takes longer than a request
        self._answers, self._budget = answers, budget
        self._first_wait = 0.5
        self._answered = 0
        self._given_up = self._refused = 0
        self._limit_key = "max_tokens"

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request, in order; each sends ``seed`` plus its place, which servers may ignore.

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
        base = self._config.base_url.rstrip("/") + "/"
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        model = self._config.model.path
        contents: Sequence[dict[str, Any]] = (
            self._answers.contents(model, requests)
            if self._answers
            else [{"seed": (seed + place) % 2**31} for place in places(requests)]
        )
        async with httpx.AsyncClient(
            base_url=base, headers=headers, limits=limits, timeout=self._config.timeout, verify=self._tls
        ) as client:
            call = _Call(client, asyncio.Semaphore(self._config.concurrency))
            tasks = [self._complete(call, *item) for item in zip(requests, contents, strict=True)]
            done = await asyncio.gather(*tasks)
        if call.fatal:
            raise call.fatal
        return [completion for completion in done if completion]

    async def _complete(self, call: _Call, request: Request, content: Mapping[str, Any]) -> Completion | None:
        """Try until there is an answer or the tries are used up; a waiting request leaves its slot to others.

        None when the run ends before there is one.
        """
        if self._answers and (known := self._answers.get(content)):
            return known
        jitter = random.Random(json.dumps(content, sort_keys=True))
        failure = _Failure("not tried")
        answered = self._answered
        try:
            for attempt in range(self._config.max_retries + 1):
                async with call.slots:
                    if call.fatal:
                        return None
                    outcome = await self._try(call.client, request, content["seed"])
                if isinstance(outcome, Completion):
                    self._answered, self._given_up = self._answered + 1, 0
                    if self._answers and outcome.finish_reason != "too_long":  # which another server may not find
                        self._answers.put(content, outcome)
                    return outcome
                failure = outcome
                if not failure.again or attempt == self._config.max_retries:
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(call.ended.wait(), self._pause(attempt, failure.after, jitter))
            self._stop_at_an_outage(failure, answered)
        except JudgetrainError as error:
            call.end(error)
            return None
        return Completion("", 0, 0, "error", failure.reason)

    def _stop_at_an_outage(self, failure: _Failure, answered: int) -> None:
        """End the run when nothing was answered while this request was tried, unless it may itself be the cause."""
        if not failure.again:
            self._refused += 1
            if self._refused >= OUTAGE and not self._answered:
                raise EngineError(
                    f"{self._config.base_url} refuses each of the first {OUTAGE} requests ({failure.reason}); check "
                    f"engine.base_url and engine.model.path={self._config.model.path}"
                )
            return
        self._given_up += 1
        if self._answered == answered and (failure.unreachable or self._given_up >= OUTAGE):
            raise EngineError(
                f"{failure.reason}, {self._config.max_retries + 1} times; check that the server runs and that "
                "engine.base_url is its address, then run the same command again: it goes on where it stopped"
            )

    def _pause(self, attempt: int, after: float | None, jitter: random.Random) -> float:
        """Seconds before the next try: exponential with full jitter above half, never less than Retry-After."""
        backoff: float = min(self._first_wait * 2**attempt, LONGEST_WAIT) * jitter.uniform(0.5, 1.0)
        return max(backoff, min(after or 0.0, 2 * LONGEST_WAIT))

    async def _try(self, client: httpx.AsyncClient, request: Request, seed: int) -> Completion | _Failure:
        """One try, paid for from the budget."""
        if self._budget is None:
            return await self._post(client, request, seed)
        held, outcome = self._budget.send(request), None
        try:
            outcome = await self._post(client, request, seed)
            return outcome
        finally:
            self._budget.settle(held, outcome if isinstance(outcome, Completion) else None)

    async def _post(self, client: httpx.AsyncClient, request: Request, seed: int) -> Completion | _Failure:
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
                f"{self._config.base_url} answered {response.status_code} for model {self._config.model.path}: "
                f"{reason}; check engine.base_url, engine.model.path and the variable {self._config.api_key_env}"
            )
        if response.status_code == 400:
            return self._bad_request(response.text)
        if response.status_code != 200:
            again = response.status_code in RETRIED or response.status_code >= 500
            said = "" if again else self._said(response.text)
            return _Failure(f"HTTP {response.status_code}{said}", _retry_after(response.headers), again)
        try:
            return _read(response.json(), request.sampling)
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
        return _Failure(f"HTTP 400{self._said(text)}", again="max_completion_tokens" in lowered)

    def _said(self, text: str) -> str:
        """What a refusing server says, as the rest of a line; without the key, should it repeat it."""
        key = os.environ.get(self._config.api_key_env, "").strip()
        line = " ".join((text.replace(key, "[key]") if key else text).split())
        return f": {line[:SAID]}" if line else ""

    def _body(self, request: Request, seed: int) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self._config.model.path,
            "messages": [{**m, "content": neutralise_known(m["content"])} for m in request.messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            **({"top_k": sampling.top_k} if sampling.top_k else {}),
            self._limit_key: sampling.max_new_tokens,
            "seed": seed,
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if sampling.candidates:
            body |= {"logprobs": True, "top_logprobs": LOGPROBS}
        if sampling.pattern:
            body["structured_outputs"] = {"regex": sampling.pattern}  # vLLM's server; others answer 400
        return body


def _read(answer: Mapping[str, Any], sampling: Sampling) -> Completion:
    """The completion of a parsed answer; raises what a malformed answer raises."""
    choice = answer["choices"][0]
    text = choice["message"]["content"]
    if not isinstance(text, str):
        raise TypeError("no content")
    usage = answer.get("usage") or {}
    reason: FinishReason = "length" if choice.get("finish_reason") == "length" else "stop"
    cut = min((at for at in (text.find(stop) for stop in sampling.stop) if at >= 0), default=None)
    if cut is not None:  # a server that returns the stop string or ignores it
        text, reason = text[:cut], "stop"
    prompt, generated = (int(usage.get(f"{kind}_tokens") or 0) for kind in ("prompt", "completion"))
    return Completion(text, prompt, generated, reason, choices=tuple(_choices(choice, sampling.candidates, text)))


def _choices(choice: Mapping[str, Any], candidates: Sequence[str], text: str) -> Iterator[Choice]:
    """The candidates' probabilities, where the server reports any."""
    reported = (choice.get("logprobs") or {}).get("content") or []
    ranked = ((t["token"], [(o["token"], o["logprob"]) for o in t.get("top_logprobs") or []]) for t in reported)
    yield from choices_of(ranked, candidates, text)


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
