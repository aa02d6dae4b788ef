"""Pairs published as two transcripts: ``chosen`` and ``rejected`` hold a whole dialogue each (anthropics/hh-rlhf).

Both begin alike, and the dialogue is what they have in common up to the last question there. What follows it is the
response.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from judgetrain.data.cells import RowError

_TURN = re.compile(r"\n\n(Human|Assistant):")
"""The beginning of a turn."""
_ROLES = {"Human": "user", "Assistant": "assistant"}
_NAMES = {"user": "User", "assistant": "Assistant"}
"""The speakers' names in a response of several turns, as they stand in votes on conversations."""


class Turn(NamedTuple):
    """A turn of a transcript."""

    role: str
    text: str


def is_transcript(text: Any) -> bool:
    """Return whether a cell is a transcript that a person begins."""
    return isinstance(text, str) and text.startswith("\n\nHuman:")


def with_dialogue(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose ``chosen`` and ``rejected`` are transcripts with the dialogue as ``prompt``, and two replies.

    Raises:
        RowError: the two begin differently, or one of them has no reply.
    """
    chosen = _turns(row["chosen"])
    rejected = _turns(row["rejected"])
    common = 0
    for first, second in zip(chosen, rejected, strict=False):
        if first != second:
            break
        common += 1
    # The same answer may stand in both; the dialogue still ends with a question.
    while common and chosen[common - 1].role != "user":
        common -= 1
    if not common:
        raise RowError("other_prompt", "chosen and rejected begin with different questions")

    messages = [{"role": turn.role, "content": turn.text} for turn in chosen[:common]]
    return {
        **row,
        "prompt": messages,
        "chosen": _reply(chosen[common:], "chosen"),
        "rejected": _reply(rejected[common:], "rejected"),
    }


def _turns(transcript: str) -> list[Turn]:
    """Return the turns of a transcript, in order."""
    # What stands before the first turn is empty (:func:`is_transcript`), then a name and a text a turn.
    _, *parts = _TURN.split(transcript)
    return [Turn(_ROLES[name], text.strip()) for name, text in zip(parts[::2], parts[1::2], strict=True)]


def _reply(turns: Sequence[Turn], column: str) -> str:
    """Return what follows the dialogue: an answer, or several as paragraphs with the questions between them."""
    if not turns or turns[0].role != "assistant":
        raise RowError("no_response", f"column {column!r}: expected an answer of the Assistant after the last question")
    if len(turns) == 1:
        return turns[0].text
    return "\n\n".join(f"{_NAMES[turn.role]}: {turn.text}" for turn in turns)
