"""``/get_reward`` as OpenRLHF's remote reward model expects it: what it sends, read into prompts and responses.

A query is the policy's own text, prompt and response with the chat template and its special tokens
(``skip_special_tokens=False``), and ``prompts`` holds the rendered prompts. Up to version 0.8 a request holds a whole
batch; later versions send each response by itself as soon as it is written, so that a group has to be gathered
(:class:`Gathering`).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from judgetrain.errors import DataError
from judgetrain.extras.judge_reward.groups import Group, Scalar
from judgetrain.extras.server.schema import RewardIn
from judgetrain.schema import Message, Prompt

NOTHING_READ = 0.5
"""The reward of a response about which nothing readable was said: trainers take numbers alone. ``extra_logs`` tell."""

_TURNS = (
    re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\n?|\Z)", re.DOTALL),
    re.compile(r"<\|start_header_id\|>(\w+)<\|end_header_id\|>\n\n(.*?)(?:<\|eot_id\|>|\Z)", re.DOTALL),
    re.compile(r"<start_of_turn>(\w+)\n(.*?)(?:<end_of_turn>\n?|\Z)", re.DOTALL),
)
"""Turns as ChatML (Qwen), Llama 3 and Gemma write them: role and content."""
_ENDS = re.compile(
    r"(?:<\|im_end\|>|<\|eot_id\|>|<end_of_turn>|<\|endoftext\|>|<\|end_of_text\|>|<\|begin_of_text\|>|</?s>|<[be]os>"
    r"|<pad>|\s)++"
)
"""Runs of tokens that begin, pad and end texts, and of blanks, each matched once as a whole."""
_ROLES = {"model": "assistant"}


Key = tuple[str, str | None]
"""What responses that are compared with one another have in common: the rendered prompt, and the reference if any."""


def groups_of(request: RewardIn, references: bool) -> dict[Key, dict[int, str]]:
    """Return the responses of a request by their places; ``references``: labels that are text are compared with."""
    found: dict[Key, dict[int, str]] = {}
    labels = request.labels or [None] * len(request.query)
    for place, (query, prompt, label) in enumerate(zip(request.query, request.prompts, labels, strict=True)):
        reference = label if references and isinstance(label, str) and label else None
        found.setdefault((prompt, reference), {})[place] = response_of(query, prompt)
    return found


def response_of(query: str, prompt: str) -> str:
    """Return the response in a query: what follows the prompt, without end tokens.

    Raises:
        DataError: the query is not the prompt, behind padding at most, with a response.
    """
    before, _, text = query.partition(prompt) if prompt else ("", "", query)
    if len(before) == len(query) != 0 or (before and not _ENDS.fullmatch(before)):
        raise DataError("query: expected each to begin with its prompt, as prompts has it, behind padding at most")
    for run in _ENDS.finditer(text):
        if run.end() == len(text) and run[0].strip():
            return text[: run.start()]
    return text


def prompt_of(rendered: str) -> Prompt:
    """Return the messages of a rendered prompt in one of the known chat templates; another text is the query."""
    for turns in _TURNS:
        found = [Message(_ROLES.get(role, role), text.strip()) for role, text in turns.findall(rendered)]
        if found and found[-1].role == "assistant" and not found[-1].content:
            found.pop()  # which opens the response
        if found and found[-1].role == "user":
            return found
    return rendered


@dataclass
class _Open:
    """A group that others may still join, and how many requests wait for it."""

    responses: list[str] = field(default_factory=list)
    full: asyncio.Event = field(default_factory=asyncio.Event)
    scalars: asyncio.Task[list[Scalar]] | None = None
    waiting: int = 0


class Gathering:
    """Brings responses to one prompt together that come in requests of their own.

    Args:
        size: responses of a group; 1: a request's own responses are the group.
        wait: seconds after which a group is judged as far as it is there.
        judge: the scalars of a group.
    """

    def __init__(self, size: int, wait: float, judge: Callable[[Group], Awaitable[list[Scalar]]]) -> None:
        self._size, self._wait, self._judge = size, wait, judge
        self._open: dict[Key, _Open] = {}

    async def scalars(self, key: Key, responses: Sequence[str]) -> list[Scalar]:
        """Return the scalars of responses to one prompt, each by comparison with all of its group."""
        if len(responses) >= self._size:
            return await self._judge(await asyncio.to_thread(_group, key, responses))
        group = self._open.setdefault(key, _Open())
        first = len(group.responses)
        group.responses += responses
        group.waiting += 1
        group.scalars = group.scalars or asyncio.create_task(self._of(key, group))
        if len(group.responses) >= self._size:
            self._close(key, group)
        try:
            found = await asyncio.shield(group.scalars)
        except asyncio.CancelledError:
            group.waiting -= 1
            if not group.waiting:  # all who asked are gone
                self._close(key, group)
                group.scalars.cancel()
            raise
        return found[first : first + len(responses)]

    def _close(self, key: Key, group: _Open) -> None:
        group.full.set()
        if self._open.get(key) is group:
            del self._open[key]

    async def _of(self, key: Key, group: _Open) -> list[Scalar]:
        with suppress(TimeoutError):
            await asyncio.wait_for(group.full.wait(), self._wait)
        self._close(key, group)
        return await self._judge(await asyncio.to_thread(_group, key, group.responses))


def _group(key: Key, responses: Sequence[str]) -> Group:
    prompt, reference = key
    return Group(prompt_of(prompt), responses, reference)
