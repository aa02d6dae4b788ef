"""Answer requests: the endpoints, and what every request passes before them (token, shutdown, length of the body)."""

import asyncio
import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from ipaddress import ip_address
from itertools import chain, combinations
from pathlib import Path
from threading import Event
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Body, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from judgetrain.amounts import amount
from judgetrain.artifacts.pages import render
from judgetrain.data.rubrics import number_of_criteria
from judgetrain.errors import ConfigError, DataError, JudgetrainError
from judgetrain.extras.judge_reward.groups import MODES, Group, Scalar, scalars, soft_share
from judgetrain.extras.server import schema, systemone
from judgetrain.extras.server.openrlhf import GROUPS, NOTHING_READ, Gathering, groups_of
from judgetrain.extras.server.reading import ReadingRoute
from judgetrain.extras.server.service import BusyError, Service
from judgetrain.judges.predictions import Prediction, Score
from judgetrain.rubrics import HIGHEST, LOWEST, Rubric
from judgetrain.schema import Candidates, Comparison

OPEN = ("/", "/health", "/openapi.json")
"""Paths that need no token."""
DISCARDED = 8
"""Times the allowed length that is read of a body that is too long, so that its sender gets to read the answer."""
EXAMPLE = {"id": "row-1", "prompt": "Name a prime.", "response_a": "7", "response_b": "8"}
EXAMPLES = {"one": {"value": EXAMPLE}, "many": {"value": {"comparisons": [EXAMPLE]}}}
TEMPLATES = Path(__file__).with_name("templates")
Judged = tuple[Comparison, Prediction]


def error(status: int, message: str, field: str | None = None, headers: dict[str, str] | None = None) -> Response:
    """Return the answer to a request that is not fulfilled.

    Args:
        status: HTTP's.
        message: for the client.
        field: of the request that is wrong, as ``comparisons[0].response_a``.
        headers: of the answer.
    """
    return JSONResponse({"error": {"message": message, "field": field}}, status, headers)


