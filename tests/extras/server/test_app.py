"""What the endpoints answer, in this process: verdicts, refusals, rewards, counters."""

import base64
import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar

import httpx2
import pytest
from starlette.testclient import TestClient

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import WorldEngine
from judgetrain.errors import ConfigError, EngineError
from judgetrain.extras.server import service
from judgetrain.extras.server.app import create_app
from judgetrain.extras.server.client import RemoteJudge
from judgetrain.extras.server.config import Limits, ServeConfig
from judgetrain.extras.server.openrlhf import NOTHING_READ
from judgetrain.extras.server.run import names_of
from judgetrain.extras.server.schema import RewardOut, VerdictOut, VerdictsOut
from judgetrain.extras.server.service import Service
from judgetrain.judges import BranchingJudge, Judge, LongerJudge, Prediction
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import Cost
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import Candidates, Comparison, Reads
from tests.builders.judges import SAMPLING

BARE = {"response_a": "Because.", "response_b": "No."}
ROW = {"prompt": "Why?", **BARE}


class Recording(LongerJudge):
    """Keeps the batches that it judged; fails on a response that says so."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[str]]] = []
        self.texts: set[str] = set()

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        self.batches.append((seed, [c.id for c in comparisons]))
        self.texts |= {text for c in comparisons for text in (c.response_a, c.response_b)}
        if any("fail" in c.response_a for c in comparisons):
            raise EngineError("the model is out of order")
        return super().compare_batch(comparisons, seed)


def client_of(
    judge: Judge, token: str | None = None, reward: str = "round_robin", group: int = 1, **limits: Any
) -> TestClient:
    served = Service(judge, ServeConfig(reward=reward, group=group), 17, Limits(**limits))
    return TestClient(create_app(served, token), raise_server_exceptions=False)


@pytest.fixture
def judge() -> Recording:
    return Recording()


@pytest.fixture
def client(judge: Recording) -> Iterator[TestClient]:
    with client_of(judge) as client:
        yield client


def world_judge(reads: Reads = "two") -> BranchingJudge:
    """Return the world's annotator, who errs by seed and place, as a judge that samples."""
    engine = WorldEngine(WorldEngineConfig(error_rate=0.4))
    return BranchingJudge(engine, load_prompt_set("compact"), JudgeOptions(branches=3, steps=SAMPLING, reads=reads))


