"""Text generation by an OpenAI-compatible server (a provider's API, vLLM, llama.cpp, …)."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.shards import tokens_of
from judgetrain.engines.answers import AnswerStore, Budget, asked_again
from judgetrain.engines.base import UNANSWERED, Completion, Request, places
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.engines.openai.call import BROKEN, Asked, Call
from judgetrain.engines.openai.rate_limit import Clock, Gate
from judgetrain.engines.openai.refusals import Failure, UnusableError
from judgetrain.engines.openai.server import Server
from judgetrain.errors import EngineError, UnansweredError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

log = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
"""The first pause between tries and the longest, seconds (``Retry-After`` may ask for up to twice it)."""
OUTAGE = 8
"""Requests given up in a row, with no answer between them, that are taken for an outage of the server, unless it has
answered others of the same call: in the first pass, or in an earlier run."""

PASSES = 2
"""How often a call goes over its requests: those that were given up are tried anew when all others are done."""

OTHERS = 0.2
"""Seconds until an answer that another process is asking for is looked for again."""


class OpenAIEngine:
    """Asks ``config.base_url`` for chat completions of the model ``config.model``, several at once.

    Where the server limits the rate (429), all requests wait together, and no try is used up, unless it is one request
    alone that is refused. A request that keeps failing in other ways is tried once more when all others are done, and
    then becomes a completion with ``finish_reason`` "error"; with ``answers``, and without ``engine.keep_errors``,
    :class:`UnansweredError` says so in place of the completions, so that nobody takes the call for finished. A request
    that the server refuses for what it is (400) is such a completion at once, and always. A key, model or endpoint that
    is refused, an account that is empty, a server that is gone and a budget that is spent end the run: requests under
    way are waited for, what is finished stays, and the same command goes on from there. The key is read from the
    environment when needed and appears in no message.

    Args:
        config: server, model and how to try again.
        answers: where answers are kept, and looked up before anything is sent. A request's seed then follows from its
            content, whatever else is asked with it.
        budget: what may be sent.
        clock: the time that pauses take.

    Raises:
        EngineError: no model is named.
    """

    def __init__(
        self,
        config: OpenAIEngineConfig,
        answers: AnswerStore | None = None,
        budget: Budget | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not config.model:
            raise EngineError("engine.model is empty: for engine.type=openai it is the model's name at the server")
        self.name = config.name or config.model
        self._config = config
        self._server = Server(config)
        self._answers, self._budget = answers, budget
        self._clock = clock or Clock()
        self._gate = Gate(config.max_wait, self._clock, self._server.address.shown)
        self._told: set[str] = set()
        self._answered = 0
        self._known = False
        self._given_up = self._refused = 0

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request, in order; each sends ``seed`` plus its place, which servers may ignore.

        Raises:
            UnansweredError: some requests were given up; the answers to all others are kept.
            EngineError: 401 to 404 from the server, or the account is empty; or it cannot be reached, or gives up on
                ``OUTAGE`` requests in a row, though each was tried ``engine.max_retries`` times more and no other of
                them has an answer; or its rate limit outlasts ``engine.max_wait``.
        """
        if not requests:
            return []
        return asyncio.run(self._generate(requests, seed))

    def close(self) -> None:
        """Nothing to free: connections live as long as a call."""

    async def _generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        contents: Sequence[Mapping[str, Any]] = (
            self._answers.contents(self._config.model, requests, self._server.address.shown)
            if self._answers
            else [{"seed": (seed + place) % 2**31} for place in places(requests)]
        )
        every = [Asked(request, content) for request, content in zip(requests, contents, strict=True)]
        async with self._server.client() as client:
            call = Call(client, asyncio.Semaphore(self._config.concurrency))
            self._gate.begin()
            for _ in range(PASSES):
                self._given_up = 0
                await asyncio.gather(*(self._complete(call, asked) for asked in every if asked.due))
                if call.fatal:
                    raise call.fatal
                call.served = any(isinstance(asked.outcome, Completion) for asked in every)
        return self._settled([asked.outcome for asked in every])

    def _settled(self, done: Sequence[Completion | Failure | None]) -> list[Completion]:
        """The completions of a call, those that say why there is no answer among them; new reasons are told."""
        given_up = [d.reason for d in done if isinstance(d, Failure) and d.again]
        if given_up and self._answers and not self._config.keep_errors:
            raise UnansweredError(len(given_up), given_up[-1])
        found = [Completion(finish_reason="error", error=d.reason) if isinstance(d, Failure) else d for d in done if d]
        for reason, number in Counter(c.error for c in found if c.error).items():
            if reason not in self._told:
                self._told.add(reason)
                log.warning("%s: %d of %d requests have no answer: %s", self.name, number, len(done), reason)
        return found

    async def _complete(self, call: Call, asked: Asked) -> None:
        """Try until there is an answer or the tries are used up; what cannot be read is asked again if so wished.

        No outcome when the run ends before there is one.
        """
        before: list[Completion] = []
        try:
            for times in range(self._config.ask_again + 1):
                outcome = await self._answer(call, asked, asked_again(asked.content, times))
                if not isinstance(outcome, Completion):
                    if before and isinstance(outcome, Failure) and not outcome.again:
                        outcome = before[-1]  # what is paid for stays, however little it says
                    break
                outcome = replace(outcome, **tokens_of([*before, outcome]))
                if _readable(asked.request, outcome):
                    break
                before = [outcome]
            asked.outcome = outcome
        except Exception as error:  # whatever it is: others are under way, and paid
            call.end(error)

    async def _answer(self, call: Call, asked: Asked, content: Mapping[str, Any]) -> Completion | Failure | None:
        """The answer that is kept under a content, or else the server's; a request that pauses leaves its slot."""
        if known := self._kept(call, content):
            return known
        jitter = random.Random(json.dumps(content, sort_keys=True))
        answered, tries = self._answered, 0
        with ExitStack() as claim:
            free = self._answers is None
            while True:
                async with call.slots, self._gate.passing(call.ended, call.one_by_one) as sent:
                    if call.fatal:
                        return None
                    if self._answers and not free:
                        claim.close()
                        free = claim.enter_context(self._answers.claimed(content))
                        if known := self._kept(call, content):  # by another process, by now
                            return known
                    outcome = await self._try(call.client, asked.request, content["seed"]) if free else None
                    if isinstance(outcome, Completion):
                        return self._taken(outcome, content, sent)
                    if outcome and outcome.limited and not asked.refusals.are_its_own(self._gate):
                        self._gate.refused(sent, outcome.after, outcome.said)
                        continue
                    if outcome and outcome.status not in (None, 429):
                        self._gate.heard(sent, taken=outcome.status < 500)
                if outcome is None:  # another process is asking for it
                    await asyncio.sleep(OTHERS)
                    continue
                tries, asked.broken = tries + 1, asked.broken + outcome.broken
                if not outcome.again or tries > self._config.max_retries or asked.broken >= BROKEN:
                    self._stop_at_an_outage(outcome, answered, call.served, tries)
                    return outcome
                await self._clock.wait(call.ended, self._pause(tries - 1, outcome.after, jitter))

    def _kept(self, call: Call, content: Mapping[str, Any]) -> Completion | None:
        """The answer that is kept, if there is one."""
        known = self._answers.get(content) if self._answers else None
        if known:
            self._known = call.served = True
        return known

    def _taken(self, completion: Completion, content: Mapping[str, Any], sent: float) -> Completion:
        """An answer, counted and kept."""
        self._answered, self._given_up = self._answered + 1, 0
        self._gate.answered(sent)
        if self._answers and completion.finish_reason != "too_long":  # which another server may not find
            self._answers.put(content, completion)
        return completion

    def _stop_at_an_outage(self, failure: Failure, answered: int, served: bool, tries: int) -> None:
        """End the run when nothing was answered while this request was tried, unless it may itself be the cause."""
        if not failure.again:
            self._refused += 1
            if self._refused >= OUTAGE and not (self._answered or self._known):
                raise EngineError(
                    f"{self._server.address.shown} refuses each of the first {OUTAGE} requests ({failure.reason}); "
                    f"check its base_url and model={self._config.model}"
                )
            return
        self._given_up += 1
        outage = self._given_up >= OUTAGE and not served
        if self._answered == answered and (failure.unreachable or outage):
            raise EngineError(
                f"{failure.reason}, {tries} times; check that the server runs and that "
                "base_url is its address, then run the same command again: it goes on where it stopped"
            )

    def _pause(self, attempt: int, after: float | None, jitter: random.Random) -> float:
        """Seconds before the next try: exponential with full jitter above half, never less than Retry-After."""
        backoff: float = min(FIRST_WAIT * 2**attempt, LONGEST_WAIT) * jitter.uniform(0.5, 1.0)
        return max(backoff, min(after or 0.0, 2 * LONGEST_WAIT))

    async def _try(self, client: AsyncOpenAI, request: Request, seed: int) -> Completion | Failure:
        """One try, paid for from the budget."""
        if self._budget is None:
            return await self._server.ask(client, request, seed)
        held = self._budget.send(request)
        try:
            outcome = await self._server.ask(client, request, seed)
        except EngineError as error:
            self._budget.settle(held, None, charged=isinstance(error, UnusableError))
            raise
        if isinstance(outcome, Failure):
            self._budget.settle(held, None, outcome.charged)
        else:
            self._budget.settle(held, outcome)
        return outcome


def _readable(request: Request, completion: Completion) -> bool:
    """Whether an answer is of use to who asked, or asking again can make none that is."""
    if completion.finish_reason == "no_content":
        return False
    return completion.finish_reason in UNANSWERED or request.readable is None or request.readable(completion)
