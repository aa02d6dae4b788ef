"""A causal language model in two parts: hidden states and attention first, then logits for chosen places only."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import torch

from judgetrain.engines.cache_keyword import cache_keyword
from judgetrain.engines.internals import attention_of
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

PROBE = 3
"""Tokens of the check that the two parts together equal the whole model."""
SCALES = (1.0, 16.0)
"""Factors of hidden states in the check of a linear head: a soft cap bends large logits only."""


class Head:
    """Runs a model's decoder, and the model's own code from hidden states to logits, apart from each other.

    The logits come from the model's own ``forward`` with the decoder replaced by one that hands over given hidden
    states, so that whatever a model does to its logits (scaling, soft caps, a bias) is done here, too.

    Args:
        model: a causal language model, with or without adapters.

    Attributes:
        decoder: the part that computes hidden states.
        vocabulary: the number of logits.
        linear: weight [vocabulary, size] and bias (or None) of a head that is a product with a matrix and nothing
            else; None for any other.
        shares: :meth:`following` equals :meth:`hidden`, so that a prefix can be read once for several rows.

    Raises:
        EngineError: the parts together do not equal the whole model.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        base: Any = model
        # PEFT's adapters are layers of the base model, which has the decoder.
        if hasattr(model, "get_base_model"):
            base = model.get_base_model()
        self._model: Any = base
        self.decoder: Any = base.get_decoder()
        # Kept now: training wraps the model's forward later, to compute in half precision.
        self._forward = base.forward
        accepted = inspect.signature(self.decoder.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self.vocabulary = int(cast(torch.nn.Embedding, base.get_input_embeddings()).num_embeddings)
        self._output: Any = None
        self._check()
        self.linear = self._linear()
        self.shares = self._continues()

    @property
    def device(self) -> torch.device:
        """Return the device of the model's inputs."""
        device: torch.device = self._model.get_input_embeddings().weight.device
        return device

    def hidden(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the last hidden states [rows, width, size].

        Args:
            ids: padded token ids [rows, width].
            mask: 1 on tokens, 0 on padding [rows, width].
        """
        output = self.decoder(input_ids=ids, attention_mask=mask, **self._options(mask))
        # logits() hands states to the model's code in an object of this type.
        self._output = type(output)
        # A model whose layers lie on several GPUs leaves its states on the last one.
        states: torch.Tensor = output[0].to(self.device)
        return states

    def _options(self, mask: torch.Tensor) -> dict[str, Any]:
        """Return how the decoder reads whole rows: without a cache, padding not counted in positions."""
        options: dict[str, Any] = {"use_cache": False}
        if self._takes_positions:
            options["position_ids"] = (mask.cumsum(dim=-1) - 1).clamp(min=0)
        return options

    def layers(self, ids: torch.Tensor, mask: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return the hidden states before the first layer and behind each layer, [rows, width, size] each.

        Args:
            ids: padded token ids [rows, width].
            mask: 1 on tokens, 0 on padding [rows, width].

        Raises:
            EngineError: the model does not give them.
        """
        output = self.decoder(input_ids=ids, attention_mask=mask, output_hidden_states=True, **self._options(mask))
        states: Sequence[torch.Tensor] | None = getattr(output, "hidden_states", None)
        if not states:
            raise EngineError(f"{type(self._model).__name__} does not give the hidden states of its layers")
        return states

    @cached_property
    def _cache_keyword(self) -> str:
        return cache_keyword(self.decoder)

    def prefix(self, ids: torch.Tensor) -> Cache:
        """Return the model's cache after token ids [width], for :meth:`following`."""
        from transformers import DynamicCache

        cache = DynamicCache(config=self.decoder.config)
        self.decoder(input_ids=ids[None], use_cache=True, **{self._cache_keyword: cache})
        return cache

    def following(self, cache: Cache, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the last hidden states [rows, width, size] of rows that all follow one prefix.

        Args:
            cache: of the prefix; it is left as it is.
            ids: token ids after the prefix [rows, width], padded on the right.
            mask: 1 on tokens, 0 on padding [rows, width].
        """
        past = cache.get_seq_length()
        # The decoder appends to its cache, and the next batch follows the same prefix.
        of_rows = copy.deepcopy(cache)
        of_rows.batch_repeat_interleave(len(ids))
        whole_mask = torch.cat([mask.new_ones((len(ids), past)), mask], dim=1)
        options: dict[str, Any] = {self._cache_keyword: of_rows, "use_cache": True}
        if self._takes_positions:
            options["position_ids"] = (whole_mask.cumsum(dim=-1) - 1)[:, past:]
        output = self.decoder(input_ids=ids, attention_mask=whole_mask, **options)
        states: torch.Tensor = output[0].to(self.device)
        return states

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return logits [steps, vocabulary] of hidden states [steps, size], in the model's type."""
        # The decoder that would read these ids is replaced: only their number counts.
        ids = torch.zeros((1, len(states)), dtype=torch.long, device=states.device)
        with self._decoder_returns(states[None].to(self._model.dtype)):
            logits: torch.Tensor = self._forward(input_ids=ids, use_cache=False).logits[0].to(self.device)
            return logits

    @contextmanager
    def _decoder_returns(self, states: torch.Tensor) -> Iterator[None]:
        """Make the decoder return ``states`` without computing anything, as long as the context lasts."""
        decoder = self.decoder
        # Accelerate may have put a ``forward`` on the object itself, which hides the class's.
        replaced = vars(decoder).get("forward")
        decoder.forward = lambda *args, **kwargs: self._output(last_hidden_state=states)
        try:
            yield
        finally:
            if replaced is None:
                del decoder.forward
            else:
                decoder.forward = replaced

    def _probe(self, tokens: int = PROBE) -> torch.Tensor:
        """Return token ids [1, tokens] to try the model with."""
        # Modulo, as a model for tests may know fewer tokens.
        return torch.arange(tokens, device=self.device)[None] % self.vocabulary

    @torch.inference_mode()
    def _check(self) -> None:
        """Refuse (EngineError) a model whose two parts together do not equal it."""
        name = type(self._model).__name__
        try:
            # Some models return themselves as their decoder: replacing it would replace all.
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
        """Return the output layer's weight and bias if the logits are its product and nothing else, else None.

        A trial decides: no configuration says all that a model does to its logits.
        """
        layer = self._model.get_output_embeddings()
        # An adapter or a quantised layer computes more than its weight. A layer on another GPU, or one that ZeRO-3 has
        # split, has no weight here.
        if type(layer) is not torch.nn.Linear or layer.weight.device != self.device or not layer.weight.numel():
            return None
        states = self.hidden(self._probe(), torch.ones_like(self._probe()))[0]
        tolerance = 1e-2
        if layer.weight.dtype == torch.float32:
            tolerance = 1e-5
        for scale in SCALES:
            logits = self.logits(states * scale).float()
            product = torch.nn.functional.linear(states * scale, layer.weight, layer.bias).float()
            if logits.shape != product.shape:
                return None
            # Turned so that NaN, which compares as false, counts as a difference.
            is_equal = bool((logits - product).abs().max() <= tolerance * product.abs().max())
            if not is_equal:
                return None
        return layer.weight, layer.bias

    @torch.inference_mode()
    def _continues(self) -> bool:
        """Return whether the model goes on from a cache as from the tokens themselves; a trial decides."""
        ids = self._probe(2 * PROBE)
        try:
            # Two rows, since a cache that cannot be repeated fails with several only.
            rest = ids[:, PROBE:].repeat(2, 1)
            apart = self.following(self.prefix(ids[0, :PROBE]), rest, torch.ones_like(rest)).float()
        except (TypeError, AttributeError, KeyError, ValueError, IndexError, RuntimeError):
            # Models with a cache of another kind (as state-space models) fail in ways of their own.
            return False
        whole = self.hidden(ids, torch.ones_like(ids))[:, PROBE:].float()
        # Attention over a cache adds in another order, which shows in half precision.
        tolerance = 3e-2
        if self._model.dtype == torch.float32:
            tolerance = 1e-4
        if apart.shape[1:] != whole.shape[1:]:
            return False
        return bool((apart - whole).abs().max() <= tolerance * whole.abs().max())


Span = tuple[int, int]
"""Columns of a row that is padded on the right: the first of the response, and the one after its last."""


class AttentionEntropies:
    """Collects each layer's attention entropies of a batch while the model runs.

    Attributes:
        spans: the columns of each row's response. Set them before the model runs.
    """

    def __init__(self) -> None:
        self.spans: Sequence[Span] = ()
        self._layers: list[torch.Tensor] = []

    def take(self) -> list[tuple[Any, ...]]:
        """Return the entropies [heads] of every layer, by row of the batch, and forget them.

        Raises:
            EngineError: the model gave no attention weights.
        """
        layers = self._layers
        self._layers = []
        if not layers:
            raise EngineError("the model gives no attention weights, also with eager attention: leave out attnent")
        # Each layer's entropies are [rows, heads].
        by_layer = [layer.cpu().numpy() for layer in layers]
        return list(zip(*by_layer, strict=True))

    def __call__(self, module: Any, arguments: Any, output: Any) -> Any:
        """Read the weights in a layer's output and return the output without them, as a forward hook."""
        if not isinstance(output, tuple):
            return output
        for place, part in enumerate(output):
            # Weights alone have four dimensions [rows, heads, queries, keys].
            if isinstance(part, torch.Tensor) and part.dim() == 4 and len(part) == len(self.spans):
                entropies = [entropy(weights, span) for weights, span in zip(part, self.spans, strict=True)]
                self._layers.append(torch.stack(entropies))
                # Without this, the maps of all layers would be held until the model is through.
                return (*output[:place], None, *output[place + 1 :])
        return output


def entropy(weights: torch.Tensor, span: Span) -> torch.Tensor:
    """Return the attention entropy of each head, float32 [heads] (glass-box paper, section 2.3).

    It is the sum of -a log a over all pairs of an instruction token and a response token, divided by the number of
    instruction tokens. All prompt tokens count as instruction, those of the chat template, too.

    Args:
        weights: attention weights [heads, queries, keys]; ``a`` is the weight that the step which predicts a response
            token gives to an instruction token.
        span: the columns of the response.
    """
    response, end = span
    # The step at a column predicts the token at the next one.
    of_response = weights[:, response - 1 : end - 1, :response].float()
    return torch.special.entr(of_response).sum(dim=(1, 2)) / response


@contextmanager
def eager_attention(model: PreTrainedModel, collect: AttentionEntropies) -> Iterator[None]:
    """Make a model compute attention eagerly and call ``collect`` after every attention layer, in this context.

    Other implementations give no weights.
    """
    before = attention_of(model) or "eager"
    if before != "eager":
        model.set_attn_implementation("eager")
    # Architectures share no class for attention, but Transformers names all of them so.
    layers = [module for module in model.modules() if type(module).__name__.endswith("Attention")]
    hooks = [layer.register_forward_hook(collect) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        if before != "eager":
            model.set_attn_implementation(before)
