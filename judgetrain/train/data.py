"""Training rows as TRL data sets: neutralised, length-checked, in an order that depends on the seed alone."""

from __future__ import annotations

import itertools
import math
import random
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.fingerprint import fingerprint
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.prompting import accepted_messages, neutralise_messages
from judgetrain.errors import TrainingError
from judgetrain.schema import ORDERS
from judgetrain.train.config import TrainConfig
from judgetrain.train.rendering import Renderer

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

Row = dict[str, Any]
Tokens = Mapping[str, "array[int]"]
REFERENCE_COLUMNS = ("ref_chosen_logps", "ref_rejected_logps")
_SIDES = ("completion", "chosen", "rejected")
BUCKET = 16
"""Batches whose examples are sorted by length together, so that little of a batch is padding."""


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Rows that fit, their tokens, and how many rows did not fit."""

    rows: list[Row]
    tokens: list[Tokens]
    """By row: ``prompt``, and each completion's own, token ids."""
    too_long: int
    all_masked: int = 0
    """Examples of whose completions the chat template renders nothing: they would carry no loss."""
    judgments: list[str] = field(default_factory=list)
    """By row: of a judgment, by which guideline it is, the same in both orders; empty of any other row."""
    remarks: tuple[str, ...] = ()
    """What is trained beyond what the chat template writes."""

    @cached_property
    def lengths(self) -> list[int]:
        """Of each row's prompt with its longest completion, in tokens."""
        return [_length(tokens) for tokens in self.tokens]

    @property
    def dropped(self) -> dict[str, int]:
        """How many were left out, by reason."""
        return {"too_long": self.too_long, "all_masked": self.all_masked}


def fitting(
    rows: Sequence[Row],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    what: str,
    ends: Collection[int] | None = None,
) -> Examples:
    """The rows whose prompt and longest completion have at most ``max_length`` tokens; nothing is cut.

    ``ends``: the token ids on which generation stops; by default the tokenizer's end token.

    Raises:
        TrainingError: there are no rows, none fits, the chat template renders none's completion, or no answer can end.
    """
    if not rows:
        raise TrainingError(f"there are no {what} to train on: look at the counts of the stage before")
    renderer = Renderer(tokenizer, {tokenizer.eos_token_id} - {None} if ends is None else ends)
    kept, encoded, judgments, masked = [], [], [], 0
    for row in rows:
        clean = {side: neutralise_messages(row[side], tokenizer) for side in _SIDES if side in row}
        clean = {"prompt": accepted_messages(row["prompt"], tokenizer), **clean}
        tokens = _tokens(clean, renderer)
        if tokens is None:  # the loss is computed on what is left after the prompt
            masked += 1
        elif _length(tokens) <= max_length:
            kept.append(clean)
            encoded.append(tokens)
            judgments.append(_judgment(row))
    if masked == len(rows):
        raise TrainingError(
            f"in all {masked} {what} the chat template renders nothing for the assistant's turn, so that every label "
            "is masked: give a template that does, as train.base.chat_template=FILE"
        )
    if not kept:
        raise TrainingError(
            f"all {len(rows) - masked} {what} are longer than max_length={max_length} tokens: raise train.*.max_length "
            "or leave out long dialogues with dialogues.max_query_chars"
        )
    return Examples(
        rows=kept,
        tokens=encoded,
        too_long=len(rows) - len(kept) - masked,
        all_masked=masked,
        judgments=judgments,
        remarks=tuple(renderer.remarks),
    )


def _tokens(row: Row, renderer: Renderer) -> Tokens | None:
    """A row's token ids; None if the chat template renders nothing of a completion."""
    prompt, tokens = renderer.prompt(row["prompt"]), {}
    for side in _SIDES:
        if side in row:
            answer = renderer.answer(row["prompt"], row[side])
            if answer is None:
                return None
            tokens["prompt"], tokens[side] = renderer.tokens(prompt, answer)
    return tokens


def _judgment(row: Row) -> str:
    """The node of a supervised judgment; empty for other rows."""
    supervised = row.get("level") == "judgment" and "completion" in row
    return str(row["nodes"][0]) if supervised else ""


def _length(tokens: Tokens) -> int:
    return len(tokens["prompt"]) + max(len(ids) for side, ids in tokens.items() if side != "prompt")


