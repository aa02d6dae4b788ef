"""Generate text with Transformers on this machine, in batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import torch

from judgetrain.artifacts.heartbeat import doing
from judgetrain.engines.answer_tokens import token_ids
from judgetrain.engines.base import Choice, Completion, FinishReason, Request, Sampling, cut_at_stop, places
from judgetrain.engines.config import TransformersEngineConfig
from judgetrain.engines.loading import best_device, config_ends, context_length, flat_ids, load_model, load_tokenizer
from judgetrain.engines.local.batch_state import Row, StopWatch
from judgetrain.engines.local.constraint import Constraints
from judgetrain.engines.local.decoding import BatchDecoder, Decoder, families
from judgetrain.engines.local.kept_beginnings import KeptBeginnings
from judgetrain.engines.memory import is_out_of_memory
from judgetrain.engines.prompting import encode, render
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

log = logging.getLogger(__name__)

_QUESTION = "Which of the two responses is the better one, and why? "
PROBES = ("?", _QUESTION, f"{12 * _QUESTION}A", f"{12 * _QUESTION}Or is it B?")
"""Prompts with which a loaded model is checked; their lengths differ, and two of them begin alike."""
STEPS = 3
"""Tokens that are decoded after each of :data:`PROBES`."""
DEPARTURE = {True: 0.05, False: 1.0}
"""The most nats that decoding may be from a plain pass, by whether the model is in float32.

In half precision, rounding may choose another expert. A cache that is not read is several nats away.
"""

PREFILL_TOKENS = {"cpu": 1024, "cuda": 16384}
"""Prompt tokens read at once, by device: they keep a CPU's caches warm, or a GPU busy without filling its memory."""

KEPT_BYTES = {"cpu": 1 << 28, "cuda": 1 << 32}
"""The most memory of what is kept between calls (:meth:`TransformersEngine.keeping_beginnings`), by device."""


