"""Notices prompts that a server has cut: by a count of tokens that is too small, or the same for several of them."""

import re
from collections import Counter
from collections.abc import Iterable

from judgetrain.amounts import amount
from judgetrain.engines.base import Completion, Request

LONG_PROMPT = 500
"""Words from which on a prompt is checked for having been cut: servers keep at least some 2,000 tokens."""
LEAST_OF_WORDS = 0.75
"""The fewest tokens for each word. Tokenizers split at blanks; those that join words (SuperBPE) have some 0.9."""
UNSPACED = re.compile("[\u2e80-\uabff\ud7b0-\U0010ffff]+")
"""Matches text of scripts without blanks between words, Chinese and Japanese; Korean, in between, has blanks."""
SENTENCE_END = re.compile(r"[^\W_][\"'’”)\]*]*+[.,;:!?]++[\"'’”)\]*]*+(?!\S)")
"""Matches the end of a word, with the marks of punctuation behind it."""
LEAST_OF_PIECES = 0.95
"""The fewest tokens for each piece of a prompt (:func:`pieces_in`), where the run shows that words are not joined.

Texts that were read whole have 1.04 and more, by four tokenizers on eighteen sets of dialogues, code and mathematics.
"""
TELLING_PROMPT = 200
"""Words from which on a prompt shows whether the server's tokenizer joins words."""
TELLING_PROMPTS = 10
"""How many such prompts show it."""
TELLING_SHARE = 0.8
"""The share of them that has to have a token for each piece; the others may have been cut."""
LIKE_LENGTHS = 3
"""How many prompts of different lengths have to have one count of tokens, which no prompt exceeds."""
SPREAD = 1.1
"""How much longer than the shortest of these the longest has to be, so that they do not agree by chance."""
REMEDY = "raise its context (num_ctx of Ollama, --ctx-size of llama.cpp)"
"""What to do about a server that cuts."""


def words_in(request: Request) -> int:
    """Return the number of words of a prompt; of scripts without blanks, four characters count as one."""
    words = 0
    unspaced = 0
    for message in request.messages:
        words += len(message["content"].split())
        unspaced += sum(len(run) for run in UNSPACED.findall(message["content"]))
    return words + unspaced // 4


def pieces_in(request: Request) -> int:
    """Return the fewest tokens of a prompt by a tokenizer that joins no words: its words, and ends of sentences.

    A full stop behind a word is a token of its own. What stands inside a word may be one or none, and is not counted.
    """
    ends = sum(len(SENTENCE_END.findall(message["content"])) for message in request.messages)
    return words_in(request) + ends


def is_cut_prompt(read_tokens: int | None, request: Request) -> bool:
    """Return whether a server read too few tokens of a prompt for all of it, whatever its tokenizer.

    A prompt has about as many tokens as words, or more: a server that read far fewer has dropped a part of it, with
    status 200.

    Args:
        read_tokens: of the prompt, by the server's count; None where there is none that can be believed.
        request: what was asked.
    """
    if read_tokens is None:
        return False
    words = words_in(request)
    return words >= LONG_PROMPT and read_tokens < LEAST_OF_WORDS * words


