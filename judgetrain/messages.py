"""Reads the messages of a conversation in the shapes that are published, and what a reader is shown of an answer.

Calls of tools and what tools answer become text. What a model thought before it answered is not shown.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

from judgetrain.errors import DataError
from judgetrain.thoughts import shown, without_thoughts

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
REASONING = ("reasoning_content", "reasoning", "thinking")
"""The keys under which a message holds what its model thought, which is not shown."""
THOUGHTS = ("think", "thought", "reason", "summary_text")
"""What stands in the types of parts that hold what a model thought, as ``redacted_thinking`` and ``reasoning_text``."""
THOUGHT = "thought"
"""The key by which Gemini's parts say that they hold what the model thought."""
CALL = "_call"
"""The end of the types of OpenAI's items (Responses API) that call a tool, as ``function_call``."""
OUTPUT = "_call_output"
"""The end of the types of OpenAI's items that hold what a tool answered."""
TOOL_USE = "tool_use"
"""The end of the types of Anthropic's parts that call a tool."""
TOOL_RESULT = "tool_result"
"""The end of the types of Anthropic's parts that hold what a tool answered."""
NO_TEXT = ("tool_calls", "function_call", "channel", "recipient")
"""The keys of messages that are a call of a tool, or a message of gpt-oss that is whole."""
HARMONY_TOOLS = "functions."
"""The beginning of the recipients of gpt-oss' messages that call a tool."""
_IDS = ("call_id", "tool_call_id", "tool_use_id", "id")
"""The keys under which a call and its result name the call."""
_ANSWERS = ("output", "error")
"""The entries of a call that hold what its tool answered."""
_NOT_SAID = ("type", "id", "call_id", "status", "name")
"""The entries of a call that are none of its arguments."""


@dataclass(frozen=True)
class _Turn:
    """A message as it is read.

    Args:
        role: ``system``, ``user``, ``assistant`` or ``tool``.
        text: what it says.
        calls_tool: whether it calls a tool.
        is_thought: whether it holds nothing but what the model thought.
    """

    role: str
    text: str
    calls_tool: bool = False
    is_thought: bool = False


def are_messages(turns: Sequence[Any]) -> bool:
    """Return whether every entry of a list is a message, that is, a mapping with a role, or an item beside some."""
    has_role = [isinstance(turn, Mapping) and any(name in turn for name in SPEAKER) for turn in turns]
    return any(has_role) and all(role or _is_item(turn) for role, turn in zip(has_role, turns, strict=True))


def role_texts(turns: Sequence[Any]) -> list[tuple[str, str]]:
    """Return the role (``system``, ``user`` or ``assistant``) and the text of each message.

    A message has ``role`` and ``content`` (OpenAI), or ``from`` and ``value`` (ShareGPT), or is an item of OpenAI's
    Responses API. An assistant that calls tools gets one message for everything up to its last word: its texts, its
    calls and the tools' results, in their order. What a model thought is left out.

    Raises:
        DataError: an entry is no message; names its number.
    """
    messages: list[tuple[str, str]] = []

    # Filled as calls are read: a result names its call by an id alone.
    tool_names: dict[Any, str] = {}
    in_tool_use = False
    for number, message in enumerate(turns):
        try:
            for turn in _read(message, tool_names):
                # A tool's result, and what the assistant says to it, belong to the message that called the tool.
                uses_tool = turn.role == "tool" or turn.calls_tool
                speaker = "assistant" if turn.role == "tool" else turn.role
                goes_on = bool(messages) and speaker == messages[-1][0] == "assistant"
                if goes_on and (uses_tool or in_tool_use):
                    messages[-1] = (speaker, _joined([messages[-1][1], turn.text]))
                else:
                    messages.append((speaker, turn.text))
                # Between a call and its result the model may think.
                in_tool_use = uses_tool or (in_tool_use and turn.is_thought)
        except DataError as error:
            raise DataError(f"message {number}: {error}") from error
    return _without_silence(messages)


