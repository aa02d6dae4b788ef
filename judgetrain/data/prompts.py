"""Which prompt a row is about: one definition for systems' answers, benchmarks and leaderboards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from judgetrain.data.cells import list_in
from judgetrain.data.rows import DEFAULT_FIELDS

IDS = ("uid", "question_id", "prompt_id")
"""Columns of a prompt's id, as benchmarks call them (Arena-Hard 2.0, MT-Bench); they decide where a row has one."""

Asked = tuple[str, ...]
"""What tells one prompt from another: its id, or all that the user said, an entry a turn."""


def asked_in(row: Mapping[str, Any], column: str | None = None) -> Asked | None:
    """What a row says of its prompt; None where it says nothing. ``column``: the one that decides."""
    named = (column,) if column else IDS
    if (found := first_of(row, named)) is not None:
        return (str(found),)
    if column:
        return None
    if messages := list_in(row.get("messages")):
        said = [m.get("content") for m in messages if isinstance(m, Mapping) and m.get("role") == "user"]
        return tuple(map(str, said)) or (json.dumps(messages),)
    found = first_of(row, (*DEFAULT_FIELDS["query"], "dialogue_id"))
    return None if found in (None, "") else (str(found),)


def clusters(asked: Sequence[Asked]) -> list[Asked]:
    """What rows have in common that are about one prompt: turns of one conversation count as its first one that there
    is."""
    whole = set(asked)
    return [next(each[:n] for n in range(1, len(each) + 1) if each[:n] in whole) for each in asked]


def first_of(row: Mapping[str, Any], columns: Sequence[str]) -> Any:
    """The first of the columns that holds something, be it 0 or an empty text; None without any."""
    return next((row[name] for name in columns if row.get(name) is not None), None)
