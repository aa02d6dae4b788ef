"""Generate text by an OpenAI-compatible server (a provider's API, vLLM, llama.cpp, …)."""

import asyncio
import json
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from judgetrain.amounts import amount
from judgetrain.artifacts.heartbeat import doing
from judgetrain.engines.answers import AnswerStore, Budget, writable
from judgetrain.engines.base import LOGPROBS, Completion, Request, places, refuse_beginnings
from judgetrain.engines.config import OpenAIEngineConfig, own_host, server_address
from judgetrain.engines.openai import reading
from judgetrain.engines.openai.cut_prompts import Bound, Ceiling
from judgetrain.engines.openai.gate import (
    ASKED,
    Clock,
    GatedClient,
    NoConnectionError,
    NotSentError,
    Pending,
    WholeAnswerTimeout,
)
from judgetrain.engines.openai.reading import Failure
from judgetrain.engines.prompting import neutralise_known
from judgetrain.errors import EngineError, UnansweredError

log = logging.getLogger(__name__)

RETRIES = 6
"""Tries after the first (time-outs, lost connections, 408, 409, 5xx); the client makes them within half a minute."""
RUNS = 3
"""Runs that give up on the same request before one of them accepts that it has no answer, and finishes."""
BROKEN = 3
"""Answers (200) without a completion after which a request is given up, since each of them may be charged."""
OUTAGE = 8
"""Requests given up in a row that count as an outage, unless the server has answered others."""
OTHERS = 0.2
"""Seconds between two looks for an answer that another process is asking for."""
MAY_BE_LEFT_OUT = ("top_logprobs", "logprobs", "seed", "top_p", "temperature", "stop")
"""Parameters that a request can do without (``drop_refused``), in the order in which they are given up."""
WITHOUT = {
    "temperature": "the model then samples as its maker has it",
    "top_p": "the model then samples as its maker has it",
    "seed": "the same request may then get another answer",
    "stop": "answers are then cut here, and what stands behind a stop string is paid for",
    "logprobs": "there are then no probabilities of scores or verdicts (judge.score=parsed needs none)",
    "top_logprobs": "there are then no probabilities of scores or verdicts (judge.score=parsed needs none)",
}
"""What it means to leave out a parameter of :data:`MAY_BE_LEFT_OUT`."""
BY_A_KEY = {
    "response_format": "json_schema=false beside base_url asks for the answer without it",
    "structured_outputs": "judge.constrained=false leaves the form of judgments to the model",
}
"""How to leave out a parameter that no :data:`MAY_BE_LEFT_OUT` holds, since the form of an answer rests on it."""
ANY_MODEL = "any"
"""The value of ``answers_as`` that takes the answers of whatever model a server names."""
NEUTRAL = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Neutral sampling, for servers of one's own (vLLM, SGLang, llama.cpp), which otherwise read it from the model's files.

