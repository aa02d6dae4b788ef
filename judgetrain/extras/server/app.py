"""The endpoints, and what every request passes before them: token, shutdown, length of the body."""

import asyncio
import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from threading import Event
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from judgetrain.artifacts.pages import render
from judgetrain.errors import ConfigError, DataError, JudgetrainError
from judgetrain.extras.judge_reward.groups import MODES, Group, Scalar, scalars, soft_share
from judgetrain.extras.server import schema
from judgetrain.extras.server.openrlhf import NOTHING_READ, Gathering, groups_of
from judgetrain.extras.server.service import BusyError, Service
from judgetrain.judges.base import Prediction
from judgetrain.rubrics import HIGHEST, LOWEST, Rubric
from judgetrain.schema import Candidates, Comparison

OPEN = ("/", "/health", "/openapi.json")
"""Paths that need no token."""
DISCARDED = 8
"""So many times the allowed length is read of a body that is too long, so that its sender gets to read the answer."""
EXAMPLE = {"id": "row-1", "prompt": "Name a prime.", "response_a": "7", "response_b": "8"}
EXAMPLES = {"one": {"value": EXAMPLE}, "many": {"value": {"comparisons": [EXAMPLE]}}}
TEMPLATES = Path(__file__).with_name("templates")
Said = tuple[Comparison, Prediction]
GROUPS = 64
"""Groups rewarded at a time: modes ask the judge in rounds and wait for it, each in a thread of its own."""


def error(status: int, message: str, field: str | None = None, headers: dict[str, str] | None = None) -> Response:
    """The answer to a request that is not fulfilled; ``field``: of the request, as in ``comparisons[0].response_a``."""
    return JSONResponse({"error": {"message": message, "field": field}}, status, headers)


