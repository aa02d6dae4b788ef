"""Which judgments are ranked beside SFT: of two responses read one by one the better is to have the higher score."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from judgetrain.errors import TrainingError
from judgetrain.judges.prompting.parsing import SCORES, parse_judgment
from judgetrain.train.data import Examples, Row, order

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

RANK = "rank"
"""The column of where a ranked example's score stands in its tokens: below 0 in a tie, 0 in examples not ranked."""


def order_of_pairs(examples: Examples, batch: int, epochs: float, seed: int) -> list[int]:
    """As :func:`order`, of an even ``batch``: the two sides of a pair stand side by side in one micro-batch, and the
    other examples with one of like length, an odd one twice."""
    twos, lengths = [pair[:2] for pair in examples.pairs], examples.lengths
    others = sorted({*range(len(lengths))}.difference(*twos), key=lengths.__getitem__)
    twos += itertools.zip_longest(others[::2], others[1::2], fillvalue=(others or [0])[-1])
    widths = [max(lengths[i], lengths[j]) for i, j in twos]
    return [i for two in order(widths, batch // 2, epochs, seed) for i in twos[two]]


@lru_cache(maxsize=1)
def levels_of(tokenizer: PreTrainedTokenizerBase) -> tuple[tuple[int, ...], ...]:
    """The tokens that write each score of 1 to 5, as where expected scores are read (TrainingError: one has none)."""
    from judgetrain.engines.local.batch_state import StopWatch

    watch = StopWatch(tokenizer, len(tokenizer), ())
    levels = tuple(map(watch.spelling, SCORES))
    if not all(levels):
        raise TrainingError(f"ranking_weight: the tokenizer has no single token for one of {' '.join(SCORES)}")
    return levels


def ranked(examples: Examples, tokenizer: PreTrainedTokenizerBase, frame: str) -> Examples:
    """The examples with the column :data:`RANK`, and the pairs of which both scores can be read by the ``frame``
    (TrainingError: there are none)."""
    levels, marks, pairs = set(itertools.chain(*levels_of(tokenizer))), [0] * len(examples), []

    def text(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def score_at(row: Row) -> int:
        start = row["completion_mask"].index(1)
        answer = row["input_ids"][start:]
        due = parse_judgment(text(answer), frame=frame, responses=1).places or (-1,)
        for place, token in enumerate(answer):
            if token in levels and len(text(answer[: place + 1]).rstrip()) - len(text([token]).strip()) == due[0]:
                return start + place
        return 0

    for better, worse, tie in examples.pairs:
        places = [score_at(examples.data[i]) for i in (better, worse)]
        if all(places):
            pairs.append((better, worse, tie))
            marks[better], marks[worse] = (-place if tie else place for place in places)
    if not pairs:
        raise TrainingError(
            "ranking_weight: no comparison has its responses judged one by one: set tree.reads=one or both"
        )
    return replace(examples, data=examples.data.add_column(RANK, marks), pairs=pairs)
