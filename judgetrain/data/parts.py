"""Parts of a data set by prompt: what is learned from, chosen by and reported on shares no prompt.

A prompt's place between 0 and 1 is a hash of its first question. So a data set can be divided without a list of rows:
rows that are added, taken out or put in another order leave the others where they are, and turns of one conversation
stay together.

Rows that were looked at before are in no stretch of their own. Files name them, one prompt's hash a line. Such rows can
be left out, or be the only ones (:class:`PromptFilter`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from judgetrain.data.prompt_keys import normalised
from judgetrain.errors import ConfigError
from judgetrain.schema import Dialogue

HASH_DIGITS = 16
"""Hexadecimal digits of a prompt's hash: the same 64 bits that give its place."""


def check_part(part: Sequence[float], key: str) -> None:
    """Refuse (ConfigError) a part that is no stretch of 0 to 1; ``key`` is its configuration key."""
    if not part:
        return
    if len(part) != 2 or not 0 <= part[0] < part[1] <= 1:
        raise ConfigError(
            f"{key}={list(part)}: expected two numbers, the beginning and the end of a stretch of 0 to 1, as [0, 0.8]"
        )


def prompt_hash(dialogue: Dialogue) -> str:
    """Return the hash of a dialogue's prompt, the user's first message: 16 hexadecimal digits."""
    first = next(iter(dialogue.user_texts), dialogue.query)
    return hashlib.sha256(normalised(first).encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]


def place_of(dialogue: Dialogue) -> float:
    """Return where between 0 and 1 a dialogue's prompt stands, by a hash of the user's first message."""
    # The hash's 64 bits as a share of all that there are.
    return int(prompt_hash(dialogue), 16) / 2**64


def in_part(dialogue: Dialogue, part: Sequence[float]) -> bool:
    """Return whether a dialogue's prompt stands in a part, its beginning included; an empty part is everything."""
    if not part:
        return True
    # Without its end: of two parts that meet, a prompt stands in one alone.
    begin, end = part
    return begin <= place_of(dialogue) < end


def read_hashes(path: str, key: str) -> frozenset[str]:
    """Return the prompts' hashes of a file, one a line; empty lines and what follows ``#`` are left out.

    Args:
        path: of the file.
        key: its configuration key, for messages.

    Raises:
        ConfigError: there is no such file, or a line is no hash.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(f"{key}={path!r}: no such file")
    hashes = set()
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        if not re.fullmatch(f"[0-9a-f]{{{HASH_DIGITS}}}", text):
            raise ConfigError(
                f"{key}: {path}, line {number}: expected a prompt's hash of {HASH_DIGITS} hexadecimal digits, found "
                f"{text[:40]!r}"
            )
        hashes.add(text)
    return frozenset(hashes)


class Parted(Protocol):
    """The settings that say which prompts' rows are taken: those of a source, or of a benchmark."""

    part: list[float]
    only: str
    leave_out: str


class PromptFilter:
    """Decides by its prompt whether a row is taken: by its part, and by files of hashes.

    Args:
        settings: of a source or a benchmark.
        key: their configuration key, for messages.

    Raises:
        ConfigError: a file of hashes is missing or wrong.
    """

    def __init__(self, settings: Parted, key: str) -> None:
        self._part = settings.part
        self._only: frozenset[str] | None = None
        if settings.only:
            self._only = read_hashes(settings.only, f"{key}.only")
        self._left_out: frozenset[str] = frozenset()
        if settings.leave_out:
            self._left_out = read_hashes(settings.leave_out, f"{key}.leave_out")

    @property
    def takes_all(self) -> bool:
        """Return whether every row is taken."""
        return not self._part and self._only is None and not self._left_out

    def __call__(self, dialogue: Dialogue) -> bool:
        """Return whether the rows on a dialogue's prompt are taken."""
        if not in_part(dialogue, self._part):
            return False
        # Most files are divided by their parts alone, which needs no second hash.
        if self._only is None and not self._left_out:
            return True
        name = prompt_hash(dialogue)
        if self._only is not None and name not in self._only:
            return False
        return name not in self._left_out


def check_parted(settings: Parted, key: str) -> None:
    """Refuse (ConfigError) a part that is no stretch, and files of hashes that are missing or wrong."""
    check_part(settings.part, f"{key}.part")
    PromptFilter(settings, key)
