"""The endpoints."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from judgetrain.engines import base
from judgetrain.errors import DataError, JudgetrainError
from judgetrain.judges.base import Prediction
from judgetrain.schema import Comparison
from judgetrain.serving.rewards.groups import Group, scalars
from judgetrain.serving.rewards.modes import Scalar
from judgetrain.serving.server import schema
from judgetrain.serving.server.batches import ClosedError, QueueFullError
from judgetrain.serving.server.gate import Gate
from judgetrain.serving.server.openrlhf import NOTHING_READ, Gathering, asked_of
from judgetrain.serving.server.service import Service

EXAMPLES = {
    "one": {"value": {"prompt": "Name a prime.", "response_a": "7", "response_b": "8"}},
    "messages": {
        "value": {
            "comparisons": [
                {
                    "id": "row-1",
                    "messages": [{"role": "user", "content": "Name a prime."}],
                    "response_a": "7",
                    "response_b": "8",
                    "model_a": "mine",
                    "model_b": "theirs",
                }
            ]
        }
    },
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schema.ErrorsOut, "description": text}
    for status, text in {
        401: "No token, or another one",
        413: "The request is too long",
        422: "The request is malformed; the field is named",
        429: "The queue is full: ask again after Retry-After seconds",
        500: "The judge failed",
        503: "The server is shutting down",
    }.items()
}


def create_app(service: Service, token: str | None = None) -> FastAPI:
    """The application that answers for a service; ``token``: what clients must send."""
    app = FastAPI(title="judgetrain", version=version("judgetrain"), redoc_url=None, responses=ERRORS)
    app.add_middleware(Gate, service=service, token=token)  # type: ignore[arg-type]
    _handle_errors(app)
    _add_judge(app, service)
    _add_reward(app, service)
    _add_chat(app, service)

    @app.get("/health")
    async def health() -> Response:
        """Whether the server takes work: 200, or 503 while it shuts down."""
        state = "draining" if service.draining else "ready"
        return JSONResponse({"status": state, "judge": service.judge.name}, 503 if service.draining else 200)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counters in Prometheus' text format."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


def _add_judge(app: FastAPI, service: Service) -> None:
    @app.post("/v1/judge", response_model=schema.VerdictOut | schema.VerdictsOut)
    async def judge(request: Annotated[schema.JudgeIn, Body(openapi_examples=EXAMPLES)]) -> Response:  # type: ignore[arg-type]
        """The verdict on one comparison or on many, both orders asked, with the reasons that led to it."""
        many = isinstance(request, schema.ComparisonsIn)
        rows = request.comparisons if isinstance(request, schema.ComparisonsIn) else [request]
        if len(rows) > service.longest:
            return _error(422, f"comparisons: at most {service.longest}, found {len(rows)}", "comparisons")
        comparisons = [row.comparison() for row in rows]
        seeds = [service.seed if row.seed is None else row.seed for row in rows]
        futures = service.compare(comparisons, seeds)
        # Others may wait for the same: who goes away cancels nothing.
        found = await asyncio.gather(*(asyncio.shield(asyncio.wrap_future(future)) for future in futures))
        verdicts = [schema.verdict_out(c, p) for c, p in zip(comparisons, found, strict=True)]
        return JSONResponse({"verdicts": verdicts} if many else verdicts[0])


def _add_reward(app: FastAPI, service: Service) -> None:
    # Modes ask the judge in rounds and wait for it, each in a thread of its own.
    threads = ThreadPoolExecutor(64, thread_name_prefix="reward")

    async def of_group(group: Group) -> list[Scalar]:
        taken = False  # a group that finds no room is refused; one that has begun, in whatever round, waits for it

        def ask(comparisons: Sequence[Comparison]) -> list[Prediction]:
            nonlocal taken
            found = list[Prediction]()
            for start in range(0, len(comparisons), service.part):
                part = comparisons[start : start + service.part]
                futures = service.compare_patiently(part, service.seed, taken)
                taken = True
                found += [future.result() for future in futures]
            return found

        loop = asyncio.get_running_loop()
        return (await loop.run_in_executor(threads, scalars, [group], ask, service.config.reward))[0]

    gathering = Gathering(service.config.group, service.config.group_wait, of_group)

    @app.post("/get_reward", response_model=schema.RewardOut)
    async def get_reward(request: schema.RewardIn) -> Response:
        """Rewards as OpenRLHF's ``--remote_rm_url`` expects them.

        The responses to one prompt are compared with one another (mode ``anchor``: with their label, where that is
        text). ``extra_logs`` say of each response whether something readable was said of it, and how many there were.
        """
        rows = asked_of(request, service.config.reward == "anchor")
        groups: dict[tuple[str, str | None], list[int]] = {}
        for index, row in enumerate(rows):
            groups.setdefault(row.group, []).append(index)
        found = await asyncio.gather(*(gathering.scalars([rows[i] for i in part]) for part in groups.values()))
        values: list[Scalar] = [None] * len(rows)
        for part, scalars_ in zip(groups.values(), found, strict=True):
            for index, value in zip(part, scalars_, strict=True):
                values[index] = value
        rewards = [NOTHING_READ if value is None else value for value in values]
        scores = [min(1.0, max(0.0, reward)) for reward in rewards]
        logs = {"judge_reward": rewards, "judge_read": [float(value is not None) for value in values]}
        return JSONResponse({"rewards": rewards, "scores": scores, "extra_logs": logs})


def _add_chat(app: FastAPI, service: Service) -> None:
    def model() -> dict[str, Any]:
        return {"id": service.judge.name, "object": "model", "created": 0, "owned_by": "judgetrain"}

    @app.get("/v1/models")
    async def models() -> Response:
        """The model of the judge, if it has one that generates text."""
        return JSONResponse({"object": "list", "data": [] if service.engine is None else [model()]})

    @app.post("/v1/chat/completions")
    async def chat(request: schema.ChatIn) -> Response:
        """The judge's own model, without the judge's prompts, as OpenAI's clients ask for it."""
        if service.engine is None or request.model != service.judge.name:
            there = "there is none" if service.engine is None else f"there is {service.judge.name}"
            return _error(404, f"model {request.model!r}: {there}", "model")
        limits = base.Sampling(
            temperature=request.temperature, top_p=request.top_p, max_new_tokens=request.limit, stop=request.stops
        )
        place = secrets.randbits(48) if request.seed is None else request.seed
        asked = tuple(message.model_dump() for message in request.messages)
        future = service.chat(base.Request(messages=asked, sampling=limits, place=place))
        done = await asyncio.shield(asyncio.wrap_future(future))
        if done.finish_reason == "too_long":
            return _error(422, "messages: longer than the model's context together with max_tokens", "messages")
        if done.finish_reason == "error":
            return _error(500, done.error or "the model gave no answer")
        return JSONResponse(_completion(done, service.judge.name))


