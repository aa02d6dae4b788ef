"""What an OpenAI-compatible server is asked, and what its answers mean; the official client carries both."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from judgetrain.engines.answers import writable
from judgetrain.engines.base import LOGPROBS, Completion, Request
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.engines.openai.address import Address, hidden, hide_in_logs
from judgetrain.engines.openai.logprobs import read_logprobs, reading_body
from judgetrain.engines.openai.rate_limit import retry_after
from judgetrain.engines.openai.reading import read_completion
from judgetrain.engines.openai.refusals import FATAL, RETRIED, Failure, error_of, is_empty_account, words_of
from judgetrain.engines.prompting import neutralise_known
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

UNLIKELY = 12
"""Characters of a secret that no answer holds by chance: ``EMPTY``, ``preview`` and ``true`` are words of answers."""


class Server:
    """One model at one server; every request is tried once."""

    def __init__(self, config: OpenAIEngineConfig) -> None:
        import httpx2

        self._config = config
        hide_in_logs(self.address.secrets)
        self._tls = httpx2.create_ssl_context()  # made once: reading the certificates takes longer than a request
        self._limit_key = "max_tokens"

    @property
    def address(self) -> Address:
        """Where it is.

        Raises:
            ConfigError: ``engine.base_url`` is no address.
        """
        return Address.parse(self._config.base_url)

    def client(self) -> AsyncOpenAI:
        """A client for one event loop, without retries; of ``OPENAI_...`` variables it takes only CUSTOM_HEADERS.

        Raises:
            EngineError: the key holds what no header can.
        """
        import httpx2
        import openai

        key, address = self._key(), self.address
        if not (key.isascii() and (key.isprintable() or not key)):
            raise EngineError(f"the environment variable {self._config.api_key_env} does not hold a usable key")
        return openai.AsyncOpenAI(
            api_key=key or "none",  # which is not sent; without it the client would take OPENAI_API_KEY
            base_url=address.shown,
            default_query=dict(address.query),
            max_retries=0,
            timeout=self._config.timeout,
            http_client=httpx2.AsyncClient(
                limits=httpx2.Limits(max_connections=self._config.concurrency),
                verify=self._tls,
                auth=httpx2.BasicAuth(address.user, address.password) if address.user else None,
            ),
        )

    async def ask(self, client: AsyncOpenAI, request: Request, seed: int) -> Completion | Failure:
        """The server's answer to one request, all of which is there within ``engine.timeout``.

        Raises:
            EngineError: no other request could fare better: the key, the model or the account is refused, or the
                log-probabilities of a text are not in its answer.
        """
        import httpx2
        import openai

        unsent = ["OpenAI-Organization", "OpenAI-Project", *([] if self._key() else ["Authorization"])]
        limit_key = self._limit_key
        create: Any = client.chat.completions.with_raw_response.create
        if request.reading:
            create = client.completions.with_raw_response.create
            body, kind = reading_body(self._config.model, request.reading), "completion with log-probabilities"
        else:
            body, kind = chat_body(self._config.model, request, seed, limit_key), "chat completion"
        try:
            async with asyncio.timeout(self._config.timeout):  # the client's own is for each read: a server may drip
                answer = await create(**body, extra_headers=dict.fromkeys(unsent, openai.omit))
        except (TimeoutError, openai.APITimeoutError):
            return Failure(reason=f"no answer within {self._config.timeout:g} s")
        except openai.APIConnectionError as error:
            cause = error.__cause__
            return Failure(
                reason=f"cannot reach {self.address.shown}: {type(cause).__name__}",
                unreachable=isinstance(cause, httpx2.ConnectError),
            )
        except openai.APIStatusError as error:
            return self._refusal(error.status_code, error.response.text, error.response.headers, request, limit_key)
        if answer.status_code != 200:
            return self._refusal(answer.status_code, answer.text, answer.headers, request, limit_key)
        try:  # JSON is UTF-8 whatever charset the header names
            found = json.loads(answer.content)
            if error_said := error_of(found):
                return self._refusal(*error_said, answer.headers, request, limit_key)
            if request.reading:
                return read_logprobs(found, request.reading, self.address.shown)
            completion = read_completion(found, request)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            return Failure(reason=f"the answer is not a {kind}", status=answer.status_code)
        text = hidden(completion.text, [secret for secret in self._secrets if len(secret) >= UNLIKELY])
        return replace(completion, text=text, error=self._shown(completion.error or "") or None)

    def _refusal(
        self, status: int, text: str, headers: Mapping[str, str], request: Request, limit_key: str
    ) -> Completion | Failure:
        """What a status other than success means: a request to give up or to ask again, or the end of the run.

        ``limit_key``: the name under which the request had its limit.
        """
        config, where = self._config, self.address.shown
        words = self._shown(words_of(text))
        said, lowered = f": {words}" if words else "", text.lower()
        if is_empty_account(status, text, "\n".join(m["content"] for m in request.messages)):
            raise EngineError(
                f"{where} answered {status}{said}; the account has nothing left to pay with: every answer is kept, and "
                "when it is filled the same command goes on where it stopped"
            )
        if status in FATAL:
            raise EngineError(
                f"{where} answered {status} for model {config.model}: {FATAL[status]}{said}; check engine.base_url, "
                f"engine.model and the variable {config.api_key_env}"
            )
        if status == 400:
            if "context_length" in lowered or "context length" in lowered:
                return Completion(finish_reason="too_long", error=f"HTTP 400{said}")
            newer_name = "max_completion_tokens" in lowered and limit_key == "max_tokens"
            if newer_name:
                self._limit_key = "max_completion_tokens"
            return Failure(reason=f"HTTP 400{said}", again=newer_name, status=status)
        after = retry_after(headers)
        if status == 429:
            limited = "too large" not in lowered  # else it is this request's size, which no other need wait for
            return Failure(reason=f"HTTP 429{said}", after=after, limited=limited, said=said, status=status)
        again = status in RETRIED or status >= 500
        return Failure(reason=f"HTTP {status}{said}", after=after, again=again, status=status)

    def _key(self) -> str:
        return os.environ.get(self._config.api_key_env, "").strip()

    def _shown(self, text: str) -> str:
        """A server's words without the key and the address's secrets, should it repeat them."""
        return hidden(text, self._secrets)

    @property
    def _secrets(self) -> list[str]:
        return [secret for secret in (self._key(), *self.address.secrets) if secret]


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
