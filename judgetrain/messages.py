"""What the messages of a conversation say, in the shapes that are published; calls of tools are told as text."""

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


SPEAKER = ("role", "from")
"""Where a message says whose it is: in OpenAI's shape, in ShareGPT's."""


def are_messages(turns: Sequence[Any]) -> bool:
    """Whether a list holds messages, and not other objects."""
    return all(isinstance(turn, Mapping) and any(name in turn for name in SPEAKER) for turn in turns)


def said(turns: Sequence[Any]) -> list[tuple[str, str]]:
    """Role (``system``, ``user`` or ``assistant``) and text of each message.

    A message has ``role`` and ``content`` (OpenAI), or ``from`` and ``value`` (ShareGPT); what is none is a DataError
    that names its number. An assistant that calls tools has one message up to its last word: what it says, each call
    (``tool_calls``), and what each tool gave back (role ``tool``), in their order.
    """
    found: list[tuple[str, str]] = []
    names: dict[Any, str] = {}
    calling = False
    for number, turn in enumerate(turns):
        try:
            role, text, calls = _read(turn, names)
        except DataError as error:
            raise DataError(f"message {number}: {error}") from error
        own = "assistant" if role == "tool" else role
        if found and own == found[-1][0] == "assistant" and (role == "tool" or calls or calling):
            found[-1] = own, f"{found[-1][1]}\n\n{text}"
        else:
            found.append((own, text))
        calling = role == "tool" or calls
    return found


def replied(response: Any) -> Any:
    """The text of a response that is a conversation which ends with it: all that came after the user's last message.

    Anything else as it is (DataError: it holds what is no message).
    """
    turns = [response] if isinstance(response, Mapping) else response
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, Mapping) for turn in turns):
        return response
    read = said(turns)
    after = next((i for i in range(len(read), 0, -1) if read[i - 1][0] != "assistant"), 0)
    return "\n\n".join(text for _, text in read[after:]) if after < len(read) else response


def text_of(content: Any) -> Any:
    """The text of a message whose content is a list of parts (OpenAI; DataError: one is no text, as a picture).

    Anything else as it is.
    """
    if not isinstance(content, list):
        return content
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) < len(parts):
        kinds = ", ".join(sorted({str(p.get("type")) if isinstance(p, Mapping) else type(p).__name__ for p in content}))
        raise DataError(f"expected a message of text, found parts of type {kinds}")
    return "\n".join(texts)


def _read(turn: Any, names: dict[Any, str]) -> tuple[str, str, bool]:
    """Role and text of a message, and whether it calls a tool; ``names`` are those of the tools by their calls' ids."""
    if not isinstance(turn, Mapping):
        raise DataError(f"expected a role and a content, found {type(turn).__name__}")
    role = next((turn[name] for name in SPEAKER if turn.get(name) is not None), None)
    content = text_of(next((turn[name] for name in ("content", "value") if turn.get(name) is not None), None))
    known = ROLES.get(role) if isinstance(role, str) else None
    if known == "tool":
        name = turn.get("name") or names.get(turn.get("tool_call_id")) or "a tool"
        return known, f"Result of {name}: {content if isinstance(content, str) else _json(content)}", False
    calls = list(_calls(turn, names))
    content = "" if content is None and calls else content
    if known is None or not isinstance(content, str):
        roles = ", ".join(dict.fromkeys(ROLES.values()))
        raise DataError(f"expected a role and a content: one of {roles}, and a text; found {role!r}, {content!r:.80}")
    return known, "\n\n".join([content, *calls] if content else calls), bool(calls) or role == "function_call"


def _calls(turn: Mapping[str, Any], names: dict[Any, str]) -> Iterator[str]:
    single = turn.get("function_call")
    for call in turn.get("tool_calls") or ([single] if single else []):
        asked = (call.get("function") or call) if isinstance(call, Mapping) else {}
        if not isinstance(asked, Mapping) or not isinstance(name := asked.get("name"), str):
            raise DataError(f"expected a call of a tool with its name, found {call!r:.80}")
        names[call.get("id")] = name
        arguments = asked.get("arguments")
        yield f"Call of {name}: {arguments if isinstance(arguments, str) else _json(arguments)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
