"""Text generation with Transformers on this machine, in batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import torch

from judgetrain.engines.base import Choice, Completion, FinishReason, Request, Sampling, cut_at_stop, places
from judgetrain.engines.config import TransformersEngineConfig
from judgetrain.engines.loading import best_device, context_length, flat_ids, load_model, load_tokenizer
from judgetrain.engines.local.batch_state import Row, StopWatch
from judgetrain.engines.local.constraint import Constraints
from judgetrain.engines.local.decoding import BatchDecoder, families
from judgetrain.engines.prompting import encode, render, token_ids
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

log = logging.getLogger(__name__)

_ASKED = "Which of the two responses is the better one, and why? "
PROBES, STEPS = ("?", _ASKED, f"{12 * _ASKED}A", f"{12 * _ASKED}Or is it B?"), 3
"""Prompts of unlike length, of which two begin alike, and how many tokens are decoded after them, by which a model is
checked when it is loaded."""
DEPARTURE = {True: 0.05, False: 1.0}
"""Nats that decoding may be from a plain pass, in float32 and in half precision, where rounding may choose another
expert; a cache that is not read is several away."""

PREFILL_TOKENS = {"cpu": 1024, "cuda": 16384}
"""Prompt tokens read at once: as many as keep a CPU's caches warm, or a GPU busy without filling its memory."""


class TransformersEngine:
    """Generates with a local model (EngineError: the model cannot be loaded).

    A request's completion depends on its prompt, its sampling, the seed and its place in the call, not on what
    else is in the batch (up to rounding). A model and tokenizer that are already in memory may be given; they
    are not freed by :meth:`close`. ``max_context``: the longest prompt plus completion, which may be lowered.
    """

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
        self._spelled: dict[tuple[str, ...], tuple[tuple[int, ...], ...]] = {}
        settings: tuple[Any, ...] = self.model.generation_config, self.model.config, self.tokenizer
        self._ends = flat_ids(each.eos_token_id for each in settings)
        self._stops = StopWatch(self.tokenizer, self._vocabulary, sorted(self._ends))
        prefill = PREFILL_TOKENS.get(self.model.device.type, PREFILL_TOKENS["cuda"])
        pad = int(self.tokenizer.pad_token_id)  # masked, so any that has an embedding
        self._decoder = BatchDecoder(self.model, pad if pad < self._vocabulary else 0, prefill)
        if model is None:
            self._check_decoding()

    def _check_decoding(self) -> None:
        """Check that texts which are decoded together, with a cache, are those of plain passes over each."""
        texts = (render([{"role": "user", "content": text}], self.tokenizer) for text in PROBES)
        prompts = [ids for text in texts if len(ids := token_ids(self.tokenizer, text)) + STEPS < self.max_context]
        if len(prompts) < 2:
            return
        asked = Sampling(temperature=0.0, max_new_tokens=STEPS + 1)
        allowed = DEPARTURE[self.model.dtype is torch.float32]
        try:
            apart = self._decoder.departure([self._row(ids, asked, i, i) for i, ids in enumerate(prompts)], STEPS)
        except torch.OutOfMemoryError:
            raise
        except (ValueError, TypeError, AttributeError, IndexError, AssertionError, RuntimeError) as error:
            cause: Exception | None = error
            what = f"fails step by step ({type(error).__name__}: {' '.join(str(error).split())[:100]})"
        else:
            if apart <= allowed:
                return
            what, cause = f"says step by step what is {apart:.3g} nats (at most {allowed:g}) from a plain pass", None
        told = "it cannot be decoded here; take another model or attn_implementation, or engine.type=vllm"
        raise EngineError(f"{self.name}: the {self.model.config.model_type} model {what}: {told}") from cause

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """One completion per request, in order. Does not touch torch's random state (EngineError: the chat template
        refuses every prompt, or one request alone does not fit into memory)."""
        if "model" not in vars(self):
            raise EngineError(f"{self.name}: it was closed")
        fits, done = encode(requests, self.tokenizer, self.max_context)
        place = places(requests)
        self.model.train(False)
        size = self._batch_size
        # Equal prompts and beginnings side by side are read once; similar lengths need little padding.
        found = sorted((family for family, _ in families({*fits.values()})), key=lambda f: (len(f[-1]), f[-1]))
        rank = {prompt: i for i, prompt in enumerate(prompt for family in found for prompt in family)}
        order = sorted(fits, key=lambda i: rank[fits[i]])
        while left := [i for i in order if i not in done]:
            rows = [self._row(fits[i], requests[i].sampling, i, place[i]) for i in left]  # a row keeps what was drawn
            try:
                stopped = lambda row, ids: cut_at_stop(self._text(ids), row.sampling.stop) is not None  # noqa: E731
                for row, ids in self._decoder(rows, size, stopped, seed):
                    done[row.index] = self._finish(row, ids)
            except torch.OutOfMemoryError:
                size = self._smaller(min(size, len(rows)))
        return [done[index] for index in range(len(requests))]

    def _row(self, prompt: tuple[int, ...], sampling: Sampling, index: int, place: int) -> Row:
        return Row(
            prompt=prompt,
            sampling=sampling,
            marks=self._stops.table(sampling.stop),
            index=index,
            place=place,
            matcher=self._constraints.matcher(sampling.pattern) if sampling.pattern else None,
            candidates=self._candidates(sampling.candidates),
        )

    @cached_property
    def _constraints(self) -> Constraints:
        return Constraints(self.tokenizer, self._vocabulary, sorted(self._ends))

    def _candidates(self, texts: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        if texts not in self._spelled:
            spelled = tuple(self._stops.spelling(text) for text in texts)
            if not all(spelled):
                log.warning("%s: the tokenizer has no single token for one of %s", self.name, " ".join(texts))
            self._spelled[texts] = spelled if all(spelled) else ()
        return self._spelled[texts]

    def close(self) -> None:
        """Drop the model; the engine cannot be used afterwards."""
        self.__dict__.pop("model", None)
        self.__dict__.pop("_decoder", None)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _text(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _finish(self, row: Row, ids: Sequence[int]) -> Completion:
        """Decode a row: a stop string wins over the end token, which wins over the length limit.

        A text that ends before its pattern does is one that was cut, whatever cut it.
        """
        text = self._text(ids)
        cut = cut_at_stop(text, row.sampling.stop)
        whole = ids[-1] in self._ends and (row.matcher is None or row.matcher.complete())
        reason: FinishReason = "stop" if cut is not None or whole else "length"
        text = text if cut is None else cut
        return Completion(
            text=text,
            prompt_tokens=len(row.prompt),
            generated_tokens=len(ids),
            finish_reason=reason,
            choices=tuple(self._choices(row, ids, text)),
        )

    def _choices(self, row: Row, ids: Sequence[int], text: str) -> Iterator[Choice]:
        """The row's choices by their place in its text; those after a stop string are not part of it."""
        for place, probabilities in row.choices:
            upto = self._text(ids[: place + 1]).rstrip()
            at = len(upto) - len(self._text(ids[place : place + 1]).strip())
            if at < len(text):
                yield Choice(at, probabilities)

    def _smaller(self, size: int) -> int:
        if size == 1:
            raise EngineError(f"{self.name}: one request does not fit into memory; lower its max_new_tokens")
        torch.cuda.empty_cache()
        log.warning("%s: out of memory with %d requests at once; going on with %d", self.name, size, size // 2)
        return size // 2
