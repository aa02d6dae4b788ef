"""Turn chat messages into the text a model reads.

Text that users wrote is kept from being read as structure, that is, as control tokens and a chat template's role
markers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from judgetrain.engines.answer_tokens import PROBE, answer_ids
from judgetrain.engines.base import Completion, Request
from judgetrain.engines.confusables import fold
from judgetrain.engines.unknown import UnknownText
from judgetrain.errors import EngineError
from judgetrain.thoughts import BREAK

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

MARKER_WORDS = 3
"""The most words of a role marker; a longer line in a chat template is a default system prompt."""

_MARKUP = re.compile(r"<\S{1,100}>|\[\S{1,100}\]")
"""Text in angle or square brackets, as most control tokens are."""
_HTML = re.compile(
    r"</?(?:a|b|blockquote|br|caption|code|col|colgroup|dd|del|div|dl|dt|em|h[1-6]|hr|i|img|ins|kbd|li|mark|ol|p|pre|q|s"
    r"|small|span|strike|strong|sub|sup|table|tbody|td|tfoot|th|thead|tr|tt|u|ul|var)/?>"
)
"""HTML tags, which Gemma has as tokens of plain content."""
_MARKER = re.compile(r"(?=.*[^\W\d_])(?=.*[^\w\s]).{2,}")
"""A line with a letter and with punctuation."""
_KNOWN = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<\|[a-z_]{1,40}>|<[a-z_]{1,40}\|>|<｜[^｜<>\s]{1,40}｜>|</?s>|<(?:bos|eos|pad|end|sop|user|assistant|system|unused\d+)>"
    r"|<(?:start|end)_of_(?:turn|image)>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|gMASK)\]"
    r"|<</?SYS>>|</?(?:think|tool_call|tool_response)>|\[/?THINK\]|(?<!\w)(?:USER|ASSISTANT|SYSTEM|HUMAN):"
    r"|#{2,3} (?:User|Assistant|System|Human|Instruction|Input|Response):"
    # EXAONE, MiniMax, Seed and Ling, LongCat, Baichuan and Nemotron, Kimi.
    r"|\[\|(?i:system|user|human|assistant|tool|endofturn)\|\]|\]~!?b[\[\]]|\[e~\[|</?(?:role|seed:[a-z_]{1,40}|longcat_[a-z_]{1,40})>"
    r"|<(?:reserved_|extra_id_)\d{1,4}>|◁/?think▷"
    r"|^(?:User|Assistant|System|Human|AI):",
    re.MULTILINE,
)
"""Control tokens and role markers of common model families."""


class ControlText:
    """Finds text that a tokenizer and its chat template would read as structure, and breaks it.

    Structure is special tokens, other added tokens that look like markup but are no HTML tags (``<start_of_image>``,
    ``<think>``), and the role markers that the chat template writes as plain text (``### Assistant:``, ``[INST]``).
    Where added tokens are matched after normalisation, it is also everything that normalises to one, such as full-width
    letters.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        steering = _steering_tokens(tokenizer)
        literals = {token.content for token in steering.values()}
        # A special token of one character would have every text broken that holds the character.
        literals |= {token for token in tokenizer.all_special_tokens if len(token) > 1}
        literals |= set(_role_markers(tokenizer, literals))
        self._literals = frozenset(literals)
        self._lengths = sorted({len(literal) for literal in literals})

        # Only places that begin like a literal are compared with the literals.
        self._first: re.Pattern[str] | None = None
        first_characters = "".join(sorted({re.escape(literal[0]) for literal in literals}))
        if first_characters:
            self._first = re.compile(f"[{first_characters}]")

        # The unknown token stands for unknown words, too, and opens no turn.
        self._ids = {token_id for token_id in steering if token_id != tokenizer.unk_token_id}
        backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        # Without a normaliser a token is matched by its own characters alone, which the literals find.
        has_normalizer = backend is not None and backend.normalizer is not None
        self._normalises = has_normalizer and any(token.normalized for token in steering.values())

    def neutralise(self, text: str) -> str:
        """Return the text with everything that would be read as structure broken after its first character."""
        if self._first is None:
            return text

        starts = []
        for match in self._first.finditer(text):
            start = match.start()
            if any(text[start : start + length] in self._literals for length in self._lengths):
                starts.append(start)
        text = _broken(text, starts)

        if self._normalises:
            text = self._break_what_normalises(text)
        return text

    def _break_what_normalises(self, text: str) -> str:
        """Return the text with everything broken or replaced in which the tokenizer itself sees control tokens."""
        spans = self._control_spans(text)
        if not spans:
            return text
        text = _broken(text, [start for start, _ in spans])

        # Normalisation may drop the break as well: then the text of the token is replaced.
        spans = self._control_spans(text)
        while spans:
            for start, end in reversed(spans):
                text = text[:start] + BREAK + text[end:]
            spans = self._control_spans(text)
        return text

    def _control_spans(self, text: str) -> list[tuple[int, int]]:
        """Return where the tokenizer sees control tokens: the first character and the one after the last."""
        # The length is checked later; Transformers' warning that the model will fail over the text is false.
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        spans = []
        for token_id, (start, end) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
            if token_id in self._ids and start < end:
                spans.append((start, end))
        return spans


def _steering_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, AddedToken]:
    """Return the added tokens that steer the model, by their ids, special or not."""
    template = str(tokenizer.chat_template or "")
    steering = {}
    for token_id, token in tokenizer.added_tokens_decoder.items():
        text = token.content
        is_markup = _MARKUP.fullmatch(text) is not None
        # A tag of HTML is content, unless the template itself writes it.
        is_content = _HTML.fullmatch(text) is not None and text not in template
        if len(text) > 1 and (token.special or (is_markup and not is_content)):
            steering[token_id] = token
    return steering


