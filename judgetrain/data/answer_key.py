"""Final answers, checked against a key as in GSM8K, MATH or multiple choice; the unclear is neither."""

from __future__ import annotations

import re

_MARKED = (
    r"####\s*(?P<key>[^\n]+)",
    r"\\boxed\{(?P<key>[^{}]+)\}",
    r"(?:final answer|answer)\s*(?:is|:|=)\s*(?P<key>[^\n]+?)(?:[.;,]?\s*$|[.;]\s)",
)
"""How a final answer is marked: GSM8K's, MATH's, and in words."""
_NUMBER = r"[-+]?\$?\d[\d,]*(?:\.\d+)?"
MOST_WORDS = 3
"""A reference of so many words is a key by itself."""


def key_of(text: str, is_reference: bool = False) -> str | None:
    """The final answer that a text marks, the last one where it marks several; None where it marks none.

    ``is_reference``: a text of at most :data:`MOST_WORDS` words is an answer without a mark.
    """
    for pattern in _MARKED:
        found = [m["key"].strip() for m in re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE)]
        if found and (key := _plain(found[-1])):
            return key
    short = text.strip()
    return _plain(short) or None if is_reference and 0 < len(short.split()) <= MOST_WORDS else None


def is_right(text: str, key: str) -> bool | None:
    """Whether an answer ends as the key says; None where it does not say how it ends.

    Where the key is a number and the answer marks no final answer, its last number counts.
    """
    said = key_of(text)
    if said is None and _number(key) is not None:
        numbers = re.findall(_NUMBER, text)
        said = _plain(numbers[-1]) if numbers else None
    if said is None:
        return None
    first, second = _number(said), _number(key)
    if second is not None:
        return None if first is None else first == second
    return said.casefold() == key.casefold()


def _plain(text: str) -> str:
    """Without what surrounds an answer: markup, currency, brackets round a choice, a closing mark."""
    return text.strip().strip("*_`$ ").rstrip(".").strip("()").replace("\\$", "").strip("*$ ")


def _number(text: str) -> float | None:
    """The number that a text begins with, whatever its unit; None where it is none."""
    found = re.match(_NUMBER, text)
    return float(re.sub(r"[$,]", "", found[0])) if found else None