It is left out for a server that refuses one of these parameters by name.
"""

Outcome = Completion | Failure
"""The completion of a request, or the reason why there is none."""


@dataclass(frozen=True)
class BodyForm:
    """The form of requests that a server takes, as far as servers differ.

    Args:
        limit_key: the parameter that limits the answer's length, ``max_tokens`` or the newer ``max_completion_tokens``.
        neutral: whether the parameters of :data:`NEUTRAL` are sent.
        left_out: parameters that are not sent, since the server refused them.
        top_logprobs: how many of the likeliest tokens are asked for at each place.
    """

    limit_key: str
    neutral: bool
    left_out: frozenset[str] = frozenset()
    top_logprobs: int = LOGPROBS


class OpenAIEngine:
    """An engine that asks ``config.base_url`` for chat completions of ``config.model``, several at once.

    OpenAI's client repeats requests whose failure may pass. If the server limits the rate (429), all requests wait
    together (:mod:`~judgetrain.engines.openai.gate`).

    A request that keeps failing becomes a completion with ``finish_reason`` "error". With ``answers``, the runs before
    run :data:`RUNS` raise :class:`UnansweredError` instead. A request that the server refuses for its content (400)
    becomes such a completion at once.

    The run ends where the key, the model or the endpoint is refused, the account is empty, the server is gone or the
    budget is spent. Requests under way are waited for, finished answers stay, and the same command goes on from there.

    The key is read from the environment when it is needed, and stands in no message.

    Args:
        config: server and model.
        answers: keeps answers, which are looked up before anything is sent. A request's seed then follows from its
            content, whatever other requests are asked with it.
        budget: limits what is sent.
    """

    continues = False

    def __init__(
        self, config: OpenAIEngineConfig, answers: AnswerStore | None = None, budget: Budget | None = None
    ) -> None:
        self.name = config.name or config.model
        self._config = config
        self._answers = answers
        self._budget = budget
        self._clock = Clock()
        # Reading the certificates takes longer than a request.
        self._tls = httpx2.create_ssl_context()
        # The form begins as OpenAI's older one, which most servers take, and changes with what this one refuses.
        self._form = BodyForm(limit_key="max_tokens", neutral=own_host(urlsplit(config.base_url).hostname or ""))
        # Reasons for missing answers that were logged.
        self._logged: set[str] = set()
        # Requests that the server answered, and requests given up since the last of these.
        self._answered = 0
        self._given_up_in_row = 0
        # Whether the server has answered anything in an earlier call.
        self._is_reached = False
        # Whether an answer has come in this call, from the server or the store.
        self._has_served = False
        self._fatal: Exception | None = None
        self._ceiling = Ceiling()
        self._bound = Bound()

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """Return one completion per request, in order.

        Each request sends ``seed`` plus its place, which servers may ignore. With a store of answers, its content
        decides the seed.

        Raises:
            UnansweredError: some requests were given up; the answers to all others are kept.
            EngineError: the server answered 401 to 404, cannot be reached or gives up on :data:`OUTAGE` requests in a
                row without answering any; the account is empty; the rate limit lasts too long; the budget is spent; or
                a reply is to begin with given words.
        """
        if not requests:
            return []
        # A conversation's last message is the user's: few servers go on with one of the assistant's.
        refuse_beginnings(requests, self.name)
        # A loop for each call: callers are not asynchronous, and all of a call's requests are under way together.
        return asyncio.run(self._generate(requests, seed))

    def close(self) -> None:
        """Do nothing: connections live as long as a call."""

    async def _generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """Return one completion per request, in order."""
        contents = self._contents(requests, seed)
        self._given_up_in_row = 0
        self._has_served = False
        self._fatal = None
        gate = GatedClient(
            self._config, self._key, self._clock, self._budget, reached=self._is_reached, verify=self._tls
        )
        async with self._client(gate) as client:
            with doing(f"waiting for {self.name}", len(requests), "answers") as activity:
                tasks = []
                for request, content in zip(requests, contents, strict=True):
                    pending = Pending(request, content, self._answers)
                    task = asyncio.ensure_future(self._complete(gate, client, pending))
                    task.add_done_callback(lambda _: activity.advance())
                    tasks.append(task)
                outcomes = await asyncio.gather(*tasks)
        self._is_reached = gate.reached
        if self._fatal:
            raise self._fatal
        answers = [outcome for outcome in outcomes if outcome is not None]
        return self._settled(self._without_cut(requests, answers, contents), contents)

    def _without_cut(
        self, requests: Sequence[Request], outcomes: Sequence[Outcome], contents: Sequence[Mapping[str, Any]]
    ) -> list[Outcome]:
        """Return the outcomes of a call; the answers to prompts that the server cut to its context are ``too_long``.

        It shows once several were cut. How many answers to such prompts were given out before is logged.
        """
        completions = []
        for request, outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, Completion):
                completions.append((request, outcome))
        given_out = self._ceiling.note(completions)
        too_few_tokens = self._bound.note(completions)
        if too_few_tokens and not self._ceiling.is_found:
            log.warning(
                "%s: %s before, whose answers count, seem to have been cut as well (fewer tokens than words); "
                "then run the same command with another output_dir",
                self.name,
                amount(too_few_tokens, "prompt"),
            )
        if given_out:
            log.warning(
                "%s: %s before, whose answers count, seem to have been cut as well (%s); then run the same command "
                "with another output_dir",
                self.name,
                amount(given_out, "prompt"),
                self._ceiling.message,
            )

        answers: list[Outcome] = []
        for request, outcome, content in zip(requests, outcomes, contents, strict=True):
            reason = ""
            if isinstance(outcome, Completion) and self._ceiling.was_cut(request, outcome):
                reason = self._ceiling.message
            elif isinstance(outcome, Completion) and self._bound.was_cut(request, outcome):
                reason = self._bound.message(request)
            if isinstance(outcome, Completion) and reason:
                # A server with more room is to be asked again.
                if self._answers:
                    self._answers.forget(content)
                outcome = replace(outcome, text="", choices=(), finish_reason="too_long", error=reason)
            answers.append(outcome)
        return answers

    def _contents(self, requests: Sequence[Request], seed: int) -> Sequence[Mapping[str, Any]]:
        """Return each request's content as the store of answers has it, or its seed alone where there is no store."""
        if self._answers:
            return self._answers.contents(self._config.model, requests, self._address, self._parameters)
        return [{"seed": (seed + place) % 2**31} for place in places(requests)]

    def _settled(self, outcomes: Sequence[Outcome], contents: Sequence[Mapping[str, Any]]) -> list[Completion]:
        """Return the completions of a call, with ``error`` for those that have no answer; log each reason once.

        Raises:
            UnansweredError: requests have no answer that another run may get.
        """
        reasons_to_retry = []
        completions = []
        for outcome, content in zip(outcomes, contents, strict=True):
            if isinstance(outcome, Completion):
                completions.append(outcome)
                continue
            completions.append(Completion(finish_reason="error", error=outcome.reason))
            # Another run may get an answer where the failure may pass.
            if self._answers and outcome.passing and self._answers.given_up(content) < RUNS:
                reasons_to_retry.append(outcome.reason)
        if reasons_to_retry:
            raise UnansweredError(len(reasons_to_retry), reasons_to_retry[-1])

        errors = Counter(completion.error for completion in completions if completion.error)
        for reason, number in errors.items():
            if reason not in self._logged:
                self._logged.add(reason)
                log.warning("%s: %d of %d requests have no answer: %s", self.name, number, len(completions), reason)
        return completions

    async def _complete(self, gate: GatedClient, client: openai.AsyncOpenAI, pending: Pending) -> Outcome | None:
        """Return the answer that is kept, or else the server's; None where the run ends before there is one.

        The first error of any request ends the run: requests under way are finished, and no other is begun.
        """
        ASKED.set(pending)
        try:
            while not gate.ended.is_set():
                # In each round: another process may have got the answer meanwhile.
                completion = None
                if self._answers:
                    completion = self._answers.get(pending.content)
                if completion:
                    self._has_served = True
                    return completion
                with pending.claim:
                    try:
                        return await self._ask(client, pending)
                    except NotSentError:
                        pending.claim.close()
                # Another process may be asking for the same answer.
                await asyncio.sleep(OTHERS)
        except Exception as error:
            # Whatever it is, others are under way, and paid.
            self._fatal = self._fatal or error
            gate.ended.set()
        return None

    async def _ask(self, client: openai.AsyncOpenAI, pending: Pending) -> Outcome:
        """Return the server's answer, counted and kept, or why there is none."""
        answered_before = self._answered
        outcome = await self._once(client, pending)
        tries = 1
        # A new form costs no try: there are few, and none comes back.
        while isinstance(outcome, Failure):
            if not outcome.other_form:
                if not outcome.at_once or tries == BROKEN:
                    break
                tries += 1
            outcome = await self._once(client, pending)

        if isinstance(outcome, Failure):
            self._stop_at_an_outage(outcome, self._answered > answered_before)
            return outcome
        self._answered += 1
        self._given_up_in_row = 0
        self._has_served = True
        # Another server may have room for what is too long here.
        if self._answers and outcome.finish_reason != "too_long":
            self._answers.put(pending.content, outcome)
        return outcome

    def _stop_at_an_outage(self, failure: Failure, answered_others: bool) -> None:
        """Raise EngineError where the server seems to be down, unless the request itself may be the cause.

        Args:
            failure: why the request was given up.
            answered_others: whether the server has answered others since the request was sent.
        """
        self._given_up_in_row += 1
        is_gone = failure.unreachable and not answered_others
        # A refusal such as 400 says that the server is there, unless it has never answered anything.
        is_silent = not self._has_served and (failure.passing or not self._answered)
        if is_gone or (is_silent and self._given_up_in_row >= OUTAGE):
            raise EngineError(
                f"{self._address} answers no request, {self._given_up_in_row} in a row ({failure.reason}): check that "
                f"it runs, base_url and model={self._config.model}, and run the same command again: it goes on where "
                f"it stopped"
            )

    async def _once(self, client: openai.AsyncOpenAI, pending: Pending) -> Outcome:
        """Have the client send a request, with its retries, and return what became of it."""
        request = pending.request
        # Other requests may change the form while this one is under way.
        form = self._form
        create: Any = client.chat.completions.with_raw_response.create
        body = chat_body(self._config.model, request, pending.content["seed"], form.limit_key, form.neutral)
        if "top_logprobs" in body:
            # As many as the server takes: an earlier refusal may have named the largest number.
            body["top_logprobs"] = min(body["top_logprobs"], form.top_logprobs)
        body = with_parameters(body, dict.fromkeys(form.left_out) | self._parameters(request))
        # The client would read these from variables of the environment, or send "none" as a key.
        unsent_headers = ["OpenAI-Organization", "OpenAI-Project"]
        if not self._key:
            unsent_headers.append("Authorization")
        try:
            answer = await create(**body, extra_headers=dict.fromkeys(unsent_headers, openai.omit))
        except NoConnectionError as error:
            return self._timed_out(error.__cause__)
        except openai.APITimeoutError as error:
            return self._timed_out(error.__cause__)
        except openai.APIConnectionError as error:
            cause = error.__cause__
            unreachable = isinstance(cause, httpx2.ConnectError)
            return Failure(reason=f"cannot reach {self._address}: {type(cause).__name__}", unreachable=unreachable)
        except openai.APIStatusError as error:
            return self._refusal(error.status_code, error.response.text, pending, form)
        # The gate has put the status of an error into an answer that came with 200.
        if answer.status_code != 200:
            return self._refusal(answer.status_code, answer.text, pending, form)
        return self._read(answer.content, pending)

    def _timed_out(self, cause: BaseException | None) -> Failure:
        """Return which of the time limits of the configuration a request ran into."""
        config = self._config
        if isinstance(cause, httpx2.ConnectTimeout):
            reason = f"cannot reach {self._address}: no connection within {config.connect_timeout:g} s"
            return Failure(reason=reason, unreachable=True)
        if isinstance(cause, WholeAnswerTimeout):
            return Failure(reason=f"no answer within {config.timeout:g} s")
        return Failure(reason=f"the server sent nothing for {config.read_timeout:g} s")

    def _read(self, content: bytes, pending: Pending) -> Outcome:
        """Return the completion in the bytes of an answer, and count its tokens."""
        request = pending.request
        completion = None
        try:
            # JSON is UTF-8 whatever charset the header names.
            completion = reading.read_completion(json.loads(content), request)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            start = reading.beginning(content, self._key)
            return Failure(reason=f"the answer is not a chat completion{start}", at_once=True)
        finally:
            if self._budget:
                self._budget.settle(pending.held, completion, charged=True)

        self._check_who_answered(completion.model)
        text = completion.text
        if self._as_json(request):
            text = reading.in_form(text, request.form)
        # A server may repeat its request headers in an answer.
        if len(self._key) >= reading.UNLIKELY:
            text = reading.redact(text, self._key)
        return replace(completion, text=text, error=reading.redact(completion.error or "", self._key) or None)

    def _check_who_answered(self, answering: str) -> None:
        """Raise EngineError where a server says that a model answered which was not asked for."""
        config = self._config
        if config.answers_as == ANY_MODEL or not reading.is_other_model(answering, config.model):
            return
        if config.answers_as and not reading.is_other_model(answering, config.answers_as):
            return
        raise EngineError(
            f"{self._address} was asked for model {config.model}, and {answering} answered: its answers are not kept. "
            f"Set model={answering} to ask that one, or answers_as={answering} if that is the model behind this name"
        )

    def _as_json(self, request: Request) -> bool:
        """Return whether JSON is asked for; probabilities of candidates need a text, whose places they name."""
        return self._config.json_schema and bool(request.form) and not request.sampling.candidates

    def _parameters(self, request: Request) -> dict[str, Any]:
        """Return the further parameters of a request; those of the configuration win."""
        if not self._as_json(request):
            return self._config.extra_body
        response_format = reading.response_format(request.form, request.step)
        return {"response_format": response_format, "structured_outputs": None} | self._config.extra_body

    def _refusal(self, status: int, text: str, pending: Pending, form: BodyForm) -> Outcome:
        """Return what a refusal means for a request, and change the form of later requests where that helps.

        Args:
            status: the HTTP status.
            text: the body of the answer.
            pending: the request.
            form: the form that the request had.

        Raises:
            EngineError: the refusal holds for all requests: the account is empty, or the key, model or endpoint wrong.
        """
        message = ""
        words = reading.words_of(text, self._key)
        if words:
            message = f": {words}"
        if reading.is_empty_account(status, text, pending.prompt):
            raise EngineError(
                f"{self._address} answered {status}{message}; the account has nothing left to pay with: every answer "
                f"is kept; fill it, and the same command goes on where it stopped"
            )
        # Before a refused key: OpenAI refuses log-probabilities with 403.
        if status == 403 and self._without_refused(status, text, words, pending, form):
            return Failure(reason=f"HTTP {status}{message}", passing=False, other_form=True)
        if status in reading.FATAL:
            raise EngineError(
                f"{self._address} answered {status} for model {self._config.model}: {reading.FATAL[status]}{message}; "
                f"check engine.base_url, engine.model and variable {self._config.api_key_env}"
            )

        if reading.is_too_long(status, text, pending.prompt):
            return Completion(finish_reason="too_long", error=f"HTTP {status}{message}")

        # The server says what it takes: the request is sent again in that form, and later ones from the start.
        lowered = text.lower()
        names_newer = status == 400 and "max_completion_tokens" in lowered
        # A limit that is too large or small has the right name.
        names_a_bound = reading.largest_taken(text) is not None or "at least" in lowered or ">" in text
        is_refused = bool(reading.refused_parameters(status, text, ["max_tokens"], pending.prompt))
        refuses_older = is_refused and not names_a_bound
        wants_newer_name = form.limit_key == "max_tokens" and (names_newer or refuses_older)
        if wants_newer_name:
            self._form = replace(self._form, limit_key="max_completion_tokens")
        refuses_neutral = status in (400, 422) and form.neutral and any(name in lowered for name in NEUTRAL)
        if refuses_neutral:
            self._form = replace(self._form, neutral=False)
        has_other_form = wants_newer_name or refuses_neutral
        if not has_other_form:
            has_other_form = self._without_refused(status, text, words, pending, form)
        if not has_other_form:
            self._check_what_keys_ask_for(status, text, words, pending)

        # A time-out, a conflict, a rate limit, and whatever is the server's own fault.
        may_pass = status >= 500 or status in (408, 409, 429)
        return Failure(reason=f"HTTP {status}{message}", passing=may_pass, other_form=has_other_form)

    def _without_refused(self, status: int, text: str, words: str, pending: Pending, form: BodyForm) -> bool:
        """Leave a parameter that a server refuses out of later requests; return whether it refused one.

        Args:
            status: the HTTP status.
            text: the body of the answer.
            words: what of it is shown.
            pending: the request.
            form: the form that the request had.

        Raises:
            EngineError: it refused one, and ``drop_refused`` does not allow to leave it out.
        """
        sent = [name for name in MAY_BE_LEFT_OUT if name not in form.left_out and name not in self._config.extra_body]
        refused = reading.refused_parameters(status, text, sent, pending.prompt)
        if not refused:
            return False

        most = reading.largest_taken(text)
        # vLLM calls their number logprobs.
        if refused[0] in ("top_logprobs", "logprobs") and most and most < form.top_logprobs:
            # Fewer of the likeliest tokens are as good an answer.
            self._form = replace(self._form, top_logprobs=most)
            return True

        name = refused[0]
        if not self._config.drop_refused:
            raise EngineError(
                f"{self._address} refuses the parameter {name} for model {self._config.model} (HTTP {status}: "
                f"{words}). Set drop_refused=true beside base_url to leave out whatever "
                f"the server refuses, or extra_body={{{name}: null}} to leave out this one; {WITHOUT[name]}"
            )
        if name not in self._form.left_out:
            names = {name}
            # Neither says anything without the other.
            if name == "logprobs":
                names.add("top_logprobs")
            self._form = replace(self._form, left_out=self._form.left_out | names)
            log.warning("%s: the server refuses %s, which is left out from here on", self.name, name)
            if self._budget:
                self._budget.left_out.add(name)
        return True

    def _check_what_keys_ask_for(self, status: int, text: str, words: str, pending: Pending) -> None:
        """Raise EngineError where a server refuses a parameter that another key asks for."""
        sent = [name for name in BY_A_KEY if name not in self._config.extra_body]
        for name in reading.refused_parameters(status, text, sent, pending.prompt):
            raise EngineError(
                f"{self._address} refuses the parameter {name} for model {self._config.model} (HTTP {status}: "
                f"{words}): {BY_A_KEY[name]}"
            )

    def _client(self, gate: GatedClient) -> openai.AsyncOpenAI:
        """Return a client for one event loop; of ``OPENAI_...`` variables it reads only CUSTOM_HEADERS."""
        key = self._key
        if key and not (key.isascii() and key.isprintable()):
            raise EngineError(f"the environment variable {self._config.api_key_env} does not hold a usable key")
        return openai.AsyncOpenAI(
            # "none" is not sent; with an empty key the client would read OPENAI_API_KEY.
            api_key=key or "none",
            base_url=self._address,
            default_query=server_address(self._config.base_url)[1],
            max_retries=RETRIES,
            timeout=openai.Timeout(
                self._config.timeout, connect=self._config.connect_timeout, read=self._config.read_timeout
            ),
            http_client=gate,
        )

    @property
    def _address(self) -> str:
        """Return the server's address without its query, for messages."""
        return server_address(self._config.base_url)[0]

    @property
    def _key(self) -> str:
        """Return the key that the environment holds; empty where there is none."""
        return os.environ.get(self._config.api_key_env, "").strip()


