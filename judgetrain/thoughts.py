"""Finds where the answer of a reasoning model begins: what it thought before is not shown to a reader."""

import re
import unicodedata
from collections.abc import Iterable, Iterator

BREAK = "\u200b"
"""Zero-width space: put inside a control token's literal, it leaves the text readable and the token unmatched."""

TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    # EXAONE Deep, Marco-o1.
    "<thought>": "</thought>",
    # Models that learned to think by the examples of TRL and Unsloth.
    "<reasoning>": "</reasoning>",
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

FRAMES = {
    # Cohere.
    "<|START_RESPONSE|>": "<|END_RESPONSE|>",
    # OpenThoughts.
    "<|begin_of_solution|>": "<|end_of_solution|>",
    # Hunyuan, and models that learned to think as DeepSeek-R1-Zero did.
    "<answer>": "</answer>",
    # Granite.
    "<response>": "</response>",
    # Marco-o1.
    "<output>": "</output>",
}
"""The marks that open the answer of each family of models that frames it, and those that end it."""
UNSEEN = frozenset(("Cc", "Cf", "Zs", "Zl", "Zp", "Mn", "Me"))
"""Unicode's categories of control and format characters, of blanks, and of marks, which need a letter before them."""
BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and signs that are blank: fillers of Korean, and braille without a dot."""
CONTROL = "<|"
"""The beginning of marks that are tokens of their own, and no words of an answer."""


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern of words in any case.

    The first characters, which have no case, stand for themselves: a search then goes from one of these to the next,
    ten times as fast as where it tries every character in both cases.
    """
    return "|".join(f"{re.escape(word[0])}(?i:{re.escape(word[1:])})" for word in words)


