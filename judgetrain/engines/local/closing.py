"""The shortest way to complete a pattern: what a constrained text needs to end well before its tokens run out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

SPARE = 6
"""Tokens kept back beyond the shortest way: a free token may begin a character of several bytes, or spell a fixed word
in more tokens than it takes."""

_STEPS = 1000
"""Places looked at for the shortest way, at most."""
_FILLERS = (*b"\n.", *b" a1", 0x80, 0x90, 0xA0)
"""Bytes tried where a pattern leaves a choice, before those of the pattern itself; the last ones end a character that
has begun."""

Plan = list[tuple[int, ...]]
"""The tokens that may stand at each position on the way to the end; the last position is an end token's."""


class Speller:
    """Spells bytes in the fewest tokens of one vocabulary.

    Args:
        vocabulary: the bytes of each token id.
        never: ids that are no text.
    """

    def __init__(self, vocabulary: Sequence[bytes], never: Iterable[int]) -> None:
        left_out = set(never)
        self.vocabulary = len(vocabulary)
        self._ids: dict[bytes, int] = {}
        for token, text in enumerate(vocabulary):
            if text and token not in left_out:
                self._ids.setdefault(text, token)
        self._longest = max(map(len, self._ids), default=0)

    def spell(self, text: bytes, choices: dict[int, bytes]) -> Plan | None:
        """The fewest tokens that make up ``text``, or None if none do.

        ``choices``: places in ``text`` and the bytes that may as well stand there; their tokens are admitted, too.
        """
        best = self._fewest(text)
        if best[0] is None:
            return None
        plan, start = [], 0
        while step := best[start]:
            if start == len(text):
                break
            plan.append(self._admitted(text, start, step[1], choices))
            start = step[1]
        return plan

    def dead_ends(self, text: bytes, fixed: int) -> list[int]:
        """Tokens within the first ``fixed`` bytes after which the rest of ``text`` cannot be spelled."""
        best = self._fewest(text)
        begun = (text[:end] for end in range(1, fixed + 1) if best[end] is None)
        return [self._ids[part] for part in begun if part in self._ids]

    def has_bytes(self, text: bytes) -> bool:
        """Whether every byte of a text is a token of its own, so that anything of them can be spelled."""
        return all(bytes([byte]) in self._ids for byte in text)

    def _fewest(self, text: bytes) -> list[tuple[int, int] | None]:
        """At each place of ``text``, how many tokens the rest takes and where the first of them ends."""
        best: list[tuple[int, int] | None] = [None] * len(text) + [(0, len(text))]
        for start in range(len(text) - 1, -1, -1):
            for end in range(min(len(text), start + self._longest), start, -1):
                rest, known = best[end], best[start]
                if rest and text[start:end] in self._ids and (known is None or rest[0] + 1 < known[0]):
                    best[start] = rest[0] + 1, end
        return best

    def _admitted(self, text: bytes, start: int, end: int, choices: dict[int, bytes]) -> tuple[int, ...]:
        spelled = {text[start:end]}
        for place, options in choices.items():
            if start <= place < end:
                spelled |= {s[: place - start] + bytes([o]) + s[place - start + 1 :] for s in spelled for o in options}
        return tuple(sorted(self._ids[s] for s in spelled if s in self._ids))


def shortest_way(matcher: Any, pattern: str, speller: Speller, ends: Sequence[int]) -> Plan | None:
    """How to complete a pattern in few tokens from where an XGrammar ``matcher`` stands, which stays there.

    Where the pattern leaves a choice, what completes it in the fewest bytes is taken. None if no way was found.
    """
    for candidates in _orders(pattern):
        way = _way(matcher.fork(), candidates, speller.vocabulary)
        plan = speller.spell(*way) if way else None
        if plan is not None:
            return [*plan, tuple(ends)]
    return None


def detour(matcher: Any, pattern: str, speller: Speller) -> int:
    """How many tokens the longest of a pattern's options along the shortest way takes beyond it.

    A free token may begin such an option, and there is no way back.
    """
    for candidates in _orders(pattern):
        end = _end(matcher.fork(), candidates, speller.vocabulary)
        if end is None or speller.spell(end.text, {}) is None:
            continue
        longest, place = 0, end.before
        while place:
            at = len(place.text)
            rest = len(speller.spell(end.text[at:], {}) or ())
            for other in place.after(candidates):
                last = _end(other.matcher.fork(), candidates, speller.vocabulary)
                spelled = speller.spell(other.text[at:] + last.text, {}) if last else None
                longest = max(longest, len(spelled or ()) - rest)
            place = place.before
        return longest
    return 0


def fixed_part(matcher: Any) -> str:
    """What must follow where a matcher stands; nothing within a character, whose end alone is no text."""
    try:
        return str(matcher.find_jump_forward_string())
    except UnicodeDecodeError:
        return ""