def test_one_comparison_has_a_verdict_and_many_have_verdicts(client: TestClient) -> None:
    one = VerdictOut.model_validate_json(client.post("/v1/judge", json=ROW).content)
    assert (one.verdict, one.consistent, one.judge) == ("A", True, "longer")
    assert one.id == Comparison.of("Why?", "Because.", "No.").id
    exchanged = {"id": "mine", "prompt": "Why?", "response_a": "No.", "response_b": "Because."}
    many = client.post("/v1/judge", json={"comparisons": [ROW, exchanged, ROW]})
    verdicts = VerdictsOut.model_validate_json(many.content).verdicts
    assert [(v.id, v.verdict) for v in verdicts] == [(one.id, "A"), ("mine", "B"), (one.id, "A")]


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"prompt": "p", "response_b": "a"}, "response_a", "Field required"),
        ({"prompt": "p", "response_a": "a"}, None, "longer compares two responses"),
        ({**ROW, "criteria": "it is short"}, "criteria", "longer goes by no criteria"),
        ({"comparisons": [ROW, {**ROW, "response_a": 3}]}, "comparisons[1].response_a", "valid string"),
        ({**ROW, "sed": 3}, "sed", "not permitted"),
        ({**ROW, "seed": -1}, "seed", "greater than or equal to 0"),
        (BARE, "body", "either prompt or messages"),
        ({**ROW, "messages": [{"role": "user", "content": "x"}]}, "body", "either prompt or messages"),
        ({"comparisons": []}, "comparisons", "at least 1"),
        ({"comparisons": [ROW] * 9}, "comparisons", "at most 8, found 9"),
        ({**BARE, "messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", ""),
        ({**BARE, "messages": [{"role": "assistant", "content": "x"}]}, "messages", ""),
        ([1], "body", "dictionary"),
    ],
)
def test_a_malformed_request_is_refused_with_the_field(body: Any, field: str | None, message: str) -> None:
    with client_of(LongerJudge(), comparisons=8) as client:
        answer = client.post("/v1/judge", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == field
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b"{", "application/json", "no JSON"),
        (b'{"prompt": "p", "prompt": "q"}', "application/json", "no JSON: the key 'prompt' stands twice in an object"),
        (b'{"prompt": "\\ud800", "response_a": "a", "response_b": "b"}', "application/json", "surrogate"),
        (b"\xff", "application/json", "parsing the body"),
        (b"", "application/json", "Field required"),
        # As curl sends what follows -d.
        (json.dumps(ROW), "application/x-www-form-urlencoded", "expected the header Content-Type: application/json"),
    ],
)
def test_what_is_no_json_or_no_text_is_refused(client: TestClient, body: bytes, kind: str, message: str) -> None:
    answer = client.post("/v1/judge", content=body, headers={"content-type": kind})
    assert answer.status_code in (400, 422) and message in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("criteria", "message"),
    [([" "], "expected what to look for"), ("\ud800", "surrogate"), ([3], ""), ({"criterium": "x"}, "")],
)
def test_criteria_that_cannot_be_read_are_named_by_their_row(criteria: Any, message: str) -> None:
    body = json.dumps({"comparisons": [ROW, {**ROW, "criteria": criteria}]})
    with client_of(world_judge()) as client:
        answer = client.post("/v1/judge", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "comparisons[1].criteria")
    assert message in answer.json()["error"]["message"]


def test_more_criteria_than_a_request_may_have_are_not_read() -> None:
    """Reading a hundred thousand takes seconds, in which nobody else would be answered."""
    many = {"comparisons": [{**ROW, "criteria": [f"c{i}" for i in range(3000)]}] * 2}
    with client_of(world_judge()) as client:
        # Of the processor, in all threads: the machine may be busy otherwise.
        started_at = time.process_time()
        # Everything that is read as a list of criteria is counted as one.
        shapes = (
            "a\n" * 100_000,
            "a\r" * 100_000,
            "a\u2028" * 100_000,
            {"criteria": ["a"] * 5000},
            {"rubric": "a\n" * 100_000},
            json.dumps(["a"] * 100_000),
            {"criteria": json.dumps(["a"] * 100_000)},
            json.dumps({"rubrics": ["a"] * 100_000}),
        )
        for body in (many, *({**ROW, "criteria": criteria} for criteria in shapes)):
            answer = client.post("/v1/judge", json=body)
            assert (answer.status_code, answer.json()["error"]["field"]) == (422, "criteria")
            assert "at most 4096 in one request (serve.criteria), found " in answer.json()["error"]["message"]
        assert time.process_time() - started_at < 5
        history = {"conversation_history": [{"role": "user", "content": "Why?"}], "response_objs": []}
        assert client.post("/compare", json=history | {"principle": "a\n" * 9999}).status_code == 422


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:8765", None, 200),
        ("127.0.0.1:8765", "http://127.0.0.1:8765", 200),
        ("[::1]:8765", "http://[::1]:8765", 200),
        ("judge.example:80", "https://judge.example", 200),
        ("JUDGE.example.", "https://judge.example", 200),
        ("proxy.example", "http://proxy.example:8080", 200),
        ("web.example", None, 200),
        ("judge.example.evil.example", None, 421),
        ("evil.example#judge.example", None, 421),
        ("", None, 421),
        ("[fe80::1]:8765", "http://[fe80::2]:8765", 403),
        ("localhost:8765", "http://localhost.evil.example", 403),
        ("evil.example:8765", None, 421),
        ("localhost:8765", "https://evil.example", 403),
        ("127.0.0.1:8765", "http://10.0.0.7", 403),
        ("localhost:8765", "null", 403),
        ("localhost:8765", "http://[", 403),
        ("[", None, 421),
    ],
)
def test_without_a_token_pages_of_other_sites_are_not_answered(host: str, origin: str | None, status: int) -> None:
    names = names_of(ServeConfig(allowed_hosts=["judge.example", "Proxy.example:8080", "https://web.example/"]))
    headers = {"host": host} | ({"origin": origin} if origin else {})
    with TestClient(create_app(Service(LongerJudge(), ServeConfig(), 0), None, names)) as client:
        assert client.post("/v1/judge", json=ROW, headers=headers).status_code == status
        assert client.get("/health", headers=headers).status_code == status