def _without_silence(messages: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return messages without those of the assistant that say nothing beside another one of it."""
    result: list[tuple[str, str]] = []
    for role, text in messages:
        follows_assistant = bool(result) and role == result[-1][0] == "assistant"
        if follows_assistant and not result[-1][1]:
            result[-1] = (role, text)
        elif not follows_assistant or text:
            result.append((role, text))
    return result


def replied(response: Any) -> Any:
    """Return what a reader is shown of a response: its text without what the model thought.

    Of a conversation it is all that came after the user's last message: texts, calls of tools and what they answered.
    It may be messages, items of OpenAI's Responses API, or the parts of one message. Anything else comes back as it is,
    and so does a conversation that ends with the user.

    Raises:
        DataError: the conversation holds an entry that is no message.
    """
    if isinstance(response, str):
        return shown(response)
    turns = [response] if isinstance(response, Mapping) else response
    if not isinstance(turns, list) or not turns:
        return response
    if not all(isinstance(turn, Mapping) for turn in turns):
        return response
    if are_parts(turns):
        turns = [{"role": "assistant", "content": turns}]

    reply: list[str] = []
    for role, text in reversed(role_texts(with_empty_end(turns))):
        if role != "assistant":
            break
        reply.insert(0, text)
    if not reply:
        return response
    return _joined(reply)


def shown_text(response: Any) -> str:
    """Return what a reader is shown of a response (:func:`replied`); nothing where it has no answer.

    Raises:
        DataError: it is neither a text nor a list of messages.
    """
    reply = replied(response)
    if isinstance(reply, str):
        return reply
    if isinstance(reply, Sequence) and all(isinstance(turn, Mapping) for turn in reply):
        # There is no message, or the user has the last word.
        return ""
    raise DataError(f"expected a response: a text, or a list of messages; found {response!r:.80}")


def scalar_text(value: Any) -> Any:
    """Return a number or truth value as the text that a table would hold, and anything else as it is.

    A whole number has no point, also where a data frame made it a float. NaN, as which data frames write what is
    missing, is None.
    """
    # NumPy's scalars, which Parquet and data frames give, are no numbers of Python.
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, Number):
        return value
    if value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def reference_text(value: Any) -> str | None:
    """Return a reference answer as text, as a judge is shown it; None where there is none.

    It may be a text, a number or truth value (:func:`scalar_text`), a list of these, which are lines, or messages.

    Raises:
        DataError: it is something else.
    """
    if hasattr(value, "tolist"):
        # Parquet gives arrays, in which NumPy's scalars stand.
        value = value.tolist()
    value = scalar_text(value)
    if isinstance(value, list):
        lines = [scalar_text(line) for line in value]
        if all(isinstance(line, str) for line in lines):
            value = "\n".join(line.strip() for line in lines)
    if value is None:
        return None
    try:
        text = shown_text(value)
    except DataError as error:
        raise DataError(
            f"expected a reference answer: a text, a number, a list of them, or messages; found {value!r:.80}"
        ) from error
    return text if text.strip() else None


def are_parts(turns: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether entries are the parts of one message: they have types, and none is a message or an item."""
    for turn in turns:
        if "type" not in turn or any(name in turn for name in SPEAKER):
            return False
        # What a model thought is an item and a part.
        if _is_item(turn) and not _is_thought(turn):
            return False
    return True


def at_query(turns: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return the messages up to the user's last one, and those of an answer that was begun behind it."""
    query = list(turns)
    while query and is_of_answer(query[-1]):
        query.pop()
    return query, list(turns[len(query) :])


def is_of_answer(turn: Mapping[str, Any]) -> bool:
    """Return whether a message is the assistant's or a tool's, also where Anthropic has a tool's as the user's."""
    name_of_role = _first_value(turn, SPEAKER)
    content = turn.get("content")
    if name_of_role == "user" and isinstance(content, list) and content:
        return all(isinstance(part, Mapping) and part.get("type") == TOOL_RESULT for part in content)
    return _is_item(turn) or (isinstance(name_of_role, str) and ROLES.get(name_of_role) in ("assistant", "tool"))


def goes_on(turn: Mapping[str, Any]) -> bool:
    """Return whether a message is a text of the assistant that another text may go on with, and calls no tool."""
    content = turn.get("content")
    if isinstance(content, list):
        is_text = all(isinstance(part, Mapping) and part.get("type") == "text" for part in content)
    else:
        is_text = isinstance(content, str)
    name_of_role = _first_value(turn, SPEAKER)
    is_assistant = isinstance(name_of_role, str) and ROLES.get(name_of_role) == "assistant"
    return is_text and is_assistant and not any(turn.get(name) for name in NO_TEXT)


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
    """Return the text of a message whose content is a list of parts, and anything else as it is.

    Raises:
        DataError: a part is no text, as a picture is.
    """
    text, _ = _text_of(content, {})
    return text


def _text_of(content: Any, tool_names: dict[Any, str], of_assistant: bool = False) -> tuple[Any, bool]:
    """Return the text of a content, as :func:`text_of` does, and whether a part of it calls a tool.

    Args:
        content: a text, a list of parts, or anything else.
        tool_names: the tools' names by the ids of their calls. The calls of this content are added to it.
        of_assistant: whether the assistant says it. What it thought, in the text of a part, is left out.
    """
    if not isinstance(content, list):
        return content, False

    pieces: list[tuple[str, str]] = []
    calls_tool = False
    other_types: set[str] = set()
    for part in content:
        part_type, piece = _piece(part, tool_names)
        if isinstance(part, Mapping) and _is_thought(part):
            continue
        if piece is None:
            other_types.add(part_type)
            continue
        pieces.append((part_type, piece))
        calls_tool = calls_tool or part_type.endswith(TOOL_USE)

    if other_types:
        types = ", ".join(sorted(other_types))
        raise DataError(f"expected a message of text, found parts of type {types}")
    return _joined_parts(pieces, of_assistant), calls_tool


def _joined_parts(pieces: Sequence[tuple[str, str]], of_assistant: bool) -> str:
    """Return the texts of a content's parts, each given with its type, as one text.

    A part of the assistant's may begin with what the model thought, which may end in a later part.
    """
    texts: list[str] = []
    starts: list[int] = []
    length = 0
    type_before: str | None = None
    for part_type, piece in pieces:
        if type_before is not None:
            separator = _between(type_before, part_type)
            texts.append(separator)
            length += len(separator)
        texts.append(piece)
        starts.append(length)
        length += len(piece)
        type_before = part_type
    text = "".join(texts)
    if not of_assistant:
        return text
    # What stands before all parts is looked for in every text of the assistant's.
    return without_thoughts(text, starts[1:])


def _piece(part: Any, tool_names: dict[Any, str]) -> tuple[str, str | None]:
    """Return the type of a part of a content, and its text, or None where it has none."""
    if isinstance(part, str):
        return "text", part
    if not isinstance(part, Mapping):
        return type(part).__name__, None
    part_type = str(part.get("type"))
    if part_type.endswith(TOOL_USE):
        return part_type, _call_text(part, tool_names)
    if part_type.endswith(TOOL_RESULT):
        return part_type, _result_text(part, part.get("content"), tool_names)
    text = part.get("refusal") if part_type == "refusal" else part.get("text")
    if isinstance(text, str):
        return part_type, text
    return part_type, None


def _is_thought(part: Mapping[str, Any]) -> bool:
    """Return whether a part of a content holds what a model thought."""
    part_type = part.get("type")
    return part.get(THOUGHT) is True or (
        isinstance(part_type, str) and any(word in part_type.casefold() for word in THOUGHTS)
    )


def _between(first: str, second: str) -> str:
    """Return what stands between two parts of a content, by their types."""
    tools = (TOOL_USE, TOOL_RESULT)
    if first.endswith(tools) or second.endswith(tools):
        return "\n\n"
    # OpenAI's output comes in pieces of one text; parts of others are lines.
    if first == second == "output_text":
        return ""
    return "\n"


def _read(turn: Any, tool_names: dict[Any, str]) -> Iterator[_Turn]:
    """Yield the turns of a message; it is one, but where Anthropic has results of tools in the user's message.

    ``tool_names`` holds the tools' names by the ids of their calls. The calls of this message are added to it.
    """
    if not isinstance(turn, Mapping):
        raise DataError(f"expected a role and a content, found {type(turn).__name__}")
    if _is_item(turn):
        yield _read_item(turn, tool_names)
        return

    name_of_role = _first_value(turn, SPEAKER)
    role = ROLES.get(name_of_role) if isinstance(name_of_role, str) else None
    content = _first_value(turn, TEXT)
    if role == "user" and isinstance(content, list):
        results = [part for part in content if isinstance(part, Mapping) and part.get("type") == TOOL_RESULT]
        for part in results:
            yield _Turn("tool", _result_text(part, part.get("content"), tool_names))
        content = [part for part in content if part not in results]
        if results and not content:
            return
    if role == "tool":
        yield _Turn("tool", _result_text(turn, content, tool_names))
        return
    yield _read_message(turn, name_of_role, content, tool_names)


def _read_message(turn: Mapping[str, Any], name_of_role: Any, content: Any, tool_names: dict[Any, str]) -> _Turn:
    """Return the turn of a message that is no tool's."""
    role = ROLES.get(name_of_role) if isinstance(name_of_role, str) else None
    text, has_call = _text_of(content, tool_names, of_assistant=role == "assistant")
    calls = list(_calls(turn, tool_names))
    if text in (None, "") and isinstance(turn.get("refusal"), str):
        text = turn["refusal"]
    elif text is None and (calls or any(turn.get(name) is not None for name in REASONING)):
        # OpenAI writes null for the content of a message that only calls tools, servers for one that was all thought.
        text = ""
    if role is None or not isinstance(text, str):
        roles = ", ".join(dict.fromkeys(ROLES.values()))
        raise DataError(
            f"expected a role and a content: one of {roles}, and a text; found {name_of_role!r}, {text!r:.80}"
        )

    is_thought = role == "assistant" and turn.get("channel") == "analysis"
    if is_thought:
        return _Turn(role, "", is_thought=True)
    recipient = turn.get("recipient")
    if role == "assistant" and isinstance(recipient, str) and recipient.startswith(HARMONY_TOOLS):
        return _Turn(role, f"Call of {recipient.removeprefix(HARMONY_TOOLS)}: {text}", calls_tool=True)
    if role == "assistant":
        text = shown(text)
    # ShareGPT gives a call a role of its own, and its text is the call.
    calls_tool = bool(calls) or has_call or name_of_role == "function_call"
    return _Turn(role, _joined([text, *calls]), calls_tool)


def _is_item(turn: Any) -> bool:
    """Return whether an entry is an item of OpenAI's Responses API that is no message."""
    if not isinstance(turn, Mapping):
        return False
    item_type = turn.get("type")
    if item_type == "reasoning":
        # Some servers give it the assistant's role as well.
        return True
    has_role = any(turn.get(name) is not None for name in SPEAKER)
    return not has_role and isinstance(item_type, str) and item_type.endswith((CALL, OUTPUT))


def _read_item(item: Mapping[str, Any], tool_names: dict[Any, str]) -> _Turn:
    """Return the turn of an item that is no message."""
    if item["type"] == "reasoning":
        return _Turn("assistant", "", is_thought=True)
    if item["type"].endswith(OUTPUT):
        return _Turn("tool", _result_text(item, item.get("output"), tool_names))
    text = _call_text(item, tool_names)
    # A tool that the server itself called, as one of MCP, has its answer in the same item.
    results = [_result_text(item, item[name], tool_names) for name in _ANSWERS if item.get(name) is not None]
    return _Turn("assistant", _joined([text, *results]), calls_tool=True)


def _call_text(call: Mapping[str, Any], tool_names: dict[Any, str]) -> str:
    """Return a call as text, of a part or an item; ``tool_names`` gets the tool's name."""
    name = call.get("name")
    if not isinstance(name, str):
        # A tool of the server's own is named by the type alone, as web_search_call.
        name = str(call["type"]).removesuffix(CALL)
    for identifier in _ids_in(call):
        tool_names[identifier] = name
    arguments = call.get("arguments", call.get("input"))
    if arguments is None:
        # A tool of the server's own has its arguments beside the type, and not in one entry.
        arguments = {key: value for key, value in call.items() if key not in _NOT_SAID + _ANSWERS}
    return _call(name, arguments)


def _call(name: str, arguments: Any) -> str:
    """Return a call of a tool as text."""
    if not isinstance(arguments, str):
        arguments = _json(arguments)
    return f"Call of {name}: {arguments}"


def _result_text(result: Mapping[str, Any], content: Any, tool_names: Mapping[Any, str]) -> str:
    """Return what a tool answered as text.

    Args:
        result: the message, part or item that holds it.
        content: what the tool answered.
        tool_names: the tools' names by the ids of their calls.
    """
    names = [result.get("name"), *(tool_names.get(identifier) for identifier in _ids_in(result))]
    name = next((name for name in names if name), "a tool")
    text = text_of(content)
    if not isinstance(text, str):
        text = _json(text)
    return f"Result of {name}: {text}"


def _ids_in(call: Mapping[str, Any]) -> list[str | int | None]:
    """Return the ids under which a call or a result names the call; ``[None]`` for one without any."""
    ids: list[str | int | None] = [call[key] for key in _IDS if isinstance(call.get(key), (str, int))]

    # A result without an id is that of the last call without one.
    return ids or [None]


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
        # OpenAI has a function's call under one name, and that of a custom tool, whose input is text, under another.
        function = (call.get("function") or call.get("custom") or call) if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str):
            raise DataError(f"expected a call of a tool with its name, found {call!r:.80}")

        for identifier in _ids_in(call):
            tool_names[identifier] = name
        yield _call(name, function.get("arguments", function.get("input")))


def _joined(texts: Sequence[str]) -> str:
    """Return the texts that are not empty as paragraphs."""
    return "\n\n".join(text for text in texts if text)


def _json(value: Any) -> str:
    """Return a value as JSON text; what JSON cannot hold stands as ``str`` writes it."""
    return json.dumps(value, ensure_ascii=False, default=str)
