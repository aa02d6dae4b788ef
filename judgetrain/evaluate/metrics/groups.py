"""Agreement by group, and by prompts that several comparisons share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from judgetrain.evaluate.metrics.registry import mean
from judgetrain.evaluate.metrics.verdicts import Bools


@dataclass(frozen=True)
class Group:
    """Agreement and consistency on the ``n`` comparisons of a group or domain."""

    n: int
    agreement: float | None
    consistency: float | None


def agreement_by_name(names: Sequence[str | None], agreed: Bools, consistent: Bools) -> dict[str, Group]:
    """Agreement and consistency, bool [n], over the items of each name, sorted; items without a name are left out."""
    masks = {name: np.array([n == name for n in names]) for name in sorted({n for n in names if n is not None})}
    return {name: Group(int(m.sum()), mean(agreed[m]), mean(consistent[m])) for name, m in masks.items()}


def agreement_by_prompt(prompts: Sequence[str], agreed: Bools) -> float | None:
    """The share of prompts of which every pair is right; None where each prompt has one pair."""
    right: dict[str, bool] = {}
    for prompt, is_right in zip(prompts, agreed, strict=True):
        right[prompt] = right.get(prompt, True) and bool(is_right)
    return mean(list(right.values())) if len(right) < len(prompts) else None