@pytest.mark.parametrize(("headers", "status"), [([], 200), ([(b"origin", b"https://evil.example")], 403)])
def test_a_client_of_http_1_0_names_no_host(headers: list[tuple[bytes, bytes]], status: int) -> None:
    app = create_app(Service(LongerJudge(), ServeConfig(), 0), None, names_of(ServeConfig()))
    scope = {
        "type": "http", "http_version": "1.0", "method": "GET", "scheme": "http", "path": "/health", "root_path": "",
        "raw_path": b"/health", "query_string": b"", "headers": headers, "client": ("127.0.0.1", 9), "server": None,
    }  # fmt: skip
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not sent:
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    with TestClient(app) as client:
        assert client.portal is not None
        client.portal.call(app, scope, receive, send)
    assert sent[0]["status"] == status


@pytest.mark.parametrize("allowed", ["*", "*.judge.example", "", "https://", "["])
def test_an_allowed_host_that_is_none_is_refused(allowed: str) -> None:
    """It would let nobody in, and nobody would be told why."""
    with pytest.raises(ConfigError, match=r"serve\.allowed_hosts: .* is no name of a host"):
        names_of(ServeConfig(allowed_hosts=[allowed]))


def test_the_page_links_to_what_is_there(client: TestClient) -> None:
    links = re.findall(r'href="([^"#]+)"', client.get("/").text)
    assert links and all(client.get(f"/{link}").status_code == 200 for link in links)


def test_a_body_that_is_too_long_is_refused_however_it_is_sent(judge: Recording) -> None:
    with client_of(judge, body=2000) as client:
        fits = {**ROW, "response_a": "x" * 1500}
        assert client.post("/v1/judge", json=fits).status_code == 200
        for size in (3000, 100_000):
            body = json.dumps({**ROW, "response_a": "x" * size}).encode()
            in_parts = (body[i : i + 700] for i in range(0, len(body), 700))  # no content-length
            for content in (body, in_parts):
                answer = client.post("/v1/judge", content=content, headers={"content-type": "application/json"})
                assert answer.status_code == 413 and "2000 bytes" in answer.json()["error"]["message"]
    assert len(judge.batches) == 1


def test_without_the_token_only_health_and_schema_are_open() -> None:
    with client_of(LongerJudge(), token="right") as client:
        for headers in ({}, *({"Authorization": value} for value in ("Bearer wrong", "right", "Basic !"))):
            for path in ("/v1/judge", "/get_reward", "/compare", "/nothing"):
                answer = client.post(path, json=ROW, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert client.get("/health").status_code == client.get("/openapi.json").status_code == 200
        basic = base64.b64encode(b"anyone:right").decode()
        for value in ("Bearer right", "bearer right", f"Basic {basic}"):
            assert client.post("/v1/judge", json=ROW, headers={"Authorization": value}).status_code == 200


def test_a_row_that_fails_takes_no_other_with_it(judge: Recording) -> None:
    bad = {**ROW, "response_a": "fail"}
    with client_of(judge, wait=0.5) as client, ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(lambda row: client.post("/v1/judge", json=row), [ROW, bad, {**ROW, "id": "x"}]))
        assert [a.status_code for a in answers] == [200, 500, 200]
        assert answers[1].json()["error"]["message"] == "the model is out of order"
        again = client.post("/v1/judge", json=bad)
    assert again.status_code == 500, "a failure is not kept"