def _broken(text: str, starts: Sequence[int]) -> str:
    """Return the text with :data:`BREAK` behind the characters at these places, which are in order."""
    pieces = []
    begin = 0
    for start in starts:
        pieces.append(text[begin : start + 1])
        begin = start + 1
    pieces.append(text[begin:])
    return BREAK.join(pieces)


def _role_markers(tokenizer: PreTrainedTokenizerBase, tokens: set[str]) -> Iterator[str]:
    """Yield the lines that the chat template writes around messages, without its control tokens.

    Lines without a letter or without punctuation are left out: broken everywhere, they would disfigure text.
    """
    # What is left of the template's output without contents and control tokens is plain text that marks turns.
    frame = frame_of_chat(tokenizer)
    for token in sorted(tokens, key=len, reverse=True):
        frame = frame.replace(token, "\n")
    for line in frame.split("\n"):
        line = line.strip()
        for marker in {line, *_MARKUP.findall(line)}:
            if _MARKER.fullmatch(marker) and len(marker.split()) <= MARKER_WORDS:
                yield marker


def frame_of_chat(tokenizer: PreTrainedTokenizerBase, content: str = "\n") -> str:
    """Return a conversation as the chat template renders it, with ``content`` in place of the messages' contents."""
    if not tokenizer.chat_template:
        return ""
    # All roles, so that the markers of each are seen; a template may take fewer.
    turns = [{"role": role, "content": PROBE} for role in ("system", "user", "assistant", "user")]
    without_system = turns[1:]
    one_question = turns[1:2]
    for chat in (turns, without_system, one_question):
        try:
            text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        except Exception:
            # The template has no system role, or takes one question only. It is somebody's program: any error is one.
            continue
        return str(text).replace(PROBE, content)
    return ""


_CONTROL: WeakKeyDictionary[PreTrainedTokenizerBase, tuple[str, ControlText]] = WeakKeyDictionary()
"""The chat template and the control text of every tokenizer in use."""


