"""Turn chat messages into the text a model reads; what users wrote is kept from being read as its structure.

Structure is control tokens and a chat template's role markers. Also where the answer of a reasoning model begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from judgetrain.engines.base import Completion, Request
from judgetrain.engines.confusables import fold
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BREAK = "\u200b"
"""Zero-width space: put inside a control token's literal, it leaves the text readable and the token unmatched."""

MARKER_WORDS = 3
"""A line of more words that a chat template writes is a default system prompt, not a role marker."""

_MARKUP = re.compile(r"<\S{1,100}>|\[\S{1,100}\]")
_HTML = re.compile(
    r"</?(?:a|b|blockquote|br|caption|code|col|colgroup|dd|del|div|dl|dt|em|h[1-6]|hr|i|img|ins|kbd|li|mark|ol|p|pre|q|s"
    r"|small|span|strike|strong|sub|sup|table|tbody|td|tfoot|th|thead|tr|tt|u|ul|var)/?>"
)
_MARKER = re.compile(r"(?=.*[^\W\d_])(?=.*[^\w\s]).{2,}")
_KNOWN = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<｜[^｜<>\s]{1,40}｜>|</?s>|<(?:bos|eos|pad|end|sop|user|assistant|system|unused\d+)>"
    r"|<(?:start|end)_of_(?:turn|image)>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|gMASK)\]"
    r"|<</?SYS>>|</?(?:think|tool_call|tool_response)>|\[/?THINK\]|(?<!\w)(?:USER|ASSISTANT|SYSTEM|HUMAN):"
    r"|#{2,3} (?:User|Assistant|System|Human|Instruction|Input|Response):"
)
_PROBE = "\ue000"
"""A private-use character that stands for a message's content."""


class ControlText:
    """Finds in a text what a tokenizer and its chat template would read as structure.

    That is: special tokens; other added tokens that look like markup (``<start_of_image>``, ``<think>``) but for HTML
    tags, which Gemma has as plain content; and the role markers that the chat template writes as plain text
    (``### Assistant:``, ``[INST]``). Where added tokens are matched after normalisation, also whatever normalises to
    one, such as full-width letters.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        template = str(tokenizer.chat_template or "")

        def steers(text: str) -> bool:
            """Whether an added token that is not marked as special steers the model all the same."""
            return bool(_MARKUP.fullmatch(text)) and (text in template or not _HTML.fullmatch(text))

        every = tokenizer.added_tokens_decoder.items()
        added = {i: t for i, t in every if len(t.content) > 1 and (t.special or steers(t.content))}
        tokens = {t.content for t in added.values()} | {t for t in tokenizer.all_special_tokens if len(t) > 1}
        self._tokenizer = tokenizer
        self._literals = frozenset(tokens | set(_role_markers(tokenizer, tokens)))
        self._lengths = sorted({len(text) for text in self._literals})
        first = "".join(sorted({re.escape(text[0]) for text in self._literals}))
        self._first = re.compile(f"[{first}]") if first else None
        # The unknown token stands for unknown words, too, and opens no turn.
        self._ids = {i for i in added if i != tokenizer.unk_token_id}
        backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        self._normalises = (
            backend is not None and backend.normalizer is not None and any(t.normalized for t in added.values())
        )

    def neutralise(self, text: str) -> str:
        """The text with everything that would be read as structure broken after its first character."""
        if self._first is None:
            return text
        starts = (match.start() for match in self._first.finditer(text))
        text = _broken(text, [i for i in starts if any(text[i : i + n] in self._literals for n in self._lengths)])
        if self._normalises and (spans := self._control_spans(text)):
            text = _broken(text, [start for start, _ in spans])
            while spans := self._control_spans(text):  # normalisation drops the break as well
                for start, end in reversed(spans):
                    text = text[:start] + BREAK + text[end:]
        return text

    def _control_spans(self, text: str) -> list[tuple[int, int]]:
        """Where the tokenizer itself sees control tokens: first character and the one after the last."""
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        found = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        return [(start, end) for token, (start, end) in found if token in self._ids and start < end]


def _broken(text: str, starts: Sequence[int]) -> str:
    ends = [start + 1 for start in starts]
    return BREAK.join(text[i:j] for i, j in zip([0, *ends], [*ends, len(text)], strict=True))


def _role_markers(tokenizer: PreTrainedTokenizerBase, tokens: set[str]) -> Iterator[str]:
    """What the chat template writes around messages, its control tokens taken out, line by line.

    Lines without a letter or without punctuation are left out: broken everywhere, they would disfigure text.
    """
    frame = _frame(tokenizer)
    for token in sorted(tokens, key=len, reverse=True):
        frame = frame.replace(token, "\n")
    for line in map(str.strip, frame.split("\n")):
        for part in {line, *_MARKUP.findall(line)}:
            if _MARKER.fullmatch(part) and len(part.split()) <= MARKER_WORDS:
                yield part


def _frame(tokenizer: PreTrainedTokenizerBase) -> str:
    """A conversation as the chat template renders it, with line breaks in place of the contents."""
    from jinja2 import TemplateError

    if not tokenizer.chat_template:
        return ""
    turns = [{"role": role, "content": _PROBE} for role in ("system", "user", "assistant", "user")]
    for chat in (turns, turns[1:], turns[1:2]):
        try:
            text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        except TemplateError:  # no system role, or one question only
            continue
        return str(text).replace(_PROBE, "\n")
    return ""


_CONTROL: WeakKeyDictionary[PreTrainedTokenizerBase, tuple[str, ControlText]] = WeakKeyDictionary()


def neutralise(text: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """``text`` with everything broken that the tokenizer or its chat template would read as structure."""
    template = str(tokenizer.chat_template)
    made_for, control = _CONTROL.get(tokenizer, (None, None))
    if control is None or made_for != template:
        control = ControlText(tokenizer)
        _CONTROL[tokenizer] = template, control
    return control.neutralise(text)


def neutralise_messages(
    messages: Sequence[Mapping[str, str]], tokenizer: PreTrainedTokenizerBase
) -> list[dict[str, str]]:
    """The messages with :func:`neutralise` applied to every content; the inputs stay unchanged."""
    return [{**message, "content": neutralise(message["content"], tokenizer)} for message in messages]


def neutralise_known(text: str) -> str:
    """``text`` with what structures the prompts of common model families broken: for servers, whose own is unknown.

    Also what only looks like it, such as full-width letters: some tokenizers make them plain.
    """
    looks = fold(text)
    starts = (looks.places[match.start() : match.start() + 2] for match in _KNOWN.finditer(looks.text))
    return _broken(text, [first for first, second in starts if second == first + 1])  # else it is broken already


def accepted(
    messages: Sequence[Mapping[str, str]], tokenizer: PreTrainedTokenizerBase
) -> tuple[list[dict[str, str]], str]:
    """The messages as the chat template takes them, neutralised, and the prompt's text: every message stands in it
    (EngineError: the template refuses the messages, or does not write one of them).

    A template that knows no system role, or drops its text, gets it before the first user turn.
    """
    from jinja2 import TemplateError

    chat = neutralise_messages(messages, tokenizer)
    try:
        text = str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
        lost = next((m["role"] for m in chat if m["content"].strip() not in text), None)
        if lost is None:
            return chat, text
        why: str | TemplateError = f"the {lost} message is not in what it writes"
    except TemplateError as error:
        why = error
    if chat[0]["role"] != "system" or len(chat) < 2:
        raise EngineError(f"the chat template refuses the messages: {why}")
    merged = {**chat[1], "content": f"{chat[0]['content']}\n\n{chat[1]['content']}"}
    return accepted([merged, *chat[2:]], tokenizer)


def render(messages: Sequence[Mapping[str, str]], tokenizer: PreTrainedTokenizerBase) -> str:
    """The prompt text of :func:`accepted`, ending where the assistant's answer begins; an EngineError as there."""
    return accepted(messages, tokenizer)[1]


