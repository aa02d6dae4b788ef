"""Read what clients send beside the event loop, so that no request keeps the answers to others waiting.

Threads do not help against a single call of a library in C, such as reading JSON: it keeps Python's lock to its end.
Such a call is short where a request holds few parts, however long its texts are. So parts are counted first, and the
first fault of a request ends its reading.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError

from judgetrain.extras.server.config import LIMITS
from judgetrain.json_text import RepeatedKeyError, load_json


class ReadingRoute(APIRoute):
    """A route whose body is read in a thread; its endpoint takes it as the one argument, ``request``.

    FastAPI would read and check the body on the event loop. The declaration stays its own, for ``/openapi.json``.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request; routes without a body are FastAPI's own."""
        if self.body_field is None:
            return super().get_route_handler()
        parameter = inspect.signature(self.endpoint, eval_str=True).parameters["request"]
        adapter: TypeAdapter[Any] = TypeAdapter(parameter.annotation)
        endpoint = self.endpoint

        async def answer(request: Request) -> Response:
            body = await request.body()
            is_json = "json" in request.headers.get("content-type", "")
            value = await asyncio.to_thread(read, body, is_json, adapter)
            response: Response = await endpoint(request=value)
            return response

        return answer


def read(body: bytes, is_json: bool, adapter: TypeAdapter[Any]) -> Any:
    """Return what a body holds.

    Args:
        body: of the request.
        is_json: whether its header says that it is JSON.
        adapter: of what it should hold.

    Raises:
        HTTPException: it holds too many parts, or is nested too deeply.
        RequestValidationError: it holds something else; only the first fault is named.
    """
    value: Any = body
    if not body:
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required"}])
    if is_json:
        if holds_too_much(body):
            raise HTTPException(
                413,
                f"a request may hold {LIMITS.parts:,} texts, lists and objects (JSON's) and {LIMITS.values:,} values "
                "in all, and this holds more",
            )
        try:
            value = load_json(body)
        except RepeatedKeyError as error:
            fault: dict[str, Any] = {"type": "json_invalid", "loc": ("body",), "msg": "", "ctx": {"error": str(error)}}
            raise RequestValidationError([fault]) from error
        except json.JSONDecodeError as error:
            fault = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "", "ctx": {"error": error.msg}}
            raise RequestValidationError([fault]) from error
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, "There was an error parsing the body") from error
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        first = {**faults[0], "loc": ("body", *faults[0]["loc"])}
        raise RequestValidationError([first]) from error


def holds_too_much(body: bytes) -> bool:
    """Return whether a body of JSON has more parts or values than :data:`LIMITS` allow; keys of objects are parts."""
    # At most these: texts hold quotes, commas and brackets, too.
    parts = body.count(b'"') // 2 + body.count(b"[") + body.count(b"{")
    if parts <= LIMITS.parts and body.count(b",") < LIMITS.values:
        return False

    # Exactly: what is escaped in texts goes first, then the texts. There is no need to go on behind too many of them.
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
    pieces = unescaped.split(b'"', 2 * LIMITS.parts + 1)
    outside = b"".join(pieces[::2])
    parts = len(pieces) // 2 + outside.count(b"[") + outside.count(b"{")
    return parts > LIMITS.parts or outside.count(b",") >= LIMITS.values
