"""Layout taken off a response: what is set as a list or under headings, as running text with the same words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_LISTS = ("bullet_list_open", "ordered_list_open")
_OF_LISTS = {"inline", "paragraph_open", "paragraph_close", "list_item_open", "list_item_close"} | {
    f"{kind}_list_{end}" for kind in ("bullet", "ordered") for end in ("open", "close")
}
"""What a list may hold that is set as running text: not code, tables or quotations, whose lines mean something."""


def strip_markdown(text: str) -> str:
    """The text (CommonMark) without its headings' marks, and with the items of each list one after another.

    Nothing else is touched: emphasis, whose marks may be arithmetic, code, tables, and a list of one item, which may be
    an answer ("1986."). Ordered items lose their numbers. A text that would be empty is left as it is.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    tokens = _parser().parse("\n".join(lines))
    found: list[str] = []
    done = 0
    for at, token in enumerate(tokens):
        if token.level or token.map is None or (running := _running(token, tokens[at + 1 :])) is None:
            continue
        begin, end = token.map
        while end > begin and not lines[end - 1].strip():  # blank lines after a list count as its own
            end -= 1
        found += [*lines[done:begin], running]
        done = end
    changed = "\n".join([*found, *lines[done:]]).strip()
    return changed if done and changed else text


def _running(token: Token, after: Sequence[Token]) -> str | None:
    """The words of a heading or a list that the token opens, or None where it opens something else."""
    if token.type == "heading_open":
        return after[0].content
    if token.type not in _LISTS:
        return None
    close = next(i for i, other in enumerate(after) if other.level == 0)
    inner = after[:close]
    if sum(other.type == "list_item_open" and other.level == 1 for other in inner) < 2:
        return None
    if not {other.type for other in inner} <= _OF_LISTS:
        return None
    return " ".join(" ".join(other.content.split()) for other in inner if other.type == "inline")


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark")
