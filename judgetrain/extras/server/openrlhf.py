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
from typing import NamedTuple

from judgetrain.errors import DataError
from judgetrain.extras.judge_reward.groups import Group, Scalar
from judgetrain.extras.server.schema import FieldError, RewardIn
from judgetrain.messages import reference_text, shown_text
from judgetrain.schema import Message, Prompt
from judgetrain.thoughts import opening_in, shown

GROUPS = 64
"""Groups rewarded at a time: modes ask the judge in rounds and wait for it, each in a thread of its own."""
NOTHING_READ = 0.5
"""The reward of a response about which nothing readable was said: trainers take numbers alone. ``extra_logs`` tell."""


class _Template(NamedTuple):
    """The marks by which a chat template writes turns.

    Args:
        mark: what every turn begins with.
        opening: what the assistant's turn begins with.
        turns: finds the role and the content of each turn.
    """

    mark: str
    opening: str
    turns: re.Pattern[str]


_TEMPLATES = (
    _Template(
        "<|im_start|>",
        "<|im_start|>assistant\n",
        re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\n?|\Z)", re.DOTALL),
    ),
    _Template(
        "<|start_header_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        re.compile(r"<\|start_header_id\|>(\w+)<\|end_header_id\|>\n\n(.*?)(?:<\|eot_id\|>|\Z)", re.DOTALL),
    ),
    _Template(
        "<start_of_turn>",
        "<start_of_turn>model\n",
        re.compile(r"<start_of_turn>(\w+)\n(.*?)(?:<end_of_turn>\n?|\Z)", re.DOTALL),
    ),
)
"""The templates of ChatML (Qwen), Llama 3 and Gemma.

The end of the text ends a turn, too: the last one is opened for the response and not closed.
"""
_ENDS = re.compile(
    r"(?:<\|im_end\|>|<\|eot_id\|>|<end_of_turn>|<\|endoftext\|>|<\|end_of_text\|>|<\|begin_of_text\|>|</?s>|<[be]os>"
    r"|<pad>|\s)++"
)
"""Runs of tokens that begin, pad and end texts, and of blanks, each matched once as a whole."""
_ROLES = {"model": "assistant", "environment": "tool"}
"""Roles that a template calls otherwise: Gemma's and Llama's."""
_TOOL_RESPONSE = "<tool_response>"
"""The beginning of a user's turn that holds what a tool answered, as Qwen's template writes it."""


Key = tuple[str, str | None]
"""The rendered prompt and the reference if any: responses with one key are compared with one another."""


def groups_of(request: RewardIn, references: bool) -> dict[Key, dict[int, str]]:
    """Return the responses of a request by their places, in groups that are compared with one another.

    Args:
        request: prompts and responses.
        references: whether labels are reference answers.

    Raises:
        FieldError: a label is to be one, and is no answer.
    """
    groups: dict[Key, dict[int, str]] = {}
    # Where responses are compared with one another labels are whatever the trainer has, and are not looked at.
    labels = request.labels or [None] * len(request.query)
    for place, (query, prompt, label) in enumerate(zip(request.query, request.prompts, labels, strict=True)):
        reference = None
        if references:
            try:
                reference = reference_text(label)
            except DataError as error:
                raise FieldError(str(error), f"labels[{place}]") from error
        group = groups.setdefault((prompt, reference), {})
        group[place] = shown_response(response_of(query, prompt), prompt)
    return groups


def response_of(query: str, prompt: str) -> str:
    """Return the response in a query: what follows the prompt, without end tokens.

    Raises:
        DataError: the query is not the prompt, behind padding at most, with a response.
    """
    padding = ""
    text = query
    if prompt:
        # OpenRLHF pads a batch on the left.
        padding, found_prompt, text = query.partition(prompt)
        is_padding = not padding or _ENDS.fullmatch(padding) is not None
        if (query and not found_prompt) or not is_padding:
            raise DataError("query: expected each to begin with its prompt, as prompts has it, behind padding at most")
    # Run by run and not by one pattern at the end of the text, which would try every blank again (quadratic in its
    # length).
    for run in _ENDS.finditer(text):
        # Blanks alone at the end are the response's own.
        if run.end() == len(text) and run[0].strip():
            return text[: run.start()]
    return text


