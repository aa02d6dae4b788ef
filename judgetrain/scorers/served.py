"""Log-probabilities from a server: what a model behind an API tells of a given text (ProbDiff, SentProb)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from judgetrain.engines.base import Completion, Request, Sampling
from judgetrain.engines.config import ModelConfig, OpenAIEngineConfig
from judgetrain.engines.loading import load_tokenizer
from judgetrain.engines.openai.engine import OpenAIEngine
from judgetrain.engines.openai.server import Server
from judgetrain.engines.prompting import neutralise, render
from judgetrain.errors import EngineError
from judgetrain.scorers.encode import Sample, Unscored
from judgetrain.scorers.results import Result, TokenStatistics, Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from transformers import PreTrainedTokenizerBase

    from judgetrain.engines.answers import AnswerStore, Budget

ONE = Sampling(temperature=0.0, max_new_tokens=1)
"""A server that reads a text writes a token after it."""


class ServedScorer:
    """Token log-probabilities by a server's completions with ``echo`` and ``logprobs``, as vLLM's has them.

    It has no whole distribution, so that entropies, variances and attention have no score (``no_distribution``).

    Args:
        config: the server and the model's name there.
        tokenizer: its chat template renders prompts, as the server does for answers.
        answers: where generated answers are kept; what was scored lies in the stage's shards.
        budget: what may be sent.
    """

    def __init__(
        self,
        config: OpenAIEngineConfig,
        tokenizer: PreTrainedTokenizerBase,
        answers: AnswerStore | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.config, self.tokenizer, self._budget = config, tokenizer, budget
        self.engine = OpenAIEngine(config, answers, budget)
        self._server = Server(config)
        self.usage = Usage()

    @classmethod
    def of(
        cls, config: OpenAIEngineConfig, model: ModelConfig, answers: AnswerStore | None, budget: Budget | None
    ) -> ServedScorer:
        """The scorer of a server; ``model`` is where the tokenizer lies.

        Raises:
            EngineError: the tokenizer cannot be loaded.
        """
        return cls(config, load_tokenizer(model), answers, budget)

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request by the same server; counted in ``usage``."""
        done = self.engine.generate(requests, seed) if requests else []
        self.usage += Usage(sum(c.prompt_tokens for c in done), sum(c.generated_tokens for c in done), len(done))
        return done

    def close(self) -> None:
        """Nothing to free."""

    def statistics(self, samples: Sequence[Sample], attention: bool = False) -> list[Result]:
        """The log-probabilities of every sample's tokens, in order; an :class:`Unscored` where there are none.

        Raises:
            EngineError: the server cannot be reached, refuses, or gives no log-probabilities of the prompt.
        """
        return asyncio.run(self._statistics(samples))

    async def _statistics(self, samples: Sequence[Sample]) -> list[Result]:
        slots = asyncio.Semaphore(self.config.concurrency)
        async with self._server.client() as plain:
            client = plain.with_options(max_retries=self.config.max_retries)
            return list(await asyncio.gather(*(self._one(client, slots, sample) for sample in samples)))

    async def _one(self, client: AsyncOpenAI, slots: asyncio.Semaphore, sample: Sample) -> Result:
        import openai

        if not sample.response.strip():
            return Unscored("empty_response")
        prompt = sample.prompt if isinstance(sample.prompt, str) else render(sample.prompt, self.tokenizer)
        text = prompt + neutralise(sample.response, self.tokenizer)
        request = Request(messages=({"role": "user", "content": text},), sampling=ONE)
        async with slots:
            held = self._budget.send(request) if self._budget else 0
            try:
                answer = await client.completions.create(
                    model=self.config.model, prompt=text, echo=True, logprobs=1, max_tokens=1, temperature=0.0
                )
            except openai.BadRequestError as error:
                if "context" in str(error).lower():
                    return Unscored("too_long")
                raise self._unable(f"HTTP {error.status_code}") from error
            except openai.OpenAIError as error:
                raise self._unable(type(error).__name__) from error
            finally:
                if self._budget:
                    counts: dict[str, Any] = {"prompt_tokens": held - 1, "generated_tokens": 1}
                    self._budget.settle(held, Completion(finish_reason="stop", estimated=True, **counts))
        return self._read(answer.choices[0].logprobs, len(prompt), len(text))

    def _read(self, told: Any, start: int, end: int) -> Result:
        """The response's tokens: those that begin from character ``start`` on and before ``end``."""
        offsets, logprobs = getattr(told, "text_offset", None), getattr(told, "token_logprobs", None)
        if not offsets or not logprobs or len(offsets) != len(logprobs) or offsets[0] != 0:
            raise self._unable("no log-probabilities of the prompt (echo)")
        found = [x for at, x in zip(offsets, logprobs, strict=True) if start <= at < end]
        if not found or any(x is None for x in found):
            return Unscored("empty_response")
        before = sum(at < start for at in offsets)
        self.usage += Usage(before + len(found), 1, 1)
        values = np.array([*found, np.nan], dtype=np.float32)  # no server tells of the step after the last token
        return TokenStatistics(before, len(found), {"logprob": values})

    def _unable(self, why: str) -> EngineError:
        return EngineError(
            f"scorer.engine: {self._server.address.shown} cannot score a given text: {why}; a server is needed that "
            "takes completions with echo and logprobs, as vLLM's does"
        )