def _completion(done: base.Completion, model: str) -> dict[str, Any]:
    reason = "length" if done.finish_reason == "length" else "stop"
    message = {"role": "assistant", "content": done.text}
    tokens = {"prompt_tokens": done.prompt_tokens, "completion_tokens": done.generated_tokens}
    return {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": {**tokens, "total_tokens": done.prompt_tokens + done.generated_tokens},
    }


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        """What is wrong first, by its field; what was sent is not sent back."""
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return _error(422, f"body: no JSON: {first['ctx']['error']}", "body")
        if "json" not in request.headers.get("content-type", ""):
            return _error(422, "expected the header Content-Type: application/json (curl -H)", "body")
        field, message = _field(first["loc"]), str(first["msg"]).removeprefix("Value error, ")
        if not field and message.partition(":")[0] in ("messages", "prompts", "labels"):
            field, _, message = message.partition(": ")
        return _error(422, f"{field or 'body'}: {message}", field or "body")

    @app.exception_handler(QueueFullError)
    async def full(request: Request, error: QueueFullError) -> Response:
        return _error(429, str(error), headers={"retry-after": str(error.retry_after)})

    @app.exception_handler(ClosedError)
    async def closed(request: Request, error: ClosedError) -> Response:
        return _error(503, str(error), headers={"retry-after": "5"})

    @app.exception_handler(DataError)
    async def unusable(request: Request, error: DataError) -> Response:
        return _error(422, str(error))

    @app.exception_handler(JudgetrainError)
    async def failed(request: Request, error: JudgetrainError) -> Response:
        return _error(500, str(error))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        """The log has the traceback."""
        return _error(500, f"{type(error).__name__}: the server's log says more")

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        return _error(error.status_code, str(error.detail), headers=dict(error.headers or {}))


def _field(place: Sequence[Any]) -> str:
    """A place in a request in words: ``comparisons[0].response_a``."""
    text = ""
    for part in place[1:] if place and place[0] == "body" else place:
        if part not in ("one", "many"):
            text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def _error(status: int, message: str, field: str | None = None, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": {"message": message, "field": field}}, status, headers)