def encode(
    requests: Sequence[Request], tokenizer: PreTrainedTokenizerBase, max_context: int
) -> tuple[dict[int, tuple[int, ...]], dict[int, Completion]]:
    """Prompt token ids by the request's index, as :func:`render` writes the prompts; equal ones are encoded once
    (EngineError: the chat template refuses the messages of every request).

    Requests without ids have their completion: ``error`` where the chat template refuses the messages, ``too_long``
    where prompt and ``max_new_tokens`` exceed ``max_context`` tokens.
    """
    keys = [tuple((m["role"], m["content"]) for m in request.messages) for request in requests]
    texts: dict[Any, str] = {}
    refused: dict[Any, EngineError] = {}
    for key in dict.fromkeys(keys):
        try:
            texts[key] = render([{"role": role, "content": content} for role, content in key], tokenizer)
        except EngineError as error:
            refused[key] = error
    if refused and not texts:
        raise next(iter(refused.values()))
    read = tokenizer(list(texts.values()), add_special_tokens=False)["input_ids"] if texts else []
    ids = {key: tuple(row) for key, row in zip(texts, read, strict=True)}
    fits: dict[int, tuple[int, ...]] = {}
    done: dict[int, Completion] = {}
    for index, (key, request) in enumerate(zip(keys, requests, strict=True)):
        if key in refused:
            done[index] = Completion(finish_reason="error", error=str(refused[key]))
        elif len(ids[key]) + request.sampling.max_new_tokens > max_context:
            done[index] = Completion(prompt_tokens=len(ids[key]), finish_reason="too_long")
        else:
            fits[index] = ids[key]
    return fits, done


def token_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    """The text's token ids, without what the tokenizer puts around every text."""
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def continuation(
    tokenizer: PreTrainedTokenizerBase, prompt: str, prompt_ids: tuple[int, ...], text: str
) -> tuple[int, ...]:
    """The ids of ``text`` after ``prompt``, whose own ids stay what they are when the model is asked.

    Both are tokenised as one text. Where that text's first tokens are the prompt's, the rest are the continuation's;
    where a token would span the boundary, the continuation is tokenised alone, since a model that has read the
    prompt's tokens could not have written that token.
    """
    whole, length = token_ids(tokenizer, prompt + text), len(prompt_ids)
    if whole[:length] == prompt_ids and len(whole) > length:
        return whole[length:]
    return token_ids(tokenizer, text)


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