def neutralise(text: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """Return ``text`` with everything broken that the tokenizer or its chat template would read as structure."""
    template = str(tokenizer.chat_template)
    template_before, control = _CONTROL.get(tokenizer, (None, None))
    # The template of a tokenizer may be set anew at any time.
    if control is None or template_before != template:
        control = ControlText(tokenizer)
        _CONTROL[tokenizer] = (template, control)
    return control.neutralise(text)


def neutralise_messages(
    messages: Sequence[Mapping[str, str]], tokenizer: PreTrainedTokenizerBase
) -> list[dict[str, str]]:
    """Return the messages with :func:`neutralise` applied to every content."""
    return [{**message, "content": neutralise(message["content"], tokenizer)} for message in messages]


def neutralise_known(text: str) -> str:
    """Return ``text`` with the structure of common model families broken.

    It is for servers, whose tokenizer is not known here. Text that only looks like structure, such as full-width
    letters, is broken too: some tokenizers make it plain.
    """
    # Places are found in the text as it looks, and breaks are put into the text as it is.
    folded = fold(text)
    starts = []
    for match in _KNOWN.finditer(folded.text):
        first, second = folded.places[match.start() : match.start() + 2]
        # With a character between them, such as a break from before, it is broken already.
        if second == first + 1:
            starts.append(first)
    return _broken(text, starts)


def accepted(
    messages: Sequence[Mapping[str, str]], tokenizer: PreTrainedTokenizerBase
) -> tuple[list[dict[str, str]], str]:
    """Return the messages in the form that the chat template takes, neutralised, and the text of the prompt.

    Every message stands in the prompt. If the template knows no system role or drops its text, the system message is
    put before the first user turn.

    Raises:
        EngineError: the template refuses the messages, or does not write one of them.
    """
    chat = neutralise_messages(messages, tokenizer)
    refusal: str | Exception
    try:
        text = str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
    except Exception as error:
        # A template is somebody's program, which may divide by zero as well as refuse.
        refusal = error
    else:
        dropped = _dropped(chat, text)
        if not dropped:
            return chat, text
        refusal = f"the {dropped} message is not in what it writes"

    if chat[0]["role"] != "system" or len(chat) < 2:
        raise EngineError(f"the chat template refuses the messages: {refusal}")
    system, first_turn, *later_turns = chat
    merged = {**first_turn, "content": f"{system['content']}\n\n{first_turn['content']}"}

    # This ends: the merged messages begin with no system message.
    return accepted([merged, *later_turns], tokenizer)


def _dropped(chat: Sequence[Mapping[str, str]], text: str) -> str:
    """Return the role of a message that a chat template has not written; empty where all stand in its text.

    Each message needs a place of its own: a turn that was left out may be a part of another one, or its repetition. The
    longest are looked for first, wherever they stand, since a template may put the system message elsewhere.
    """
    for message in sorted(chat, key=lambda message: -len(message["content"].strip())):
        content = message["content"].strip()
        if content not in text:
            return message["role"]
        # What stands in its place joins nothing.
        text = text.replace(content, PROBE, 1)
    return ""


def render(messages: Sequence[Mapping[str, str]], tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the prompt's text, which ends where the assistant's answer begins (:func:`accepted`).

    Raises:
        EngineError: the template refuses the messages, or does not write one of them.
    """
    return accepted(messages, tokenizer)[1]


def encode(
    requests: Sequence[Request], tokenizer: PreTrainedTokenizerBase, max_context: int
) -> tuple[dict[int, tuple[int, ...]], dict[int, Completion]]:
    """Return the token ids of prompts by their requests' index, and completions of requests that cannot be asked.

    A completion is ``error`` where the chat template refuses the messages, and ``too_long`` where the prompt and
    ``max_new_tokens`` exceed ``max_context`` tokens. Equal prompts are encoded once. Behind a prompt stands the
    beginning of the reply, where a request has one.

    Raises:
        EngineError: the chat template refuses the messages of every request, or the tokenizer does not write what
            follows a reply's beginning as one token.
    """
    keys = [tuple((message["role"], message["content"]) for message in request.messages) for request in requests]
    texts: dict[Any, str] = {}
    refusals: dict[Any, EngineError] = {}
    # Judges ask much about few texts: equal prompts are rendered once.
    for key in dict.fromkeys(keys):
        messages = [{"role": role, "content": content} for role, content in key]
        try:
            texts[key] = render(messages, tokenizer)
        except EngineError as error:
            refusals[key] = error

    # A single refusal is one failed request. Where every prompt is refused, the template cannot be used at all.
    if refusals and not texts:
        raise next(iter(refusals.values()))

    ids: dict[Any, tuple[int, ...]] = {}
    if texts:
        # What is too long is refused below: Transformers' warning that the model will fail over it is false.
        rows = tokenizer(list(texts.values()), add_special_tokens=False, verbose=False)["input_ids"]
        ids = {key: tuple(row) for key, row in zip(texts, rows, strict=True)}
        _say_unknown(tokenizer, texts, ids)

    prompts: dict[int, tuple[int, ...]] = {}
    completions: dict[int, Completion] = {}
    checked: set[tuple[str, tuple[str, ...]]] = set()
    for index, (key, request) in enumerate(zip(keys, requests, strict=True)):
        if key in refusals:
            completions[index] = Completion(finish_reason="error", error=str(refusals[key]))
            continue
        prompt = ids[key]
        if request.begins:
            candidates = request.sampling.candidates
            if (request.begins, candidates) in checked:
                # What is one token behind one prompt is one behind the others: no token spans the reply's beginning.
                candidates = candidates[:1]
            else:
                checked.add((request.begins, candidates))
            prompt += _beginning(tokenizer, texts[key], prompt, request.begins, candidates)
        # Nothing is cut: a judgment of a cut response would be one of another response.
        if len(prompt) + request.sampling.max_new_tokens > max_context:
            completions[index] = Completion(prompt_tokens=len(prompt), finish_reason="too_long")
        else:
            prompts[index] = prompt
    return prompts, completions


def _beginning(
    tokenizer: PreTrainedTokenizerBase, prompt: str, prompt_ids: tuple[int, ...], begins: str, candidates: Sequence[str]
) -> tuple[int, ...]:
    """Return the token ids of a reply's beginning, behind which one token writes each candidate.

    They are those that a reply would have which goes on with a candidate. A blank before the candidate may belong to
    the candidate's token, so the beginning alone may have other ones.

    Args:
        tokenizer: the model's.
        prompt: the prompt's text.
        prompt_ids: the prompt's token ids.
        begins: the beginning.
        candidates: what may follow it.

    Raises:
        EngineError: the candidates are not one token each behind the same tokens.
    """
    beginnings = set()
    for candidate in candidates:
        before, reply = answer_ids(tokenizer, prompt, prompt_ids, begins + candidate)
        beginnings.add((*before[len(prompt_ids) :], *reply[:-1]))
    if len(beginnings) != 1:
        raise EngineError(
            f"the tokenizer does not write each of {' '.join(candidates)} behind {begins!r} as one token: a score "
            f"without reasons (judge.reasons=false) cannot be read there"
        )
    return beginnings.pop()


_SAID: WeakSet[PreTrainedTokenizerBase] = WeakSet()
"""Tokenizers in use of which it was said that they have no tokens for some prompts' text."""


def _say_unknown(
    tokenizer: PreTrainedTokenizerBase, texts: Mapping[Any, str], ids: Mapping[Any, tuple[int, ...]]
) -> None:
    """Log once per tokenizer how many of a call's prompts hold text that it has no tokens for.

    Args:
        tokenizer: the model's.
        texts: the prompts, by any keys.
        ids: their token ids, by the same keys.
    """
    if tokenizer in _SAID:
        return
    unknown = UnknownText(tokenizer)
    for key, text in texts.items():
        unknown.add(text, ids[key])
    remark = unknown.remark("prompts")
    if remark:
        _SAID.add(tokenizer)
        log.warning("%s: %s", tokenizer.name_or_path, remark)


NO_ANSWER = "no_answer"
"""The reason why nothing is read from a reply whose reasoning never ended."""