def test_the_schema_is_published_with_examples_that_are_answered(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    body = schema["paths"]["/v1/judge"]["post"]["requestBody"]["content"]["application/json"]
    for example in body["examples"].values():
        assert client.post("/v1/judge", json=example["value"]).status_code == 200
    assert {"/v1/judge", "/get_reward", "/compare", "/v1/systemone", "/health"} == {*schema["paths"]}


def test_rewards_are_win_shares_within_each_prompt_s_group(client: TestClient) -> None:
    # OpenRLHF sends queries with their prompts and the end tokens of the policy's template.
    start = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    responses = [("p", "a"), ("q", "aa"), ("p", "aaaa"), ("p", "aa"), ("q", "a")]
    prompts = [start.format(prompt) for prompt, _ in responses]
    queries = [p + text + "<|im_end|>\n" for p, (_, text) in zip(prompts, responses, strict=True)]
    answer = client.post("/get_reward", json={"query": queries, "prompts": prompts, "labels": [""] * 5})
    rewards = RewardOut.model_validate_json(answer.content)
    assert rewards.rewards == rewards.scores == [0.0, 1.0, 1.0, 0.5, 0.0]
    assert rewards.extra_logs == {"judge_reward": rewards.rewards, "judge_read": [1.0] * 5}
    with client_of(LongerJudge(), reward="anchor") as anchored:
        body = {"query": ["pa", "paaaa"], "prompts": ["p", "p"], "labels": ["aa", "aa"]}
        assert anchored.post("/get_reward", json=body).json()["rewards"] == [0.0, 1.0], "against the label"
        body["labels"] = ["aa", {"answer": "aa"}]
        refused = anchored.post("/get_reward", json=body)
        assert refused.status_code == 422 and "labels[1]: expected a reference answer" in refused.text
        body["labels"] = ["aa", ""]
        refused = anchored.post("/get_reward", json=body)
        assert refused.status_code == 422 and "compares responses with a reference answer" in refused.text
    short = client.post("/get_reward", json={"query": queries, "prompts": prompts[:2]})
    assert (short.status_code, short.json()["error"]["field"]) == (422, "prompts")


def test_rewards_of_a_judge_that_reads_one_response_are_its_scores() -> None:
    pairs = eval_comparisons(WorldConfig(eval_comparisons=3), 5)
    rows = [(c.dialogue.query, text) for c in pairs for text in (c.response_a, c.response_b)]
    prompts = [f"<|im_start|>user\n{query}<|im_end|>\n<|im_start|>assistant\n" for query, _ in rows]
    sent = {"query": [p + text for p, (_, text) in zip(prompts, rows, strict=True)], "prompts": prompts}
    with client_of(world_judge("one"), reward="score") as client:
        rewards = client.post("/get_reward", json=sent).json()
    single = [Candidates.of(query, [text]) for query, text in rows]
    expected_scores = [score.value for scores in world_judge("one").score_batch(single, 17) for score in scores]
    assert rewards["rewards"] == [NOTHING_READ if value is None else value for value in expected_scores]
    assert len({*expected_scores}) > 2 and rewards["extra_logs"]["judge_read"] == [
        float(value is not None) for value in expected_scores
    ]


START = "<|im_start|>user\nName a prime.<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("before", "status"),
    [("", 200), ("<|endoftext|>" * 5, 200), ("<s>", 200), ("<pad> <pad><bos>", 200), ("What? ", 422), (None, 422)],
)
def test_a_query_without_its_prompt_is_refused(client: TestClient, before: str | None, status: int) -> None:
    """Padding before the prompt is none of the response, which would be the longer one by it."""
    queries = [("" if before is None else before + START) + "7<|im_end|>", START + "Seven is one.<|im_end|>"]
    answer = client.post("/get_reward", json={"query": queries, "prompts": [START] * 2})
    assert answer.status_code == status
    assert answer.json()["rewards"] == [0.0, 1.0] if status == 200 else "begin with its prompt" in answer.text


