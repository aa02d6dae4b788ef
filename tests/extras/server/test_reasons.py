"""Reasons for one request: a served judge writes them, or gives its scores alone, whatever the server is set to."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import WorldEngine
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.errors import ConfigError, EngineError
from judgetrain.extras.panels.judges import JuryJudge, Member
from judgetrain.extras.server.app import create_app
from judgetrain.extras.server.config import Limits, ServeConfig
from judgetrain.extras.server.service import Service
from judgetrain.judges import BranchingJudge, Judge, LongerJudge, load_judge
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.method import Method
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.saved import save_settings
from tests.extras.export.test_export import learned
from tests.extras.server.test_app import through

CRITERIA = [
    {"name": "Accuracy", "text": "what it says is right", "guideline": "5 if it is right throughout."},
    {"name": "Tone", "text": "it is polite", "guideline": "5 if it is."},
]
PAIR = eval_comparisons(WorldConfig(eval_comparisons=2), 5)[1]
QUERY = PAIR.dialogue.user_texts[-1]
RESPONSES = [PAIR.response_a, PAIR.response_b, f"{PAIR.response_a} a a"]
ROW = {"prompt": QUERY, "response_a": PAIR.response_a, "criteria": CRITERIA}
PAIR_ROW = ROW | {"response_b": PAIR.response_b}
START = f"<|im_start|>user\n{QUERY}<|im_end|>\n<|im_start|>assistant\n"
GROUP = {"query": [START + text for text in RESPONSES], "prompts": [START] * len(RESPONSES)}
COMPARED = {
    "conversation_history": [{"role": "user", "content": QUERY}],
    "response_objs": [{"output": [{"type": "message", "role": "assistant", "content": text}]} for text in RESPONSES],
    "principle": CRITERIA,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a judge that has learned to score one response."""
    directory = tmp_path_factory.mktemp("judge") / "model"
    for part in learned():
        part.save_pretrained(directory)
    load_prompt_set("compact").save(directory)
    save_settings(
        JudgeConfig(reads="one", judgment_tokens=48, criteria_tokens=48, guideline_tokens=32), directory, criteria=4
    )
    return directory


@pytest.fixture(scope="module")
def judge(trained: Path) -> Judge:
    return load_judge(trained, criteria=CRITERIA, retries=0)


def client_of(judge: Judge, reward: str = "round_robin", **limits: Any) -> TestClient:
    service = Service(judge, ServeConfig(reward=reward), 17, Limits(**limits))
    return TestClient(create_app(service), raise_server_exceptions=False)


@pytest.fixture
def client(judge: Judge) -> Iterator[TestClient]:
    with client_of(judge) as opened:
        yield opened


def texts_of(answer: Any) -> list[str]:
    return [reason["text"] for reason in answer.json()["reasons"]]


def test_one_request_has_scores_alone_and_the_next_one_reasons(client: TestClient) -> None:
    for row in (ROW, PAIR_ROW):
        served = client.post("/v1/judge", json=row)
        alone = client.post("/v1/judge", json=row | {"reasons": False})
        written = client.post("/v1/judge", json=row | {"reasons": True})
        assert all(len(text) == len("Score: 3") for text in texts_of(alone))
        assert all(len(text) > len("Score: 3") for text in texts_of(written))
        assert written.json() == served.json(), "as this server is set"
        assert alone.json()["cost"]["generated_tokens"] < written.json()["cost"]["generated_tokens"] / 4
        for short, long in zip(alone.json()["reasons"], written.json()["reasons"], strict=True):
            if long["failure"] is None:
                assert short["score_a"] == pytest.approx(long["score_a"], abs=1e-5)


def test_a_server_of_scores_alone_writes_reasons_when_it_is_asked(judge: Judge) -> None:
    with client_of(judge.writing(False)) as client:
        assert len(texts_of(client.post("/v1/judge", json=ROW))[0]) == len("Score: 3")
        assert len(texts_of(client.post("/v1/judge", json=ROW | {"reasons": True}))[0]) > len("Score: 3")


def test_rows_of_one_request_are_asked_alike(client: TestClient) -> None:
    rows = [ROW | {"id": "x"}, PAIR_ROW | {"id": "y"}]
    many = client.post("/v1/judge", json={"comparisons": rows, "reasons": False}).json()["verdicts"]
    assert {len(reason["text"]) for verdict in many for reason in verdict["reasons"]} == {len("Score: 3")}
    refused = client.post("/v1/judge", json={"comparisons": [ROW | {"reasons": False}]})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "comparisons[0].reasons")
    assert client.post("/v1/judge", json=ROW | {"reasons": "no"}).json()["error"]["field"] == "reasons"


