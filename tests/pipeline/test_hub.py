"""Cards after an evaluation, and pushing to a Hub that is a server of this test's."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import ModelCard, constants

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.files import write_json_atomic
from judgetrain.artifacts.fingerprint import ContentHashes
from judgetrain.engines.config import ModelConfig
from judgetrain.errors import ConfigError, EngineError
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.pipeline.cards import check_hub, fill, fill_cards, push, push_last
from judgetrain.pipeline.config import Config
from judgetrain.train.card import add_results, licence_of, shows_references, write_card
from tests.builders.fake_hub import TOKEN, FakeHub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    server = FakeHub()
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield server
    server.shutdown()


def model_directory(root: Path, stage: str = "dpo", base: str = "world") -> Path:
    directory = root / "artifacts" / stage / "f00d" / "model"
    directory.mkdir(parents=True)
    (directory / "model.safetensors").write_bytes(b"\x00weights")
    (directory / "training_args.json").write_text("{}")
    lineage = {"sft": "aaaa", "label": "bbbb"}
    write_card(
        directory, stage=stage, base=ModelConfig(path=base), recipe="quickstart", fingerprint="f00d", lineage=lineage
    )
    return directory


def row(method: str, branches: int, agreement: float | None) -> dict[str, Any]:
    interval = [0.6, 0.8]
    return {
        "method": method,
        "benchmark": "world",
        "split": "heldout",
        "branches": branches,
        "n": 300,
        "agreement": agreement,
        "agreement_ci": interval,
        "consistency": 0.9,
        "consistency_ci": [0.85, 0.95],
    }


ROWS = [row("dpo", 1, 0.71234), row("dpo", 5, 0.75), row("sft", 1, 0.6), row("random", 0, None)]


def pipeline(root: Path, config: Config) -> Any:
    evaluation = root / "artifacts" / "evaluate" / "e4a1"
    evaluation.mkdir(parents=True, exist_ok=True)
    (evaluation / "metrics.json").write_text(json.dumps(ROWS))
    plans = {
        "evaluate": SimpleNamespace(directory=evaluation, fingerprint="e4a1", upstream={"dpo": "f00d"}),
        "dpo": SimpleNamespace(directory=root / "artifacts" / "dpo" / "f00d", fingerprint="f00d", upstream={}),
    }
    return SimpleNamespace(config=config, console=Console(), plan=plans.__getitem__)


def test_a_card_names_lineage_and_licence_and_then_what_was_measured(tmp_path: Path) -> None:
    directory = model_directory(tmp_path)
    card = ModelCard.load(directory / "README.md")
    assert card.data.license == "apache-2.0" and card.data.library_name == "transformers"
    assert "- `sft`: `aaaa`" in card.text and "- `label`: `bbbb`" in card.text and "Not yet:" in card.text
    assert card.data.eval_results is None
    hashes = ContentHashes(tmp_path / "hashes.json")
    before = hashes.of(str(directory))
    for _ in range(2):  # a second evaluation takes the place of the first
        fill_cards(pipeline(tmp_path, Config(stage="evaluate")))
    card = ModelCard.load(directory / "README.md")
    assert [(r.metric_type, r.metric_value) for r in card.data.eval_results or []] == [
        ("agreement", 0.7123),
        ("agreement", 0.75),
    ]
    line = "| world (heldout) | 1 | 300 | 0.712 (0.600–0.800) | 0.900 (0.850–0.950) |"
    assert card.text.count(line) == 1 and "| world (heldout) | 1 | 300 | 0.600" not in card.text
    assert "evaluation `e4a1`" in card.text and "Not yet:" not in card.text and "- `sft`: `aaaa`" in card.text
    assert hashes.of(str(directory)) == before


@pytest.mark.parametrize("answer", ["42", ""])
def test_a_card_says_that_prompts_had_reference_answers(answer: str, tmp_path: Path) -> None:
    prompts = load_prompt_set("compact")
    shown = ({"query": "q\nReference: posed", "reference": answer, "count": "3"}, {"query": "p", "count": "3"})
    seen = shows_references(prompts, [{"prompt": prompts.render("criteria", {"context": "", **s})} for s in shown])
    assert seen == bool(answer), "a query that says so is quoted"
    how: dict[str, Any] = {"recipe": "r", "fingerprint": "f", "lineage": {}, "references": seen}
    write_card(tmp_path, stage="sft", base=ModelConfig(path="world"), **how)
    assert ("trained with reference answers" in (tmp_path / "README.md").read_text()) == seen


def test_a_share_without_an_interval_stands_alone(tmp_path: Path) -> None:
    directory = model_directory(tmp_path)
    add_results(directory, "dpo", [ROWS[0] | {"agreement_ci": None}], "`e4a1`")
    assert "| 1 | 300 | 0.712 | 0.900 (0.850–0.950) |" in (directory / "README.md").read_text()


def finished(root: Path, stage: str, mark: str, **manifest: Any) -> Path:
    """A finished artifact with these entries of its manifest."""
    directory = root / "artifacts" / stage / mark
    directory.mkdir(parents=True, exist_ok=True)
    facts = {"stage": stage, "fingerprint": mark, "recipe": "r", "seed": 5, "counts": {"in": 9, "out": 8}, "notes": {}}
    write_json_atomic(directory / "manifest.json", {**facts, "upstream": {}, **manifest})
    return directory


def test_a_card_is_filled_with_what_later_stages_found(tmp_path: Path) -> None:
    """Evaluation, floors, attacks, coverage and training data; nothing else."""
    directory = model_directory(tmp_path)
    judge = finished(tmp_path, "dpo", "f00d", upstream={"label": "bb"}, notes={"training": {"steps": 7}})
    finished(tmp_path, "label", "bb", upstream={"dialogues": "dd"})
    finished(tmp_path, "dialogues", "dd")
    bare = (directory / "README.md").read_text()
    fill(judge)
    text = (directory / "README.md").read_text()
    assert "Not yet: `python -m judgetrain stage=evaluate`" in text
    assert "- `dialogues`: 9 in, 8 out\n- `label`: 9 in, 8 out\n" in text
    assert "- `dpo`: 9 in, 8 out; recipe r, seed 5, 7 steps" in text
    evaluation = finished(tmp_path, "evaluate", "e4a1", upstream={"dpo": "f00d"}, seed=23)
    attack = {"attack": "", "kind": "keeps", "n": 40, "robustness": 0.9, "robustness_ci": [0.8, 0.95]}
    forged = attack | {"attack": "tokens_chatml", "kind": "forgery", "n": 41}
    told: dict[str, Any] = {"selective": {"told": "answers 70% of the comparisons"}}
    rows = [
        row("dpo", 5, 0.75)
        | {"guarantees": told, "robustness": [attack, forged, forged | {"attack": ""}], "length_bias": 0.021}
    ]
    rows += [row("sft", 5, 0.6), row("longer", 0, 0.38)]
    write_json_atomic(evaluation / "metrics.json", rows)
    other = finished(tmp_path, "evaluate", "ffff", upstream={"dpo": "another"})
    write_json_atomic(other / "metrics.json", [row("dpo", 1, 0.111)])
    fill(judge)
    text = (directory / "README.md").read_text()
    day = date.fromtimestamp((evaluation / "manifest.json").stat().st_mtime)
    assert f"By evaluation `e4a1`, {day}, seed 23" in text and "0.111" not in text and "0.600 (0.6" not in text
    assert "`longer` 0.380" in text
    assert "| world | 5 | all: keeps | 40 | 0.900 (0.800–0.950) | – |" in text
    assert "| world | 5 | all: forgery | 41 |" in text and "tokens_chatml" not in text
    assert "- world: answers 70% of the comparisons" in text
    assert "A flip is a verdict in one order" in text and "guarantees.required" not in text
    assert "`rerun`: asked once more, nothing changed, so that its flips are what the judge changes" in " ".join(
        text.split()
    )
    assert text.startswith(bare.partition("model-index")[0][:40]) and text.count("<!-- measured -->") == 1
    fill(judge)
    assert (directory / "README.md").read_text() == text
    check = {"benchmark": "world", "rule": "dpo beats floors", "first": "dpo@5", "passed": False, "told": "no better"}
    check |= {"n": 77}
    others = [check | {"first": "sft@5", "told": "of another"}, check | {"first": "dpo+sampled@1", "passed": True}]
    write_json_atomic(evaluation / "gate.json", {"passed": False, "untested": [], "checks": [check, *others]})
    fill(judge)
    text = (directory / "README.md").read_text()
    rule = "world (n = 77), dpo beats floors: no better"
    assert f"- **failed**, {rule}\n- passed, {rule}" in text
    assert "of another" not in text and "Beats: more agreement" in text
    assert "**It did not pass**: 1 of 2 hold." in text


def test_every_section_of_a_card_is_of_the_last_evaluation_that_measured_it(tmp_path: Path) -> None:
    """The recipes guarantees and robustness measure different things; a card has both, whichever ran last."""
    directory = model_directory(tmp_path)
    judge = finished(tmp_path, "dpo", "f00d")
    attack = {"attack": "", "kind": "edit", "n": 40, "robustness": 0.9, "robustness_ci": [0.8, 0.95]}
    check = {"benchmark": "world", "rule": "dpo beats sft", "first": "dpo@5", "passed": True, "told": "better", "n": 9}
    told = {"selective": {"told": "answers 70%"}}

    def evaluated(mark: str, day: str, agreement: float, **files: Any) -> None:
        place = finished(tmp_path, "evaluate", mark, upstream={"dpo": "f00d"})
        write_json_atomic(place / "metrics.json", [row("dpo", 5, agreement) | files.pop("row", {})])
        for name, content in files.items():
            write_json_atomic(place / f"{name}.json", content)
        when = datetime.fromisoformat(f"{day}T12:00").timestamp()
        os.utime(place / "manifest.json", (when, when))

    gate = {"passed": True, "untested": [], "checks": [check]}
    evaluated("aaaa", "2026-11-01", 0.7, row={"guarantees": told}, gate=gate)
    evaluated("bbbb", "2026-11-02", 0.71, row={"robustness": [attack]})
    evaluated("cccc", "2026-11-03", 0.72)
    fill(judge)
    text = (directory / "README.md").read_text()
    assert "By evaluation `cccc`, 2026-11-03, seed 5;" in text and "| 0.720 (" in text
    assert "By evaluation `bbbb`, 2026-11-02:\n\n| benchmark | branches | attack" in text
    assert "### Where it may answer alone\n\nBy evaluation `aaaa`, 2026-11-01:\n\n- world: answers 70%" in text
    assert "### Gate\n\nBy evaluation `aaaa`, 2026-11-01:" in text and "- passed, world (n = 9)" in text
    fill(judge, tmp_path / "artifacts" / "evaluate" / "bbbb")
    assert "By evaluation `bbbb`, 2026-11-02, seed 5;" in (directory / "README.md").read_text(), (
        "this one counts as last"
    )


def test_the_licence_is_the_one_of_the_bases_card(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    assert licence_of(ModelConfig(path=str(base))) == {}
    (base / "README.md").write_text("---\nlicense: other\nlicense_name: house-terms\n---\nA model.\n")
    assert licence_of(ModelConfig(path=str(base))) == {"license": "other", "license_name": "house-terms"}
    directory = model_directory(tmp_path, base=str(base))
    text = (directory / "README.md").read_text()
    assert "license_name: house-terms" in text and "(`house-terms`)" in text
    assert str(tmp_path) not in text and "`base`" in text
    assert licence_of(ModelConfig(path="somebody/unreachable")) == {}
    add_results(tmp_path / "none", "dpo", ROWS, "e4a1")


def test_a_measured_judge_is_pushed_whole(tmp_path: Path, hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    directory = model_directory(tmp_path)
    config = Config(stage="evaluate", hub="me/judge")
    check_hub(config)
    made = pipeline(tmp_path, config)
    push_last(made, fill_cards(made))
    files = hub.files["me/judge"]
    assert {path: content for path, content in files.items() if path != ".gitattributes"} == {
        p.name: p.read_bytes() for p in directory.iterdir()
    }
    assert "0.712 (0.600–0.800)".encode() in files["README.md"]
    assert b'load_judge("me/judge", branches=1)' in files["README.md"], "the example is of where it lies now"
    assert hub.created == [{"name": "judge", "organization": "me", "visibility": "private"}]
    assert "hub: pushed the dpo judge: http://127.0.0.1" in capsys.readouterr().out
    assert not any(TOKEN.encode() in content for content in files.values())


def test_a_hub_that_refuses_is_a_sentence_and_the_model_is_kept(tmp_path: Path, hub: FakeHub) -> None:
    directory = model_directory(tmp_path)
    hub.refuse = True
    with pytest.raises(EngineError, match=r"hub=me/judge: the Hub did not take the model: .*run the same"):
        push(directory, "me/judge")


def test_what_a_push_needs_is_checked_before_anything_runs(monkeypatch: pytest.MonkeyPatch, hub: FakeHub) -> None:
    def refused(message: str, **settings: Any) -> None:
        made = Config(stage=settings.pop("stage", "dpo"), hub="me/judge", **settings)
        with pytest.raises(ConfigError, match=message):
            check_hub(made)

    check_hub(Config(stage="tree"))
    with pytest.raises(ConfigError, match="hub='judge': expected OWNER/NAME"):
        check_hub(Config(stage="dpo", hub="judge"))
    refused(r"stage=tree makes no judge; allowed are initial, sft, dpo, rl, evaluate", stage="tree")
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    refused(r"needs a token that may write: set HF_TOKEN")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refused(r"HF_HUB_OFFLINE is set: unset it")
