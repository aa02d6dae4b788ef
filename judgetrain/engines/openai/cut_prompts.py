"""Notices prompts that a server has cut: by a count of tokens that is too small, or the same for all of them."""

import re
from collections.abc import Iterable

from judgetrain.amounts import amount
from judgetrain.engines.base import Completion, Request

LONG_PROMPT = 500
"""Words from which on a prompt is checked for having been cut: servers keep at least some 2,000 tokens."""
LEAST_OF_WORDS = 0.75
"""The fewest tokens for each word. Tokenizers split at blanks; those that join words (SuperBPE) have some 0.9."""
UNSPACED = re.compile("[\u2e80-\uabff\ud7b0-\U0010ffff]+")
"""Matches text of scripts without blanks between words, Chinese and Japanese; Korean, in between, has blanks."""
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


def kept_of_cut_prompt(reported: int | None, cached: int, request: Request) -> int | None:
    """Return how many tokens of a prompt the server read, where these are too few for all of it; else None.

    A prompt has about as many tokens as words, or more: a server that read far fewer has dropped a part of it, with
    status 200.

    Args:
        reported: the prompt's tokens by the server's count; None where there is none that can be believed.
        cached: its tokens that stood in the server's cache, which some servers count apart.
        request: what was asked.
    """
    if reported is None:
        return None
    words = words_in(request)
    if words < LONG_PROMPT or reported + cached >= LEAST_OF_WORDS * words:
        return None
    return reported


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
