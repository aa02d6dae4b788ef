"""Find the judgments that are ranked beside SFT: of two responses read one by one, the better gets the higher score."""

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
"""The column with the place of a ranked example's score among its tokens: below 0 in a tie, 0 if it is not ranked."""
PAIRS = "ranked_pairs"
"""The column of prefix trees with :data:`PAIR_NUMBERS` numbers for each pair that is ranked: the places of the score of
the better judgment and of the worse one in the row, and 1 for a tie."""
PAIR_NUMBERS = 3
RANKED = "ranked"
"""The pairs of a micro-batch [pairs, :data:`RANKED_NUMBERS`]: the row and the place of the better judgment's score,
those of the worse one's, and 1 for a tie."""
RANKED_NUMBERS = 5


def order_of_pairs(examples: Examples, batch: int, epochs: float, seed: int) -> list[int]:
    """Return indices in training order as :func:`order`, with the two sides of a pair side by side in a micro-batch.

    The other examples stand beside one of like length; an odd one stands there twice.

    Args:
        examples: with their pairs.
        batch: examples in a micro-batch, an even number.
        epochs: passes over the examples.
        seed: of the run.
    """
    lengths = examples.lengths
    twos = [(better, worse) for better, worse, _ in examples.pairs]
    paired = set(itertools.chain.from_iterable(twos))
    others = [index for index in range(len(lengths)) if index not in paired]
    # Neighbours by length, so that little of a micro-batch is padding.
    others.sort(key=lengths.__getitem__)
    if len(others) % 2:
        others.append(others[-1])
    twos += zip(others[::2], others[1::2], strict=True)
    # A pair takes as many columns of a micro-batch as its longer side.
    widths = [max(lengths[first], lengths[second]) for first, second in twos]
    # Two by two: half as many twos as examples fill a micro-batch.
    places = order(widths, batch // 2, epochs, seed)
    return [*itertools.chain.from_iterable(twos[place] for place in places)]


def ranked_in_batch(rows: Sequence[Row]) -> list[tuple[int, int, int, int, int]]:
    """Return the pairs of a micro-batch that are ranked, each as :data:`RANKED` has it.

    Args:
        rows: prefix trees, or examples of which the two sides of a pair stand side by side.
    """
    pairs = []
    ranked_rows = []
    for place, row in enumerate(rows):
        numbers = iter(row.get(PAIRS, ()))
        # Three at a time, from one iterator.
        for better, worse, is_tie in zip(numbers, numbers, numbers, strict=True):
            pairs.append((place, better, place, worse, is_tie))
        if row.get(RANK):
            ranked_rows.append(place)
    for better_row, worse_row in zip(ranked_rows[::2], ranked_rows[1::2], strict=True):
        better_mark = rows[better_row][RANK]
        worse_mark = rows[worse_row][RANK]
        pairs.append((better_row, abs(better_mark), worse_row, abs(worse_mark), int(better_mark < 0)))
    return pairs


@lru_cache(maxsize=1)
def levels_of(tokenizer: PreTrainedTokenizerBase) -> tuple[tuple[int, ...], ...]:
    """Return the tokens that write each score of 1 to 5, as where expected scores are read.

    Raises:
        TrainingError: the tokenizer has no single token for one of them.
    """
    from judgetrain.engines.local.batch_state import StopWatch

    watch = StopWatch(tokenizer, len(tokenizer), ())
    levels = tuple(map(watch.spelling, SCORES))
    if not all(levels):
        raise TrainingError(f"ranking_weight: the tokenizer has no single token for one of {' '.join(SCORES)}")
    return levels


def ranked(examples: Examples, tokenizer: PreTrainedTokenizerBase, frame: str) -> Examples:
    """Return the examples with the column :data:`RANK`, and of their pairs those whose scores can both be read.

    Args:
        examples: with all pairs of judgments.
        tokenizer: of the model that is trained.
        frame: of the prompt set, by which a judgment's score is read.

    Raises:
        TrainingError: there are no pairs.
    """
    marks = [0] * len(examples)
    pairs = []
    unpaired = examples.unpaired
    for better, worse, is_tie in examples.pairs:
        # Where the loss reads the expected scores, in both judgments or not at all.
        better_place = _score_place(examples.data[better], tokenizer, frame)
        worse_place = _score_place(examples.data[worse], tokenizer, frame)
        if better_place is None or worse_place is None:
            unpaired += 2
            continue
        pairs.append((better, worse, is_tie))
        sign = 1
        if is_tie:
            sign = -1
        marks[better] = sign * better_place
        marks[worse] = sign * worse_place
    if not pairs:
        raise TrainingError(
            "ranking_weight: no comparison has its responses judged one by one: set tree.reads=one or both"
        )
    return replace(examples, data=examples.data.add_column(RANK, marks), pairs=pairs, unpaired=unpaired)


def _score_place(row: Row, tokenizer: PreTrainedTokenizerBase, frame: str) -> int | None:
    """Return the place of the score's token among a judgment's tokens; None if no score can be read."""

    def text(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    level_tokens = set(itertools.chain(*levels_of(tokenizer)))
    # The prompt shows scores too, as examples, so the answer alone is read.
    start = row["completion_mask"].index(1)
    answer = row["input_ids"][start:]
    characters_before = parse_judgment(text(answer), frame=frame, responses=1).places
    if not characters_before:
        return None
    for place, token in enumerate(answer):
        if token not in level_tokens:
            continue
        # A token may bring the blank before the digit with it, and ends where the digit does.
        digit_at = len(text(answer[: place + 1]).rstrip()) - len(text([token]).strip())
        if digit_at == characters_before[0]:
            return start + place
    return None
