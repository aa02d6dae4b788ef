"""Stage selfeval on the shipped base: every number of the table recomputed from the answers it wrote."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.files import write_rows_atomic
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data import world
from judgetrain.data.config import WorldConfig
from judgetrain.engines.base import Completion, Request
from judgetrain.engines.config import ModelConfig
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.selfeval import stage
from judgetrain.extras.selfeval.config import SelfEvalConfig
from judgetrain.extras.selfeval.stages import SelfEvalSettings
from judgetrain.pipeline.config import Config
from judgetrain.schema import Dialogue, Message
from judgetrain.scorers import glassbox, probdiff
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import Sample
from judgetrain.scorers.methods import score
from judgetrain.scorers.statistics import TokenScorer
from tests.builders.pipeline import check_stage
from tests.builders.watched import interrupted

METHODS = ["sentprob", "softmax_combo", "decensem_exp", "probdiff"]

Prepared = tuple[Config, dict[str, Path], list[Dialogue]]


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    dialogues = world.train_dialogues(WorldConfig(train_dialogues=8), 3)
    dialogues[0] = replace(dialogues[0], category=None)
    write_rows_atomic(tmp_path / "dialogues" / "dialogues.jsonl", (d.to_row() for d in dialogues))
    config = Config(selfeval=SelfEvalConfig(methods=METHODS))
    config.train.base = ModelConfig(path="world")
    config.selfeval.sampling.max_new_tokens = 10
    config.scorer.max_new_tokens = 10
    return config, {"dialogues": tmp_path / "dialogues"}, dialogues


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glassbox, "PASSES", 2)
    monkeypatch.setattr(ScorerConfig, "shard_size", 3)


def made(config: Config, inputs: dict[str, Path], directory: Path) -> None:
    stage.run(SelfEvalSettings.of(config), inputs, StageRun(directory, "selfeval", 5, Console()))


def test_the_table_by_category_equals_a_recount(prepared: Prepared, tmp_path: Path) -> None:
    config, inputs, dialogues = prepared
    check_stage("selfeval", config)
    directory = tmp_path / "out"
    made(config, inputs, directory)
    answers = list(read_rows(directory, "scores"))
    assert [a["id"] for a in answers] == [d.id for d in dialogues]
    samples = [
        Sample(({"role": "user", "content": d.query},), a["response"]) for d, a in zip(dialogues, answers, strict=True)
    ]
    scorer = TokenScorer.from_pretrained("world")
    expected = score(scorer, samples, ("sentprob", "softmax_combo"))
    for method, scores in expected.items():
        np.testing.assert_allclose([a["scores"][method] for a in answers], scores.values, atol=1e-3)
    revised = list(read_rows(directory, "scores-probdiff"))
    d = [a["scores"]["probdiff"] for a in answers]
    assert d == [row["probdiff"] for row in revised]
    for sample, row in zip(samples, revised, strict=True):
        lengths = [t.mean_logprob for t in scorer.statistics([sample, replace(sample, response=row["revision"])])]  # type: ignore[union-attr]
        assert row["probdiff"] == pytest.approx(lengths[1] - lengths[0], abs=1e-4)
    rows = {(r["category"], r["method"]): r for r in json.loads((directory / "metrics.json").read_text())}
    categories = {x.category or "(none)" for x in dialogues}
    assert {c for c, _ in rows} == {"all", *categories}
    for category in categories:
        chosen = [i for i, x in enumerate(dialogues) if (x.category or "(none)") == category]
        row = rows[category, "probdiff"]
        assert row["n"] == len(chosen)
        assert row["mean"] == pytest.approx(np.mean([d[i] for i in chosen]))
        assert row["sweep"]["-0.05"] == pytest.approx(np.mean([d[i] >= -0.05 for i in chosen]))
        assert rows[category, "sentprob"]["mean"] == pytest.approx(
            np.mean([answers[i]["scores"]["sentprob"] for i in chosen])
        )
    whole = rows["all", "probdiff"]
    assert whole["cut"] == sum(row["cut"] for row in revised)
    assert whole["sweep"] == {f"{k:g}": probdiff.confidence(d, k) for k in (0.0, -0.05, -0.1)}
    report = (directory / "report.md").read_text()
    assert "sentprob ↑" in report and "confidence -0.05 %" in report and "| all | 8 |" in report


def test_an_interrupted_run_goes_on_to_the_same_numbers(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, inputs, _ = prepared
    made(config, inputs, tmp_path / "whole")
    calls = interrupted(monkeypatch, stage, "score", 2)
    with pytest.raises(KeyboardInterrupt):
        made(config, inputs, tmp_path / "cut")
    made(config, inputs, tmp_path / "cut")
    for name in ("scores.jsonl", "metrics.json", "responses-00000-of-00003.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert len(calls) == 1 + 1 + 2 + 3 + 3, (
        "shards of 3 answers for three groups: one done, one lost, then what was missing"
    )


def test_limit_temperatures_and_answers_without_a_score(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, inputs, dialogues = prepared
    config.selfeval.limit = 5
    config.selfeval.methods = ["sentprob", "probdiff"]
    hot = dialogues[3].category or ""
    config.selfeval.temperatures = {hot: 0.25}
    model_requests: list[Request] = []

    def generate(self: TokenScorer, requests: list[Request], seed: int) -> list[Completion]:
        model_requests.extend(requests)
        return [
            Completion(text="" if i == 0 else "good , it is", prompt_tokens=3, generated_tokens=2, finish_reason="stop")
            for i in range(len(requests))
        ]

    monkeypatch.setattr(TokenScorer, "generate", generate)
    made(config, inputs, tmp_path / "out")
    rows = {(r["category"], r["method"]): r for r in json.loads((tmp_path / "out" / "metrics.json").read_text())}
    assert rows["all", "sentprob"]["unscored"] == {"empty_response": 2}
    assert rows["all", "sentprob"]["n"] == 3
    first = {r.messages[0]["content"]: r.sampling.temperature for r in model_requests[:3]}
    category = {d.query: d.category for d in dialogues}
    assert all(t == (0.25 if category[q] == hot else 1.0) for q, t in first.items())
    assert "Without sentprob: {'empty_response': 2}" in (tmp_path / "out" / "report.md").read_text()
    monkeypatch.setattr(
        TokenScorer, "generate", lambda self, r, seed: [Completion(prompt_tokens=3, finish_reason="too_long")] * len(r)
    )
    with pytest.raises(DataError, match="no answer could be scored.*empty_response.*the answers are in"):
        made(config, inputs, tmp_path / "none")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({"methods": []}, r"selfeval\.methods is empty"), ({"methods": ["entropy"]}, "'entropy' is no scorer")],
)
def test_wrong_settings_are_refused(settings: dict[str, object], expected: str) -> None:
    config = Config(selfeval=SelfEvalConfig(**settings))  # type: ignore[arg-type]
    config.train.base = ModelConfig(path="world")
    with pytest.raises(ConfigError, match=expected):
        check_stage("selfeval", config)


def test_questions_in_turn_are_answered_after_the_models_own_answers(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, inputs, dialogues = prepared
    config.selfeval.methods = ["sentprob_mean+calibration", "softmax_ent+calibration"]
    two = (Message("user", "which colour ?"), Message("user", "and which shape ?"))
    mute = (Message("user", "say nothing"), Message("user", "and now ?"))
    several = [
        Dialogue("mt:95", "mt", two, "red , round", "writing"),
        Dialogue("mt:96", "mt", mute, None, "writing"),
        dialogues[1],
    ]
    write_rows_atomic(inputs["dialogues"] / "dialogues.jsonl", (d.to_row() for d in several))
    prompts_seen: list[list[tuple[str, ...]]] = []

    def generate(self: TokenScorer, requests: list[Request], seed: int) -> list[Completion]:
        prompts_seen.append([tuple(m["content"] for m in r.messages) for r in requests])
        texts = ["" if r.messages[0]["content"] == "say nothing" else f"good {len(r.messages)}" for r in requests]
        return [Completion(text=text, prompt_tokens=3, generated_tokens=2, finish_reason="stop") for text in texts]

    monkeypatch.setattr(TokenScorer, "generate", generate)
    made(config, inputs, tmp_path / "out")
    assert prompts_seen == [
        [("which colour ?",), ("say nothing",), (several[2].query,)],
        [("which colour ?", "good 1", "and which shape ?")],
    ]
    answers = {a["id"]: a for a in read_rows(tmp_path / "out", "scores")}
    assert list(answers) == ["mt:95#1", "mt:95", "mt:96#1", several[2].id]
    chat = [{"role": "user", "content": "which colour ?"}, {"role": "assistant", "content": "good 1"}]
    sample = Sample((*chat, {"role": "user", "content": "and which shape ?"}), "good 3", "red , round")  # type: ignore[arg-type]
    name = "sentprob_mean+calibration"
    expected = score(TokenScorer.from_pretrained("world"), [sample], (name,))[name].values
    assert answers["mt:95"]["scores"][name] == pytest.approx(expected[0], abs=1e-4)
    assert answers["mt:95#1"]["scores"][name] == "no_reference", "a missing reference is counted, by row"
    assert answers["mt:96#1"]["scores"][name] == "empty_response"
    (row,) = [r for r in json.loads((tmp_path / "out" / "metrics.json").read_text())
              if (r["category"], r["method"]) == ("all", "softmax_ent+calibration")]  # fmt: skip
    assert row["unscored"]["empty_response"] == 1 and row["unscored"]["no_reference"] >= 1