class Ceiling:
    """Finds the number of tokens to which a server cuts prompts, from the prompts of a run.

    A prompt that is longer than the context is cut to the same number of tokens each time, which no prompt exceeds.
    Prompts that were read whole have counts that differ as their lengths do. How many tokens a text should have need
    not be known for that.
    """

    def __init__(self) -> None:
        self._most = 0
        # Of the long prompts that had the largest count: how many, and their lengths in characters.
        self._number = 0
        self._lengths: set[int] = set()

    def note(self, answers: Iterable[tuple[Request, Completion]]) -> int:
        """Note how many tokens of its prompts a call's answers say that the server read.

        Returns:
            How many answers of earlier calls turn out to be to prompts that were cut.
        """
        was_found = self.is_found
        most_before = self._most
        number_before = self._number
        for request, completion in answers:
            if not _tells(request, completion):
                continue
            if completion.prompt_tokens > self._most:
                self._most = completion.prompt_tokens
                self._number = 0
                self._lengths = set()
            if completion.prompt_tokens == self._most:
                self._number += 1
                self._lengths.add(_length(request))
        if self.is_found and not was_found and self._most == most_before:
            return number_before
        return 0

    @property
    def is_found(self) -> bool:
        """Return whether prompts were cut to one number of tokens."""
        return len(self._lengths) >= LIKE_LENGTHS and max(self._lengths) >= SPREAD * min(self._lengths)

    def was_cut(self, request: Request, completion: Completion) -> bool:
        """Return whether a prompt has the count of those that were cut."""
        return self.is_found and completion.prompt_tokens == self._most and _tells(request, completion)

    @property
    def message(self) -> str:
        """Return what is wrong with the prompts that were cut, and what to do."""
        return (
            f"the server read {amount(self._most, 'token')} of prompts of {min(self._lengths):,} and of "
            f"{max(self._lengths):,} characters alike, so it cut them: {REMEDY}"
        )


class Bound:
    """Finds prompts that were cut by the fewest tokens that they can have, which the other prompts of a run show.

    A tokenizer that joins no words writes a token at least for each piece of a prompt. Whether the server's is one is
    known from the prompts that have so many. A prompt with fewer that none of the others exceeds was cut to the
    context.
    """

    def __init__(self) -> None:
        self._most = 0
        # Of the prompts that tell: how many there are, and how many have a token for each piece.
        self._telling = 0
        self._with_all = 0
        # Of the prompts with too few tokens that were given out while nothing was known: how many, by their counts.
        self._given_out: Counter[int] = Counter()

    def note(self, answers: Iterable[tuple[Request, Completion]]) -> int:
        """Note how many tokens of its prompts a call's answers say that the server read.

        Returns:
            How many answers of earlier calls turn out to be to prompts that were cut.
        """
        too_few: Counter[int] = Counter()
        for request, completion in answers:
            tokens = completion.read_tokens
            if tokens is None:
                continue
            self._most = max(self._most, tokens)
            if words_in(request) < TELLING_PROMPT:
                continue
            self._telling += 1
            self._with_all += tokens >= pieces_in(request)
            if _has_too_few(request, completion):
                too_few[tokens] += 1

        given_out = 0
        if self._is_known:
            given_out = self._given_out[self._most]
            self._given_out.clear()
        else:
            self._given_out += too_few
        return given_out

    @property
    def _is_known(self) -> bool:
        """Return whether the server's tokenizer is known to join no words."""
        return self._telling >= TELLING_PROMPTS and self._with_all >= TELLING_SHARE * self._telling

    def was_cut(self, request: Request, completion: Completion) -> bool:
        """Return whether a prompt has too few tokens, and no prompt has more."""
        return self._is_known and completion.read_tokens == self._most and _has_too_few(request, completion)

    def message(self, request: Request) -> str:
        """Return what is wrong with a prompt that was cut, and what to do."""
        return (
            f"the server read {amount(self._most, 'token')} of a prompt of {amount(pieces_in(request), 'word')} and "
            f"ends of sentences, where other prompts have a token for each, so it cut the prompt: {REMEDY}"
        )


def _has_too_few(request: Request, completion: Completion) -> bool:
    """Return whether a long prompt has too few tokens for a tokenizer that joins no words."""
    if completion.read_tokens is None or words_in(request) < LONG_PROMPT:
        return False
    return completion.read_tokens < LEAST_OF_PIECES * pieces_in(request)


def _tells(request: Request, completion: Completion) -> bool:
    """Return whether an answer's count of tokens tells how much of a long prompt the server read."""
    words = words_in(request)
    if completion.estimated or words < LONG_PROMPT:
        return False
    # A smaller count that was not refused is of what stood in no cache, where a server counts that apart. It is often
    # the same few tokens.
    return completion.finish_reason == "too_long" or completion.prompt_tokens >= LEAST_OF_WORDS * words


def _length(request: Request) -> int:
    """Return a prompt's length in characters."""
    return sum(len(message["content"]) for message in request.messages)