def test_what_is_too_much_is_refused_before_it_is_worked_on(client: TestClient) -> None:
    """20,000 rows are not looked at one by one; 1,000 responses to a prompt would be 499,500 judgments."""
    started = time.process_time()
    rows = client.post("/v1/judge", json={"comparisons": [{"prompt": "p", "response_a": "a"}] * 20_000})
    assert (rows.status_code, time.process_time() - started < 5) == (422, True) and "at most 256" in rows.text
    group = client.post("/get_reward", json={"query": [f"p{i}" for i in range(1000)], "prompts": ["p"] * 1000})
    assert group.status_code == 422 and "at most 64 responses to one prompt, found 1000" in group.text
    many = client.post("/get_reward", json={"query": ["p"] * 4097, "prompts": ["p"] * 4097})
    assert many.status_code == 422 and "at most 4096" in many.text


RUBRIC = Rubric((Criterion(text="states the amounts", name="numbers", weight=2.0), Criterion(text="backs the claims")))


def through(client: TestClient) -> RemoteJudge:
    """Return a judge behind a server of this process."""

    def forward(sent: httpx2.Request) -> httpx2.Response:
        answer = client.post(sent.url.path, content=sent.content, headers=sent.headers)
        return httpx2.Response(answer.status_code, content=answer.content)

    judge = RemoteJudge("http://127.0.0.1:1")
    judge._client = httpx2.Client(transport=httpx2.MockTransport(forward))
    return judge


def test_criteria_a_reference_and_single_responses_are_judged_as_offline() -> None:
    rows = [replace(c, rubric=RUBRIC) for c in eval_comparisons(WorldConfig(eval_comparisons=4), seed=5)]
    rows = [replace(c, dialogue=replace(c.dialogue, reference="twelve pieces .")) for c in rows]
    with client_of(world_judge()) as client:
        served_predictions = through(client).compare_batch(rows, 3)
        offline = world_judge().compare_batch(rows, 3)
        assert served_predictions == offline and [p.reasons for p in served_predictions] == [p.reasons for p in offline]
        assert {reason.source for reason in served_predictions[0].reasons} == {"given"}
        with pytest.raises(EngineError, match="422: judge reads two responses at a time"):
            through(client)("q", "a")
    alone = [Candidates.of(c.dialogue.messages, [c.response_a], "twelve .", RUBRIC) for c in rows]
    with client_of(world_judge("one")) as client:
        assert through(client).score_batch(alone, 3) == world_judge("one").score_batch(alone, 3)
        mixed = {"prompt": "q", "response_a": "a"}
        both = client.post("/v1/judge", json={"comparisons": [{**mixed, "id": "alone"}, {**mixed, "response_b": ""}]})
        one, two = both.json()["verdicts"]
        assert one["id"] == "alone" and "value" in one and two["verdict"] == "A"


def test_a_response_without_a_text_is_said_to_have_none_as_offline() -> None:
    rows = [Comparison.of("Why?", *texts) for texts in (("Because.", " "), ("", "Because."), ("", ""), ("No.", "Yes."))]
    with client_of(LongerJudge()) as client:
        served = through(client).compare_batch(rows)
    assert [prediction.forfeit for prediction in served] == [True, True, True, False]
    assert [str(prediction).partition(" (")[0] for prediction in served[:3]] == [
        "A: the other response has no text",
        "B: the other response has no text",
        "tie: neither response has a text",
    ]
    assert [str(prediction) for prediction in served] == [str(one) for one in LongerJudge().compare_batch(rows)]


