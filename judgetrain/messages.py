"""Reads the messages of a conversation in the shapes that are published; calls of tools become text."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from judgetrain.errors import DataError

ROLES = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "bot", "function_call"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function", "ipython", "observation"), "tool"),
}
"""The role that each published name of a role stands for."""

SPEAKER = ("role", "from")
"""The keys under which a message names its role: OpenAI's, ShareGPT's."""
TEXT = ("content", "value")
"""The keys under which a message holds its text: OpenAI's, ShareGPT's."""


def are_messages(turns: Sequence[Any]) -> bool:
    """Return whether every entry of a list is a message, that is, a mapping with a role."""
    return all(isinstance(turn, Mapping) and any(name in turn for name in SPEAKER) for turn in turns)


def said(turns: Sequence[Any]) -> list[tuple[str, str]]:
    """Return the role (``system``, ``user`` or ``assistant``) and the text of each message.

    A message has ``role`` and ``content`` (OpenAI), or ``from`` and ``value`` (ShareGPT). An assistant that calls
    tools gets one message for everything up to its last word: its texts, its calls (``tool_calls``) and the tools'
    results (role ``tool``), in their order.

    Raises:
        DataError: an entry is no message; names its number.
    """
    messages: list[tuple[str, str]] = []
    tool_names: dict[Any, str] = {}
    in_tool_use = False
    for number, turn in enumerate(turns):
        try:
            role, text, calls_tool = _read(turn, tool_names)
        except DataError as error:
            raise DataError(f"message {number}: {error}") from error

        # A tool's result, and what the assistant says to it, belong to the message that called the tool.
        uses_tool = role == "tool" or calls_tool
        speaker = "assistant" if role == "tool" else role
        goes_on = bool(messages) and speaker == messages[-1][0] == "assistant"
        if goes_on and (uses_tool or in_tool_use):
            earlier_text = messages[-1][1]
            messages[-1] = (speaker, f"{earlier_text}\n\n{text}")
        else:
            messages.append((speaker, text))
        in_tool_use = uses_tool
    return messages


def replied(response: Any) -> Any:
    """Return the text of a response that is a conversation: all that came after the user's last message.

    Anything else comes back as it is, and so does a conversation that ends with the user.

    Raises:
        DataError: the conversation holds an entry that is no message.
    """
    turns = [response] if isinstance(response, Mapping) else response
    if not isinstance(turns, list) or not turns:
        return response
    if not all(isinstance(turn, Mapping) for turn in turns):
        return response

    reply: list[str] = []
    for role, text in reversed(said(with_empty_end(turns))):
        if role != "assistant":
            break
        reply.insert(0, text)
    if not reply:
        return response
    return "\n\n".join(reply)


def with_empty_end(turns: Sequence[Any]) -> list[Any]:
    """Return messages whose last one, where it is an answer whose content is null, has an empty text.

    Servers write null for an answer in which the model said nothing.
    """
    *earlier, last = turns
    if not isinstance(last, Mapping):
        return list(turns)
    role = _first_value(last, SPEAKER)
    is_answer = isinstance(role, str) and ROLES.get(role) == "assistant"
    names = [name for name in TEXT if name in last]
    if is_answer and names and _first_value(last, TEXT) is None:
        last = {**last, names[0]: ""}
    return [*earlier, last]


def text_of(content: Any) -> Any:
    """Return the text of a message whose content is a list of parts (OpenAI), and anything else as it is.

    Raises:
        DataError: a part is no text, as a picture is.
    """
    if not isinstance(content, list):
        return content

    texts: list[str] = []
    other_types: set[str] = set()
    for part in content:
        if isinstance(part, Mapping):
            part_type = str(part.get("type"))
            text = part.get("text")
        else:
            part_type = type(part).__name__
            text = part
        if isinstance(text, str):
            texts.append(text)
        else:
            other_types.add(part_type)

    if other_types:
        types = ", ".join(sorted(other_types))
        raise DataError(f"expected a message of text, found parts of type {types}")
    return "\n".join(texts)


def _read(turn: Any, tool_names: dict[Any, str]) -> tuple[str, str, bool]:
    """Return the role and text of a message, and whether it calls a tool.

    ``tool_names`` holds the tools' names by the ids of their calls. The calls of this message are added to it.
    """
    if not isinstance(turn, Mapping):
        raise DataError(f"expected a role and a content, found {type(turn).__name__}")

    name_of_role = _first_value(turn, SPEAKER)
    role = ROLES.get(name_of_role) if isinstance(name_of_role, str) else None
    content = text_of(_first_value(turn, TEXT))
    if role == "tool":
        tool = turn.get("name") or tool_names.get(turn.get("tool_call_id")) or "a tool"
        result = content if isinstance(content, str) else _json(content)
        return role, f"Result of {tool}: {result}", False

    calls = list(_calls(turn, tool_names))
    if content is None and calls:
        # OpenAI writes null for the content of a message that only calls tools.
        content = ""
    if role is None or not isinstance(content, str):
        roles = ", ".join(dict.fromkeys(ROLES.values()))
        raise DataError(
            f"expected a role and a content: one of {roles}, and a text; found {name_of_role!r}, {content!r:.80}"
        )

    texts = [content, *calls] if content else calls
    # ShareGPT gives a call a role of its own, and its text is the call.
    calls_tool = bool(calls) or name_of_role == "function_call"
    return role, "\n\n".join(texts), calls_tool


def _first_value(turn: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the value of the first of some keys that has one, or None."""
    for name in names:
        if turn.get(name) is not None:
            return turn[name]
    return None


def _calls(turn: Mapping[str, Any], tool_names: dict[Any, str]) -> Iterator[str]:
    """Yield every call of a tool in a message as text, and note the tools' names by the ids of their calls."""
    calls = turn.get("tool_calls")
    if not calls and turn.get("function_call"):
        # The older form, of one call a message and without an id.
        calls = [turn["function_call"]]

    for call in calls or ():
        function = (call.get("function") or call) if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str):
            raise DataError(f"expected a call of a tool with its name, found {call!r:.80}")

        tool_names[call.get("id")] = name
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = _json(arguments)
        yield f"Call of {name}: {arguments}"


def _json(value: Any) -> str:
    """Return a value as JSON text; what JSON cannot hold stands as ``str`` writes it."""
    return json.dumps(value, ensure_ascii=False, default=str)
