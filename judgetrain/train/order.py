"""In which order examples are trained on: a function of the seed alone, the same for any number of processes."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.schema import ORDERS

BUCKET = 16
"""Batches whose examples are sorted by length together, so that little of a batch is padding."""


def order(lengths: Sequence[int], batch: int, epochs: float, seed: int, judgments: Sequence[str] = ()) -> list[int]:
    """Indices of the examples in training order, all epochs in a row, the same for any number of processes.

    Each epoch is a new shuffle; within buckets of :data:`BUCKET` batches examples are sorted by length and the
    batches shuffled again. A fraction of an epoch takes that share of its batches. Those of the ``judgments`` (their
    nodes) that one guideline gives in order AB and in order BA stand side by side.
    """
    paired = together(judgments)
    result: list[int] = []
    for epoch in range(math.ceil(epochs)):
        rng = random.Random(derive_seed(seed, "order", epoch))
        indices = list(range(len(lengths)))
        rng.shuffle(indices)
        if paired:
            # Those that stand together come first: with batches of an even size no single one before them parts them.
            indices.sort(key=lambda i: i not in paired)
            indices = list(dict.fromkeys(j for i in indices for j in paired.get(i, (i,))))
        span = batch * BUCKET
        batches: list[list[int]] = []
        for start in range(0, len(indices), span):
            block = sorted(
                indices[start : start + span],
                key=lambda i: (i not in paired, max(lengths[j] for j in paired.get(i, (i,)))),
            )
            batches += [block[i : i + batch] for i in range(0, len(block), batch)]
        # The one short batch stays last: a short batch in the middle would shift all later ones.
        full = [b for b in batches if len(b) == batch]
        rng.shuffle(full)
        ordered = [i for b in full for i in b] + [i for b in batches if len(b) < batch for i in b]
        share = max(1, round(len(ordered) * min(1.0, epochs - epoch)))
        if paired:  # whole batches, so that none of them is parted
            share = math.ceil(share / batch) * batch
        result += ordered[:share]
    return result


def together(judgments: Sequence[str]) -> dict[int, list[int]]:
    """By index, the indices of two judgments by one guideline, one in each order; single ones stand alone."""
    found: dict[str, dict[str, list[int]]] = {}
    for index, node in enumerate(judgments):
        if node:
            guideline, _, leaf = node.rpartition("/")
            found.setdefault(guideline, {order: [] for order in ORDERS})[leaf[:2]].append(index)
    pairs = [pair for sides in found.values() for pair in zip(*sides.values(), strict=False)]
    return {index: list(pair) for pair in pairs for index in pair}


def filled(indices: Sequence[int], size: int) -> list[int]:
    """The indices, and as many of the first ones again as make their number a multiple of ``size``."""
    return [*indices, *itertools.islice(itertools.cycle(indices), -len(indices) % size)]