class Admission:
    """ASGI middleware that admits requests to the application.

    Args:
        app: the application that answers.
        service: says whether it is shutting down, and counts open requests.
        token: what clients must send, if anything.
        hosts: names that requests may be sent to; None: any.
    """

    def __init__(self, app: ASGIApp, service: Service, token: str | None, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts
        self._service = service
        self._limits = service.limits
        self._token = None
        if token is not None:
            self._token = token.encode()
        self._reading = 0
        """Bytes of all bodies that are being read."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; connections of other kinds, and open paths, pass to the application as they are."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        # First of all, also for open paths: a page of another site must not even learn which judge is here.
        stranger = self._stranger(headers)
        if stranger is not None:
            await stranger(scope, receive, send)
            return
        if scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        body = b""
        refusal = self._late(scope)
        if not self._admits(headers.get(b"authorization", b"")):
            message = "a token is needed: Authorization: Bearer TOKEN"
            refusal = error(401, message, headers={"www-authenticate": "Bearer"})
        elif refusal is None:
            try:
                # The body is read here and not by the application: whole within its time, or not at all.
                async with asyncio.timeout(self._limits.patience):
                    body = await self._body(headers, receive)
                # The signal to end may have come while the body did.
                refusal = self._late(scope)
            except HTTPException as refused:
                refusal = error(refused.status_code, refused.detail, headers={"connection": "close"})
            except TimeoutError:
                message = f"the request was not there within {self._limits.patience:g} s"
                refusal = error(408, message, headers={"connection": "close"})
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        # A request counts as open once it has come whole: the server's end does not wait for a client that sends no
        # further.
        self._service.open_requests += 1
        try:
            await self._answer(scope, body, receive, send)
        finally:
            self._service.open_requests -= 1

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Answer as long as the client is there; what waits for a client that has gone is not judged."""
        # After the body, the next message says that the client has gone.
        gone = asyncio.ensure_future(receive())
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Message:
            if messages:
                return messages.pop()

            # The application may give up waiting for this, and the watch has to go on.
            return await asyncio.shield(gone)

        answering = asyncio.ensure_future(self._app(scope, receive_again, send))
        try:
            await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            # Does nothing to an answer that is complete.
            answering.cancel()
        await asyncio.wait((answering,))
        if not answering.cancelled():
            answering.result()

    def _stranger(self, headers: Mapping[bytes, bytes]) -> Response | None:
        """Return the refusal of a request that some page on the web may have a browser send, else None.

        Without a token, whoever reaches the server may ask it, and a browser on this machine does. A page of another
        site says so by its Origin; or its name is made to point here (DNS rebinding), and stands in Host.
        """
        # There is a token, which no foreign page can send.
        if self._hosts is None:
            return None
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host_name(host)
        # Clients of HTTP/1.0 name no host, and no browser is one of them.
        is_named = b"host" in headers
        if is_named and name not in self._hosts and not _is_address(name):
            message = f"this server does not answer as {name[:100]!r}; serve.allowed_hosts lets further names in"
            return error(421, message)
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        # "null", of a page without a place, has none.
        origin_host = origin.partition("://")[2]
        # Programs send no Origin; the server's own page sends the host that it came from.
        if origin and origin_host != host and host_name(origin_host) not in self._hosts:
            return error(
                403, "a page of another site may not ask this server; serve.allowed_hosts lets further ones in"
            )
        return None

    def _late(self, scope: Scope) -> Response | None:
        """Return the refusal of a request that comes after the signal to end, else None."""
        if not self._service.draining or scope["method"] != "POST":
            return None
        return error(503, "the server is shutting down", headers={"retry-after": "5", "connection": "close"})

    def _admits(self, header: bytes) -> bool:
        """Return True for the token: as a bearer's, or as the password of a URL's ``user:TOKEN@``."""
        if self._token is None:
            return True
        kind, _, credentials = header.partition(b" ")
        if kind.lower() == b"basic":
            try:
                # OpenRLHF takes an address alone, in which a token can stand as a password.
                _, _, credentials = base64.b64decode(credentials.strip(), validate=True).partition(b":")
            except (binascii.Error, ValueError):
                return False
        elif kind.lower() != b"bearer":
            return False
        # In a time that does not depend on how many characters are right.
        return hmac.compare_digest(credentials.strip(), self._token)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """Return the whole body.

        Raises:
            HTTPException: it is too long, or the bodies that are coming in are so together.
        """
        longest = self._limits.body
        announced = headers.get(b"content-length", b"")
        # A client may announce no length, or a wrong one: what comes is counted in any case.
        fits = not (announced.isdigit() and int(announced) > longest)
        body = bytearray()
        bytes_read = 0
        try:
            # A connection that is closed while its client still sends would lose the answer that says why.
            while bytes_read <= DISCARDED * longest:
                message = await receive()
                if message["type"] != "http.request":
                    break
                part = message.get("body", b"")
                bytes_read += len(part)
                fits = fits and bytes_read <= longest
                # What is too long is read and not kept.
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


def host_name(host: str) -> str:
    """Return the name in ``NAME:PORT``, as Host and Origin have it."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
    # The dot at the end of a whole name is the root, and no other host.
    return name.removesuffix(".")


def _is_address(name: str) -> bool:
    """Return whether a host is an IP address, which no other site's name can be made to look like."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def create_app(service: Service, token: str | None = None, hosts: frozenset[str] | None = None) -> FastAPI:
    """Return the application that answers for a service.

    Args:
        service: has the judge and the limits.
        token: what clients must send; None: anybody is answered.
        hosts: names that requests may be sent to, beside addresses; None: any.
    """
    # Without FastAPI's own pages, which load scripts from another site.
    app = FastAPI(title="judgetrain", version=version("judgetrain"), docs_url=None, redoc_url=None)
    app.router.route_class = ReadingRoute
    # Before everything else, so that no endpoint can be added without it.
    app.add_middleware(Admission, service=service, token=token, hosts=hosts)
    _handle_errors(app)
    _add_judge(app, service)
    # Both endpoints of rewards share the threads, and with them the limit.
    group_rewards = GroupRewards(service, ThreadPoolExecutor(GROUPS, thread_name_prefix="reward"))
    _add_reward(app, service, group_rewards)
    _add_compare(app, service, group_rewards)
    _add_decisions(app, service)

    @app.get("/health")
    async def health() -> Response:
        """Return 200 while the server takes work and 503 while it shuts down, with how much waits."""
        status = "ready"
        code = 200
        if service.draining:
            status = "draining"
            code = 503
        state = {
            "status": status,
            "judge": service.judge.name,
            "waiting": service.waiting,
            "open_requests": service.open_requests,
        }
        return JSONResponse(state, code)

    # Made once: it depends on nothing that changes.
    page = _page(service, token)

    @app.get("/", include_in_schema=False)
    async def form() -> Response:
        """Return the page on which a comparison can be judged by hand."""
        return HTMLResponse(page)

    return app


def _page(service: Service, token: str | None) -> str:
    """Return the page of ``/``: browsers run its own script alone, by its hash, and ask this server alone."""
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    # For the page's Content-Security-Policy.
    script_hash = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return render(
        TEMPLATES / "page.html",
        title="Judge",
        script=Markup(script),
        known=script_hash,
        judge=service.judge.name,
        by_criteria=service.judge.goes_by_criteria,
        scores_alone=service.judge.scores_alone,
        token=token is not None,
    )


def _add_judge(app: FastAPI, service: Service) -> None:
    """Add the endpoint of verdicts and scores."""

    @app.post("/v1/judge", response_model=schema.VerdictOut | schema.ScoreOut | schema.VerdictsOut)
    async def judge(request: Annotated[schema.JudgeIn, Body(openapi_examples=EXAMPLES)]) -> Response:  # type: ignore[arg-type]
        """Return the verdict on one comparison or on many, both orders asked, with the reasons that led to it.

        Without ``response_b`` it is the score of one response, by a judge that reads one.
        """
        if isinstance(request, schema.ComparisonsIn):
            rows = request.comparisons
        else:
            rows = [request]
        # Refused by counting, before anything of the rows is read, which takes time.
        refusal = _without_criteria(service, "criteria", [row.criteria for row in rows])
        if refusal is None:
            refusal = _without_scores(service, request.reasons)
        if refusal is not None:
            return refusal
        # A request is taken whole, so it has to fit into the queue.
        most = min(service.limits.comparisons, service.limits.queue)
        if len(rows) > most:
            return error(422, f"comparisons: at most {most}, found {len(rows)}", "comparisons")
        refusal = await _too_many_criteria(service, "criteria", [row.criteria for row in rows])
        if refusal is not None:
            return refusal
        places = [""]
        if isinstance(request, schema.ComparisonsIn):
            places = [f"comparisons[{number}]." for number in range(len(rows))]
        # Rubrics of many rows take a while to read, and others' requests are not to wait for it.
        comparisons = await asyncio.to_thread(
            lambda: [row.judged(place) for row, place in zip(rows, places, strict=True)]
        )
        seeds = []
        for row in rows:
            if row.seed is None:
                seeds.append(service.seed)
            else:
                seeds.append(row.seed)
        # All rows at once: they wait in the queue beside other clients' rows, and share batches with them.
        futures = service.compare(comparisons, seeds, request.reasons)
        answers = await asyncio.gather(*map(asyncio.wrap_future, futures))
        verdicts: list[schema.VerdictOut | schema.ScoreOut] = []
        for comparison, answer in zip(comparisons, answers, strict=True):
            if isinstance(answer, Prediction):
                verdicts.append(schema.VerdictOut.model_validate(answer))
            else:
                verdicts.append(schema.ScoreOut(id=comparison.id, judge=service.judge.name, **vars(answer)))
        if isinstance(request, schema.ComparisonsIn):
            text = schema.VerdictsOut(verdicts=verdicts).model_dump_json()
        else:
            text = verdicts[0].model_dump_json()
        return Response(text, media_type="application/json")


class GroupRewards:
    """Rewards groups of responses by a service, many groups at a time, each in a thread of its own."""

    def __init__(self, service: Service, threads: ThreadPoolExecutor) -> None:
        self._service = service
        self._threads = threads

    async def of_group(
        self,
        group: Group,
        mode: str | None = None,
        rubric: Rubric | None = None,
        judged: list[Judged] | None = None,
        reasons: bool | None = None,
    ) -> list[Scalar]:
        """Return what each response of a group is worth.

        Args:
            group: responses to one prompt.
            mode: how they are compared; None: as the server is configured.
            rubric: what the judge goes by, if not by its own criteria.
            judged: gets the comparisons that were asked, with their predictions.
            reasons: whether the judge writes its reasons; None: as the server is configured.
        """
        service = self._service
        mode = mode or service.config.reward
        # The thread asks in rounds, and stops before the next one where nobody waits for the answer any more.
        gone = Event()

        def compare(comparisons: Sequence[Comparison]) -> list[Prediction]:
            with_rubric = [replace(comparison, rubric=rubric) for comparison in comparisons]
            predictions = service.patient(with_rubric, gone, reasons)
            if judged is not None:
                judged.extend(zip(comparisons, predictions, strict=True))
            return predictions

        def score() -> list[Scalar]:
            # Each in a group of its own: in one group all would be judged by the criteria that were written for the
            # first.
            candidates = [Candidates.of(group.prompt, [text], group.reference) for text in group.responses]
            return [score.value for score in service.patient(candidates, gone, reasons)]

        loop = asyncio.get_running_loop()
        try:
            if mode == "score":
                return await loop.run_in_executor(self._threads, score)
            (values,) = await loop.run_in_executor(self._threads, scalars, [group], compare, mode)
            return values
        finally:
            gone.set()


def _add_reward(app: FastAPI, service: Service, group_rewards: GroupRewards) -> None:
    """Add the endpoint of rewards for OpenRLHF."""
    config = service.config
    group_size = config.group
    if config.reward == "score":
        # A response that is scored by itself waits for no other.
        group_size = 1
    # By what requests say of reasons: one group is asked about in one way.
    gatherings: dict[bool | None, Gathering] = {}
    for reasons in (None, True, False):
        judge = partial(group_rewards.of_group, reasons=reasons)
        gatherings[reasons] = Gathering(group_size, service.limits.group_wait, judge)

    @app.post("/get_reward", response_model=schema.RewardOut)
    async def get_reward(request: schema.RewardIn) -> Response:
        """Return rewards as OpenRLHF's ``--remote_rm_url`` expects them.

        The responses to one prompt are compared with one another (mode ``anchor``: with their label, a
        text; mode ``score``: each is scored by itself). ``extra_logs`` say of each response whether something readable
        was said of it, and how many there were.
        """
        refusal = _without_scores(service, request.reasons)
        if refusal is not None:
            return refusal
        groups = await asyncio.to_thread(groups_of, request, config.reward != "round_robin")
        # Round robin asks about every pair: the number of comparisons grows with the square of a group.
        largest = max(map(len, groups.values()))
        most = service.limits.responses
        if config.reward == "round_robin" and largest > most:
            return error(422, f"query: at most {amount(most, 'response')} to one prompt, found {largest}", "query")
        gathering = gatherings[request.reasons]
        waiting = [gathering.scalars(key, list(group.values())) for key, group in groups.items()]
        worths = await asyncio.gather(*waiting)
        values: dict[int, Scalar] = {}
        for group, worth in zip(groups.values(), worths, strict=True):
            # By place in the request: groups hold the responses of one prompt, which may stand anywhere in it.
            values |= zip(group, worth, strict=True)
        rewards = []
        was_read = []
        for place in range(len(request.query)):
            value = values[place]
            was_read.append(float(value is not None))
            if value is None:
                value = NOTHING_READ
            rewards.append(value)
        # OpenRLHF filters prompts by scores, which it expects within these bounds.
        scores = [min(1.0, max(0.0, reward)) for reward in rewards]
        logs = {"judge_reward": rewards, "judge_read": was_read}
        return JSONResponse({"rewards": rewards, "scores": scores, "extra_logs": logs})


def _add_compare(app: FastAPI, service: Service, group_rewards: GroupRewards) -> None:
    """Add the endpoint of rewards for NeMo Gym."""

    @app.post("/compare", response_model=schema.CompareOut)
    async def compare(request: schema.CompareIn) -> Response:
        """Return rewards as NeMo Gym's ``genrm_compare`` gives them: a response's worth beside the others, 0 to 1.

        A reward is null where nothing could be read, and a pair that could not be read has no result.
        """
        refusal = _without_criteria(service, "principle", [request.principle])
        if refusal is None:
            refusal = await _too_many_criteria(service, "principle", [request.principle])
        if refusal is None:
            refusal = _without_scores(service, request.reasons)
        if refusal is not None:
            return refusal
        rubric = await asyncio.to_thread(schema.rubric_in, request.principle, "principle")
        texts = await asyncio.to_thread(
            lambda: [
                response.shown(f"response_objs[{number}].output")
                for number, response in enumerate(request.response_objs)
            ]
        )
        prompt = [message.model_dump() for message in request.conversation_history]
        judged: list[Judged] = []
        rewards: list[Scalar] = []
        if texts:
            rewards = await group_rewards.of_group(Group(prompt, texts), MODES[0], rubric, judged, request.reasons)
        unreadable = sum(soft_share(prediction) is None for _, prediction in judged)
        metrics = {"comparisons": len(judged), "unreadable": unreadable}
        decisions = [prediction.decision for _, prediction in judged if prediction.decision is not None]
        # Said by judges with thresholds alone.
        if decisions:
            metrics["undecided"] = decisions.count("undecided")
        answer = {"rewards": rewards, "comparison_results": [*_results(texts, judged)], "metrics": metrics}
        return JSONResponse(answer)


def _add_decisions(app: FastAPI, service: Service) -> None:
    """Add the endpoint of typed decisions."""

    @app.post("/v1/systemone", response_model=systemone.DecisionsOut)
    async def decide(request: systemone.DecisionsIn) -> Response:
        """Return a probability for every answer to named questions about a state, as System One's clients ask.

        Each question is a criterion by which the judge reads one response; ``choice`` is one for each of its options.
        """
        if not service.judge.goes_by_criteria:
            return error(
                422, f"questions: {service.judge.name} goes by no criteria; judges that branch do", "questions"
            )
        # Before anything is read: each question is read beside the whole state, which may be long.
        number = systemone.number_of_judgments(request)
        most = min(service.config.criteria, service.limits.queue)
        if number > most:
            message = f"questions: at most {most} with their options in one request, found {number}"
            return error(422, message, "questions")
        candidates_of = await asyncio.to_thread(systemone.candidates_of, request)
        # All questions are one batch; the answers come back in the same order.
        candidates = list(chain.from_iterable(candidates_of.values()))
        futures = service.compare(candidates, [service.seed] * len(candidates))
        scores = iter(await asyncio.gather(*map(asyncio.wrap_future, futures)))
        answers: dict[str, list[Score]] = {}
        for name, of_question in candidates_of.items():
            answers[name] = [next(scores) for _ in of_question]
            if any(score.value is None for score in answers[name]):
                field = f"questions.{name}"
                return error(502, f"{field}: the judge's answer could not be read; ask again, or otherwise", field)
        decisions = systemone.decisions_of(request, answers, service.judge.name)
        return Response(decisions.model_dump_json(), media_type="application/json")


def _results(texts: Sequence[str], judged: Sequence[Judged]) -> Iterator[dict[str, float]]:
    """Yield the result of each two responses in NeMo Gym's words; none where it could not be read.

    Args:
        texts: of the responses.
        judged: comparisons of two texts, whose order may be the other one, with their predictions.
    """
    # Pairs are asked about in an order that their texts decide, which need not be the request's.
    by_texts = {}
    for comparison, prediction in judged:
        by_texts[frozenset((comparison.response_a, comparison.response_b))] = (comparison, prediction)
    for first, second in combinations(range(len(texts)), 2):
        pair = frozenset((texts[first], texts[second]))
        # Equal texts are not compared.
        if pair not in by_texts:
            continue
        comparison, prediction = by_texts[pair]
        share = soft_share(prediction)
        if share is None:
            continue
        scores = {"score_1": prediction.score_a, "score_2": prediction.score_b}
        if texts[first] != comparison.response_a:
            share = 1 - share
            scores = {"score_1": prediction.score_b, "score_2": prediction.score_a}
        result: dict[str, float] = {"response_i": first, "response_j": second, "judge_idx": 0}
        for name, score in scores.items():
            if score is not None:
                result[name] = LOWEST + (HIGHEST - LOWEST) * score
        # From 1, the first is much better, to 6, the second is.
        result["ranking"] = 6 - 5 * share
        # NeMo Gym's results hold numbers alone.
        if prediction.decision is not None:
            result["decided"] = float(prediction.decision == "decided")
        yield result


def _without_criteria(service: Service, field: str, criteria: Sequence[Any]) -> Response | None:
    """Return the refusal of criteria by a judge that goes by none; None where there is nothing to refuse."""
    if service.judge.goes_by_criteria or all(value is None for value in criteria):
        return None
    return error(422, f"{field}: {service.judge.name} goes by no criteria; judges that branch do", field)


def _without_scores(service: Service, reasons: bool | None) -> Response | None:
    """Return the refusal of scores without text by a judge that gives none; None where there is nothing to refuse."""
    if reasons is None:
        return None
    try:
        service.judge.writing(reasons)
    except ConfigError as refused:
        return error(422, str(refused), "reasons")
    return None


async def _too_many_criteria(service: Service, field: str, criteria: Sequence[Any]) -> Response | None:
    """Return the refusal of more criteria than a request may have; None where there are no more."""
    # Counted without reading them: a request of a million criteria would keep the server busy. In a thread, since
    # they may stand in a text of JSON.
    number = await asyncio.to_thread(lambda: sum(map(number_of_criteria, criteria)))
    most = service.config.criteria
    if number <= most:
        return None
    return error(422, f"{field}: at most {most} in one request (serve.criteria), found {number}", field)


def _handle_errors(app: FastAPI) -> None:
    """Have every exception answered with a sentence."""

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, invalid: RequestValidationError) -> Response:
        """Return what is wrong first, by its field; what was sent is not sent back."""
        # One is enough to go on with: a body of the wrong form has errors in every field.
        first = invalid.errors()[0]
        if first["type"] == "json_invalid":
            return error(422, f"body: no JSON: {first['ctx']['error']}", "body")
        # Without the header FastAPI reads no JSON, and its error would be about the text.
        if "json" not in request.headers.get("content-type", ""):
            return error(422, "expected the header Content-Type: application/json (curl -H)", "body")
        field = _field(first["loc"])
        if first["type"] == schema.UNKNOWN:
            field = f"{field}.{first['ctx']['field']}".lstrip(".")
        message = str(first["msg"]).removeprefix("Value error, ")
        # A validator of the whole body names the field itself.
        if not field and message.partition(":")[0] in ("messages", "prompts", "labels"):
            field, _, message = message.partition(": ")
        return error(422, f"{field or 'body'}: {message}", field or "body")

    @app.exception_handler(BusyError)
    async def busy(request: Request, exception: BusyError) -> Response:
        """Return when to ask again."""
        return error(exception.status, str(exception), headers={"retry-after": str(exception.seconds)})

    @app.exception_handler(JudgetrainError)
    async def failed(request: Request, exception: JudgetrainError) -> Response:
        """Return the message of an error that the request, or else the judge, is the cause of."""
        status = 500
        # What was sent cannot be judged; all other expected errors are the judge's.
        if isinstance(exception, (DataError, ConfigError)):
            status = 422
        field = None
        if isinstance(exception, schema.FieldError):
            field = exception.field
        return error(status, str(exception), field)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, exception: Exception) -> Response:
        """Return the exception's name alone; the log has the traceback."""
        return error(500, f"{type(exception).__name__}: the server's log says more")

    @app.exception_handler(HTTPException)
    async def other(request: Request, exception: HTTPException) -> Response:
        """Return what FastAPI refuses, such as a path that there is not, in the form of all errors."""
        return error(exception.status_code, str(exception.detail), headers=dict(exception.headers or {}))


def _field(place: Sequence[Any]) -> str:
    """Return a place in a request in words: ``comparisons[0].response_a``."""
    if place and place[0] == "body":
        place = place[1:]
    text = ""
    for part in place:
        # These are the names of the two forms that a request may have.
        if part in ("one", "many"):
            continue
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}"
    return text.lstrip(".")