def test_a_response_without_a_text_is_not_read() -> None:
    judge = Recording()
    with client_of(judge) as client:
        assert through(client).compare_batch([Comparison.of("Why?", "Because.", " ")])[0].verdict == "A"
    assert not judge.batches


def nemo(text: str) -> dict[str, Any]:
    """Return a response as NeMo Gym's policy gives it, with what it thought."""
    thought = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "a long thought " * 9}],
        "content": None,
    }
    parts = [{"type": "output_text", "text": part, "annotations": []} for part in (text[:1], text[1:])]
    return {"id": "r", "output": [thought, {"type": "message", "role": "assistant", "content": parts}]}


def test_responses_are_compared_as_nemo_gym_asks(client: TestClient) -> None:
    body = {
        "conversation_history": [{"role": "user", "content": "q"}],
        "response_objs": [*map(nemo, ("aa", "a", "aaa"))],
    }
    reply = client.post("/compare", json=body).json()
    assert reply["rewards"] == [0.5, 0.0, 1.0], "the answers' lengths, not the thoughts'"
    results = {(r["response_i"], r["response_j"]): r["ranking"] for r in reply["comparison_results"]}
    assert results == {(0, 1): 1.0, (0, 2): 6.0, (1, 2): 6.0}, "1: the first is much better"
    assert reply["metrics"] == {"comparisons": 3, "unreadable": 0}
    for objects, rewards in (([], []), ([nemo("a")], [None]), ([nemo("a")] * 2, [0.5, 0.5])):
        alone = client.post("/compare", json={**body, "response_objs": objects}).json()
        assert (alone["rewards"], alone["comparison_results"]) == (rewards, [])
    assert client.post("/compare", json={**body, "principle": ""}).status_code == 200, "none is given"
    refused = client.post("/compare", json={**body, "principle": "be short"})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "principle")
    long = client.post("/compare", json={**body, "response_objs": [nemo("a")] * 65})
    assert long.status_code == 422 and "at most 64" in long.text


def test_items_of_nemo_gym_need_no_type_and_unknown_ones_are_refused(client: TestClient, judge: Recording) -> None:
    def message(text: str) -> dict[str, Any]:
        return {"role": "assistant", "content": [{"type": "output_text", "text": text}]}

    request = {"conversation_history": [{"role": "user", "content": "q"}]}
    typed = [message("aa") | {"type": "message"}]
    untyped = [message("aaa")]
    for first, second, rewards in ((typed, untyped, [0.0, 1.0]), (untyped, typed, [1.0, 0.0])):
        answer = client.post(
            "/compare", json={**request, "response_objs": [{"output": first}, {"output": second}]}
        ).json()
        assert (answer["rewards"], answer["metrics"]["comparisons"]) == (rewards, 1)
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    around = [message("Let me see."), call, message("It is 3.")]
    client.post("/compare", json={**request, "response_objs": [{"output": around}, {"output": typed}]})
    assert "Let me see.\n\nCall of f: {}\n\nIt is 3." in judge.texts
    refused = client.post(
        "/compare", json={**request, "response_objs": [{"output": typed}, {"output": [{"type": "x"}]}]}
    )
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "response_objs[1].output")


def test_openrlhf_is_rewarded_for_the_answer_and_not_for_thoughts(client: TestClient) -> None:
    prompt = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
    answers = [f"<think>{'hm ' * 50}</think>aa", "aaa", f"<think>{'hm ' * 50}"]
    body = {"query": [f"{prompt}{answer}<|im_end|>" for answer in answers], "prompts": [prompt] * 3}
    assert client.post("/get_reward", json=body).json()["rewards"] == [0.5, 1.0, 0.0]


