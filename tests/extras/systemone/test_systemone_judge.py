"""Decision models of others as judges: what they are asked, and what their probabilities become."""

import json
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.errors import ConfigError, EngineError
from judgetrain.extras.systemone import judge as judge_module
from judgetrain.extras.systemone.judge import LEVELS, SystemOneJudge
from judgetrain.judges import load_judge
from judgetrain.pipeline.run import Pipeline
from tests.builders.judging import judge_stage, lines
from tests.builders.pipeline import configured
from tests.builders.scripted import comparison
from tests.builders.unopening import unopening
from tests.extras.server.test_systemone import Unsure, judge, url

__all__ = ["judge", "url"]


def answering(answer: Any, requests: list[Any], status: int = 200) -> SystemOneJudge:
    """Return a judge whose server gives one answer to everything."""
    made = SystemOneJudge("http://decides#m", "systemone:http://decides")

    def reply(request: httpx2.Request) -> httpx2.Response:
        requests.append(json.loads(request.content))
        body = {"answers": {"q": answer}, "usage": {"input_tokens": 30, "output_tokens": 2}}
        return httpx2.Response(status, json=body)

    made._client = httpx2.Client(transport=httpx2.MockTransport(reply))
    return made


def test_both_orders_are_asked_and_a_preference_for_the_first_cancels() -> None:
    requests: list[Any] = []
    first = answering({"probabilities": {"A": 0.7, "B": 0.3}}, requests)
    verdict = first("Why?", "Because.", "No.")
    assert verdict.verdict == "inconsistent" and verdict.margin == pytest.approx(0.0)
    states = [(r["state"]["response_a"], r["state"]["response_b"]) for r in requests]
    assert states == [("Because.", "No."), ("No.", "Because.")]
    assert requests[0]["state"]["query"] == "Why?" and requests[0]["model"] == "m"
    assert verdict.whole_cost.prompt_tokens == 60 and verdict.whole_cost.calls == 2


def test_a_score_is_the_expected_level() -> None:
    requests: list[Any] = []
    answer = {"score": 1.0, "probabilities": {str(place): chance for place, chance in enumerate((0, 0, 0.5, 0.5, 0))}}
    score = answering(answer, requests)("Why?", "Because.")
    assert score.value == pytest.approx(2.5 / 4)
    assert requests[0]["questions"]["q"]["criteria"] == list(LEVELS)


@pytest.mark.parametrize("answer", [{}, {"probabilities": {"A": 1}}, {"probabilities": {"A": 0, "B": 0}}, None])
def test_an_answer_without_probabilities_is_an_error(answer: Any) -> None:
    with pytest.raises(EngineError, match="expected probabilities of A, B"):
        answering(answer, [])("q", "a", "b")


def test_a_refusal_is_told_and_not_sent_again() -> None:
    requests: list[Any] = []
    with pytest.raises(EngineError, match="status 401"):
        answering({}, requests, 401)("q", "a")
    assert len(requests) == 1


def test_a_server_that_never_opens_a_connection_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and not once a try (5) and row (40 rows, 8 at a time): 25 limits."""
    monkeypatch.setattr(judge_module, "CONNECTING", 1.0)
    rows = [comparison(place) for place in range(40)]
    with unopening() as address:
        unreached = SystemOneJudge(address, "systemone:unopening")
        started_at = time.monotonic()
        with pytest.raises(EngineError, match=r"/v1/systemone: no connection within 1 s; check that a server runs"):
            unreached.compare_batch(rows)
        assert 1 <= time.monotonic() - started_at < 10


def test_where_nothing_listens_it_says_so_and_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries after 1, 2, 4 and 8 seconds took 15, and said ``Connection refused`` alone."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("[Errno 111] Connection refused")

    monkeypatch.setattr(judge_module.time, "sleep", sleep)
    monkeypatch.setattr(judge_module.time, "monotonic", lambda: now)
    unreached = SystemOneJudge("http://nobody", "systemone:http://nobody")
    unreached._client = httpx2.Client(transport=httpx2.MockTransport(refuse))
    with pytest.raises(EngineError, match="Connection refused; nothing seems to listen there: start the server, or"):
        unreached("q", "a", "b")
    assert now <= judge_module.FIRST_CONTACT
    # A server that has answered may be starting anew.
    unreached._is_reached = True
    with pytest.raises(EngineError, match="Connection refused$"):
        unreached("q", "a", "b")
    assert now > 15


@pytest.mark.parametrize("name", ["systemone:", "systemone:localhost", "systemone:http://user:pw@host"])
def test_what_is_no_address_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        load_judge(name)


def test_our_own_server_is_asked_by_stages_and_python(url: str, judge: Unsure, tmp_path: Path) -> None:
    rows = [{"query": f"q{i}", "response_a": "right it is", "response_b": "left", "label": "A"} for i in range(12)]
    file = lines(tmp_path / "mine.jsonl", rows)
    verdicts = list(
        read_rows(judge_stage(tmp_path, f"verdicts.source.path={file}", judge=f"systemone:{url}"), "verdicts")
    )
    # Its options are the words of the question, which this judge rates alike.
    assert {row["verdict"] for row in verdicts} == {"tie"}
    single = lines(
        tmp_path / "one.jsonl", [{"query": "q", "response": "right it is"}, {"query": "q", "response": "no"}]
    )
    scores = list(
        read_rows(judge_stage(tmp_path, f"verdicts.source.path={single}", judge=f"systemone:{url}"), "scores")
    )
    assert scores[1]["score"] == pytest.approx(0.5)
    benchmark = f"evaluate.benchmarks=[{{name: mine, source: {{path: '{file}'}}}}]"
    words = ["recipe=debug", f"output_dir={tmp_path / 'e'}", "track.tracker=none", "robustness.sample=0", benchmark]
    run = Pipeline(configured(*words, f"evaluate.methods=['systemone:{url}',longer]"), Console()).run("evaluate")
    of_model, _ = json.loads((run / "metrics.json").read_text())
    assert of_model["n"] == 12 and of_model["prompt_tokens"] == 40
