"""Generate text with Transformers' ``generate`` and a static cache, whose steps a GPU runs from a compiled graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from transformers.cache_utils import DynamicCache

from judgetrain.engines.internals import is_tried_with_static_cache
from judgetrain.engines.local.batch_state import Generated, Row, Watch
from judgetrain.engines.local.decoding import Decoder, check_finite, departure_from_plain
from judgetrain.engines.local.row_cache import only_attention
from judgetrain.engines.local.transformers_engine import TransformersEngine

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CACHE_STEP = 256
"""Caches have a multiple of so many columns: each further length is compiled, or recorded, anew."""


class GenerateEngine(TransformersEngine):
    """An engine that decodes by ``generate`` of Transformers.

    Next tokens are drawn as :class:`TransformersEngine` draws them, so that both write the same, up to rounding. Models
    for which there is no static cache, as those with other layers than attention, are decoded as that engine does.
    """

    other_types = "engine.type=transformers or vllm"

    def _make_decoder(self) -> Decoder:
        """Return the decoder; it is :class:`TransformersEngine`'s where ``generate`` has no static cache."""
        has_static_cache = only_attention(DynamicCache(config=self.model.config), self.model.config)
        if has_static_cache and is_tried_with_static_cache(self.model):
            return GenerateDecoder(self.model, self._pad)
        return super()._make_decoder()


class GenerateDecoder:
    """Generates token ids by the model's ``generate`` with a static cache.

    Every row's whole prompt is read, and rows that ended stay until the last of their batch has: what is compiled needs
    shapes that do not change.

    Args:
        model: a causal language model whose layers are attention.
        pad: the token id that fills up prompts of a batch; it is masked.
    """

    def __init__(self, model: PreTrainedModel, pad: int) -> None:
        self._model = model
        self._pad = pad

    def __call__(
        self, rows: Sequence[Row], batch_size: int, watch: Watch, seed: int
    ) -> Iterator[tuple[Row, list[int]]]:
        """Yield each row with its generated token ids (the end token included) when its batch has ended.

        Args:
            rows: decoded in their order. Sorted by length they need little padding.
            batch_size: the most rows that are decoded together.
            watch: returns whether a stop string of a row is complete.
            seed: with a row's place, decides its random numbers.
        """
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            # A few sizes only, for the compiler.
            size = min(batch_size, 2 ** math.ceil(math.log2(len(batch))))
            turns = _Turns(Generated(batch, self._model.device, seed), watch)
            self._generate(batch, size, turns, compiled=True)
            yield from turns.ended

    def departure(self, rows: Sequence[Row], steps: int) -> float:
        """Return how far decoding together, with a cache, is from a plain pass over each text, in nats.

        It is the largest difference in the log-probabilities of the five likeliest tokens, over the first greedy steps.
        """
        turns = _NotedTurns(Generated(rows, self._model.device, 0), lambda *_: False)
        # Compiled it is the same model, and takes a minute more.
        self._generate(rows, len(rows), turns, compiled=False)
        with torch.inference_mode():
            return departure_from_plain(self._model, rows, turns.tokens[:steps], turns.logprobs[1 : steps + 1])

    @torch.inference_mode()
    def _generate(self, rows: Sequence[Row], size: int, turns: _Turns, compiled: bool) -> None:
        """Decode a batch to its end.

        Args:
            rows: the batch.
            size: the number of rows that the model sees; those beyond the batch are copies of its first one.
            turns: draws the tokens, and keeps what was generated.
            compiled: whether ``generate`` may compile the model's steps, as it does on a GPU.
        """
        prompts = [row.prompt for row in rows]
        prompts += [prompts[0]] * (size - len(prompts))
        width = max(len(prompt) for prompt in prompts)
        padded = [(self._pad,) * (width - len(prompt)) + prompt for prompt in prompts]
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        mask = (torch.arange(width) >= (width - lengths)[:, None]).long()
        new_tokens = max(row.sampling.max_new_tokens for row in rows)
        settings = GenerationConfig(
            max_new_tokens=new_tokens,
            do_sample=False,
            pad_token_id=self._pad,
            cache_implementation="static",
            max_cache_len=CACHE_STEP * math.ceil((width + new_tokens) / CACHE_STEP),
            disable_compile=not compiled,
        )
        with _generating_by(self._model, settings):
            self._model.generate(  # type: ignore[operator]
                torch.tensor(padded, device=self._model.device),
                attention_mask=mask.to(self._model.device),
                logits_processor=LogitsProcessorList([turns]),
                stopping_criteria=StoppingCriteriaList([_Ended(turns)]),
            )


@contextmanager
def _generating_by(model: PreTrainedModel, settings: GenerationConfig) -> Iterator[None]:
    """Put generation settings in the place of a model's own, which ``generate`` would merge with those of a call."""
    own: Any = model.generation_config
    model.generation_config = settings
    try:
        yield
    finally:
        model.generation_config = own


class _Turns(LogitsProcessor):
    """Draws the next tokens of a batch, and leaves ``generate`` no other choice.

    Args:
        state: the rows and what they have generated.
        watch: returns whether a stop string of a row is complete.

    Attributes:
        ended: the rows that ended, with all their token ids.
    """

    def __init__(self, state: Generated, watch: Watch) -> None:
        self.state = state
        self.ended: list[tuple[Row, list[int]]] = []
        self._watch = watch
        self._drawn = torch.empty(0, dtype=torch.long)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return logits ``[rows, vocabulary]`` that are 0 at the tokens that were drawn, and minus infinity else."""
        count = len(self.state.rows)
        logits = scores[:count]
        check_finite(logits)
        self._drawn = self.state.draw(logits)
        # Rows beyond the batch follow the first one, whose prompt they have.
        everywhere = torch.cat([self._drawn, self._drawn[:1].expand(len(scores) - count)])
        return torch.full_like(scores, -torch.inf).scatter_(1, everywhere[:, None], 0.0)

    def end(self, size: int) -> torch.Tensor:
        """Add the drawn tokens to the open rows, and return which of ``size`` rows have ended, ``[size]``."""
        self.ended += self.state.append(self._drawn.cpu().numpy(), self._watch)
        has_ended = torch.ones(size, dtype=torch.bool)
        has_ended[: len(self.state.rows)] = torch.from_numpy(~self.state.open)
        return has_ended


class _NotedTurns(_Turns):
    """Turns that end at their limits alone, and that keep what was drawn from what.

    Attributes:
        tokens: what was drawn at each step, ``[steps][rows]``.
        logprobs: from which log-probabilities, ``[steps][rows, vocabulary]``, nats.
    """

    def __init__(self, state: Generated, watch: Watch) -> None:
        super().__init__(state, watch)
        self.tokens: list[list[int]] = []
        self.logprobs: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the logits of :class:`_Turns`, and keep those that came in."""
        choice = super().__call__(input_ids, scores)
        self.tokens.append(choice.argmax(-1).tolist())
        self.logprobs.append(scores.float().log_softmax(-1))
        return choice

    def end(self, size: int) -> torch.Tensor:
        """Return that no row has ended."""
        return torch.zeros(size, dtype=torch.bool)


class _Ended(StoppingCriteria):
    """Tells ``generate`` which rows have ended."""

    def __init__(self, turns: _Turns) -> None:
        self._turns = turns

    def __call__(self, input_ids: torch.Tensor, scores: Any, **options: Any) -> torch.Tensor:
        """Return whether each row has ended, ``[rows]``."""
        return self._turns.end(len(input_ids)).to(input_ids.device)
