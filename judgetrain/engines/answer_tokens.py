"""The token ids of an answer behind its prompt, with what a chat template writes between the two."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from judgetrain.thoughts import answer_start, opened_by

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBE = "\ue000"
"""A private-use character that stands for a message's content."""


def token_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    """Return the text's token ids, without the tokens that the tokenizer puts around every text."""
    # A text that is too long is none for the model, which the caller says in its own words.
    return tuple(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def answer_after(prompt: str, conversation: str, content: str) -> str | None:
    """Return what a chat template writes behind a prompt: the answer, and what stands around it.

    A template may write a turn that is over otherwise than one that is about to begin; then it is the answer and what
    follows it. Reasoning that the prompt opens is closed at once, as a template closes it that knows of an answer
    without any. None if the template writes nothing of the answer.

    Args:
        prompt: as the template writes it, up to where the answer begins.
        conversation: the same messages and the answer, as the template writes them.
        content: the answer.
    """
    if prompt.startswith(conversation):
        return None
    if conversation.startswith(prompt):
        after = conversation[len(prompt) :]
    else:
        # Templates strip texts. The answer is looked for from the end, since the prompt may quote it.
        content = content.strip()
        start = conversation.rfind(content)
        if not content or start < 0:
            return None
        after = conversation[start:]
    closing = opened_by(prompt)
    if closing and not after.lstrip().startswith(closing):
        return f"\n{closing}\n\n{after}"
    return after


_OPENINGS: WeakKeyDictionary[PreTrainedTokenizerBase, tuple[str, str]] = WeakKeyDictionary()
"""The chat template and the opening of answers (:func:`opening_of`) of every tokenizer in use."""


def opening_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return what stands between every prompt and its answer: what the chat template writes there by itself.

    Vicuna's, Llama 2's and DeepSeek's write a blank, which is a part of the answer's first token; Qwen3's reasoning
    that is empty. Models were tuned on it, and so are judges (:func:`answer_after`). Empty for most.
    """
    template = str(tokenizer.chat_template)
    template_before, opening = _OPENINGS.get(tokenizer, (None, ""))
    # The template of a tokenizer may be set anew at any time.
    if template_before != template:
        opening = _opening(tokenizer)
        _OPENINGS[tokenizer] = (template, opening)
    return opening


def _opening(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return what the chat template writes between a short question and its answer (:func:`opening_of`)."""
    question = [{"role": "user", "content": "?"}]
    answer = {"role": "assistant", "content": PROBE}
    try:
        prompt = str(tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True))
        conversation = str(tokenizer.apply_chat_template([*question, answer], tokenize=False))
    except Exception:
        # It is somebody's program: any error is one. Whether it takes the messages that are asked shows there.
        return ""
    after = answer_after(prompt, conversation, PROBE)
    if after is None or PROBE not in after:
        return ""
    return after[: after.index(PROBE)]


def answer_ids(
    tokenizer: PreTrainedTokenizerBase, prompt: str, prompt_ids: tuple[int, ...], text: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the token ids before an answer, and those of the answer itself, as the model writes it.

    The opening of answers (:func:`opening_of`) is read before the answer, but for a blank that is part of its first
    token.

    Args:
        tokenizer: the model's.
        prompt: the prompt's text.
        prompt_ids: the prompt's token ids, as the model reads them.
        text: the answer, or its beginning.
    """
    opening = opening_of(tokenizer)
    # An engine may return the blank with the answer, and a text may hold the thoughts before it.
    if opening.isspace():
        has_its_own = text[:1].isspace()
    else:
        has_its_own = answer_start(text, of_line=True) != 0
    if not opening or has_its_own:
        return prompt_ids, continuation(tokenizer, prompt, prompt_ids, text)
    opening_ids = continuation(tokenizer, prompt, prompt_ids, opening)
    joined = continuation(tokenizer, prompt, prompt_ids, opening + text)
    before = prompt_ids + opening_ids
    if joined[: len(opening_ids)] == opening_ids and len(joined) > len(opening_ids):
        return before, joined[len(opening_ids) :]
    if opening.isspace():
        # The answer's first token holds the blank.
        return prompt_ids, joined
    return before, continuation(tokenizer, prompt + opening, before, text)


def continuation(
    tokenizer: PreTrainedTokenizerBase, prompt: str, prompt_ids: tuple[int, ...], text: str
) -> tuple[int, ...]:
    """Return the token ids of ``text`` as a continuation of ``prompt``.

    Both are tokenised as one text. If its first tokens are the prompt's, the others are the continuation's. If a token
    spans the boundary, the continuation is tokenised apart: a model that has read the prompt's tokens could not have
    written that token. Apart, SentencePiece puts a blank before every text. Behind a prompt that ends in a blank there
    would be two, so that the tokens are taken which stand for the text itself (:func:`_apart`).

    Args:
        tokenizer: the model's.
        prompt: the text before.
        prompt_ids: the prompt's token ids, as the model reads them.
        text: the continuation.
    """
    whole = token_ids(tokenizer, prompt + text)
    length = len(prompt_ids)
    if whole[:length] == prompt_ids and len(whole) > length:
        return whole[length:]
    return _apart(tokenizer, prompt_ids, text)


_ANCHORS = ("\n", ".", ":", "a")
"""Texts that a continuation is put behind, where tokenised alone it gets a blank before it."""
_TAIL = 8
"""Tokens of a prompt that its continuation is decoded with."""


def _apart(tokenizer: PreTrainedTokenizerBase, prompt_ids: tuple[int, ...], text: str) -> tuple[int, ...]:
    """Return the token ids of a text that follows a prompt and shares no token with it.

    They are those which, decoded behind the prompt, give back the text as it is. Where no ids do, as with a tokenizer
    that drops characters, they are the ids of the text alone.
    """
    alone = token_ids(tokenizer, text)
    tail = list(prompt_ids[-_TAIL:])
    expected = _decoded(tokenizer, tail) + text
    if _decoded(tokenizer, [*tail, *alone]) == expected:
        return alone
    for anchor in _ANCHORS:
        anchor_ids = token_ids(tokenizer, anchor)
        behind_anchor = token_ids(tokenizer, anchor + text)
        ids = behind_anchor[len(anchor_ids) :]
        # Else a token spans this boundary, too.
        starts_with_anchor = behind_anchor[: len(anchor_ids)] == anchor_ids
        if starts_with_anchor and _decoded(tokenizer, [*tail, *ids]) == expected:
            return ids
    return alone


def _decoded(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    """Return the text of token ids with its special tokens, as it is."""
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