def shown_response(response: str, prompt: str) -> str:
    """Return what a reader is shown of a response.

    The prompt may have opened its reasoning. An agent's response holds several turns, with what tools answered.

    Args:
        response: the policy's own text.
        prompt: the rendered prompt before it.
    """
    response = f"{opening_in(prompt)}{response}"
    for template in _TEMPLATES:
        if template.mark not in response:
            continue
        messages = []
        # The response begins inside the assistant's turn, which the prompt has opened.
        for role, text in template.turns.findall(f"{template.opening}{response}"):
            content = text.strip()
            if role == "user" and content.startswith(_TOOL_RESPONSE):
                role = "tool"
            messages.append({"role": _ROLES.get(role, role), "content": content})
        return shown_text(messages)
    return shown(response)


def prompt_of(rendered: str) -> Prompt:
    """Return the messages of a rendered prompt in one of the known chat templates; another text is the query."""
    for template in _TEMPLATES:
        messages = []
        for role, text in template.turns.findall(rendered):
            messages.append(Message(_ROLES.get(role, role), text.strip()))
        if messages and messages[-1].role == "assistant" and not messages[-1].content:
            # The empty turn that opens the response.
            messages.pop()
        # What does not end with the user's turn is no prompt of this template, whatever marks it holds.
        if messages and messages[-1].role == "user":
            return messages
    return rendered


@dataclass
class _Open:
    """A group that others may still join.

    Args:
        responses: those that have come.
        full: is set when the group is whole, or waits no longer.
        scalars: the judging of the group; None before the first request.
        waiting: requests that wait for the result.
    """

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
        self._size = size
        self._wait = wait
        self._judge = judge
        # A request may hold thousands of groups: all at once would keep the event loop from everybody else.
        self._turns = asyncio.Semaphore(GROUPS)
        self._open: dict[Key, _Open] = {}

    async def scalars(self, key: Key, responses: Sequence[str]) -> list[Scalar]:
        """Return the scalars of responses to one prompt, each by comparison with all of its group."""
        if len(responses) >= self._size:
            # A whole group in one request, as OpenRLHF up to 0.8 sends it.
            return await self._judged(key, responses)
        group = self._open.setdefault(key, _Open())
        # Its place in the group: the results come in the order in which responses joined.
        first = len(group.responses)
        group.responses += responses
        group.waiting += 1
        # The first request starts the task, so that the wait is counted from it.
        if group.scalars is None:
            group.scalars = asyncio.create_task(self._judge_when_full(key, group))
        if len(group.responses) >= self._size:
            self._close(key, group)
        try:
            # Shielded: a request that is given up must not end what others of its group wait for.
            scalars = await asyncio.shield(group.scalars)
        except asyncio.CancelledError:
            group.waiting -= 1
            if not group.waiting:
                # Nobody waits for the group any more.
                self._close(key, group)
                group.scalars.cancel()
            raise
        return scalars[first : first + len(responses)]

    def _close(self, key: Key, group: _Open) -> None:
        """Let nobody else join a group: the next response to its prompt opens another."""
        group.full.set()
        if self._open.get(key) is group:
            del self._open[key]

    async def _judge_when_full(self, key: Key, group: _Open) -> list[Scalar]:
        """Return the scalars of a group, once it is whole or has waited long enough."""
        with suppress(TimeoutError):
            await asyncio.wait_for(group.full.wait(), self._wait)
        self._close(key, group)
        return await self._judged(key, group.responses)

    async def _judged(self, key: Key, responses: Sequence[str]) -> list[Scalar]:
        """Return the scalars of a whole group, when it is its turn."""
        async with self._turns:
            # In a thread, since long prompts take a while to be taken apart.
            return await self._judge(await asyncio.to_thread(_group, key, responses))


def _group(key: Key, responses: Sequence[str]) -> Group:
    """Return the group of responses to one rendered prompt."""
    prompt, reference = key
    return Group(prompt_of(prompt), responses, reference)
