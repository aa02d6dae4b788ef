"""Finds where the answer of a reasoning model begins: what it thought before is not shown to a reader."""

import re

BREAK = "\u200b"
"""Zero-width space: put inside a control token's literal, it leaves the text readable and the token unmatched."""

TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    # EXAONE Deep.
    "<thought>": "</thought>",
    # Mistral.
    "[THINK]": "[/THINK]",
    "<seed:think>": "</seed:think>",
    # Kimi.
    "◁think▷": "◁/think▷",
    # Gemma 4.
    "<|channel>thought": "<channel|>",
    # Cohere.
    "<|START_THINKING|>": "<|END_THINKING|>",
    # Apertus.
    "<|inner_prefix|>": "<|inner_suffix|>",
    # OpenThoughts.
    "<|begin_of_thought|>": "<|end_of_thought|>",
    # LongCat.
    "<longcat_think>": "</longcat_think>",
    # MedGemma.
    "<unused94>thought": "<unused95>",
}
"""The marks that open the reasoning of each family of models, and those that end it."""

_OPENINGS = "|".join(map(re.escape, TAGS))
_ENDINGS = "|".join(map(re.escape, TAGS.values()))
_OPEN = re.compile(rf"\s*(?:{_OPENINGS})", re.IGNORECASE)
_CLOSE = re.compile(_ENDINGS, re.IGNORECASE)
_CLOSE_OF_LINE = re.compile(rf"^[ \t]*(?:{_ENDINGS})|(?:{_ENDINGS})(?=[ \t]*$)", re.IGNORECASE | re.MULTILINE)
"""An end with which its line begins or ends, as models write it; a quoted one stands inside a line."""
_OPENED = re.compile(rf"({_OPENINGS})\s*$", re.IGNORECASE)
# The last character may be missing: a tag that is cut off or has attributes is a quotation as well.
_QUOTED = re.compile("|".join(re.escape(tag[:-1]) for tag in TAGS), re.IGNORECASE)


def answer_start(text: str, material: str = "", of_line: bool = False) -> int | None:
    """Return where the answer begins, in characters of ``text``; None if the reasoning was never closed.

    Reasoning stands at the start of a reply, between tags (:data:`TAGS`), as ``<think>`` and ``</think>``. If the chat
    template has opened it, the reply holds only the end. Everything up to the last end is left out.

    Two things are a judge's quotation and no reasoning: tags that open in the middle of an answer, and an end that also
    stands in ``material``. If the material holds an end, only what opens at the start and its first end are believed,
    so that a forged ``</think>`` cannot hide what the judge wrote before it.

    Args:
        text: the reply.
        material: the text that is judged.
        of_line: an end without a beginning counts only where its line begins or ends with it.
    """
    start = 0
    opening = _OPEN.match(text)
    while opening is not None:
        closing = _CLOSE.search(text, opening.end())
        if closing is None:
            return None
        start = closing.end()
        opening = _OPEN.match(text, start)

    ending = _CLOSE_OF_LINE if of_line else _CLOSE
    ends = [match.end() for match in ending.finditer(text, start)]
    is_quoted = _CLOSE.search(material.replace(BREAK, "")) is not None
    if not ends or is_quoted:
        return start
    last_end = ends[-1]
    if _QUOTED.search(text, start, last_end):
        return start
    if _OPEN.match(text, last_end):
        # Reasoning began once more, and was not closed.
        return None
    return last_end


def answer_of(text: str, material: str = "") -> str | None:
    """Return the reply without the reasoning before it (:func:`answer_start`); None if there is no answer yet."""
    start = answer_start(text, material)
    if start is None:
        return None
    return text[start:]


def opening_in(prompt: str) -> str:
    """Return the tag of the reasoning that the prompt's last words open; empty if they open none."""
    opening = _OPENED.search(prompt)
    if opening is None:
        return ""
    return opening[1]


def opened_by(prompt: str) -> str:
    """Return the tag that closes the reasoning which the prompt's last words open; empty if they open none."""
    opening = opening_in(prompt)
    for tag, ending in TAGS.items():
        if tag.casefold() == opening.casefold():
            return ending
    return ""


# What a response holds in harmony, the format of gpt-oss: messages with a channel each. A call may name the tool before
# the channel.
_HARMONY = re.compile(r"\s*(?:<\|start\|>assistant\b\s*)?(?:to=[\w.-]+\s*)?<\|channel\|>")
_HARMONY_END = re.compile(r"<\|(?:end|return|call)\|>")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([\w.-]+)")
_TOOL = re.compile(r"(?:functions\.)?([\w.-]+)")
# The same without its special tokens, as a decoder that skips them leaves it.
_BARE_ANALYSIS = "analysis"
_BARE_FINAL = "assistantfinal"


def shown(text: str) -> str:
    """Return what a reader sees of a model's answer: all but its reasoning.

    A text without reasoning comes back as it is. Where the reasoning was never closed, nothing is shown.
    """
    if _HARMONY.match(text):
        return _shown_of_harmony(text)
    if text.startswith(_BARE_ANALYSIS) and _BARE_FINAL in text:
        return text.partition(_BARE_FINAL)[2].lstrip()
    start = answer_start(text, of_line=True)
    if start is None:
        return ""
    if start == 0:
        return text
    return text[start:].lstrip()


def _shown_of_harmony(text: str) -> str:
    """Return the messages of a response in harmony but those of its reasoning; calls of tools become text."""
    pieces = []
    for message in text.split("<|start|>"):
        header, has_content, rest = message.partition("<|message|>")
        content = _HARMONY_END.split(rest, maxsplit=1)[0].strip()
        channel = _CHANNEL.search(header)
        if not has_content or (channel is not None and channel[1] == "analysis"):
            continue
        recipient = _RECIPIENT.search(header)
        author = _TOOL.match(header)
        if recipient is not None and recipient[1] == "assistant" and author is not None:
            content = f"Result of {author[1]}: {content}"
        elif recipient is not None:
            content = f"Call of {recipient[1]}: {content}"
        if content:
            pieces.append(content)
    return "\n\n".join(pieces)
