"""Entropy of attention, one layer at a time: no attention map outlives the layer that made it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)

Span = tuple[int, int]
"""Columns of a row, padded on the right: where the response begins, and its end."""


class AttentionEntropies:
    """Collects each layer's attention entropies of a batch while the model runs.

    ``spans`` says where prompt and response of each row of the batch are; set it before the model runs. ``quiet``: the
    switch to eager attention has been logged before.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.spans: Sequence[Span] = ()
        self._layers: list[torch.Tensor] = []

    def take(self) -> list[tuple[Any, ...]]:
        """For each row of the batch its layers' entropies, a float array ``[heads]`` each; forgets them.

        Raises:
            EngineError: no layer gave attention weights.
        """
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

    Other implementations give no weights; that the model was switched is logged.
    """
    before = getattr(model.config, "_attn_implementation", None) or "eager"
    if before != "eager":
        log.log(
            logging.DEBUG if collect.quiet else logging.WARNING,
            "attention entropy needs attention weights: this pass runs with eager attention, not %s",
            before,
        )
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
