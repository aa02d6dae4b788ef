"""The hidden states of responses at some layers of a model, read in one forward pass each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from judgetrain.scorers.encode import DEPTHS, Sample, Tokens, Unscored, Usage
from judgetrain.scorers.statistics import TokenScorer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    States = NDArray[np.float32] | Unscored
    """Float32 [layers, 2, width], or the reason why there are none."""


@torch.inference_mode()
def response_states(scorer: TokenScorer, samples: Sequence[Sample]) -> list[States]:
    """Return the states of every response, float32 [layers, places, width], or why there are none.

    Layers are those of :data:`~judgetrain.scorers.encode.DEPTHS`, places :data:`~judgetrain.scorers.encode.PLACES`.
    A model with few layers has fewer than there are depths: none is taken twice.

    Args:
        scorer: holds the model; what it reads counts in its ``usage``.
        samples: responses with their prompts.

    Raises:
        EngineError: the model does not give the states of its layers, or one response does not fit into memory.
    """
    states: dict[int, States] = {}
    tokens: dict[int, Tokens] = {}
    for place, item in enumerate(scorer.encode(samples)):
        if isinstance(item, Unscored):
            states[place] = item
        else:
            tokens[place] = item
    states |= scorer.batched(tokens, lambda batch: _states_of(scorer, batch))
    return [states[place] for place in range(len(samples))]


def _states_of(scorer: TokenScorer, batch: Sequence[Tokens]) -> list[States]:
    """Return the states of the samples of one forward pass."""
    scorer.usage += Usage(prompt_tokens=sum(map(len, batch)), calls=len(batch))
    ids, mask, spans = scorer.padded(batch)
    of_layers = scorer.head.layers(ids, mask)
    # The first of them are the embeddings, before any layer.
    layers = sorted({round(depth * (len(of_layers) - 1)) for depth in DEPTHS} - {0})
    states: list[States] = []
    for row, (response, end) in enumerate(spans):
        by_layer = []
        for layer in layers:
            of_response = of_layers[layer][row, response:end].float()
            by_layer.append(torch.stack([of_response.mean(dim=0), of_response[-1]]).cpu())
        of_sample = torch.stack(by_layer).numpy()
        if np.isfinite(of_sample).all():
            states.append(of_sample)
        else:
            states.append(Unscored("non_finite"))
    return states
