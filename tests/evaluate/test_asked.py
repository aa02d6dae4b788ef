"""Methods that are asked once, by name in evaluate.methods: which model answers, what is written, what is refused."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.engines import lazy_model
from judgetrain.engines.base import Completion, Request
from judgetrain.engines.config import EngineConfig, ModelConfig, OpenAIEngineConfig
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from tests.builders.evaluate import UNATTACKED, check, pairs
from tests.builders.evaluate import run as run_stage
from tests.builders.scripted import ScriptedEngine, number

Made = list[tuple[str, str]]


@pytest.fixture
def made() -> Made:
    return []


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Made) -> Config:
    def make_engine(
        engine: EngineConfig, model_path: str | None = None, name: str | None = None, **paid: Any
    ) -> ScriptedEngine:
        made.append((str(name), model_path or engine.model_name))
        return ScriptedEngine(reply)

    monkeypatch.setattr(lazy_model, "make_engine", make_engine)
    config = Config(
        evaluate=EvaluateConfig([pairs(tmp_path, 20, "AB")], [], [1], bootstrap=50),
        robustness=UNATTACKED,
        tree=TreeConfig(criteria=2, shard_size=4),
    )
    config.train.base = ModelConfig(path="the-base")
    config.teacher.engine = OpenAIEngineConfig(model="the-teacher")
    config.evaluate.external = OpenAIEngineConfig(model="the-external")
    return config


def reply(request, occurrence):  # type: ignore[no-untyped-def]
    if request.step == "pointwise":
        return f"[[{1 + number(request.slots['response']) % 5}]]"
    draw = number(request.slots["response_a"])
    return "hm" if draw % 9 == 0 else f"[[{'ABC'[draw % 3]}]]"


def run(config: Config, inputs: dict[str, Path], directory: Path) -> Path:
    return run_stage("evaluate", config, inputs, directory).directory


def test_metrics_equal_a_recount_of_the_replies(config: Config, tmp_path: Path, made: Made) -> None:
    (tmp_path / "mine").mkdir()
    config.evaluate.methods = [
        *("pairwise:base", "pointwise:teacher", "pairwise:external", "pointwise:sft"),
        *(f"pairwise:{tmp_path}/mine", "random"),
    ]
    (tmp_path / "sft" / "model").mkdir(parents=True)
    out = run(config, {"sft": tmp_path / "sft"}, tmp_path / "out")
    assert made == [
        ("pairwise:base", "the-base"),
        ("pointwise:teacher", "the-teacher"),
        ("pairwise:external", "the-external"),
        ("pointwise:sft", str(tmp_path / "sft" / "model")),
        ("pairwise:mine", str(tmp_path / "mine")),
    ]
    rows = {r["method"]: r for r in json.loads((out / "metrics.json").read_text())}
    replies = list(read_rows(out, "replies-pairs-pairwise.base"))
    assert len(replies) == 20
    verdicts = [{r["shown"]: r["answer"] for r in row["replies"]} for row in replies]
    labels = ["AB"[i % 2] for i in range(20)]
    expected = sum(v["AB"] == v["BA"] == y for v, y in zip(verdicts, labels, strict=True)) / 20
    assert rows["pairwise:base"]["agreement"] == pytest.approx(expected, abs=1e-6)
    assert rows["pairwise:base"]["parse_failures"] == sum(list(v.values()).count(None) for v in verdicts) > 0
    assert rows["pairwise:base"]["failures"] == {"no_verdict": rows["pairwise:base"]["parse_failures"]}
    assert (rows["pairwise:base"]["calls"], rows["pointwise:teacher"]["calls"]) == (1, 2)
    assert rows["pointwise:teacher"]["consistency"] == 1
    assert rows["pairwise:base"]["branches"] == 0
    assert 0 < rows["pairwise:base"]["seconds"] < 1
    names = {r["method"] for r in pyarrow.parquet.read_table(out / "predictions.parquet").to_pylist()}
    assert names == {*rows} and len(rows) == 6
    made.clear()
    run(config, {"sft": tmp_path / "sft"}, out)
    assert made == [], "with every shard there, no model is loaded"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: setattr(e, "methods", ["pairwise:nobody"]), r"methods='pairwise:nobody': allowed are base"),
        (lambda e: setattr(e, "methods", ["pairwise:random"]), r"methods='pairwise:random': allowed are base"),
        (lambda e: setattr(e.pairwise, "prompts", "compact"), r"step 'pairwise' needs a 'user' template"),
        (lambda e: setattr(e.pairwise, "prompts", "no"), r"evaluate\.pairwise\.prompts=no: .*\(auto_j, pairwise\)"),
        (lambda e: setattr(e.external, "model", ""), r"evaluate\.external\.model is empty"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_runs(
    config: Config, change: Callable[[EvaluateConfig], None], message: str
) -> None:
    config.evaluate.methods = ["pairwise:external"]
    check(config, "evaluate")
    change(config.evaluate)
    with pytest.raises(ConfigError, match=message):
        check(config, "evaluate")


def test_a_missing_directory_is_named(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.evaluate.methods = [f"pairwise:{tmp_path}/nowhere"]
    with pytest.raises(ConfigError, match=r"evaluate\.methods.*nowhere'?: no such file"):
        Pipeline(config).plan("evaluate")
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"nowhere is no directory: name a model's"):
        run(config, {}, tmp_path / "out")


def test_the_reason_of_an_engines_error_is_kept_and_told(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(ScriptedEngine):
        def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
            return [Completion(finish_reason="error", error="HTTP 500: out of order") for _ in requests]

    monkeypatch.setattr(lazy_model, "make_engine", lambda *_, **__: Failing(reply))
    config.evaluate.methods = ["pairwise:external"]
    directory = run(config, {}, tmp_path / "failing")
    replies = [r for row in read_rows(directory, "replies-pairs-pairwise.external") for r in row["replies"]]
    assert {(r["failure"], r["error"]) for r in replies} == {("error", "HTTP 500: out of order")}
    printed = capsys.readouterr().out
    assert "pairwise:external: 40 replies failed with an error; the first: HTTP 500: out of order" in printed
