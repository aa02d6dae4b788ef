"""Text generation by an OpenAI-compatible server (a provider's API, vLLM, llama.cpp, …)."""

import asyncio
import json
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from judgetrain.engines.answers import AnswerStore, Budget, writable
from judgetrain.engines.base import LOGPROBS, Completion, Request, places
from judgetrain.engines.config import OpenAIEngineConfig, own_host, server_address
from judgetrain.engines.openai import gate as gates
from judgetrain.engines.openai import reading
from judgetrain.engines.openai.gate import ASKED, Clock, GatedClient, NotSentError, Pending
from judgetrain.engines.openai.reading import Failure
from judgetrain.engines.prompting import neutralise_known
from judgetrain.errors import EngineError, UnansweredError

log = logging.getLogger(__name__)

RETRIES = 6
"""Tries that the client makes after the first (time-outs, lost connections, 408, 409, 5xx): half a minute in all."""
RUNS = 3
"""Runs that give up on one request, of which the last takes it as unanswered: else no run would ever finish."""
BROKEN = 3
"""Answers (200) to one request that are no completion, after which it is given up: each of them may be charged."""
OUTAGE = 8
"""Requests given up in a row that are taken for an outage, unless the server has answered others."""
OTHERS = 0.2
"""Seconds until an answer that another process is asking for is looked for again."""
UNLIKELY = 12
"""Characters of a key that no answer holds by chance: ``EMPTY`` is a word of answers."""
NEUTRAL = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sent to servers of one's own (vLLM, SGLang, llama.cpp), which otherwise take them from the model's files; left out
for a server that refuses one of them by name."""

Outcome = Completion | Failure


class OpenAIEngine:
    """Asks ``config.base_url`` for chat completions of the model ``config.model``, several at once.

    OpenAI's client tries again what may pass; where the server limits the rate (429), all requests wait together
    (:mod:`~judgetrain.engines.openai.gate`). A request that keeps failing becomes a completion with ``finish_reason``
    "error"; with ``answers``, the first runs raise :class:`UnansweredError` in place of the completions. A request
    that the server refuses for what it is (400) is such a completion always. A key, model or endpoint that is refused,
    an account that is empty, a server that is gone and a budget that is spent end the run: requests under way are
    waited for, what is finished stays, and the same command goes on from there. The key is read from the environment
    when needed and appears in no message.

    Args:
        config: server and model.
        answers: where answers are kept, and looked up before anything is sent. A request's seed then follows from its
            content, whatever else is asked with it.
        budget: what may be sent.
    """

    def __init__(
        self, config: OpenAIEngineConfig, answers: AnswerStore | None = None, budget: Budget | None = None
    ) -> None:
        self.name = config.name or config.model
        self._config, self._answers, self._budget, self._clock = config, answers, budget, Clock()
        self._tls = httpx2.create_ssl_context()  # made once: reading the certificates takes longer than a request
        self._limit_key = "max_tokens"
        self._says_all = own_host(urlsplit(config.base_url).hostname or "")
        self._told: set[str] = set()
        self._answered = self._in_row = 0
        self._served = False
        self._fatal: Exception | None = None

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request, in order; each sends ``seed`` plus its place, which servers may ignore
        (UnansweredError: some requests were given up; the answers to all others are kept; EngineError: 401 to 404 from
        the server, or the account is empty; or it cannot be reached, or gives up on ``OUTAGE`` requests in a row and
        has answered no other of them; or its rate limit lasts too long)."""
        return asyncio.run(self._generate(requests, seed)) if requests else []

    def close(self) -> None:
        """Nothing to free: connections live as long as a call."""

    async def _generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        contents: Sequence[Mapping[str, Any]] = (
            self._answers.contents(self._config.model, requests, self._address, self._parameters)
            if self._answers
            else [{"seed": (seed + place) % 2**31} for place in places(requests)]
        )
        self._in_row, self._served, self._fatal = 0, False, None
        gate = GatedClient(self._config, self._key, self._clock, self._budget, verify=self._tls)
        async with self._client(gate) as client:
            every = [Pending(r, content, self._answers) for r, content in zip(requests, contents, strict=True)]
            done = await asyncio.gather(*(self._complete(gate, client, asked) for asked in every))
        if self._fatal:
            raise self._fatal
        return self._settled(done, contents)

    def _settled(self, done: Sequence[Outcome | None], contents: Sequence[Mapping[str, Any]]) -> list[Completion]:
        """The completions of a call, those that say why there is no answer among them; new reasons are told."""
        lost = [(d.reason, c) for d, c in zip(done, contents, strict=True) if isinstance(d, Failure) and d.passing]
        if self._answers and (again := [reason for reason, c in lost if self._answers.given_up(c) < RUNS]):
            raise UnansweredError(len(again), again[-1])
        found = [Completion(finish_reason="error", error=d.reason) if isinstance(d, Failure) else d for d in done if d]
        for reason, number in Counter(c.error for c in found if c.error).items():
            if reason not in self._told:
                self._told.add(reason)
                log.warning("%s: %d of %d requests have no answer: %s", self.name, number, len(done), reason)
        return found

    async def _complete(self, gate: GatedClient, client: openai.AsyncOpenAI, asked: Pending) -> Outcome | None:
        """The answer that is kept, or else the server's; None where the run ends before there is one.

        The first error of any request ends the run: those under way are finished, no other is begun.
        """
        ASKED.set(asked)
        try:
            while not gate.ended.is_set():
                if known := self._answers.get(asked.content) if self._answers else None:
                    self._served = True
                    return known
                with asked.claim:
                    try:
                        return await self._ask(client, asked)
                    except NotSentError:
                        asked.claim.close()
                await asyncio.sleep(OTHERS)
        except Exception as error:  # whatever it is: others are under way, and paid
            self._fatal = self._fatal or error
            gate.ended.set()
        return None

    async def _ask(self, client: openai.AsyncOpenAI, asked: Pending) -> Outcome:
        """The server's answer, counted and kept, or why there is none."""
        before, tries = self._answered, 1
        while isinstance(outcome := await self._once(client, asked), Failure) and outcome.at_once and tries < BROKEN:
            tries += 1
        if isinstance(outcome, Failure):
            self._stop_at_an_outage(outcome, self._answered > before)
            return outcome
        self._answered, self._in_row, self._served = self._answered + 1, 0, True
        if self._answers and outcome.finish_reason != "too_long":  # which another server may not find
            self._answers.put(asked.content, outcome)
        return outcome

    def _stop_at_an_outage(self, failure: Failure, answered_others: bool) -> None:
        """End the run when nothing was answered while this request was tried, unless it may itself be the cause."""
        self._in_row += 1
        silent = not self._served and (failure.passing or not self._answered)
        if (failure.unreachable and not answered_others) or (silent and self._in_row >= OUTAGE):
            told = f"{self._address} answers no request, {self._in_row} in a row ({failure.reason})"
            what = f"check that it runs, base_url and model={self._config.model}"
            raise EngineError(f"{told}: {what}, and run the same command again: it goes on where it stopped")

    async def _once(self, client: openai.AsyncOpenAI, asked: Pending) -> Outcome:
        """What becomes of a request that the client carries, with its own retries."""
        request, limit_key, says_all = asked.request, self._limit_key, self._says_all
        create: Any = client.chat.completions.with_raw_response.create
        body = chat_body(self._config.model, request, asked.content["seed"], limit_key, says_all)
        body = with_parameters(body, self._parameters(request))
        unsent = ["OpenAI-Organization", "OpenAI-Project", *([] if self._key else ["Authorization"])]
        try:
            answer = await create(**body, extra_headers=dict.fromkeys(unsent, openai.omit))
        except openai.APITimeoutError:
            return Failure(reason=f"no answer within {gates.TIMEOUT:g} s")
        except openai.APIConnectionError as error:
            lost = type(error.__cause__).__name__
            unreachable = isinstance(error.__cause__, httpx2.ConnectError)
            return Failure(reason=f"cannot reach {self._address}: {lost}", unreachable=unreachable)
        except openai.APIStatusError as error:
            return self._refusal(error.status_code, error.response.text, asked, limit_key, says_all)
        if answer.status_code != 200:
            return self._refusal(answer.status_code, answer.text, asked, limit_key, says_all)
        completion = None
        try:  # JSON is UTF-8 whatever charset the header names
            completion = reading.read_completion(json.loads(answer.content), request)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            return Failure(reason="the answer is not a chat completion", at_once=True)
        finally:
            if self._budget:
                self._budget.settle(asked.held, completion, charged=True)
        if reading.is_other_model(completion.model, self._config.model):
            told = f"{self._address} was asked for model {self._config.model}, and {completion.model} answered"
            raise EngineError(f"{told}: its answers are not kept; set model={completion.model} to ask that one")
        text = reading.in_form(completion.text, request.form) if self._as_json(request) else completion.text
        text = reading.redact(text, self._key) if len(self._key) >= UNLIKELY else text
        return replace(completion, text=text, error=reading.redact(completion.error or "", self._key) or None)

    def _as_json(self, request: Request) -> bool:
        """Whether JSON is asked for; where probabilities are wanted their places are those of a text."""
        return self._config.json_schema and bool(request.form) and not request.sampling.candidates

    def _parameters(self, request: Request) -> dict[str, Any]:
        if not self._as_json(request):
            return self._config.extra_body
        asked = {"response_format": reading.response_format(request.form, request.step), "structured_outputs": None}
        return asked | self._config.extra_body

    def _refusal(self, status: int, text: str, asked: Pending, limit_key: str, says_all: bool) -> Outcome:
        """What a status other than success means: a request to give up or to ask again, or the end of the run.

        ``limit_key``: the name under which the request had its limit; ``says_all``: whether it had :data:`NEUTRAL`.
        """
        words, lowered, where = reading.words_of(text, self._key), text.lower(), self._address
        said = f": {words}" if words else ""
        if reading.is_empty_account(status, text, asked.prompt):
            told = f"{where} answered {status}{said}; the account has nothing left to pay with"
            raise EngineError(f"{told}: every answer is kept; fill it, and the same command goes on where it stopped")
        if status in reading.FATAL:
            told = f"{where} answered {status} for model {self._config.model}: {reading.FATAL[status]}{said}"
            raise EngineError(f"{told}; check engine.base_url, engine.model and variable {self._config.api_key_env}")
        if status == 400 and ("context_length" in lowered or "context length" in lowered):
            return Completion(finish_reason="too_long", error=f"HTTP 400{said}")
        if newer_name := status == 400 and "max_completion_tokens" in lowered and limit_key == "max_tokens":
            self._limit_key = "max_completion_tokens"
        if unknown := status in (400, 422) and says_all and any(name in lowered for name in NEUTRAL):
            self._says_all = False
        passing = status >= 500 or status in (408, 409, 429)
        return Failure(reason=f"HTTP {status}{said}", passing=passing, at_once=newer_name or unknown)

    def _client(self, gate: GatedClient) -> openai.AsyncOpenAI:
        """A client for one event loop; of ``OPENAI_...`` variables it takes only CUSTOM_HEADERS."""
        if not (self._key.isascii() and (self._key.isprintable() or not self._key)):
            raise EngineError(f"the environment variable {self._config.api_key_env} does not hold a usable key")
        return openai.AsyncOpenAI(
            api_key=self._key or "none",  # which is not sent; without it the client would take OPENAI_API_KEY
            base_url=self._address,
            default_query=server_address(self._config.base_url)[1],
            max_retries=RETRIES,
            timeout=gates.TIMEOUT,
            http_client=gate,
        )

    @property
    def _address(self) -> str:
        return server_address(self._config.base_url)[0]

    @property
    def _key(self) -> str:
        return os.environ.get(self._config.api_key_env, "").strip()