def order(lengths: Sequence[int], config: TrainConfig, seed: int, judgments: Sequence[str] = ()) -> list[int]:
    """Indices of the examples in training order, all epochs in a row, the same for any number of processes.

    Each epoch is a new shuffle; within buckets of :data:`BUCKET` batches examples are sorted by length and the
    batches shuffled again. A fraction of an epoch takes that share of its batches. With ``config.orders_together``
    those of the ``judgments`` (their nodes) that one guideline gives in order AB and in order BA stand side by side.
    """
    together = _together(judgments) if config.orders_together else {}
    step, epochs = config.per_device_train_batch_size, config.num_train_epochs
    result: list[int] = []
    for epoch in range(math.ceil(epochs)):
        rng = random.Random(derive_seed(seed, "order", epoch))
        indices = list(range(len(lengths)))
        rng.shuffle(indices)
        if together:
            # Those that stand together come first: with batches of an even size no single one before them parts them.
            indices.sort(key=lambda i: i not in together)
            indices = list(dict.fromkeys(j for i in indices for j in together.get(i, (i,))))
        span = step * BUCKET
        batches: list[list[int]] = []
        for start in range(0, len(indices), span):
            block = sorted(
                indices[start : start + span],
                key=lambda i: (i not in together, max(lengths[j] for j in together.get(i, (i,)))),
            )
            batches += [block[i : i + step] for i in range(0, len(block), step)]
        # The one short batch stays last: a short batch in the middle would shift all later ones.
        full = [b for b in batches if len(b) == step]
        rng.shuffle(full)
        ordered = [i for b in full for i in b] + [i for b in batches if len(b) < step for i in b]
        share = min(1.0, epochs - epoch)
        result += ordered[: max(1, round(len(ordered) * share))]
    return result


def _together(judgments: Sequence[str]) -> dict[int, list[int]]:
    """By index, the indices of two judgments by one guideline, one in each order; single ones stand alone."""
    found: dict[str, dict[str, list[int]]] = {}
    for index, node in enumerate(judgments):
        if node:
            guideline, _, leaf = node.rpartition("/")
            found.setdefault(guideline, {order: [] for order in ORDERS})[leaf[:2]].append(index)
    pairs = [pair for sides in found.values() for pair in zip(*sides.values(), strict=False)]
    return {index: list(pair) for pair in pairs for index in pair}


def parting(examples: Examples) -> dict[int, int]:
    """By example, the place in its completion where a judgment parts from the one by its guideline in the other order.

    Where a teacher says who is better before it says anything else, that is the token of its verdict. Judgments that
    say the same in both orders have none.
    """
    places = {}
    for index, (one, other) in _together(examples.judgments).items():
        texts = [examples.tokens[i]["completion"] for i in (one, other)]
        differ = (place for place, (a, b) in enumerate(zip(*texts, strict=False)) if a != b)
        if (place := next(differ, None)) is not None:
            places[index] = place
    return places


def verdicts(examples: Examples, config: TrainConfig, seed: int) -> Dataset | None:
    """What ``config.verdicts_first`` trains on before all else, in its order; None if that is nothing.

    Judgments that end with the token at which the two orders part, and that token alone has a loss. Filled up to whole
    optimizer steps.

    Raises:
        TrainingError: no two judgments by one guideline part anywhere.
    """
    from datasets import Dataset

    if not config.verdicts_first:
        return None
    places = parting(examples)
    if not places:
        raise TrainingError(
            "verdicts_first: no guideline has a judgment in either order that differ: set teacher.both_orders=true, or "
            "leave out verdicts_first"
        )
    columns, judgments = [], []
    for index, place in places.items():
        ids = [*examples.tokens[index]["prompt"], *examples.tokens[index]["completion"][: place + 1]]
        columns.append({"input_ids": ids, "completion_mask": [0] * (len(ids) - 1) + [1]})
        judgments.append(examples.judgments[index])
    own = replace(config, num_train_epochs=config.verdicts_first)
    indices = order([len(c["input_ids"]) for c in columns], own, derive_seed(seed, "verdicts"), judgments)
    step = config.per_device_train_batch_size * config.global_accumulation_steps
    return Dataset.from_list(columns).select(filled(indices, step))


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


def dataset(examples: Examples, indices: Sequence[int]) -> Dataset:
    """A data set of the examples in the given order, tokenised as TRL's trainers take it."""
    from datasets import Dataset

    columns = [_columns(*pair) for pair in zip(examples.rows, examples.tokens, strict=True)]
    return Dataset.from_list(columns).select(indices)


def _columns(row: Row, tokens: Tokens) -> Row:
    """The columns that TRL's SFT or DPO trainer makes of a conversation."""
    prompt = list(tokens["prompt"])
    if "completion" in tokens:
        completion = list(tokens["completion"])
        mask = [0] * len(prompt) + [1] * len(completion)
        return {"input_ids": prompt + completion, "completion_mask": mask}
    reference = {column: row[column] for column in REFERENCE_COLUMNS if column in row}
    return {"prompt_ids": prompt, **{f"{side}_ids": list(tokens[side]) for side in _SIDES[1:]}, **reference}


def digest(row: Row) -> str:
    """16 hex digits of a pair's text."""
    return fingerprint({side: row[side] for side in ("prompt", "chosen", "rejected")})


def with_reference(examples: Examples, reference: Path, split: str) -> Examples:
    """The pairs with their reference log-probabilities in the columns that TRL's DPO trainer reads.

    Raises:
        TrainingError: the artifact holds other pairs.
    """
    known = {row["pair"]: row for row in read_rows(reference, split)}
    rows = []
    for row in examples.rows:
        logps = known.get(digest(row))
        if logps is None:
            raise TrainingError(f"{reference} lacks a pair of the {split} split: remove that directory and run again")
        rows.append({**row, **{column: logps[column] for column in REFERENCE_COLUMNS}})
    return replace(examples, rows=rows)
