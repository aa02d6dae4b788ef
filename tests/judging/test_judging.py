"""Stage judge: what it writes, what it keeps, what it tells, and what it refuses."""

import json
import os
import random
import signal
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.engines import lazy_model
from judgetrain.engines.base import Request
from judgetrain.engines.openai import gate
from judgetrain.errors import ConfigError, DataError, EngineError
from judgetrain.judges import load_judge
from judgetrain.judging import stage as judging
from judgetrain.judging.items import read_items
from judgetrain.pipeline.run import Pipeline
from tests.builders.debug_run import command, forked, lasting
from tests.builders.faulty_server import serving
from tests.builders.judging import judge_stage, judged, lines
from tests.builders.pages import parse
from tests.builders.pipeline import configured, judgetrain
from tests.builders.scripted import ScriptedEngine, criteria
from tests.builders.scripted import judged as judgment

GOOD = {"query": "how do i cook apple cake ?", "response_a": "use cups of warm water.", "response_b": "fun ."}
FIELDS = tuple(
    (
        "id dialogue_id messages response_a response_b model_a model_b verdict verdict_ab verdict_ba decision "
        "score_a score_b margin share_read reasons not_judged failures judge asked plan branches cost group label "
        "failure"
    ).split()
)


def file_of(directory: Path, count: int = 3) -> str:
    rows = [{**GOOD, "id": i, "response_b": "ten letters" * i + "."} for i in range(count)]
    return f"verdicts.source.path={lines(directory / 'mine.jsonl', rows)}"


def test_a_file_comes_out_as_verdicts_in_its_order_and_a_row_that_cannot_be_judged_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": i, **GOOD, **more} for i, more in enumerate(({}, {"response_a": ""}, {"response_b": 3}, {}))]
    path = lines(tmp_path / "mine.jsonl", rows)
    directory = judge_stage(tmp_path / "out", f"verdicts.source.path={path}", "verdicts.shard_size=1")
    verdicts = list(read_rows(directory, "verdicts"))
    assert [tuple(row) for row in verdicts] == [FIELDS] * 4
    assert [(row["id"], row["verdict"], (row["failure"] or "").partition(":")[0]) for row in verdicts] == [
        *(("mine:0", "A", ""), ("mine:1", "B", ""), ("mine:2", None, "wrong_type"), ("mine:3", "A", ""))
    ]
    assert verdicts[0]["messages"] == [{"role": "user", "content": GOOD["query"]}] and verdicts[0]["judge"] == "longer"
    manifest, summary = (json.loads((directory / f"{name}.json").read_text()) for name in ("manifest", "summary"))
    assert manifest["counts"] == {"in": 4, "out": 3, "dropped": {"wrong_type": 1}}
    assert summary["failures"] == {"wrong_type": 1}
    printed = capsys.readouterr().out
    assert (
        "1 comparison holds an empty response, which loses" in printed and str(directory / "verdicts.jsonl") in printed
    )