def test_what_cannot_be_read_is_absent_from_a_comparison_of_responses() -> None:
    class Sometimes(LongerJudge):
        goes_by_criteria = True
        judged_by: ClassVar[set[str]] = set()

        def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
            self.judged_by.update(c.rubric.criteria[0].text for c in comparisons if c.rubric)
            judged_pairs = zip(comparisons, super().compare_batch(comparisons, seed), strict=True)
            scored = {"score_a": 0.75, "score_b": 0.25, "margin": 2.0}
            return [
                replace(p, verdict_ba=None) if "lost" in c.response_a + c.response_b else replace(p, **scored)
                for c, p in judged_pairs
            ]

    with client_of(Sometimes()) as client:
        request = {"conversation_history": [{"role": "user", "content": "q"}], "principle": "- be short"}
        reply = client.post("/compare", json={**request, "response_objs": [*map(nemo, ("aa", "lost", "a"))]}).json()
        assert reply["rewards"][1] is None and {reply["rewards"][0], reply["rewards"][2]} == {1.0, 0.0}
        [result] = reply["comparison_results"]
        share = 1 / (1 + math.exp(-2.0))
        first = result["score_1"] == 4.0
        assert (result["score_1"], result["score_2"]) == ((4.0, 2.0) if first else (2.0, 4.0)), (
            "0.75 and 0.25 of 1 to 5"
        )
        assert result["ranking"] == pytest.approx(6 - 5 * (share if first else 1 - share))
        assert reply["metrics"] == {"comparisons": 3, "unreadable": 2} and Sometimes.judged_by == {"be short"}


@pytest.mark.parametrize("change", ["fewer", "more", "shuffled", "none", "no verdicts"])
def test_a_client_takes_no_verdicts_on_other_comparisons(change: str, client: TestClient) -> None:
    rows = [Comparison.of(f"q{i}", "a" * i, "aa") for i in range(4)]
    body = {"comparisons": [{**ROW, "id": c.id} for c in rows]}
    right = client.post("/v1/judge", json=body).json()["verdicts"]
    wrong = {"fewer": right[:3], "more": [*right, right[0]], "shuffled": right[::-1], "none": [], "no verdicts": [{}]}
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200, json={"verdicts": wrong[change]}))
    with RemoteJudge("http://127.0.0.1:1") as judge:
        judge._client = httpx2.Client(transport=answer)
        with pytest.raises(EngineError, match="4 comparisons were sent|holds no verdicts"):
            judge.compare_batch(rows)


def test_responses_that_come_one_by_one_are_gathered_to_groups() -> None:
    # Later versions of OpenRLHF send them so. The last one of a prompt waits no longer than it is told to.
    with client_of(LongerJudge(), group=3, group_wait=3) as client, ThreadPoolExecutor(8) as clients:
        texts = ["a", "aaa", "aa", "aaaa"]
        bodies = [{"query": ["p" + text], "prompts": ["p"], "labels": [None]} for text in texts[:3]]
        rewards = list(clients.map(lambda body: client.post("/get_reward", json=body).json()["rewards"], bodies))
        alone = client.post("/get_reward", json={"query": ["paaaa"], "prompts": ["p"], "labels": [None]}).json()
    assert rewards == [[0.0], [1.0], [0.5]]
    assert (alone["rewards"], alone["extra_logs"]["judge_read"]) == ([0.5], [0.0]), "it had nothing to be compared with"