def chat_body(model: str, request: Request, seed: int, limit_key: str, says_all: bool = False) -> dict[str, Any]:
    """Return the parameters of a request for a chat completion.

    Parameters that are not OpenAI's stand in ``extra_body``: vLLM's server takes them, and others may answer 400.

    Args:
        model: the model's name at the server.
        request: what is asked.
        seed: for sampling.
        limit_key: the server's name for the limit on the answer's length.
        says_all: also send :data:`NEUTRAL`, in place of the values in the model's generation_config.json.
    """
    sampling = request.sampling
    messages = []
    for message in request.messages:
        # The server's tokenizer is not known, so that the markers of all common families are broken.
        content = writable(neutralise_known(message["content"]))
        messages.append({**message, "content": content})
    body: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        limit_key: sampling.max_new_tokens,
        "seed": seed,
    }
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.candidates:
        body["logprobs"] = True
        body["top_logprobs"] = LOGPROBS

    extra: dict[str, Any] = {}
    if says_all:
        extra |= NEUTRAL
    if sampling.top_k:
        extra["top_k"] = sampling.top_k
    if sampling.pattern:
        extra["structured_outputs"] = {"regex": sampling.pattern}
    if extra:
        body["extra_body"] = extra
    return body


def with_parameters(body: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request's body with further parameters, which replace those of the same name; None leaves one out."""
    extra = {name: value for name, value in body.get("extra_body", {}).items() if name not in parameters}
    extra |= {name: value for name, value in parameters.items() if value is not None}

    changed = {name: value for name, value in body.items() if name not in parameters and name != "extra_body"}
    if extra:
        changed["extra_body"] = extra
    return changed