def test_requests_of_one_moment_get_what_each_asked_for(judge: Judge) -> None:
    with client_of(judge, wait=0.5) as client, ThreadPoolExecutor(6) as clients:
        wanted = [True, False, None] * 2
        answers = list(clients.map(lambda value: client.post("/v1/judge", json=ROW | {"reasons": value}), wanted))
    lengths = [len(texts_of(answer)[0]) > len("Score: 3") for answer in answers]
    assert lengths == [True, False, True] * 2


def written_tokens(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the tokens of every judgment of one response that the model writes from now on."""
    tokens: list[int] = []
    forward = TransformersEngine.generate

    def counted(self: TransformersEngine, requests: Any, seed: int) -> Any:
        completions = forward(self, requests, seed)
        for request, completion in zip(requests, completions, strict=True):
            if request.step == "score":
                tokens.append(completion.generated_tokens)
        return completions

    monkeypatch.setattr(TransformersEngine, "generate", counted)
    return tokens


@pytest.mark.parametrize(
    ("path", "body", "reward"),
    [("/get_reward", GROUP, "score"), ("/get_reward", GROUP, "round_robin"), ("/compare", COMPARED, "round_robin")],
)
def test_rewards_of_one_request_need_no_text(
    judge: Judge, path: str, body: dict[str, Any], reward: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = written_tokens(monkeypatch)
    with client_of(judge, reward) as client:
        client.post(path, json=body)
        assert max(tokens) > 1, "as this server is set"
        tokens.clear()
        alone = client.post(path, json=body | {"reasons": False})
        assert alone.status_code == 200 and set(tokens) == {1}
        tokens.clear()
        client.post(path, json=body | {"reasons": True})
    assert max(tokens) > 1


def world_judge() -> BranchingJudge:
    """Return a judge whose engine cannot go on from the beginning of a reply."""
    options = JudgeOptions.of(JudgeConfig(reads="one", score="expected"), 3)
    return BranchingJudge(WorldEngine(WorldEngineConfig()), load_prompt_set("compact"), options, "world")


def test_what_cannot_be_scored_without_text_is_refused_in_words(judge: Judge) -> None:
    assert isinstance(judge, BranchingJudge)
    two = BranchingJudge(judge.engine, judge.prompts, replace(judge.options, reads="two"), "two")
    frames = {**judge.prompts.frames, "score": r"Analysis: [^\n]{1,{width}}\nScore: [1-5]"}
    reasons_first = BranchingJudge(judge.engine, replace(judge.prompts, frames=frames), judge.options, "first")
    jury = JuryJudge([Member(Method.parse("longer"), load_judge)], "jury:x")
    cases: list[tuple[Judge, str]] = [
        (two, "needs a judge that reads one response"),
        (LongerJudge(), "longer gives no scores without text"),
        (world_judge(), "world cannot have its model go on from the beginning of a reply"),
        (jury, "jury:x asks several judges"),
        (reasons_first, "give reasons before the score"),
    ]
    bodies = [("/v1/judge", PAIR_ROW), ("/get_reward", GROUP), ("/compare", COMPARED)]
    for refusing, message in cases:
        assert not refusing.scores_alone
        with client_of(refusing) as client:
            for path, body in bodies:
                sent = {name: value for name, value in body.items() if name not in ("criteria", "principle")}
                answer = client.post(path, json=sent | {"reasons": False})
                assert (answer.status_code, answer.json()["error"]["field"]) == (422, "reasons"), answer.text
                assert message in answer.json()["error"]["message"]


def test_a_remote_judge_asks_as_it_is_told(judge: Judge) -> None:
    with client_of(judge) as client:
        remote = through(client)
        alone = remote.writing(False)(QUERY, PAIR.response_a, criteria=CRITERIA)
        assert {len(reason.text) for reason in alone.reasons} == {len("Score: 3")}
        explained = remote.explain(QUERY, PAIR.response_a, criteria=CRITERIA)
    assert len(explained.reasons[0].text) > len("Score: 3")
    with client_of(LongerJudge()) as client, pytest.raises(EngineError, match="422: reasons=false: longer gives no"):
        through(client).writing(False)("q", "a", "b")


def test_members_of_a_jury_explain_themselves(judge: Judge) -> None:
    members = [Member(Method.parse(name), lambda _: judge.writing(False)) for name in ("a/a", "a/b")]
    jury = JuryJudge(members, "jury:x")
    assert {len(reason.text) for reason in jury(QUERY, PAIR.response_a).reasons} == {len("Score: 3")}
    explained = jury.explain(QUERY, PAIR.response_a)
    assert len(explained.reasons) == 4 and all(len(reason.text) > len("Score: 3") for reason in explained.reasons)
    with pytest.raises(ConfigError, match="put \\+scores behind the names of its members"):
        jury.writing(False)


def test_the_page_offers_the_choice_where_there_is_one(judge: Judge) -> None:
    for offered, shown in ((judge, True), (LongerJudge(), False)):
        with client_of(offered) as client:
            assert ('<select name="reasons">' in client.get("/").text) is shown