_OPENINGS = _any_of(TAGS)
# A byte order mark is no blank for Python.
_OPEN = re.compile(rf"[\s\ufeff]*+(?:{_OPENINGS})")
_CLOSE = re.compile(_any_of(TAGS.values()))
_FOLDED_ENDINGS = tuple(ending.casefold() for ending in TAGS.values())
# An answer in a frame may begin in the same line.
_BLANKS_TO_ANSWER = re.compile(rf"[ \t]*+(?=\n|\Z|{_any_of(FRAMES)})")
_FRAMED = {opening: re.compile(_any_of([opening])) for opening in FRAMES}
_FRAME_ENDS = {opening: re.compile(_any_of([ending])) for opening, ending in FRAMES.items()}
_OPENED = re.compile(rf"({_OPENINGS})\s*$")
# The last character may be missing: a tag that is cut off or has attributes is a quotation as well.
_QUOTED = re.compile(_any_of(tag[:-1] for tag in TAGS))


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
        of_line: an end without a beginning counts only where its line begins or ends with it, or an answer's frame
            follows.
    """
    start = 0
    opening = _OPEN.match(text)
    while opening is not None:
        closing = _CLOSE.search(text, opening.end())
        if closing is None:
            return None
        start = closing.end()
        opening = _OPEN.match(text, start)

    # Most replies hold no end at all. That is found out fast, since a pattern keeps Python's lock to the end of a text.
    folded = text.casefold()
    if not any(ending in folded for ending in _FOLDED_ENDINGS):
        return start
    ends = list(_ends(text, start, of_line))
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


def _ends(text: str, start: int, of_line: bool) -> Iterator[int]:
    """Yield where the ends of reasoning end.

    Args:
        text: the reply.
        start: where to begin.
        of_line: only an end with which its line begins or ends, or behind which the frame of an answer follows, as
            models write it; a quoted one stands inside a line.
    """
    # Where the line begins, or behind the last end where that stands in it: each character is looked at once.
    since = text.rfind("\n", 0, start) + 1
    for match in _CLOSE.finditer(text, start):
        if not of_line:
            yield match.end()
            continue
        line_began = text.rfind("\n", since, match.start()) + 1
        # 0: in the line of the last end, behind it.
        is_first = line_began > 0 or since == 0 or text[since - 1] == "\n"
        before = text[max(line_began, since) : match.start()]
        if (is_first and not before.strip(" \t")) or _BLANKS_TO_ANSWER.match(text, match.end()):
            yield match.end()
        since = match.end()


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
_HARMONY = re.compile(r"\s*+(?:<\|start\|>assistant\b\s*+)?(?:to=[\w.-]++\s*+)?<\|channel\|>")
_HARMONY_END = re.compile(r"<\|(?:end|return|call)\|>")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([\w.-]+)")
_TOOL = re.compile(r"(?:functions\.)?([\w.-]+)")
# The same without its special tokens, as a decoder that skips them leaves it.
_BARE_ANALYSIS = "analysis"
_BARE_FINAL = "assistantfinal"
# Its first sentence follows at once, as no word of a text does.
_BARE_BEGINNING = re.compile(rf"{_BARE_ANALYSIS}[A-Z]")


def shown(text: str) -> str:
    """Return what a reader sees of a model's answer: all but its reasoning.

    A text without reasoning comes back as it is. Where the reasoning was never closed, nothing is shown. An answer that
    its model framed (:data:`FRAMES`) is shown without its frame. One that holds no character that can be seen, as
    zero-width spaces alone, is empty.
    """
    answer = _answer_in(text)
    # Blanks alone are an empty answer for everybody. Most texts begin with a character that can be seen.
    if not answer.strip() or any(_can_be_seen(character) for character in answer):
        return answer
    return ""


def _can_be_seen(character: str) -> bool:
    """Return whether a reader sees anything of a character."""
    return unicodedata.category(character) not in UNSEEN and character not in BLANK_LETTERS


def _answer_in(text: str) -> str:
    """Return a model's answer without its reasoning and its frame."""
    if _HARMONY.match(text):
        return _shown_of_harmony(text)
    if text.startswith(_BARE_ANALYSIS) and _BARE_FINAL in text:
        return text.partition(_BARE_FINAL)[2].lstrip()
    if _BARE_BEGINNING.match(text):
        # It was cut before there was an answer.
        return ""
    start = answer_start(text, of_line=True)
    if start is None:
        return ""
    if start == 0:
        return _unframed(text, after_thought=False)
    return _unframed(text[start:].lstrip(), after_thought=True)


def without_thoughts(text: str, starts: Iterable[int]) -> str:
    """Return a text without the reasoning that begins at some of its places; to its end, where that was never closed.

    Args:
        text: the text.
        starts: where parts of it begin, in characters, rising.
    """
    pieces = []
    shown_to = 0
    for start in starts:
        opening = _OPEN.match(text, start)
        if start < shown_to or opening is None:
            continue
        pieces.append(text[shown_to:start])
        closing = _CLOSE.search(text, opening.end())
        if closing is None:
            shown_to = len(text)
            break
        shown_to = closing.end()
        while text[shown_to : shown_to + 1].isspace():
            shown_to += 1
    if not pieces:
        return text
    pieces.append(text[shown_to:])
    return "".join(pieces).rstrip()


def _unframed(text: str, after_thought: bool) -> str:
    """Return an answer without the frame that is around all of it; one that was cut lacks the frame's end.

    Args:
        text: the answer.
        after_thought: whether the model thought before. If not, a frame of words, as ``<answer>``, is what its user
            wanted to have.
    """
    stripped = text.strip()
    for opening, mark in _FRAMED.items():
        beginning = mark.match(stripped)
        if beginning is None or not (after_thought or opening.startswith(CONTROL)):
            continue
        end = _FRAME_ENDS[opening].search(stripped, beginning.end())
        if end is None:
            return stripped[beginning.end() :].strip()
        # Where something stands behind it, the frame is around a part of the answer.
        if end.end() == len(stripped):
            return stripped[beginning.end() : end.start()].strip()
    return text


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
