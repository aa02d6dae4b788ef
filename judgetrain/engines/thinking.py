"""Where the answer of a reasoning model begins: what it thought before is no part of its answer."""

from __future__ import annotations

import re

from judgetrain.engines.prompting import BREAK

NO_ANSWER = "no_answer"
"""Why nothing is read from a reply whose reasoning never ended."""

_OPEN = re.compile(r"\s*(?:<think(?:ing)?>|\[THINK\])", re.IGNORECASE)
_CLOSE = re.compile(r"</think(?:ing)?>|\[/THINK\]", re.IGNORECASE)
_OPENED = re.compile(r"(?P<tag><think(?:ing)?>|\[THINK\])\s*$", re.IGNORECASE)


def answer_start(text: str, material: str = "") -> int | None:
    """Where the answer begins, in characters of ``text``; None if the reasoning was never closed.

    Reasoning stands at the start of a reply, between ``<think>`` and ``</think>`` (or ``[THINK]`` and ``[/THINK]``);
    where the chat template has opened it, the reply holds only the end. All up to the last end is left out. Two things
    are no reasoning but a judge's quotation: tags that open in the middle of an answer, and an end that also stands in
    ``material``, the text that is judged. With such a text only what opens at the start and its first end are believed,
    so that a forged ``</think>`` cannot hide what the judge wrote before it.
    """
    start = 0
    while opened := _OPEN.match(text, start):
        closed = _CLOSE.search(text, opened.end())
        if closed is None:
            return None
        start = closed.end()
    ends = [match.end() for match in _CLOSE.finditer(text, start)]
    if not ends or _CLOSE.search(material.replace(BREAK, "")):
        return start
    if re.search(r"<think|\[THINK", text[start : ends[-1]], re.IGNORECASE):
        return start
    return None if _OPEN.match(text, ends[-1]) else ends[-1]


def answer_of(text: str, material: str = "") -> str | None:
    """The reply without the reasoning before it (see :func:`answer_start`); None if there is no answer yet."""
    start = answer_start(text, material)
    return None if start is None else text[start:]


def opened_by(prompt: str) -> str:
    """How reasoning is closed that the prompt's last words have opened: ``</think>``; empty if they have not."""
    opened = _OPENED.search(prompt)
    return f"{opened['tag'][0]}/{opened['tag'][1:]}" if opened else ""