class Admission:
    """ASGI middleware before the ``app`` that answers: the service says whether it is shutting down, and is told of
    open requests; clients must send the ``token``, if there is one."""

    def __init__(self, app: ASGIApp, service: Service, token: str | None) -> None:
        self._app, self._service = app, service
        self._token = None if token is None else token.encode()
        self._limits, self._reading = service.limits, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one connection of another kind, which passes."""
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)  # which reads no body
            return
        headers, body, refusal = dict(scope["headers"]), b"", self._late(scope)
        if not self._admits(headers.get(b"authorization", b"")):
            wanted = "a token is needed: Authorization: Bearer TOKEN"
            refusal = error(401, wanted, headers={"www-authenticate": "Bearer"})
        elif refusal is None:
            try:
                async with asyncio.timeout(self._limits.patience):
                    body = await self._body(headers, receive)
                refusal = self._late(scope)
            except HTTPException as refused:
                refusal = error(refused.status_code, refused.detail, headers={"connection": "close"})
            except TimeoutError:
                told = f"the request was not there within {self._limits.patience:g} s"
                refusal = error(408, told, headers={"connection": "close"})
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        # Accepted is what has come whole: the server's end does not wait for a client that sends no further.
        self._service.open_requests += 1
        try:
            await self._while_asked(scope, body, receive, send)
        finally:
            self._service.open_requests -= 1

    async def _while_asked(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Answer as long as the client is there; what waits for a client that has gone is not judged."""
        gone = asyncio.ensure_future(receive())
        parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return parts.pop() if parts else await asyncio.shield(gone)

        answering = asyncio.ensure_future(self._app(scope, again, send))
        try:
            await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            answering.cancel()  # nothing, where it is done
        await asyncio.wait((answering,))
        if not answering.cancelled():
            answering.result()

    def _late(self, scope: Scope) -> Response | None:
        """What a request is told that comes after the signal to end."""
        if not self._service.draining or scope["method"] != "POST":
            return None
        return error(503, "the server is shutting down", headers={"retry-after": "5", "connection": "close"})

    def _admits(self, header: bytes) -> bool:
        """Whether a request may pass: its token is the bearer's, or the password of a URL's ``user:TOKEN@``."""
        if self._token is None:
            return True
        kind, _, given = header.partition(b" ")
        if kind.lower() == b"basic":
            try:
                given = base64.b64decode(given.strip(), validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                return False
        elif kind.lower() != b"bearer":
            return False
        return hmac.compare_digest(given.strip(), self._token)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """The whole body."""
        length, longest = headers.get(b"content-length", b""), self._limits.body
        body, read, fits = bytearray(), 0, not (length.isdigit() and int(length) > longest)
        try:
            while read <= DISCARDED * longest:
                message = await receive()
                if message["type"] != "http.request":
                    break
                part = message.get("body", b"")
                read += len(part)
                fits = fits and read <= longest
                if fits:
                    body += part
                    self._reading += len(part)
                if self._reading > self._limits.bodies:
                    raise HTTPException(429, "too much is coming in; ask again in a second")
                if not message.get("more_body"):
                    break
        finally:
            self._reading -= len(body)
        if not fits:
            raise HTTPException(413, f"the request is longer than {longest} bytes")
        return bytes(body)


def create_app(service: Service, token: str | None = None) -> FastAPI:
    """The application that answers for a service; ``token``: what clients must send."""
    app = FastAPI(title="judgetrain", version=version("judgetrain"), docs_url=None, redoc_url=None)
    app.add_middleware(Admission, service=service, token=token)
    _handle_errors(app)
    _add_judge(app, service)
    _add_reward(app, service)

    @app.get("/health")
    async def health() -> Response:
        """Whether the server takes work: 200, or 503 while it shuts down; and how much waits."""
        state: dict[str, Any] = {"status": "draining" if service.draining else "ready", "judge": service.judge.name}
        state |= {"waiting": service.waiting, "open_requests": service.open_requests}
        return JSONResponse(state, 503 if service.draining else 200)

    page = _page(service, token)

    @app.get("/", include_in_schema=False)
    async def form() -> Response:
        return HTMLResponse(page)

    return app


def _page(service: Service, token: str | None) -> str:
    """The page of ``/``: browsers run its own script alone, which they know by its hash, and ask this server alone."""
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    known = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    values = {"judge": service.judge.name, "by_criteria": service.judge.goes_by_criteria, "token": token is not None}
    return render(TEMPLATES / "page.html", title="Judge", script=Markup(script), known=known, **values)


def _add_judge(app: FastAPI, service: Service) -> None:
    @app.post("/v1/judge", response_model=schema.VerdictOut | schema.ScoreOut | schema.VerdictsOut)
    async def judge(request: Annotated[schema.JudgeIn, Body(openapi_examples=EXAMPLES)]) -> Response:  # type: ignore[arg-type]
        """The verdict on one comparison or on many, both orders asked, with the reasons that led to it.

        Without ``response_b`` it is the score of one response, by a judge that reads one.
        """
        rows = request.comparisons if isinstance(request, schema.ComparisonsIn) else [request]
        if refused := _without_criteria(service, "criteria", [row.criteria for row in rows]):
            return refused
        longest = min(service.limits.comparisons, service.limits.queue)  # a request is taken whole: it has to fit
        if len(rows) > longest:
            return error(422, f"comparisons: at most {longest}, found {len(rows)}", "comparisons")
        comparisons = await asyncio.to_thread(lambda: [row.asked() for row in rows])
        futures = service.compare(comparisons, [service.seed if row.seed is None else row.seed for row in rows])
        found = await asyncio.gather(*map(asyncio.wrap_future, futures))
        verdicts = [
            schema.VerdictOut.model_validate(said)
            if isinstance(said, Prediction)
            else schema.ScoreOut(id=asked.id, judge=service.judge.name, **vars(said))
            for asked, said in zip(comparisons, found, strict=True)
        ]
        many = isinstance(request, schema.ComparisonsIn)
        answer = schema.VerdictsOut(verdicts=verdicts) if many else verdicts[0]
        return Response(answer.model_dump_json(), media_type="application/json")


def _add_reward(app: FastAPI, service: Service) -> None:
    threads, config = ThreadPoolExecutor(GROUPS, thread_name_prefix="reward"), service.config

    async def of_group(
        group: Group, mode: str = config.reward, rubric: Rubric | None = None, said: list[Said] | None = None
    ) -> list[Scalar]:
        loop, gone = asyncio.get_running_loop(), Event()

        def ask(comparisons: Sequence[Comparison]) -> list[Prediction]:
            found = service.patient([replace(each, rubric=rubric) for each in comparisons], gone)
            if said is not None:
                said.extend(zip(comparisons, found, strict=True))
            return found

        def alone() -> list[Scalar]:
            asked = [Candidates.of(group.prompt, [text], group.reference) for text in group.responses]
            return [score.value for score in service.patient(asked, gone)]

        try:
            if mode == "score":
                return await loop.run_in_executor(threads, alone)
            return (await loop.run_in_executor(threads, scalars, [group], ask, mode))[0]
        finally:
            gone.set()

    gathering = Gathering(1 if config.reward == "score" else config.group, service.limits.group_wait, of_group)

    @app.post("/get_reward", response_model=schema.RewardOut)
    async def get_reward(request: schema.RewardIn) -> Response:
        """Rewards as OpenRLHF's ``--remote_rm_url`` expects them.

        The responses to one prompt are compared with one another (mode ``anchor``: with their label, a
        text; mode ``score``: each is scored by itself). ``extra_logs`` say of each response whether something readable
        was said of it, and how many there were.
        """
        groups = await asyncio.to_thread(groups_of, request, config.reward != "round_robin")
        largest, most = max(map(len, groups.values())), service.limits.responses
        if config.reward == "round_robin" and largest > most:
            return error(422, f"query: at most {most} responses to one prompt, found {largest}", "query")
        found = await asyncio.gather(*(gathering.scalars(key, list(part.values())) for key, part in groups.items()))
        values: dict[int, Scalar] = {}
        for part, worth in zip(groups.values(), found, strict=True):
            values |= zip(part, worth, strict=True)
        read = [values[place] for place in range(len(request.query))]
        rewards = [NOTHING_READ if value is None else value for value in read]
        scores = [min(1.0, max(0.0, reward)) for reward in rewards]
        logs = {"judge_reward": rewards, "judge_read": [float(value is not None) for value in read]}
        return JSONResponse({"rewards": rewards, "scores": scores, "extra_logs": logs})

    @app.post("/compare", response_model=schema.CompareOut)
    async def compare(request: schema.CompareIn) -> Response:
        """Rewards as NeMo Gym's ``genrm_compare`` gives them: what each response is worth beside the others, 0 to 1.

        A reward is null where nothing could be read, and a pair that could not be read has no result.
        """
        if refused := _without_criteria(service, "principle", [request.principle]):
            return refused
        texts, said = [each.text for each in request.response_objs], list[Said]()
        prompt = [message.model_dump() for message in request.conversation_history]
        rewards = await of_group(Group(prompt, texts), MODES[0], request.principle, said) if texts else []
        results = [*_results(texts, said)]
        counts = {"comparisons": len(said), "unreadable": sum(soft_share(found) is None for _, found in said)}
        return JSONResponse({"rewards": rewards, "comparison_results": results, "metrics": counts})


def _results(texts: Sequence[str], said: Sequence[Said]) -> Iterator[dict[str, float]]:
    """What was said of each two responses, in NeMo Gym's words; nothing where it could not be read."""
    by_texts = {frozenset((each.response_a, each.response_b)): (each, found) for each, found in said}
    for i, j in combinations(range(len(texts)), 2):
        comparison, found = by_texts.get(frozenset((texts[i], texts[j])), (None, None))
        if comparison is None or found is None or (share := soft_share(found)) is None:
            continue
        scores = [found.score_a, found.score_b]
        if texts[i] != comparison.response_a:
            share, scores = 1 - share, scores[::-1]
        rated = {f"score_{k}": LOWEST + (HIGHEST - LOWEST) * s for k, s in enumerate(scores, 1) if s is not None}
        yield {"response_i": i, "response_j": j, "judge_idx": 0, **rated, "ranking": 6 - 5 * share}


def _without_criteria(service: Service, field: str, given: Sequence[Any]) -> Response | None:
    """The refusal of criteria by a judge that goes by none; None where there is nothing to refuse."""
    if service.judge.goes_by_criteria or all(each is None for each in given):
        return None
    return error(422, f"{field}: {service.judge.name} goes by no criteria; judges that branch do", field)


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, wrong: RequestValidationError) -> Response:
        """What is wrong first, by its field; what was sent is not sent back."""
        first = wrong.errors()[0]
        if first["type"] == "json_invalid":
            return error(422, f"body: no JSON: {first['ctx']['error']}", "body")
        if "json" not in request.headers.get("content-type", ""):
            return error(422, "expected the header Content-Type: application/json (curl -H)", "body")
        field, message = _field(first["loc"]), str(first["msg"]).removeprefix("Value error, ")
        if not field and message.partition(":")[0] in ("messages", "prompts", "labels"):
            field, _, message = message.partition(": ")
        return error(422, f"{field or 'body'}: {message}", field or "body")

    @app.exception_handler(BusyError)
    async def busy(request: Request, found: BusyError) -> Response:
        return error(found.status, str(found), headers={"retry-after": str(found.seconds)})

    @app.exception_handler(JudgetrainError)
    async def failed(request: Request, found: JudgetrainError) -> Response:
        return error(422 if isinstance(found, (DataError, ConfigError)) else 500, str(found))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, found: Exception) -> Response:
        """The log has the traceback."""
        return error(500, f"{type(found).__name__}: the server's log says more")

    @app.exception_handler(HTTPException)
    async def other(request: Request, found: HTTPException) -> Response:
        return error(found.status_code, str(found.detail), headers=dict(found.headers or {}))


def _field(place: Sequence[Any]) -> str:
    """A place in a request in words: ``comparisons[0].response_a``."""
    text = ""
    for part in place[1:] if place and place[0] == "body" else place:
        if part not in ("one", "many"):
            text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")
