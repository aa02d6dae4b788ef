"""How long and how marked up a response is: what LMSYS's style control holds equal."""

from __future__ import annotations

import re
from typing import NamedTuple

_CODE = re.compile(r"```.*?(```|\Z)", re.DOTALL)
_HEADER = re.compile(r"^#{1,6}\s", re.MULTILINE)
_LIST = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s", re.MULTILINE)
_BOLD = re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__")


class Style(NamedTuple):
    """Characters of a response, and how many headers, list items and bold passages it has outside of code."""

    length: int
    headers: int
    lists: int
    bold: int


def style_of(response: str) -> Style:
    """The style of a response."""
    text = _CODE.sub("", response)
    return Style(len(response), *(len(pattern.findall(text)) for pattern in (_HEADER, _LIST, _BOLD)))
