"""In which order examples are trained on: a function of the seed alone, the same for any number of processes."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.schema import ORDERS
from judgetrain.train.config import TrainConfig

BUCKET = 16
"""Batches whose examples are sorted by length together, so that little of a batch is padding."""


def order(lengths: Sequence[int], config: TrainConfig, seed: int, judgments: Sequence[str] = ()) -> list[int]:
    """Indices of the examples in training order, all epochs in a row, the same for any number of processes.

    Each epoch is a new shuffle; within buckets of :data:`BUCKET` batches examples are sorted by length and the
    batches shuffled again. A fraction of an epoch takes that share of its batches. With ``config.orders_together``
    those of the ``judgments`` (their nodes) that one guideline gives in order AB and in order BA stand side by side.
    """
    paired = together(judgments) if config.orders_together else {}
    step, epochs = config.per_device_train_batch_size, config.num_train_epochs
    result: list[int] = []
    for epoch in range(math.ceil(epochs)):
        rng = random.Random(derive_seed(seed, "order", epoch))
        indices = list(range(len(lengths)))
        rng.shuffle(indices)
        if paired:
            # Those that stand together come first: with batches of an even size no single one before them parts them.
            indices.sort(key=lambda i: i not in paired)
            indices = list(dict.fromkeys(j for i in indices for j in paired.get(i, (i,))))
        span = step * BUCKET
        batches: list[list[int]] = []
        for start in range(0, len(indices), span):
            block = sorted(
                indices[start : start + span],
                key=lambda i: (i not in paired, max(lengths[j] for j in paired.get(i, (i,)))),
            )
            batches += [block[i : i + step] for i in range(0, len(block), step)]
        # The one short batch stays last: a short batch in the middle would shift all later ones.
        full = [b for b in batches if len(b) == step]
        rng.shuffle(full)
        ordered = [i for b in full for i in b] + [i for b in batches if len(b) < step for i in b]
        share = max(1, round(len(ordered) * min(1.0, epochs - epoch)))
        if paired:  # whole batches, so that none of them is parted
            share = math.ceil(share / step) * step
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


def fill(indices: Sequence[int], config: TrainConfig) -> list[int]:
    """The indices, filled up with the first ones to whole optimizer steps where a step has several micro-batches.

    Micro-batches that are left over could not be shared out over processes so that any number of them takes the same
    steps.
    """
    steps = config.global_accumulation_steps
    return filled(indices, config.per_device_train_batch_size * steps) if steps > 1 else [*indices]


def filled(indices: Sequence[int], size: int) -> list[int]:
    """The indices, and as many of the first ones again as make their number a multiple of ``size``."""
    return [*indices, *itertools.islice(itertools.cycle(indices), -len(indices) % size)]
