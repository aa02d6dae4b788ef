"""Keys of prompts: which rows are about one prompt, so that they are counted and resampled together."""

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from judgetrain.artifacts import stage_run
from judgetrain.data.cells import EMPTY, first_cell, id_text, list_in
from judgetrain.data.rows.columns import DEFAULT_FIELDS, first_filled
from judgetrain.schema import Dialogue

IDS = ("uid", "question_id", "prompt_id")
"""Columns of a prompt's id, as benchmarks call them (Arena-Hard 2.0, MT-Bench); an id goes before the texts."""

PromptKey = tuple[str, ...]
"""A prompt's id, or the text of every message of the user (:func:`normalised`): equal keys are one prompt."""


def normalised(query: str) -> str:
    """Return a query after Unicode NFKC, case folding and white-space folding."""
    return " ".join(unicodedata.normalize("NFKC", query).casefold().split())


def key_of_dialogue(dialogue: Dialogue) -> PromptKey:
    """Return the key of a dialogue's prompt: the text of every message of the user."""
    return tuple(map(normalised, dialogue.user_texts))


def prompt_digest(prompt: PromptKey) -> str:
    """Return a short digest of a prompt, by which files say which prompts something was fitted to.

    Args:
        prompt: the text of every message of the user.
    """
    text = "\0".join(map(normalised, prompt))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def prompt_key(row: Mapping[str, Any], column: str | None = None) -> PromptKey | None:
    """Return the key of the prompt that a row is about, or None where the row does not tell.

    Args:
        row: a mapping from columns to cells.
        column: the only column to look at; without it, ids, messages and texts are tried in this order.
    """
    id_columns: Sequence[str] = IDS
    if column:
        id_columns = (column,)
    # An id goes before the texts: its authors know better which rows are about one prompt.
    prompt_id = first_cell(row, id_columns)
    if prompt_id is not None:
        return (id_text(prompt_id),)
    if column:
        return None

    messages = list_in(row.get("messages"))
    if messages:
        texts = []
        for message in messages:
            if isinstance(message, Mapping) and message.get("role") == "user":
                texts.append(normalised(str(message.get("content"))))
        # A conversation in which no user speaks is told from others by all its messages.
        return tuple(texts) or (json.dumps(messages),)
    text = None
    text_column = first_filled(row, DEFAULT_FIELDS["query"]) or first_filled(row, ("dialogue_id",))
    if text_column is not None:
        text = row[text_column]
    if text in EMPTY:
        return None
    return (normalised(str(text)),)


def is_held_out(seed: int, dialogue: Dialogue, share: float) -> bool:
    """Return whether the comparisons on a prompt are held out of training.

    The answer is the same in every stage (:func:`judgetrain.artifacts.stage_run.is_held_out`). All comparisons on one
    prompt are, or none: data of preferences often has several to a prompt, and those that are trained on would tell
    what is right of the others.

    Args:
        seed: the run's.
        dialogue: of the comparison.
        share: how much is held out, from 0 to 1 (``label.holdout``).
    """
    # The user's turns alone: comparisons of one conversation may differ in what models answered between them.
    name = "\0".join(key_of_dialogue(dialogue))
    return stage_run.is_held_out(seed, name, share)


def conversation_starts(prompts: Sequence[PromptKey]) -> list[PromptKey]:
    """Return the prompt that each row counts under, [row].

    Turns of one conversation count as one prompt: a prompt counts as the shortest beginning of it that is a prompt,
    too.

    Args:
        prompts: the prompt of each row.
    """
    # As ("a",) and ("a", "b"): the second is a later turn of the first.
    known_prompts = set(prompts)
    starts = []
    for prompt in prompts:
        length = 1
        # At its whole length at the latest it is one of them.
        while prompt[:length] not in known_prompts:
            length += 1
        starts.append(prompt[:length])
    return starts
