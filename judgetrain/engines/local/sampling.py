"""Draw next tokens for a batch whose rows have their own temperature, nucleus and random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from judgetrain.engines.base import Sampling

if TYPE_CHECKING:
    from numpy.typing import NDArray


def uniforms(seed: int, index: int, count: int) -> NDArray[np.float32]:
    """``count`` numbers in [0, 1) that belong to request ``index`` of a call: no other request changes them."""
    return np.random.Generator(np.random.Philox(key=[seed % 2**64, index])).random(count, dtype=np.float32)


class Sampler:
    """Temperature, top-k and nucleus sampling by inversion: one uniform number a token decides, per row."""

    def __init__(self, samplings: Sequence[Sampling], device: torch.device) -> None:
        temperature = torch.tensor([s.temperature for s in samplings], device=device)
        self._greedy = temperature <= 0
        self._divisor = torch.where(self._greedy, 1.0, temperature)[:, None]
        self._top_p = torch.tensor([s.top_p for s in samplings], device=device)
        self._all_greedy, self._any_greedy = bool(self._greedy.all()), bool(self._greedy.any())
        self._top_k = torch.tensor([s.top_k or torch.iinfo(torch.long).max for s in samplings], device=device)
        self._ranked = any(s.top_p < 1 or s.top_k for s in samplings)

    def __call__(self, logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Next token ids ``[rows]`` from logits ``[rows, vocabulary]`` and a uniform number for each row."""
        if self._all_greedy:
            return logits.argmax(dim=-1)
        probs = torch.softmax(logits.float() / self._divisor, dim=-1)
        drawn = self._draw_ranked(probs, noise) if self._ranked else _invert(probs, noise)
        return torch.where(self._greedy, logits.argmax(dim=-1), drawn) if self._any_greedy else drawn

    def _draw_ranked(self, probs: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Sample from the ``top_k`` most probable tokens, the smallest set of them whose mass reaches ``top_p``."""
        ranked, ids = probs.sort(dim=-1, descending=True, stable=True)
        ranked.masked_fill_(torch.arange(ranked.shape[1], device=ranked.device) >= self._top_k[:, None], 0.0)
        mass = ranked.cumsum(dim=-1)
        whole = torch.where(self._top_k < ranked.shape[1], mass[:, -1], 1.0)
        outside = mass - ranked >= (self._top_p * whole)[:, None]
        outside[:, 0] = False
        rank = _invert(ranked.masked_fill(outside, 0.0), noise)
        return ids.gather(1, rank[:, None]).squeeze(1)


def _invert(weights: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """The first index of each row whose cumulative weight exceeds ``noise`` of the row's total."""
    mass = weights.cumsum(dim=-1)
    total = mass[:, -1]
    # Strictly below the total even after rounding, so that no index of weight zero is reached.
    target = torch.minimum(noise * total, torch.nextafter(total, torch.zeros_like(total)))
    # The clamp keeps a diverged model (all nan) inside the vocabulary.
    return torch.searchsorted(mass, target[:, None], right=True).squeeze(1).clamp(max=weights.shape[1] - 1)
