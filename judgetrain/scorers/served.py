"""Log-probabilities from a server: what a model behind an API tells of a given text (ProbDiff, SentProb)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from judgetrain.engines.base import Completion, Reading, Request, Sampling
from judgetrain.engines.config import EngineConfig
from judgetrain.engines.openai.reading import LOWEST, SPACES
from judgetrain.engines.registry import make_engine
from judgetrain.errors import EngineError
from judgetrain.scorers.encode import Sample, Tokens, Unscored, encode_samples
from judgetrain.scorers.results import Result, TokenStatistics, Usage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from judgetrain.engines.answers import AnswerStore, Budget

ONE = Sampling(temperature=0.0, max_new_tokens=1)
"""A server that reads a text writes a token after it."""


class ServedScorer:
    """Token log-probabilities of the very tokens that :class:`~judgetrain.scorers.statistics.TokenScorer` would read.

    The server is sent their ids, so that prompt and response part where they part there, whatever characters they have.
    It has no whole distribution, so that entropies, variances and attention have no score (``no_distribution``).

    Args:
        config: the server and the model's name there.
        tokenizer: that of the model that is served.
        answers: where answers and log-probabilities are kept, and looked up before anything is sent.
        budget: what may be sent, tries that fail included.

    Raises:
        EngineError: no model is named.
    """

    def __init__(
        self,
        config: EngineConfig,
        tokenizer: PreTrainedTokenizerBase,
        answers: AnswerStore | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.engine = make_engine(config, answers=answers, budget=budget)
        self.usage = Usage()
        self._text = cache(self._spelled)
        self._answered = False

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request by the same server; counted in ``usage``.

        Raises:
            EngineError: as :class:`~judgetrain.engines.openai.engine.OpenAIEngine` has it.
        """
        done = self.engine.generate(requests, seed) if requests else []
        self.usage += Usage(sum(c.prompt_tokens for c in done), sum(c.generated_tokens for c in done), len(done))
        return done

    def close(self) -> None:
        """Free the connection."""
        self.engine.close()

    def statistics(self, samples: Sequence[Sample], attention: bool = False) -> list[Result]:
        """The log-probabilities of every sample's tokens, in order; an :class:`Unscored` where there are none.

        The same tokens are asked for once.

        Raises:
            EngineError: the server cannot be reached or refuses, gives no log-probabilities of what it is sent, or has
                another vocabulary than the tokenizer; or the budget is spent.
        """
        encoded = encode_samples(samples, self.tokenizer, sys.maxsize, sys.maxsize)
        asked = list(dict.fromkeys(tokens for tokens in encoded if isinstance(tokens, Tokens)))
        done = self.generate([self._request(tokens) for tokens in asked], 0)
        self._answered = self._answered or any(c.logprobs for c in done)
        if done and not self._answered and all(c.finish_reason == "error" for c in done):
            raise EngineError(f"scorer.engine: {self.engine.name} scored none of the first texts: {done[0].error}")
        found = {tokens: _result(tokens, completion) for tokens, completion in zip(asked, done, strict=True)}
        return [tokens if isinstance(tokens, Unscored) else found[tokens] for tokens in encoded]

    def _request(self, tokens: Tokens) -> Request:
        ids = tokens.prompt + tokens.response
        return Request(messages=(), sampling=ONE, step="reading", reading=Reading(ids, tuple(map(self._text, ids))))

    def _spelled(self, number: int) -> str:
        """How a token reads, if its place in the vocabulary says the same: a word, or a part of one."""
        text = str(self.tokenizer.decode([number])).strip(SPACES)
        piece = str(self.tokenizer.convert_ids_to_tokens(number)).strip(SPACES)
        return text if piece == text and text.isalnum() else ""


def _result(tokens: Tokens, completion: Completion) -> Result:
    if completion.finish_reason != "stop":
        return Unscored("too_long" if completion.finish_reason == "too_long" else "no_answer")
    logprobs = np.array(completion.logprobs[len(tokens.prompt) - 1 :], dtype=np.float32)
    if (logprobs <= LOWEST).any():
        return Unscored("non_finite")
    return TokenStatistics(len(tokens.prompt), len(tokens.response), {"logprob": logprobs})