@pytest.mark.parametrize("batch", [4, 64])
def test_groups_with_more_pairs_than_the_queue_has_room_for_are_rewarded_in_parts_which_wait(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PAUSE", 0.01)
    with client_of(LongerJudge(), queue=4, batch=batch) as client, ThreadPoolExecutor(4) as clients:
        body = {"query": ["p" + "a" * i for i in range(9)], "prompts": ["p"] * 9}
        for answer in clients.map(lambda _: client.post("/get_reward", json=body).json(), range(4)):
            assert answer["rewards"] == [i / 8 for i in range(9)]


def test_what_is_not_known_is_null() -> None:
    class Mute(LongerJudge):
        def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
            verdict = super().compare_batch(comparisons, seed)
            return [replace(p, verdict_ba=None, cost=Cost(float("nan"), 6, 2), score_a=0.75) for p in verdict]

    with client_of(Mute()) as client:
        verdict = client.post("/v1/judge", json=ROW).json()
    assert (verdict["verdict"], verdict["consistent"]) == ("unreadable", None), "as in Python"
    assert (verdict["score_a"], verdict["score_b"]) == (0.75, None)
    assert verdict["cost"] == {"prompt_tokens": None, "generated_tokens": 6, "calls": 2}


SHORT_AND_LONG = [
    {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]}
    for text in ("a", "bbb")
]
HISTORY = [{"role": "user", "content": "q"}]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        # What another endpoint calls so is no part of this one.
        (
            "/compare",
            {"conversation_history": HISTORY, "response_objs": SHORT_AND_LONG, "criteria": "short"},
            "criteria",
        ),
        ("/get_reward", {"query": ["pa", "pb"], "prompts": ["p", "p"], "reference": ["a", "b"]}, "reference"),
        ("/v1/judge", {"prompt": " ", "response_a": "a", "response_b": "b"}, "body"),
        (
            "/v1/judge",
            {"messages": [{"role": "user", "content": ""}], "response_a": "a", "response_b": "b"},
            "messages",
        ),
        (
            "/compare",
            {"conversation_history": [{"role": "user", "content": "\n"}], "response_objs": SHORT_AND_LONG},
            "conversation_history",
        ),
        (
            "/compare",
            {
                "conversation_history": HISTORY,
                "response_objs": [SHORT_AND_LONG[1], {"output": [*SHORT_AND_LONG[0]["output"], *HISTORY]}],
            },
            "response_objs[1].output",
        ),
    ],
)
def test_what_would_be_judged_without_a_part_of_the_request_is_refused(
    client: TestClient, path: str, body: dict[str, Any], field: str
) -> None:
    refused = client.post(path, json=body)
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, field)


def test_a_label_that_is_a_number_is_a_reference_as_its_text_is() -> None:
    with client_of(LongerJudge(), reward="anchor") as anchored:
        body = {"query": ["p7", "p12345"], "prompts": ["p", "p"], "labels": [123, 123.0]}
        by_number = anchored.post("/get_reward", json=body).json()
        assert by_number["rewards"] == [0.0, 1.0], "against three digits"
        assert anchored.post("/get_reward", json=body | {"labels": ["123", "123"]}).json() == by_number


class Deciding(LongerJudge):
    """Decides where one response is at least three characters longer."""

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        predictions = []
        for comparison, prediction in zip(comparisons, super().compare_batch(comparisons, seed), strict=True):
            distance = abs(len(comparison.response_a) - len(comparison.response_b))
            predictions.append(replace(prediction, decision="decided" if distance >= 3 else "undecided"))
        return predictions


def test_what_is_decided_is_said_by_both_endpoints() -> None:
    with client_of(Deciding()) as client:
        verdict = client.post("/v1/judge", json=ROW).json()
        close = client.post("/v1/judge", json=ROW | {"response_b": "Because!!"}).json()
        assert (verdict["decision"], close["decision"]) == ("decided", "undecided")
        responses = [nemo(text) for text in ("Because.", "No.", "Because!!")]
        history = [{"role": "user", "content": "Why?"}]
        answer = client.post("/compare", json={"conversation_history": history, "response_objs": responses}).json()
        assert answer["metrics"]["undecided"] == 1
        assert [result["decided"] for result in answer["comparison_results"]] == [1.0, 0.0, 1.0]
    with client_of(LongerJudge()) as client:
        assert client.post("/v1/judge", json=ROW).json()["decision"] is None
