"""The teacher behind a server that fails: all items complete, nothing is paid twice, no key in any file or line."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.engines import answers
from judgetrain.engines.answers import described
from judgetrain.engines.config import WORLD_BASE, OpenAIEngineConfig, SamplingConfig
from judgetrain.engines.loading import load_tokenizer
from judgetrain.engines.openai import engine as openai_engine
from judgetrain.engines.openai.gate import Clock
from judgetrain.errors import DataError, EngineError
from judgetrain.judges.config import TreeConfig
from judgetrain.judges.prompting.prompts import judgment_slots, load_prompt_set
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label import teacher_stage
from judgetrain.label.config import TeacherConfig
from judgetrain.label.stages import TeacherSettings
from judgetrain.label.teacher_stage import estimate
from judgetrain.pipeline.config import Config
from tests.builders.faulty_server import KEY, FaultyServer, serving
from tests.builders.scripted import criteria, judged
from tests.builders.train import templated

COMPARISONS = eval_comparisons(WorldConfig(eval_comparisons=10), seed=5)


def reply(text: str) -> str:
    if text.startswith("List "):
        return criteria(4)
    return "Full marks for all of it." if text.startswith("Write ") else judged(4, 2)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setenv("TEST_KEY", KEY)
    with serving() as server:
        server.reply = reply
        yield server


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses and limits are those that are shipped; only their time passes faster."""
    monkeypatch.setattr(openai_engine, "Clock", lambda: Clock(500.0))


def configured(server: FaultyServer, tmp_path: Path, taught: int = 4, **options: Any) -> Config:
    engine = OpenAIEngineConfig(
        model="strong-model", base_url=f"http://127.0.0.1:{server.server_port}/v1",
        api_key_env="TEST_KEY", concurrency=options.pop("concurrency", 4),
    )  # fmt: skip
    sampling = SamplingConfig(max_new_tokens=40)
    teacher = TeacherConfig(engine=engine, comparisons=taught, criteria=4, branches=2, sampling=sampling, **options)
    tree = TreeConfig(criteria=4, shard_size=3)
    return Config(prompts="compact", teacher=teacher, tree=tree, output_dir=str(tmp_path / "outputs"))


def run(config: Config, directory: Path) -> StageRun:
    responses = StageRun(directory.parent / "responses", "responses", 0, Console())
    responses.write_rows("comparisons", (c.to_row() for c in COMPARISONS))
    out = StageRun(directory, "teacher", config.seed, Console(), home=Path(config.output_dir))
    teacher_stage.run(TeacherSettings.of(config), {"responses": responses.directory}, out)
    return out


def evaluations(out: StageRun) -> list[EvaluationTree]:
    return [EvaluationTree.from_row(row) for row in read_rows(out.directory, "evaluations")]


def paid(server: FaultyServer) -> Counter[str]:
    return Counter(json.dumps(body, sort_keys=True) for body in server.billed)


CALLS = 4 * (1 + 2 + 2 * 2)


def test_a_crash_loses_no_answer_that_came(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(server, tmp_path, concurrency=1)
    put, kept, fatal = answers.AnswerStore.put, 0, 9

    def crashing(self: Any, *arguments: Any) -> None:
        nonlocal kept
        put(self, *arguments)
        kept += 1
        if kept == fatal:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(answers.AnswerStore, "put", crashing)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "teacher")
    assert len(server.billed) == fatal
    resumed = run(config, tmp_path / "teacher")
    assert len(server.billed) == CALLS
    assert set(paid(server).values()) == {1}
    assert resumed.notes["spent"]["requests"] == CALLS
    whole = run(replace(config, output_dir=str(tmp_path / "elsewhere")), tmp_path / "whole")
    assert [t.to_row() for t in evaluations(resumed)] == [t.to_row() for t in evaluations(whole)]


