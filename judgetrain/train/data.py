"""Training rows as TRL data sets: neutralised, length-checked, in an order that depends on the seed alone."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.fingerprint import fingerprint
from judgetrain.artifacts.shards import read_rows
from judgetrain.engines.prompting import accepted_messages, neutralise_messages
from judgetrain.errors import TrainingError
from judgetrain.train.rendering import Renderer

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

Row = dict[str, Any]
Tokens = Mapping[str, "array[int]"]
Pair = tuple[Row, Tokens]
"""A row and its tokens."""
REFERENCE_COLUMNS = ("ref_chosen_logps", "ref_rejected_logps")
_SIDES = ("completion", "chosen", "rejected")


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

    def pairs(self, start: int = 0, stop: int | None = None) -> list[Pair]:
        """Each row with its tokens, from ``start`` up to ``stop``."""
        return list(zip(self.rows[start:stop], self.tokens[start:stop], strict=True))

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