class TransformersEngine:
    """An engine that generates with a model in this process.

    A request's completion depends on its prompt, its sampling, the seed and its place in the call, and on no other
    request of the batch (up to rounding).

    Args:
        config: the model, and how many requests are decoded together.
        model: a model that is in memory already; None: it is loaded.
        tokenizer: a tokenizer that is in memory already; None: it is loaded.

    Attributes:
        max_context: the most tokens of prompt and completion; it may be lowered.
        other_types: of engines that may decode a model which this one cannot, for messages.

    Raises:
        EngineError: the model cannot be loaded, or does not decode correctly step by step.
    """

    continues = True
    other_types = "engine.type=vllm"

    def __init__(
        self,
        config: TransformersEngineConfig,
        model: PreTrainedModel | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> None:
        self.name = config.name or config.model.path.rstrip("/").rsplit("/", 1)[-1]
        self.tokenizer = tokenizer if tokenizer is not None else load_tokenizer(config.model)
        self.model = model if model is not None else load_model(config.model, best_device())
        self.max_context = context_length(self.model.config)
        self._batch_size = config.batch_size
        self._vocabulary = int(cast(torch.nn.Embedding, self.model.get_input_embeddings()).num_embeddings)
        # The token ids that write each candidate, by the candidates of a request.
        self._spellings: dict[tuple[str, ...], tuple[tuple[int, ...], ...]] = {}

        # Any of the three may name ends of turns that the others leave out.
        generation: Any = self.model.generation_config
        ends = [generation.eos_token_id, self.tokenizer.eos_token_id, *config_ends(self.model.config)]
        self._ends = flat_ids(ends, config.model.path)
        self._stops = StopWatch(self.tokenizer, self._vocabulary, sorted(self._ends))
        self._kept = KeptBeginnings(KEPT_BYTES.get(self.model.device.type, KEPT_BYTES["cuda"]))
        self._decoder = self._make_decoder()
        # A model that is handed over was checked when it was loaded, or is being trained.
        if model is None:
            with doing(f"trying {self.name} out on a few tokens"):
                self._check_decoding()

    def _make_decoder(self) -> Decoder:
        """Return what decodes rows with the model."""
        prefill = PREFILL_TOKENS.get(self.model.device.type, PREFILL_TOKENS["cuda"])
        return BatchDecoder(self.model, self._pad, prefill, self._kept)

    @property
    def _pad(self) -> int:
        """Return the token id that fills up prompts of a batch."""
        pad = int(self.tokenizer.pad_token_id)
        if pad >= self._vocabulary:
            # Padding is masked, so any token that has an embedding serves.
            pad = 0
        return pad

    def _check_decoding(self) -> None:
        """Raise EngineError where texts that are decoded together, with a cache, differ from plain passes over each."""
        texts = [render([{"role": "user", "content": text}], self.tokenizer) for text in PROBES]
        prompts = [token_ids(self.tokenizer, text) for text in texts]
        prompts = [ids for ids in prompts if len(ids) + STEPS < self.max_context]
        if len(prompts) < 2:
            # Too short a context to tell anything by.
            return

        sampling = Sampling(temperature=0.0, max_new_tokens=STEPS + 1)
        rows = [self._row(ids, sampling, index, index) for index, ids in enumerate(prompts)]
        model_type = self.model.config.model_type
        try:
            departure = self._decoder.departure(rows, STEPS)
        except (ValueError, TypeError, AttributeError, IndexError, AssertionError, RuntimeError) as error:
            # Memory that ran out is no fault of the model's.
            if is_out_of_memory(error):
                raise
            message = " ".join(str(error).split())[:100]
            raise EngineError(
                f"{self.name}: the {model_type} model fails step by step ({type(error).__name__}: {message}): it "
                f"cannot be decoded here; take another model or attn_implementation, or {self.other_types}"
            ) from error

        allowed = DEPARTURE[self.model.dtype is torch.float32]
        if departure > allowed:
            raise EngineError(
                f"{self.name}: the {model_type} model says step by step what is {departure:.3g} nats (at most "
                f"{allowed:g}) from a plain pass: it cannot be decoded here; take another model or "
                f"attn_implementation, or {self.other_types}"
            )

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """Return one completion per request, in order. Torch's random state stays as it is.

        Raises:
            EngineError: the engine was closed, the chat template refuses every prompt, or one request alone does not
                fit into memory.
        """
        if "model" not in vars(self):
            raise EngineError(f"{self.name}: it was closed")

        prompts, completions = encode(requests, self.tokenizer, self.max_context)
        place_of = places(requests)
        # Stage rl samples with the model that it trains.
        self.model.train(False)
        order = _reading_order(prompts)
        batch_size = self._batch_size
        remaining = order
        with doing("asking the model", len(order), "requests") as activity:
            while remaining:
                # Rows are made anew after a failure, since a row keeps what was drawn for it.
                rows = [self._row(prompts[i], requests[i].sampling, i, place_of[i]) for i in remaining]
                try:
                    for row, ids in self._decoder(rows, batch_size, self._is_stopped, seed):
                        completions[row.index] = self._finish(row, ids)
                        activity.advance()
                except torch.OutOfMemoryError:
                    self._kept.clear()
                    batch_size = self._smaller(min(batch_size, len(rows)))
                remaining = [index for index in order if index not in completions]
        return [completions[index] for index in range(len(requests))]

    def keeping_beginnings(self) -> AbstractContextManager[None]:
        """Return a context in which prompts share with those of earlier calls what they begin with."""
        return self._kept.keeping()

    def _is_stopped(self, row: Row, ids: Sequence[int]) -> bool:
        """Return whether a row's text holds one of its stop strings."""
        return cut_at_stop(self._text(ids), row.sampling.stop) is not None

    def _row(self, prompt: tuple[int, ...], sampling: Sampling, index: int, place: int) -> Row:
        """Return a request as the decoder needs it."""
        matcher = None
        if sampling.pattern:
            matcher = self._constraints.matcher(sampling.pattern)
        return Row(
            prompt=prompt,
            sampling=sampling,
            marks=self._stops.table(sampling.stop),
            index=index,
            place=place,
            matcher=matcher,
            candidates=self._candidates(sampling.candidates),
        )

    @cached_property
    def _constraints(self) -> Constraints:
        """Return the patterns compiled for this tokenizer; made when a request has one, since it needs XGrammar."""
        return Constraints(self.tokenizer, self._vocabulary, sorted(self._ends))

    def _candidates(self, texts: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the ids of the tokens that write each candidate; empty where one of them has no single token."""
        if texts not in self._spellings:
            spellings = tuple(self._stops.spelling(text) for text in texts)
            if not all(spellings):
                log.warning("%s: the tokenizer has no single token for one of %s", self.name, " ".join(texts))
                spellings = ()
            self._spellings[texts] = spellings
        return self._spellings[texts]

    def close(self) -> None:
        """Drop the model; the engine cannot be used afterwards."""
        # Popped, not set to None, so that generate can tell a closed engine.
        self.__dict__.pop("model", None)
        self.__dict__.pop("_decoder", None)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _text(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _finish(self, row: Row, ids: Sequence[int]) -> Completion:
        """Return the completion of a row that has ended.

        A stop string wins over the end token, which wins over the length limit. A text that ends before its pattern
        does has the reason ``length``, whatever ended it.
        """
        text = self._text(ids)
        text_before_stop = cut_at_stop(text, row.sampling.stop)
        matches_pattern = row.matcher is None or row.matcher.complete()
        reason: FinishReason = "length"
        if text_before_stop is not None:
            text = text_before_stop
            reason = "stop"
        elif ids[-1] in self._ends and matches_pattern:
            reason = "stop"
        return Completion(
            text=text,
            prompt_tokens=len(row.prompt),
            generated_tokens=len(ids),
            finish_reason=reason,
            choices=tuple(self._choices(row, ids, text)),
        )

    def _choices(self, row: Row, ids: Sequence[int], text: str) -> Iterator[Choice]:
        """Yield the row's choices with their places in its text; those behind a stop string are left out."""
        for place, probabilities in row.choices:
            # Decoded together, since a token's own text may lack the blank that stands before it.
            text_up_to_choice = self._text(ids[: place + 1]).rstrip()
            candidate = self._text(ids[place : place + 1]).strip()
            at = len(text_up_to_choice) - len(candidate)
            if at < len(text):
                yield Choice(at, probabilities)

    def _smaller(self, size: int) -> int:
        """Return half of a batch's size, after it did not fit into memory."""
        if size == 1:
            raise EngineError(f"{self.name}: one request does not fit into memory; lower its max_new_tokens")
        torch.cuda.empty_cache()
        log.warning("%s: out of memory with %d requests at once; going on with %d", self.name, size, size // 2)
        return size // 2


def _reading_order(prompts: Mapping[int, tuple[int, ...]]) -> list[int]:
    """Return the indices of prompts in the order in which they are decoded.

    Equal prompts and equal beginnings stand side by side, so that they are read once. Similar lengths do too, so that
    they need little padding.
    """
    in_order = chain.from_iterable(family for family, _ in families({*prompts.values()}))
    rank = {prompt: place for place, prompt in enumerate(in_order)}
    return sorted(prompts, key=lambda index: rank[prompts[index]])