def dead_ends(matcher: Any, fixed: str, pattern: str, speller: Speller) -> list[int]:
    """Tokens that begin the ``fixed`` words where a matcher stands and that no token of the vocabulary can go on from.

    A vocabulary of whole words may have the token ``A`` and none that goes on to ``Analysis``.
    """
    for candidates in _orders(pattern):
        way = _way(matcher.fork(), candidates, speller.vocabulary)
        if way and speller.spell(*way) is not None:
            return speller.dead_ends(way[0], len(fixed.encode()))
    return []


def _orders(pattern: str) -> Iterator[tuple[int, ...]]:
    """Bytes to try where a pattern leaves a choice; a vocabulary of words may not have every filler."""
    candidates = tuple(dict.fromkeys((*_FILLERS, *pattern.encode())))
    for first in range(len(_FILLERS)):
        yield candidates[first:] + candidates[:first]


@dataclass(frozen=True)
class _Place:
    """A place on the way: the bytes that led there, what the matcher admits there, and the places before it."""

    matcher: Any
    vocabulary: int
    text: bytes
    admits: tuple[bytes, bool]
    changes: int
    before: _Place | None

    @classmethod
    def reach(cls, matcher: Any, vocabulary: int, text: bytes, before: _Place | None) -> _Place | None:
        """Where a matcher comes to with the fixed part that follows; None if it cannot go there."""
        fixed = fixed_part(matcher).encode()
        if fixed and not matcher.accept_string(fixed):
            return None
        admits = _admits(matcher, vocabulary), bool(matcher.is_completed())
        changes = before.changes + (admits != before.admits) if before else 0
        return cls(matcher, vocabulary, text + fixed, admits, changes, before)

    def after(self, candidates: Sequence[int]) -> Iterator[_Place]:
        """The places one choice further on; of those that admit the same, the first."""
        seen: set[tuple[int, tuple[bytes, bool]]] = set()
        for byte in candidates:
            tried = self.matcher.fork()
            if not tried.accept_string(bytes([byte])):
                continue
            place = _Place.reach(tried, self.vocabulary, self.text + bytes([byte]), self)
            if place and (len(place.text), place.admits) not in seen:
                seen.add((len(place.text), place.admits))
                yield place


def _admits(matcher: Any, vocabulary: int) -> bytes:
    """The tokens that a matcher admits next, as the bytes of XGrammar's bitmask."""
    import xgrammar

    bitmask = xgrammar.allocate_token_bitmask(1, vocabulary)
    matcher.fill_next_token_bitmask(bitmask)
    return bitmask.numpy().tobytes()


def _way(matcher: Any, candidates: Sequence[int], vocabulary: int) -> tuple[bytes, dict[int, bytes]] | None:
    """The bytes to the end of the pattern, and at which places others would do as well."""
    end = _end(matcher, candidates, vocabulary)
    return (end.text, _alternatives(end, candidates)) if end else None


def _end(matcher: Any, candidates: Sequence[int], vocabulary: int) -> _Place | None:
    """The nearest place where the pattern is complete.

    The shortest texts are gone on with first. A matcher tells what it admits, not how far it has come: a place that
    admits what a nearer one admits, and is no more changes away from the beginning, is only returned to (later) when
    all else is exhausted, as in a repetition that has its least count yet to reach.
    """
    begin = _Place.reach(matcher, vocabulary, b"", None)
    heap = [(len(begin.text), 0, 0, begin)] if begin else []
    later: list[tuple[int, int, int, _Place]] = []
    most: dict[tuple[bytes, bool], int] = {}
    pushed = 0
    for _ in range(_STEPS):
        if not (heap or later):
            return None
        new = bool(heap)
        entry = heappop(heap or later)
        place = entry[-1]
        if place.admits[1]:
            return place
        if new and place.changes <= most.get(place.admits, -1):
            heappush(later, entry)
            continue
        most[place.admits] = max(place.changes, most.get(place.admits, -1))
        for further in place.after(candidates):
            pushed += 1
            heappush(heap, (len(further.text), -further.changes, pushed, further))
    return None


def _alternatives(end: _Place, candidates: Sequence[int]) -> dict[int, bytes]:
    """At each choice on the way to ``end``, the bytes after which the very same rest completes the pattern."""
    choices: dict[int, bytes] = {}
    place = end.before
    while place:
        at = len(place.text)
        same = [byte for byte in candidates if _completes(place.matcher, bytes([byte]) + end.text[at + 1 :])]
        choices[at] = bytes(same)
        place = place.before
    return choices


def _completes(matcher: Any, text: bytes) -> bool:
    tried = matcher.fork()
    return bool(tried.accept_string(text) and tried.is_completed())
