"""What an OpenAI-compatible server is asked, and what its answers mean; the official client carries both."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from judgetrain.engines.answers import writable
from judgetrain.engines.base import LOGPROBS, Completion, FinishReason, Request, Sampling, choices_of, cut_at_stop
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.engines.openai.rate_limit import retry_after
from judgetrain.engines.prompting import neutralise_known
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

RETRIED = frozenset({408, 409, 425})
"""Statuses below 500 that asking again may help."""
FATAL = {401: "the key is wrong or missing", 403: "the key may not use it", 404: "no such model or endpoint"}
SAID = 200
"""Characters of a refusing server's message that are repeated."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a try gave nothing.

    ``after``: the server's Retry-After, seconds; ``again``: whether to try again; ``unreachable``: there was no
    connection, which no single request can be the cause of; ``limited``: too many requests for the server (429), which
    no request is the cause of either, and ``said``: what it says; ``status``: of HTTP, None where nothing came back.
    """

    reason: str
    after: float | None = None
    again: bool = True
    unreachable: bool = False
    limited: bool = False
    said: str = ""
    status: int | None = None


class Server:
    """One model at one server; every request is tried once."""

    def __init__(self, config: OpenAIEngineConfig) -> None:
        import httpx2

        self._config = config
        self._tls = httpx2.create_ssl_context()  # made once: reading the certificates takes longer than a request
        self._limit_key = "max_tokens"

    def client(self) -> AsyncOpenAI:
        """A client for one event loop, without retries; of ``OPENAI_...`` variables it takes only CUSTOM_HEADERS.

        Raises:
            EngineError: the key holds what no header can.
        """
        import httpx2
        import openai

        key = self._key()
        if not (key.isascii() and (key.isprintable() or not key)):
            raise EngineError(f"the environment variable {self._config.api_key_env} does not hold a usable key")
        limits = httpx2.Limits(max_connections=self._config.concurrency)
        return openai.AsyncOpenAI(
            api_key=key or "none",  # which is not sent; without it the client would take OPENAI_API_KEY
            base_url=self._config.base_url,
            max_retries=0,
            timeout=self._config.timeout,
            http_client=httpx2.AsyncClient(limits=limits, verify=self._tls),
        )

    async def ask(self, client: AsyncOpenAI, request: Request, seed: int) -> Completion | Failure:
        """The server's answer to one request.

        Raises:
            EngineError: no other request could fare better: the key, the model or the account is refused.
        """
        import httpx2
        import openai

        unsent = ["OpenAI-Organization", "OpenAI-Project", *([] if self._key() else ["Authorization"])]
        body = chat_body(self._config.model, request, seed, self._limit_key)
        try:
            answer = await client.chat.completions.with_raw_response.create(
                **body, extra_headers=dict.fromkeys(unsent, openai.omit)
            )
        except openai.APITimeoutError:
            return Failure(reason=f"no answer within {self._config.timeout:g} s")
        except openai.APIConnectionError as error:
            cause = error.__cause__
            return Failure(
                reason=f"cannot reach {self._config.base_url}: {type(cause).__name__}",
                unreachable=isinstance(cause, httpx2.ConnectError),
            )
        except openai.APIStatusError as error:
            return self._refusal(error.status_code, error.response.text, error.response.headers)
        if answer.status_code != 200:
            return self._refusal(answer.status_code, answer.text, answer.headers)
        try:  # JSON is UTF-8 whatever charset the header names
            return read_completion(json.loads(answer.content), request.sampling)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return Failure(reason="the answer is not a chat completion", status=answer.status_code)

    def _refusal(self, status: int, text: str, headers: Mapping[str, str]) -> Completion | Failure:
        """What a status other than success means: a request to give up or to ask again, or the end of the run."""
        config = self._config
        said, lowered = self._said(text), text.lower()
        if status in FATAL:
            raise EngineError(
                f"{config.base_url} answered {status} for model {config.model}: {FATAL[status]}; check "
                f"engine.base_url, engine.model and the variable {config.api_key_env}"
            )
        if status == 400:
            if "context_length" in lowered or "context length" in lowered:
                return Completion(finish_reason="too_long")
            newer_name = "max_completion_tokens" in lowered
            if newer_name:
                self._limit_key = "max_completion_tokens"
            return Failure(reason=f"HTTP 400{said}", again=newer_name, status=status)
        after = retry_after(headers)
        if status == 429:
            if "insufficient_quota" in text:  # the account is empty: waiting does not help
                raise EngineError(
                    f"{config.base_url} answered 429{said}; every answer is kept: when the account is in order, run "
                    "the same command again, and it goes on where it stopped"
                )
            limited = "too large" not in lowered  # else it is this request's size, which no other need wait for
            return Failure(reason=f"HTTP 429{said}", after=after, limited=limited, said=said, status=status)
        again = status in RETRIED or status >= 500
        return Failure(reason=f"HTTP {status}{'' if again else said}", after=after, again=again, status=status)

    def _key(self) -> str:
        return os.environ.get(self._config.api_key_env, "").strip()

    def _said(self, text: str) -> str:
        """What a refusing server says, as the rest of a line; without the key, should it repeat it."""
        key = self._key()
        line = " ".join((text.replace(key, "[key]") if key else text).split())
        return f": {line[:SAID]}" if line else ""


def chat_body(model: str, request: Request, seed: int, limit_key: str) -> dict[str, Any]:
    """The parameters of a request for a chat completion; ``limit_key``: the server's name of the length limit.

    What is not OpenAI's own stands in ``extra_body``: vLLM's server takes it; others may answer 400.
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
    extra: dict[str, Any] = {"top_k": sampling.top_k} if sampling.top_k else {}
    if sampling.pattern:
        extra |= {"structured_outputs": {"regex": sampling.pattern}}
    return body | ({"extra_body": extra} if extra else {})


def read_completion(answer: Mapping[str, Any], sampling: Sampling) -> Completion:
    """The completion of a parsed answer; ``sampling`` is what was asked for.

    Raises:
        ValueError, KeyError, IndexError, TypeError, AttributeError: it is no chat completion.
    """
    choice = answer["choices"][0]
    text = choice["message"]["content"]
    if not isinstance(text, str):
        raise TypeError("no content")
    text = writable(text)
    usage = answer.get("usage") or {}
    reason: FinishReason = "length" if choice.get("finish_reason") == "length" else "stop"
    if (cut := cut_at_stop(text, sampling.stop)) is not None:  # a server that returns the string, or ignores it
        text, reason = cut, "stop"
    prompt, generated = (int(usage.get(f"{kind}_tokens") or 0) for kind in ("prompt", "completion"))
    reported = (choice.get("logprobs") or {}).get("content") or []
    ranked = ((t["token"], [(o["token"], o["logprob"]) for o in t.get("top_logprobs") or []]) for t in reported)
    return Completion(
        text=text,
        prompt_tokens=prompt,
        generated_tokens=generated,
        finish_reason=reason,
        choices=choices_of(ranked, sampling.candidates, text),
    )
