"""External judges in stages evaluate and correct: paid for once, within limits, whatever is changed or killed."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.errors import EngineError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.dry_run import estimated
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.extras.correct.config import CorrectConfig
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.pipeline import job
from judgetrain.pipeline.config import Config
from tests.builders.evaluate import pairs, refused, run
from tests.builders.faulty_server import FaultyServer, serving
from tests.builders.scripted import criteria, judged
from tests.builders.watched import spread

CALLS = 4 * 2 + 4 * (1 + 2 + 2 * 2)
"""A verdict in each order, and a list, two guidelines and two judgments of each, of four comparisons."""


def reply(text: str) -> str:
    if text.startswith("List "):
        return criteria(4)
    if text.startswith("Write "):
        return "Full marks for all of it."
    return judged(4, 2) if text.startswith("Score ") else "A better text.\n[[A]]"


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with serving() as server:
        server.reply = reply
        yield server


@pytest.fixture
def config(server: FaultyServer, tmp_path: Path) -> Config:
    benchmark = replace(pairs(tmp_path, 4, "AB"), name="b")
    address = f"http://127.0.0.1:{server.server_port}/v1"
    external = OpenAIEngineConfig(model="m", base_url=address, concurrency=1)
    evaluate = EvaluateConfig([benchmark], ["pairwise:external", "external"], [1, 2], bootstrap=20, external=external)
    correct = CorrectConfig(benchmark.source, judge="external", engine=replace(external, model="writer"))
    tree = TreeConfig(criteria=4, shard_size=1)
    return Config(prompts="compact", evaluate=evaluate, correct=correct, tree=tree, output_dir=str(tmp_path))


def evaluated(config: Config, name: str) -> StageRun:
    return run("evaluate", config, {}, Path(config.output_dir) / "artifacts" / "evaluate" / name, config.seed)


def test_another_metric_asks_an_external_judge_nothing(server: FaultyServer, config: Config) -> None:
    first = evaluated(config, "a")
    assert len(server.billed) == CALLS
    assert first.notes["spent"] == {"requests": CALLS, "prompt_tokens": 7 * CALLS, "generated_tokens": 3 * CALLS}
    second = evaluated(replace(config, evaluate=replace(config.evaluate, bootstrap=50)), "b")
    assert len(server.billed) == CALLS
    for name in ("replies-b-pairwise.external-00001-of-00002.jsonl", "trees-b-external-00001-of-00002.jsonl"):
        assert (first.directory / name).samefile(second.directory / name), "taken over"
    rows = [
        [(r["method"], r["branches"], r["agreement"], r["seconds"]) for r in json.loads(path.read_text())]
        for path in (first.path("metrics.json"), second.path("metrics.json"))
    ]
    assert rows[0] == rows[1]


def test_with_a_price_a_verdict_costs_money(config: Config) -> None:
    # The server bills 7 tokens of every prompt and 3 of every answer; a verdict of the pairwise judge is one call.
    config.evaluate.methods = ["pairwise:external", "first"]
    config.evaluate.external.price = [0.5, 2.0]
    out = evaluated(config, "a")
    judge, baseline = json.loads(out.path("metrics.json").read_text())
    assert judge["money"] == pytest.approx((7 * 0.5 + 3 * 2.0) / 1e6) and "money" not in baseline
    assert "| money per 1,000 |" in out.path("report.md").read_text()
    config.evaluate.external.price = [0.5]
    assert "evaluate.external.price=[0.5]: expected two numbers" in refused(config, "evaluate")


def test_workers_share_what_judges_of_ones_own_say_beside_one_that_is_paid(
    server: FaultyServer, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = spread(monkeypatch)
    config.evaluate.methods = ["pairwise:external", "base", "scorer:sentprob"]
    config.train.base.path = "world"
    evaluated(config, "a")
    paid = {name for name, spread in shared.items() if not spread}
    assert paid == {"replies-b-pairwise.external"}
    assert shared.keys() - paid == {"trees-b-base", "trees-b-attacks-base", "scores-b-single_pass"}


@pytest.mark.parametrize("fatal", [1, 9, CALLS - 1])
def test_a_stop_inside_a_shard_pays_nothing_again(fatal: int, server: FaultyServer, config: Config) -> None:
    config.evaluate.max_requests = fatal
    with pytest.raises(EngineError, match=rf"evaluate\.max_requests={fatal}: so many are sent"):
        evaluated(config, "a")
    config.evaluate.max_requests = None
    evaluated(replace(config, evaluate=replace(config.evaluate, bootstrap=30)), "b")
    bodies = [json.dumps(body, sort_keys=True) for body in server.billed]
    assert len(bodies) == len(set(bodies)) == CALLS


def test_corrections_are_paid_for_once_and_within_limits(
    server: FaultyServer, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judgetrain.extras.correct.stage.THRESHOLD", 5.0)

    def corrected(config: Config, name: str) -> StageRun:
        return run("correct", config, {}, Path(config.output_dir) / "artifacts" / "correct" / name, config.seed)

    config.correct.max_requests = 30
    with pytest.raises(EngineError, match=r"correct\.max_requests=30: so many are sent"):
        corrected(config, "a")
    config.correct.max_requests = None
    whole = corrected(config, "a")
    calls = len(server.billed)
    assert calls > 4 * 7 + 4 and {body["model"] for body in server.billed} == {"m", "writer"}
    assert whole.notes["spent"]["requests"] == calls
    config.correct.source.limit = 3
    corrected(config, "b")
    bodies = [json.dumps(body, sort_keys=True) for body in server.billed]
    assert len(bodies) == len(set(bodies)) == calls


def test_the_dry_run_expects_the_calls_that_are_made_and_makes_none(server: FaultyServer, config: Config) -> None:
    config.judge.guideline_tokens = 14  # half of it is what the server's guidelines have
    estimates = dict(estimated(EvaluateSettings.of(config)))
    assert server.bodies == []
    assert list(estimates) == ["pairwise:external (m)", "external (m)"]
    calls = {step: cost["calls"] for costs in estimates.values() for step, cost in costs.items()}
    assert calls == {"pairwise": 8, "criteria": 4, "guideline": 8, "judgment": 16}
    evaluated(config, "a")
    assert sum(calls.values()) == CALLS == len(server.billed)
    characters = sum(len(m["content"]) for b in server.billed for m in b["messages"])
    expected = sum(cost["prompt"] for costs in estimates.values() for cost in costs.values())
    assert expected == pytest.approx(characters / 4, rel=0.2)
    assert not list(Path(config.output_dir).rglob("*estimate*"))


def test_a_dry_run_of_evaluate_is_printed_with_the_limits_that_do_not_suffice(
    server: FaultyServer, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    config.stage = "evaluate"
    config.dry_run = True
    config.evaluate.max_requests = CALLS - 1
    assert job.run(config) is None
    printed = capsys.readouterr().out
    assert f"all: {CALLS} calls" in printed
    assert f"evaluate.max_requests={CALLS - 1} does not suffice" in printed
    assert server.bodies == [] and not (Path(config.output_dir) / "artifacts").exists()
    config.evaluate.methods = ["first"]
    assert job.run(config) is None
    assert "0 calls, since no model that is paid for is asked" in capsys.readouterr().out