def chat_body(model: str, request: Request, seed: int, limit_key: str, says_all: bool = False) -> dict[str, Any]:
    """The parameters of a request for a chat completion; ``limit_key``: the server's name of the length limit.

    What is not OpenAI's own stands in ``extra_body``: vLLM's server takes it; others may answer 400. ``says_all``: the
    parameters of :data:`NEUTRAL` too, in place of what the model's generation_config.json has.
    """
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "messages": [{**m, "content": writable(neutralise_known(m["content"]))} for m in request.messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        limit_key: sampling.max_new_tokens,
        "seed": seed,
    }
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.candidates:
        body |= {"logprobs": True, "top_logprobs": LOGPROBS}
    extra = dict[str, Any](NEUTRAL if says_all else {}) | ({"top_k": sampling.top_k} if sampling.top_k else {})
    if sampling.pattern:
        extra |= {"structured_outputs": {"regex": sampling.pattern}}
    return body | ({"extra_body": extra} if extra else {})


def with_parameters(body: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A request's body with further parameters; what is None among them is not sent."""

    def kept(part: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in part.items() if name not in parameters}

    more = {name: value for name, value in parameters.items() if value is not None}
    extra = kept(body.get("extra_body", {})) | more
    own = {name: value for name, value in kept(body).items() if name != "extra_body"}
    return own | ({"extra_body": extra} if extra else {})
