"""A causal language model taken apart: hidden states and attention first, logits later and for chosen places only."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import torch

from judgetrain.engines.cache_keyword import cache_keyword
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

PROBE = 3
"""Tokens of the check that the two parts give what the whole gives."""
SCALES = (1.0, 16.0)
"""By how much the check of a linear head multiplies hidden states: a soft cap bends large logits."""


class Head:
    """Runs a model's decoder, and the model's own code from hidden states to logits, apart from each other
    (EngineError: the parts do not give what the whole model gives: its head cannot be called apart).

    The logits come from the model's own ``forward`` with the decoder replaced by one that hands over given hidden
    states, so that whatever a model does to its logits (scaling, soft caps, a bias) is done here too.

    ``linear`` is weight ``[vocabulary, size]`` and bias (or None) of a head that is a product with a matrix and
    nothing else; None for any other. ``shares``: :meth:`following` gives what :meth:`hidden` gives.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        base: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._model: Any = base
        self.decoder: Any = base.get_decoder()
        self._forward = base.forward  # training wraps it to compute in half precision
        accepted = inspect.signature(self.decoder.forward).parameters
        self._positions = "position_ids" in accepted
        self.vocabulary = int(cast(torch.nn.Embedding, base.get_input_embeddings()).num_embeddings)
        self._output: Any = None
        self._check()
        self.linear = self._linear()
        self.shares = self._continues()

    @property
    def device(self) -> torch.device:
        """Where the model's inputs go."""
        device: torch.device = self._model.get_input_embeddings().weight.device
        return device

    def hidden(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The last hidden states ``[rows, width, size]`` of padded ids ``[rows, width]``; ``mask`` is 1 on tokens."""
        options: dict[str, Any] = {"use_cache": False}
        if self._positions:
            options["position_ids"] = (mask.cumsum(dim=-1) - 1).clamp(min=0)
        output = self.decoder(input_ids=ids, attention_mask=mask, **options)
        self._output = type(output)
        states: torch.Tensor = output[0].to(
            self.device
        )  # a model whose layers lie on several GPUs leaves them on the last
        return states

    @cached_property
    def _cache_keyword(self) -> str:
        return cache_keyword(self.decoder)

    def prefix(self, ids: torch.Tensor) -> Cache:
        """What the model remembers of token ids ``[width]``, for :meth:`following`."""
        from transformers import DynamicCache

        cache = DynamicCache(config=self.decoder.config)
        self.decoder(input_ids=ids[None], use_cache=True, **{self._cache_keyword: cache})
        return cache

    def following(self, cache: Cache, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The last hidden states ``[rows, width, size]`` of ids ``[rows, width]``, padded on the right, that all follow
        one remembered prefix; the cache itself is left as it is."""
        own, past = copy.deepcopy(cache), cache.get_seq_length()
        own.batch_repeat_interleave(len(ids))
        whole = torch.cat([mask.new_ones((len(ids), past)), mask], dim=1)
        options: dict[str, Any] = {self._cache_keyword: own, "use_cache": True}
        if self._positions:
            options["position_ids"] = (whole.cumsum(dim=-1) - 1)[:, past:]
        states: torch.Tensor = self.decoder(input_ids=ids, attention_mask=whole, **options)[0].to(self.device)
        return states

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Logits ``[steps, vocabulary]`` of hidden states ``[steps, size]``, in the model's type."""
        ids = torch.zeros((1, len(states)), dtype=torch.long, device=states.device)
        with self._given(states[None].to(self._model.dtype)):
            logits: torch.Tensor = self._forward(input_ids=ids, use_cache=False).logits[0].to(self.device)
            return logits

    @contextmanager
    def _given(self, states: torch.Tensor) -> Iterator[None]:
        """For its duration the decoder computes nothing and hands over ``states``."""
        decoder = self.decoder
        own = vars(decoder).get("forward")
        decoder.forward = lambda *args, **kwargs: self._output(last_hidden_state=states)
        try:
            yield
        finally:
            if own is None:
                del decoder.forward
            else:
                decoder.forward = own

    def _probe(self, tokens: int = PROBE) -> torch.Tensor:
        return torch.arange(tokens, device=self.device)[None] % self.vocabulary

    @torch.inference_mode()
    def _check(self) -> None:
        name = type(self._model).__name__
        try:
            if self.decoder is self._model:
                raise TypeError("it has no decoder of its own")
            ids = self._probe()
            mask = torch.ones_like(ids)
            apart = self.logits(self.hidden(ids, mask)[0])
            whole = self._model(input_ids=ids, attention_mask=mask, use_cache=False).logits[0]
        except (TypeError, AttributeError, KeyError) as error:
            raise EngineError(f"{name} cannot be scored: its hidden states cannot be had apart ({error})") from error
        if apart.shape != whole.shape or not torch.allclose(apart, whole, rtol=1e-2, atol=1e-2, equal_nan=True):
            raise EngineError(f"{name} cannot be scored: its logits do not follow from its decoder's last hidden state")

    @torch.inference_mode()
    def _linear(self) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Weight and bias, if the model's logits are the output layer's and nothing else (found by trying)."""
        layer = self._model.get_output_embeddings()
        if type(layer) is not torch.nn.Linear or layer.weight.device != self.device or not layer.weight.numel():
            return None
        states = self.hidden(self._probe(), torch.ones_like(self._probe()))[0]
        tolerance = 1e-5 if layer.weight.dtype == torch.float32 else 1e-2
        for scale in SCALES:
            own = self.logits(states * scale).float()
            plain = torch.nn.functional.linear(states * scale, layer.weight, layer.bias).float()
            if own.shape != plain.shape or not (own - plain).abs().max() <= tolerance * plain.abs().max():
                return None
        return layer.weight, layer.bias

    @torch.inference_mode()
    def _continues(self) -> bool:
        """Whether the model goes on from a cache as from the tokens themselves (found by trying)."""
        ids = self._probe(2 * PROBE)
        try:
            rest = ids[:, PROBE:].repeat(2, 1)
            apart = self.following(self.prefix(ids[0, :PROBE]), rest, torch.ones_like(rest)).float()
        except (TypeError, AttributeError, KeyError, ValueError, IndexError, RuntimeError):
            return False
        whole = self.hidden(ids, torch.ones_like(ids))[:, PROBE:].float()
        tolerance = 1e-4 if self._model.dtype == torch.float32 else 3e-2
        return apart.shape[1:] == whole.shape[1:] and bool((apart - whole).abs().max() <= tolerance * whole.abs().max())


Span = tuple[int, int]
"""Columns of a row, padded on the right: where the response begins, and its end."""


class AttentionEntropies:
    """Collects each layer's attention entropies of a batch while the model runs.

    ``spans`` says where prompt and response of each row of the batch are; set it before the model runs.
    """

    def __init__(self) -> None:
        self.spans: Sequence[Span] = ()
        self._layers: list[torch.Tensor] = []

    def take(self) -> list[tuple[Any, ...]]:
        """For each row of the batch its layers' entropies ``[heads]``; forgets them (EngineError: there are none)."""
        layers, self._layers = self._layers, []
        if not layers:
            raise EngineError("the model gives no attention weights, also with eager attention: leave out attnent")
        arrays = [layer.cpu().numpy() for layer in layers]
        return [tuple(array[row] for array in arrays) for row in range(len(self.spans))]

    def __call__(self, module: Any, arguments: Any, output: Any) -> Any:
        """Forward hook: reads the weights in a layer's output and drops them from it."""
        if not isinstance(output, tuple):
            return output
        for place, part in enumerate(output):
            if isinstance(part, torch.Tensor) and part.dim() == 4 and len(part) == len(self.spans):
                self._layers.append(torch.stack([entropy(part[i], s) for i, s in enumerate(self.spans)]))
                return (*output[:place], None, *output[place + 1 :])
        return output


def entropy(weights: torch.Tensor, span: Span) -> torch.Tensor:
    """Attention entropy of each head, float32 ``[heads]`` (glass-box paper, section 2.3).

    The sum of -a log a over all pairs of an instruction token and a response token, divided by the number of
    instruction tokens. ``a`` is the weight ``[heads, queries, keys]`` that the step which predicts a response token
    gives to an instruction token; all prompt tokens count as instruction, those of the chat template too.
    """
    response, end = span
    used = weights[:, response - 1 : end - 1, :response].float()
    return torch.special.entr(used).sum(dim=(1, 2)) / response


@contextmanager
def eager_attention(model: PreTrainedModel, collect: AttentionEntropies) -> Iterator[None]:
    """For its duration the model computes attention eagerly and ``collect`` sees every attention layer's output.

    Other implementations give no weights.
    """
    before = getattr(model.config, "_attn_implementation", None) or "eager"
    if before != "eager":
        model.set_attn_implementation("eager")
    layers = [m for m in model.modules() if type(m).__name__.endswith("Attention")]
    hooks = [layer.register_forward_hook(collect) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        if before != "eager":
            model.set_attn_implementation(before)
