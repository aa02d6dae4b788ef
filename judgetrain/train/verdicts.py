"""What ``train.initial.verdict_token_warmup`` trains on first: who is better, and nothing of how it is said."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.errors import TrainingError
from judgetrain.train.config import InitialConfig
from judgetrain.train.data import Examples, Row, table
from judgetrain.train.order import filled, order, together

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

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
        more = ", ..." if len(self.learned) > SHOWN else ""
        doubt = ""
        if sum(number for _, number in common[:2]) < FEW * self.judgments:
            doubt = "; these are hardly verdicts: verdict_token_warmup is for a teacher that says first who is better"
        return (
            f"before all else the verdicts of {self.judgments} judgments, {self.steps} steps, where both orders part: "
            f"{named}{more}{doubt}"
        )


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
