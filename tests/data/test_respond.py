"""Responses and pairs: distinct models, nothing identical, the same draw in every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data import responses as respond
from judgetrain.data.config import ResponseModelConfig, ResponsesConfig, WorldConfig, WorldEngineConfig
from judgetrain.data.responses import pair
from judgetrain.data.world import train_dialogues, true_verdict
from judgetrain.engines.base import Completion, Request
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.errors import DataError, EngineError
from judgetrain.schema import Comparison, Dialogue, Message
from tests.builders.data import run_responses
from tests.builders.faulty_server import serving
from tests.builders.watched import spread

DIALOGUES = [Dialogue(f"d{i}", "s", (Message("user", "q"),)) for i in range(200)]


def test_pairs_are_of_different_models_in_random_order_and_independent_of_company() -> None:
    responses = {m: {d.id: f"{m} {d.id}" for d in DIALOGUES} for m in ("x", "y", "z")}
    pairs = list(pair(DIALOGUES, responses, 5, Counter()))
    assert len(pairs) == 200
    assert all(c.model_a != c.model_b and c.response_a.startswith(c.model_a) for c in pairs)
    seen = Counter((c.model_a, c.model_b) for c in pairs)
    assert len(seen) == 6
    assert min(seen.values()) > 15
    assert list(pair(DIALOGUES[50:60], responses, 5, Counter())) == pairs[50:60]


def test_empty_and_identical_responses_are_left_out_and_counted() -> None:
    responses = {"x": {"d0": "same", "d1": "a", "d2": " "}, "y": {"d0": "same ", "d1": "b", "d2": "c"}}
    dropped: Counter[str] = Counter()
    assert [c.id for c in pair(DIALOGUES[:3], responses, 0, dropped)] == ["d1"]
    assert dropped == {"identical_responses": 1, "empty_response": 1}


def prepare(tmp_path: Path, comparisons: list[dict] | None = None) -> dict[str, Path]:
    dialogues = train_dialogues(WorldConfig(train_dialogues=40), 0)
    for name, rows in (
        ("cluster", {"sample": [d.to_row() for d in dialogues]}),
        ("dialogues", {"comparisons": comparisons or []}),
    ):
        out = StageRun(tmp_path / name, name, 0, Console())
        for file, content in rows.items():
            out.write_rows(file, content)
    return {"cluster": tmp_path / "cluster", "dialogues": tmp_path / "dialogues"}


@pytest.mark.parametrize("skills", [[0.9], [0.9, 0.2], [0.9, 0.5, 0.2]])
def test_the_stage_with_the_worlds_writers(skills: list[float], tmp_path: Path) -> None:
    models = [ResponseModelConfig(name=f"w{s}", engine=WorldEngineConfig(skill=s)) for s in skills]
    out = run_responses(tmp_path / "responses", ResponsesConfig(models), prepare(tmp_path))
    rows = list(read_rows(out.directory, "comparisons"))
    assert 30 <= len(rows) <= 40
    assert all(r["model_a"] != r["model_b"] for r in rows)
    for c in map(Comparison.from_row, rows):
        assert c.label == true_verdict(c.dialogue.query, c.response_a, c.response_b), "the world's truth"
    assert out.notes["pairs"]["comparisons"] == len(rows)


def test_without_models_and_without_responses_the_reason_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no_responses"):
        run_responses(tmp_path / "responses", ResponsesConfig(), prepare(tmp_path))


def test_sampled_dialogues_without_responses_are_counted_beside_those_that_have_them(tmp_path: Path) -> None:
    dialogues = train_dialogues(WorldConfig(train_dialogues=40), 0)
    pairs = [("good", "bad"), ("same", " same "), ("", "some")]
    rows = [Comparison(d.id, d, a, b).to_row() for d, (a, b) in zip(dialogues, pairs, strict=False)]
    out = run_responses(tmp_path / "responses", ResponsesConfig(), prepare(tmp_path, rows))
    assert out.notes["pairs"] == {
        "comparisons": 1,
        "identical_responses": 1,
        "empty_response": 1,
        "no_responses": len(dialogues) - 3,
    }
    counts = out.totals()["counts"]
    assert counts["in"] == counts["out"] + sum(counts["dropped"].values()) == len(dialogues)


class Cut:
    """A writer that is cut at the token limit by every third dialogue, and counts how often it is made."""

    made = 0
    name = "cut"

    def __init__(self, name: str) -> None:
        type(self).made += 1
        self._name = name

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        return [
            Completion(
                text=f"{self._name} {i}",
                prompt_tokens=1,
                generated_tokens=1,
                finish_reason="length" if i % 3 == 0 else "stop",
            )
            for i in range(len(requests))
        ]

    def close(self) -> None: ...


def test_cut_responses_are_kept_and_counted_and_finished_models_are_not_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(respond, "make_engine", lambda config, name, **options: Cut(name))
    config = ResponsesConfig([ResponseModelConfig(name=name, engine=WorldEngineConfig()) for name in "xy"])
    inputs = prepare(tmp_path)
    Cut.made = 0
    out = run_responses(tmp_path / "responses", config, inputs)
    rows = list(read_rows(out.directory, "comparisons"))
    assert len(rows) == 40, "cut responses stay"
    assert out.notes["cut_at_max_new_tokens"] == {"x": 14, "y": 14}
    assert Cut.made == 2
    (out.directory / "comparisons.jsonl").unlink()
    again = run_responses(tmp_path / "responses", config, inputs)
    assert Cut.made == 2, "every shard is there"
    assert list(read_rows(out.directory, "comparisons")) == rows
    assert again.totals() == out.totals()


def test_workers_share_what_local_models_answer_beside_one_that_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = spread(monkeypatch)
    with serving() as server:
        api = OpenAIEngineConfig(model="m", base_url=f"http://127.0.0.1:{server.server_port}/v1")
        models = [
            ResponseModelConfig(name="api", engine=api),
            ResponseModelConfig(name="here", engine=WorldEngineConfig(skill=0.5)),
        ]
        server.reply = lambda text: f"{len(server.bodies)}"
        out = run_responses(tmp_path / "a", ResponsesConfig(models), prepare(tmp_path), tmp_path / "outputs")
        assert out.notes["spent"]["requests"] == len(server.billed) == 40
    assert shared == {"responses-api": False, "responses-here": True}


def test_external_models_keep_to_a_budget_and_are_paid_for_once(tmp_path: Path) -> None:
    with serving() as server:
        api = OpenAIEngineConfig(model="m", base_url=f"http://127.0.0.1:{server.server_port}/v1")
        config = ResponsesConfig([ResponseModelConfig(name="api", engine=api)], max_requests=50)
        server.reply = lambda text: f"{len(server.bodies)}"
        with pytest.raises(EngineError, match=r"responses\.max_requests=50 requests are sent"):
            run_responses(tmp_path / "a", config, prepare(tmp_path), tmp_path / "outputs")
        config.max_requests = 80
        out = run_responses(tmp_path / "a", config, prepare(tmp_path), tmp_path / "outputs")
        assert out.notes["spent"]["requests"] == 80
        run_responses(tmp_path / "b", config, prepare(tmp_path), tmp_path / "outputs")
        assert len(server.billed) == 80, "one model answers 40 dialogues twice"
        assert len({(b["messages"][-1]["content"], b["seed"]) for b in server.billed}) == 80
    texts = [list(read_rows(tmp_path / a, "responses-api-1")) for a in "ab"]
    assert texts[0] == texts[1]
