"""In which order examples are trained on, a function of the seed alone whatever the processes; and what comes first.

``train.initial.verdict_token_warmup`` trains first on who is better, and nothing of how it is said.
"""

from __future__ import annotations

import itertools
import math
import random
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.errors import TrainingError
from judgetrain.schema import ORDERS
from judgetrain.train.config import InitialConfig
from judgetrain.train.data import Examples, Row, table

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

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
            longest = {i: max(lengths[j] for j in paired.get(i, (i,))) for i in indices[start : start + span]}
            block = sorted(longest, key=lambda i: (i not in paired, longest[i]))
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
            if (order := leaf.rstrip("0123456789")) in ORDERS:
                found.setdefault(guideline, {order: [] for order in ORDERS})[order].append(index)
    pairs = [pair for sides in found.values() for pair in zip(*sides.values(), strict=False)]
    return {index: list(pair) for pair in pairs for index in pair}


def filled(indices: Sequence[int], size: int) -> list[int]:
    """The indices, and as many of the first ones again as make their number a multiple of ``size``."""
    return [*indices, *itertools.islice(itertools.cycle(indices), -len(indices) % size)]


SHOWN = 3
FEW = 0.9
"""The share of the judgments that the two commonest tokens have where they are verdicts."""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The judgments up to their verdicts, all passes in training order."""

    data: Dataset
    """``input_ids`` and ``completion_mask``, whole optimizer steps."""
    judgments: int
    steps: int
    learned: Counter[int]
    """How many judgments end with which token."""

    def told(self, tokenizer: PreTrainedTokenizerBase) -> str:
        """A sentence for the log: how much there is, and what is learned."""
        common = sorted(self.learned.items(), key=lambda found: (-found[1], found[0]))[:SHOWN]
        named = ", ".join(f"{tokenizer.decode([token])!r} ({number})" for token, number in common)
        told = f"the verdicts of {self.judgments} judgments, {self.steps} steps, where both orders part: {named}"
        if sum(number for _, number in common[:2]) < FEW * self.judgments:
            told += "; these are hardly verdicts: verdict_token_warmup is for a teacher that says first who is better"
        return f"before all else {told}"


def verdict_tokens(examples: Examples, config: InitialConfig, seed: int, place: Path | None = None) -> Opening:
    """What ``config.verdict_token_warmup`` trains on before all else.

    A judgment ends with the token at which it parts from the one by the same guideline in the other order, and that
    token alone has a loss. Where a teacher says who is better before anything else, it is the verdict. Judgments that
    say the same in both orders, as ties do, are left out. ``place``: as of :func:`judgetrain.train.data.fitting`.

    Raises:
        TrainingError: no two judgments by one guideline part anywhere.
    """
    lengths, judgments, learned = array("i"), [], Counter[int]()

    def shortened() -> Iterator[Row]:
        for index, pair in together(examples.judgments).items():
            if (ids := _to_the_verdict(examples, index, pair)) is not None:
                lengths.append(len(ids))
                judgments.append(examples.judgments[index])
                learned[ids[-1]] += 1
                yield {"input_ids": ids, "completion_mask": [0] * (len(ids) - 1) + [1]}

    data = table(shortened(), place)
    if not lengths:
        raise TrainingError(
            f"train.initial.verdict_token_warmup={config.verdict_token_warmup:g}: no judgment differs from the one by "
            "its guideline in the other order (ties do not, and those longer than max_length are left out): leave it "
            "out"
        )
    batch, seed = config.per_device_train_batch_size, derive_seed(seed, "verdicts")
    step = batch * config.global_accumulation_steps
    indices = filled(order(lengths, batch, config.verdict_token_warmup, seed, judgments), step)
    return Opening(data=data.select(indices), judgments=len(lengths), steps=len(indices) // step, learned=learned)


def _to_the_verdict(examples: Examples, index: int, pair: Sequence[int]) -> list[int] | None:
    """Token ids of a judgment up to the token at which the two of a pair part; None where none does."""
    rows = {i: examples.data[i] for i in {index, *pair}}
    starts = {i: row["completion_mask"].index(1) for i, row in rows.items()}
    completions = [rows[i]["input_ids"][starts[i] :] for i in pair]
    differ = (place for place, tokens in enumerate(zip(*completions, strict=False)) if len(set(tokens)) > 1)
    place = next(differ, None)
    if place is None:
        return None
    ids: list[int] = rows[index]["input_ids"][: starts[index] + place + 1]
    return ids