def test_who_judges_has_to_be_said(tmp_path: Path) -> None:
    done = judgetrain("judge", file_of(tmp_path), "output_dir=out", cwd=tmp_path)
    assert done.returncode == 2 and not (tmp_path / "out" / "artifacts").exists(), "nothing is trained unasked"
    assert "verdicts.judge is empty" in done.stderr and "judge verdicts.judge=./my-judge@3 verd" in done.stderr
    done = judgetrain("judge", file_of(tmp_path), "verdicts.judge=longer", "output_dir=/proc/x", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "/proc/x cannot be used" in done.stderr


def test_verdicts_are_those_of_the_judge_in_python(tmp_path: Path) -> None:
    overrides = (file_of(tmp_path, 5), "verdicts.shard_size=2")
    directory = judge_stage(tmp_path / "out", *overrides, judge="scorer:sentprob")
    rows = list(read_rows(directory, "verdicts"))
    config = configured("recipe=debug", *overrides)
    shown = [item.comparison for item in read_items(config.verdicts, None, 1)]
    alone = [load_judge("scorer:sentprob", model="world").compare(c) for c in shown]
    assert [row["verdict"] for row in rows] == [p.verdict for p in alone]
    assert [row["margin"] for row in rows] == pytest.approx([p.margin for p in alone], abs=1e-4)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    async def at_once(self: object, ended: object, seconds: float) -> None:
        return None

    monkeypatch.setattr(gate.Clock, "wait", at_once)
    with serving() as listening:
        yield listening


def external(server: Any) -> tuple[str, ...]:
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    return (f"evaluate.external={{type: openai, model: m, base_url: '{url}', api_key_env: '', concurrency: 1}}",)


def test_what_an_endpoint_refuses_is_a_row_with_its_reason(server: Any, tmp_path: Path) -> None:
    server.reply = lambda text: "[[A]]"
    path = lines(tmp_path / "mine.jsonl", [GOOD, {**GOOD, "query": "something refused"}, GOOD])

    class Refusing(dict):
        def get(self, text: str, default: object = None) -> list[Any]:
            return [(400, {}, json.dumps({"error": {"message": "content policy"}}))] if "refused" in text else []

    server.faults = Refusing()
    overrides = (f"verdicts.source.path={path}", *external(server))
    rows = judged(tmp_path / "out", *overrides, judge="pairwise:external")
    assert [(row["verdict"], row["failure"]) for row in rows] == [
        *(("inconsistent", None), (None, "refused"), ("inconsistent", None))
    ]
    assert rows[0]["reasons"][0]["text"] == "[[A]]" and rows[0]["cost"]["calls"] == 1


def test_a_limit_ends_the_run_with_what_was_judged_and_raising_it_goes_on(
    server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.reply = lambda text: "[[B]]"
    overrides = (file_of(tmp_path, 6), "verdicts.shard_size=2", *external(server))
    with pytest.raises(EngineError, match=r"verdicts\.max_requests=9: so many are sent; every answer is kept"):
        judge_stage(tmp_path / "out", *overrides, "verdicts.max_requests=9", judge="pairwise:external")
    (kept,) = (tmp_path / "out").glob("artifacts/judge/*/verdicts.jsonl")
    assert len(kept.read_text().splitlines()) == 4
    assert "judge: 4 of 6 rows are judged" in capsys.readouterr().out
    rows = judged(tmp_path / "out", *overrides, "verdicts.max_requests=20", judge="pairwise:external")
    assert len(rows) == 6 and len(server.bodies) == 12, "no request was sent twice"
    assert rows[:4] == [json.loads(line) for line in kept.read_text().splitlines()][:4]


def test_the_first_comparisons_stand_on_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "SHOWN", 2)
    directory = judge_stage(tmp_path / "out", judge="pairwise:external")
    page = parse((directory / "verdicts.html").read_text()).text()
    first, second, third = list(read_rows(directory, "verdicts"))[:3]
    for row in (first, second):
        texts = (
            row["messages"][0]["content"],
            row["response_a"],
            row["response_b"],
            row["reasons"][0]["text"],
            row["id"],
        )
        assert row["verdict"] and all(text and text in page for text in texts)
    assert third["id"] not in page and "A shown first: " in page
    page = parse((judge_stage(tmp_path / "one", judge="pointwise:external") / "verdicts.html").read_text()).text()
    assert "each response read by itself, so in no order" in page and "A shown first: " not in page


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["verdicts.judge=surface"], r"verdicts\.judge='surface': no judge of comparisons without labels; allowed are"),
        (["verdicts.judge=stored:x"], r"verdicts\.judge='stored:x': no judge"),
        (["verdicts.judge=scorer:softmax_combo"], r"verdicts\.judge='scorer:softmax_combo': it compares all items"),
        (["verdicts.judge=./none"], r"verdicts\.judge='\./none': no such file"),
        (["verdicts.judge=me/judge"], r"verdicts\.judge='me/judge': .*HF_HUB_OFFLINE"),
        (["verdicts.judge=dpo@9"], r"verdicts\.judge='dpo@9': 9 branches; allowed are 1 to tree\.criteria=4"),
        (["verdicts.source.path=none.jsonl"], r"verdicts\.source\.path='none\.jsonl': no such file"),
        (["verdicts.source={type: jsonl}"], r"verdicts\.source\.path is empty: name a file of comparisons"),
        (["verdicts.baseline=x"], r"verdicts\.baseline is one of several systems"),
        (["verdicts.source={type: hub}"], r"verdicts\.source\.path is empty"),
        (["verdicts.source={adapter: mt_bench_human, path: x}"], r"verdicts\.source\.adapter=mt_bench_human: its rows"),
    ],
)
def test_what_cannot_be_judged_is_refused_before_anything_runs(
    overrides: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        judge_stage(tmp_path, *overrides)
    assert not list(tmp_path.glob("artifacts/*"))


def test_the_longest_prompts_are_too_long_not_unreadable(tmp_path: Path) -> None:
    path = lines(tmp_path / "mine.jsonl", [{**GOOD, "query": "how do i cook apple cake ? " * 400}])
    directory = judge_stage(tmp_path / "out", f"verdicts.source.path={path}", judge="pairwise:base")
    (row,) = read_rows(directory, "verdicts")
    assert (row["verdict"], row["failure"], row["failures"]) == (None, "too_long", {"too_long": 2})


ROWS = 24


def test_a_run_that_was_killed_and_goes_on_ends_with_the_same_file(tmp_path: Path) -> None:
    """``kill -9`` after some shards; a judge with weights that samples: what depends on chance shows."""
    queries = ("how do i cook apple cake ?", "why is my cat sad ?", "can you plan a trip ?")
    rows = [
        {
            "query": queries[i % 3],
            "response_a": "use three cups of warm water .",
            "response_b": f"it takes {i} minutes .",
        }
        for i in range(ROWS)
    ]
    source = lines(tmp_path / "mine.jsonl", rows)
    whole, killed = (
        [
            *("recipe=debug", "track.tracker=none", f"output_dir={tmp_path / name}", "verdicts.judge=base+sampled"),
            *("judge.criteria_tokens=16", "judge.guideline_tokens=12", "judge.judgment_tokens=24"),
            *(f"verdicts.source.path={source}", "verdicts.shard_size=4"),
        ]
        for name in ("whole", "killed")
    )
    Pipeline(configured(*whole), Console()).run("judge")
    moment = random.Random().randrange(1, ROWS // 4)
    until = time.monotonic() + 1200
    process = forked(tmp_path / "log", command, {}, tmp_path, "judge", *killed)
    try:
        while len(done := list((tmp_path / "killed").glob("artifacts/judge/*/.judged-*.json"))) < moment:
            assert process.is_alive() and time.monotonic() < until, "it ended before it was to be killed"
            time.sleep(0.005)
    finally:
        process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (place,) = (tmp_path / "killed").glob("artifacts/judge/*")
    assert not (place / "manifest.json").exists()
    before = {path: path.stat().st_mtime_ns for path in done}
    printed = StringIO()
    with redirect_stdout(printed):
        assert Pipeline(configured(*killed), Console()).run("judge") == place
    assert "judge: resuming" in printed.getvalue()
    assert before == {path: os.stat(path).st_mtime_ns for path in before}, "finished shards are not made again"
    assert lasting(tmp_path / "killed") == lasting(tmp_path / "whole"), f"killed after {moment} shards"


def answer(request: Request, occurrence: int) -> str:
    """Scores a response by its number of words, and one that says "right" with 5."""
    if request.step == "criteria":
        return criteria(10)
    if request.step == "guideline":
        return "by the words"

    def score(text: str) -> int:
        return 5 if "right" in text else min(5, len(text.split()))

    if request.step == "score":
        return f"Score: {score(request.slots['response'])}\nAnalysis: x"
    return judgment(score(request.slots["response_a"]), score(request.slots["response_b"]))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ScriptedEngine:
    scripted = ScriptedEngine(answer)
    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: scripted)
    return scripted


def run(directory: Path, rows: list[dict[str, object]], *overrides: str) -> Path:
    source = f"verdicts.source.path={lines(directory / 'mine.jsonl', rows)}"
    return judge_stage(directory / "out", source, "judge.score=parsed", *overrides, judge="base")


GROUP = {"id": "g", "query": "q", "responses": ["one", "one two three", " "]}
ALONE = {"id": "s", "query": "q2", "response": "is right"}


def test_responses_are_scored_and_ranked_each_by_itself(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = {"id": "e", "query": "q", "responses": ["", " "]}
    directory = run(tmp_path, [GROUP, ALONE, bad], "judge.reads=one", "verdicts.shard_size=1")
    rows = list(read_rows(directory, "scores"))
    assert [(row["id"], row["place"], row["score"], row["rank"]) for row in rows] == [
        ("mine:g", 0, 0.0, 2), ("mine:g", 1, 0.5, 1), ("mine:g", 2, 0.0, 2), ("mine:s", 0, 1.0, 1),
        ("mine:e", 0, None, None),
    ]  # fmt: skip
    assert rows[4]["failure"].startswith("empty_response") and "no response holds a text" in rows[4]["failure"]
    assert [r.step for r in engine.requests].count("score") == 3, (
        "one criterion, a judgment a response; what is empty loses unasked"
    )
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["counts"] == {"in": 3, "out": 4, "dropped": {"empty_response": 1}}
    assert not (directory / "verdicts.jsonl").exists() and str(directory / "scores.jsonl") in capsys.readouterr().out


def test_a_rows_own_criteria_come_before_the_files(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.yaml").write_text("- {name: Length, text: it is long, weight: 2, guideline: g}\n")
    row_criteria = [{"criterion": "Says hello", "points": 3}, {"criterion": "Is rude", "points": -1}]
    rows = [{**ALONE, "criteria": row_criteria}, GROUP, {**ALONE, "id": "j", "criteria": json.dumps(row_criteria)}]
    scores = list(read_rows(run(tmp_path, rows, "judge.reads=one", f"criteria={tmp_path / 'r.yaml'}"), "scores"))
    criteria_of = {
        row["id"]: [(r["name"] or r["criterion"], r["weight"]) for r in row["reasons"]]
        for row in scores
        if row["response"] != " "
    }
    assert criteria_of["mine:s"] == criteria_of["mine:j"] == [("Says hello", 3.0), ("Is rude", -1.0)]
    assert criteria_of["mine:g"] == [("Length", 2.0)]
    assert "2 of 3 rows bring criteria, which take the place of those of" in capsys.readouterr().out
    assert {r.step for r in engine.requests} == {"score"}, "nothing else has to be written"


def test_pairs_go_by_criteria_too_and_a_column_that_nothing_reads_is_named(
    tmp_path: Path, engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = {"query": "q", "response_a": "one", "response_b": "is right", "reference": "yes", "note": 1}
    rows = [{**pair, "criteria": ["Is right.", "Is kind."]}, pair]
    verdicts = list(read_rows(run(tmp_path, rows), "verdicts"))
    assert [row["verdict"] for row in verdicts] == ["B", "B"]
    assert [[r["source"] for r in row["reasons"]] for row in verdicts] == [["given"] * 4, ["judge"] * 2]
    assert (verdicts[0]["score_a"], verdicts[0]["score_b"]) == (0.0, 1.0)
    assert all("yes" in request.messages[-1]["content"] for request in engine.requests), "the reference"
    assert "columns that are not used (rows): note (2)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "overrides", "message"),
    [
        ([GROUP, ALONE], [], "2 of 2 rows hold one response.*judge.reads=one"),
        ([GROUP, {"query": "q", "response_a": "x", "response_b": "y"}], ["judge.reads=one"], "a file|its own file"),
        ([{**ALONE, "criteria": []}], ["judge.reads=one"], "mine.jsonl:1.*criteria: a rubric needs a criterion"),
        ([{**ALONE, "responses": "[1"}], ["judge.reads=one"], "expected a list of texts in field responses"),
        ([ALONE], ["judge.reads=one", "criteria=none.yaml"], "criteria=none.yaml: there is no such file"),
        ([{**GOOD, "criteria": ["c"]}], ["verdicts.judge=longer"], "1 of 1 row brings criteria"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_so_is_refused_with_the_remedy(
    rows: list[dict[str, object]], overrides: list[str], message: str, tmp_path: Path, engine: ScriptedEngine
) -> None:
    with pytest.raises((ConfigError, DataError), match=f"(?s){message}"):
        run(tmp_path, rows, *overrides)