def test_another_run_of_the_same_requests_pays_nothing(server: FaultyServer, tmp_path: Path) -> None:
    config = configured(server, tmp_path)
    first = run(config, tmp_path / "teacher")
    server.billed.clear()
    config.tree.shard_size = 5  # which shard an item is in is no part of a request
    config.teacher.engine.base_url += "/"
    again = run(config, tmp_path / "again")
    assert server.billed == []
    assert again.notes["spent"] == {"requests": 0, "prompt_tokens": 0, "generated_tokens": 0}
    texts = [[j.text for _, _, j in tree.judgments()] for out in (first, again) for tree in evaluations(out)]
    assert texts[:4] == texts[4:]
    config.seed += 1
    run(config, tmp_path / "seed")
    assert len(server.billed) == CALLS, "another seed asks for other samples"


def test_a_budget_of_requests_stops_the_run_and_a_larger_one_goes_on(server: FaultyServer, tmp_path: Path) -> None:
    limit = CALLS - 1
    config = configured(server, tmp_path, max_requests=limit)
    for _ in range(2):  # trying again changes nothing
        with pytest.raises(EngineError, match=rf"teacher\.max_requests={limit} requests are sent"):
            run(config, tmp_path / "teacher")
        assert len(server.bodies) == limit
        assert len(list(Path(config.output_dir).rglob("*.json"))) == limit, "what was under way is kept"
    config.teacher.max_requests = CALLS
    assert len(evaluations(run(config, tmp_path / "teacher"))) == 4
    assert len(server.bodies) == CALLS


def test_the_dry_run_expects_the_calls_that_are_made(server: FaultyServer, tmp_path: Path) -> None:
    config = configured(server, tmp_path)
    seed = StageRun(tmp_path / "x", "teacher", config.seed, Console()).seed
    taught, remaining = teacher_stage.divided(COMPARISONS, config.teacher, seed)
    assert len(taught) == 4
    costs = estimate(TeacherSettings.of(config), taught)
    run(config, tmp_path / "teacher")
    starts = Counter(body["messages"][-1]["content"].split()[0] for body in server.billed)
    made = {"criteria": starts["List"], "guideline": starts["Write"], "judgment": starts["Score"]}
    assert {step: cost["calls"] for step, cost in costs.items()} == made
    assert sum(made.values()) == CALLS
    assert [r["id"] for r in read_rows(tmp_path / "teacher", "remaining")] == [c.id for c in remaining]
    characters = sum(len(m["content"]) for b in server.billed for m in b["messages"])
    prompt = sum(cost["prompt"] for cost in costs.values())
    assert prompt == pytest.approx(characters / 4, rel=0.35)
    assert all(
        cost["generated"] == 20 * cost["calls"] and cost["at_most"] == 40 * cost["calls"] for cost in costs.values()
    )
    config.teacher.max_requests, config.teacher.max_tokens = 10, 10**6
    *_, total, warning = described(costs, config.teacher, "teacher")
    assert f"{CALLS} calls" in total
    assert re.search(r"teacher\.max_requests=10 does not suffice", warning)


def test_comparisons_that_the_judge_could_not_read_are_not_paid_for(
    server: FaultyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = Path(templated(tmp_path / "base", (WORLD_BASE / "chat_template.jinja").read_text()))
    own, config = json.loads((base / "config.json").read_text()), configured(server, tmp_path, taught=10)
    config.train.base.path = str(base)
    tokenizer = load_tokenizer(config.train.base)
    config.tree.judgment_sampling.max_new_tokens = 50
    prompts = load_prompt_set("compact")
    slots = [judgment_slots(c, "AB", "", "") for c in COMPARISONS]
    asked = [
        tokenizer.apply_chat_template(list(prompts.render("judgment", s)), add_generation_prompt=True) for s in slots
    ]
    needed = sorted(len(ids["input_ids"]) + 50 for ids in asked)

    def reading(tokens: int) -> Config:
        (base / "config.json").write_text(json.dumps(own | {"max_position_embeddings": tokens}))
        return config

    with pytest.raises(DataError, match=r"the teacher was not asked: 10 of 10 .*train\.base=.*max_query_chars"):
        run(reading(needed[0] - 1), tmp_path / "none")
    assert not server.bodies
    run(reading(needed[7]), tmp_path / "some")
    long = sum(each > needed[7] for each in needed)
    assert f"teacher: {long} of 10 comparisons are too long" in capsys.readouterr().out and server.bodies
