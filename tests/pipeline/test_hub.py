"""Cards after an evaluation, and pushing to a Hub that is a server of this test's."""

import json
import os
import shutil
from datetime import date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import yaml
from huggingface_hub import ModelCard, constants, parse_eval_result_entries

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.files import write_json_atomic
from judgetrain.artifacts.fingerprint import ContentHashes, plain
from judgetrain.data import world
from judgetrain.data.config import SourceConfig
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig
from judgetrain.engines.hub import commit_of
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import ConfigError, EngineError
from judgetrain.judges import load_judge
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.method import Method
from judgetrain.judges.parts import judge_directory
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.saved import save_settings
from judgetrain.judges.settings import check_directories
from judgetrain.judging.config import VerdictsConfig
from judgetrain.pipeline.cards import check_hub, fill, fill_cards, push, push_last
from judgetrain.pipeline.config import Config
from judgetrain.train.card import JudgeFigures, Origin, add_results, licence_of, shows_references, write_card
from tests.builders.fake_hub import TOKEN, FakeHub, in_place

hub = pytest.fixture(in_place)


def model_directory(root: Path, stage: str = "dpo", base: str = "world") -> Path:
    directory = root / "artifacts" / stage / "f00d" / "model"
    directory.mkdir(parents=True)
    (directory / "model.safetensors").write_bytes(b"\x00weights")
    (directory / "training_args.json").write_text("{}")
    lineage = {"sft": "aaaa", "label": "bbbb"}
    origin = Origin(stage=stage, recipe="quickstart", fingerprint="f00d", lineage=lineage)
    write_card(directory, ModelConfig(path=base), origin)
    return directory


def row(method: str, branches: int, agreement: float | None) -> dict[str, Any]:
    of = {"method": method, "benchmark": "world", "split": "heldout", "branches": branches, "n": 300}
    measured = {"agreement": agreement, "agreement_ci": [0.6, 0.8], "consistency": 0.9, "consistency_ci": [0.85, 0.95]}
    return of | measured


ROWS = [row("dpo", 1, 0.71234), row("dpo", 5, 0.75), row("sft", 1, 0.6), row("random", 0, None)]


def pipeline(root: Path, config: Config) -> Any:
    evaluation = root / "artifacts" / "evaluate" / "e4a1"
    evaluation.mkdir(parents=True, exist_ok=True)
    (evaluation / "metrics.json").write_text(json.dumps(ROWS))
    plans = {
        "evaluate": SimpleNamespace(directory=evaluation, fingerprint="e4a1", upstream={"dpo": "f00d"}),
        "dpo": SimpleNamespace(directory=root / "artifacts" / "dpo" / "f00d", fingerprint="f00d", upstream={}),
    }
    return SimpleNamespace(config=config, console=Console(), plan=plans.__getitem__, made=["evaluate"])


def test_a_card_names_lineage_and_licence_and_then_what_was_measured(tmp_path: Path) -> None:
    directory = model_directory(tmp_path)
    card = ModelCard.load(directory / "README.md")
    assert card.data.license == "apache-2.0" and card.data.library_name == "transformers"
    assert "- `sft`: `aaaa`" in card.text and "- `label`: `bbbb`" in card.text and "Not yet:" in card.text
    hashes = ContentHashes(tmp_path / "hashes.json")
    before = hashes.of(str(directory))
    for _ in range(2):  # a second evaluation takes the place of the first
        fill_cards(pipeline(tmp_path, Config(stage="evaluate")))
    card = ModelCard.load(directory / "README.md")
    assert "model-index" not in (directory / "README.md").read_text(), "the Hub's legacy"
    line = "| world (heldout) | 1 | 300 | 0.712 (0.600–0.800) | 0.900 (0.850–0.950) |"
    assert card.text.count(line) == 1 and "| world (heldout) | 1 | 300 | 0.600" not in card.text
    assert "evaluation `e4a1`" in card.text and "Not yet:" not in card.text and "- `sft`: `aaaa`" in card.text
    assert hashes.of(str(directory)) == before
    add_results(directory, "dpo", JudgeFigures([ROWS[0] | {"asked": "greedy", "plan": None}], "e1"))
    text = (directory / "README.md").read_text()
    assert "asked greedy, each response by itself" in text and "| 0.712 (0.600–0.800) | – |" in text
    (directory / "README.md").unlink()  # as is advised where it is damaged
    again = pipeline(tmp_path, Config(stage="evaluate"))
    again.made.clear()
    assert fill_cards(again) == ["dpo"] and not (directory / "README.md").exists()


@pytest.mark.parametrize("answer", ["42", ""])
def test_a_card_says_that_prompts_had_reference_answers(answer: str, tmp_path: Path) -> None:
    prompts = load_prompt_set("compact")
    shown = ({"query": "q\nReference: posed", "reference": answer, "count": "3"}, {"query": "p", "count": "3"})
    seen = shows_references(prompts, [{"prompt": prompts.render("criteria", {"context": "", **s})} for s in shown])
    assert seen == bool(answer), "a query that says so is quoted"
    origin = Origin(stage="sft", recipe="r", fingerprint="f", lineage={})
    write_card(tmp_path, ModelConfig(path="world"), origin, references=seen)
    assert ("trained with reference answers" in (tmp_path / "README.md").read_text()) == seen


def finished(root: Path, stage: str, mark: str, **manifest: Any) -> Path:
    """Return a finished artifact with these entries of its manifest."""
    directory = root / "artifacts" / stage / mark
    directory.mkdir(parents=True, exist_ok=True)
    facts = {"stage": stage, "fingerprint": mark, "recipe": "r", "seed": 5, "counts": {"in": 9, "out": 8}, "notes": {}}
    write_json_atomic(directory / "manifest.json", {**facts, "upstream": {}, **manifest})
    return directory


def test_a_card_is_filled_with_what_later_stages_found(tmp_path: Path) -> None:
    """Evaluation, floors and training data; nothing else."""
    directory = model_directory(tmp_path)
    judge = finished(tmp_path, "dpo", "f00d", upstream={"label": "bb"}, notes={"training": {"steps": 7}})
    finished(tmp_path, "label", "bb", upstream={"dialogues": "dd"})
    finished(tmp_path, "dialogues", "dd")
    bare = (directory / "README.md").read_text()
    fill(judge)
    text = (directory / "README.md").read_text()
    assert "Not yet: `python -m judgetrain stage=evaluate`" in text
    assert "- `dialogues`: 9 read, 8 made\n- `label`: 9 read, 8 made\n" in text
    assert "- `dpo`: 9 read, 8 made; recipe r, seed 5, 7 steps" in text
    evaluation = finished(tmp_path, "evaluate", "e4a1", upstream={"dpo": "f00d"}, seed=23)
    rows = [row("dpo", 5, 0.75) | {"length_bias": 0.021}, row("sft", 5, 0.6), row("longer", 0, 0.38)]
    write_json_atomic(evaluation / "metrics.json", rows)
    other = finished(tmp_path, "evaluate", "ffff", upstream={"dpo": "another"})
    write_json_atomic(other / "metrics.json", [row("dpo", 1, 0.111)])
    fill(judge)
    text = (directory / "README.md").read_text()
    day = date.fromtimestamp((evaluation / "manifest.json").stat().st_mtime)
    assert f"By evaluation `e4a1`, {day}, seed 23" in text and "0.111" not in text and "0.600 (0.6" not in text
    assert "`longer` 0.380" in text
    assert text.startswith(bare.partition("---\n\n")[0][:40]) and text.count("<!-- measured -->") == 1
    fill(judge)
    assert (directory / "README.md").read_text() == text


def test_every_section_of_a_card_is_of_the_last_evaluation_that_measured_it(tmp_path: Path) -> None:
    directory = model_directory(tmp_path)
    judge = finished(tmp_path, "dpo", "f00d")
    paid = [{"benchmark": "world", "judge": "dpo@5", "told": "it pays", "n": 9}]

    def evaluated(mark: str, day: str, agreement: float, **files: list[dict[str, Any]]) -> None:
        place = finished(tmp_path, "evaluate", mark, upstream={"dpo": "f00d"})
        write_json_atomic(place / "metrics.json", [row("dpo", 5, agreement)])
        for name, content in files.items():
            write_json_atomic(place / f"{name}.json", content)
        when = datetime.fromisoformat(f"{day}T12:00").timestamp()
        os.utime(place / "manifest.json", (when, when))

    evaluated("aaaa", "2026-11-01", 0.7, worth=paid)
    evaluated("bbbb", "2026-11-02", 0.71)
    evaluated("cccc", "2026-11-03", 0.72)
    fill(judge)
    text = (directory / "README.md").read_text()
    assert "By evaluation `cccc`, 2026-11-03, seed 5;" in text and "| 0.720 (" in text
    assert "### Worth training\n\nBy evaluation `aaaa`, 2026-11-01:\n\n- world (n = 9): it pays" in text
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
    add_results(tmp_path / "none", "dpo", JudgeFigures(ROWS, "e4a1"))


def test_a_measured_judge_is_pushed_whole(tmp_path: Path, hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    directory = model_directory(tmp_path)
    config = Config(stage="evaluate", hub="me/judge")
    check_hub(config)
    finished_run = pipeline(tmp_path, config)
    push_last(finished_run, fill_cards(finished_run))
    files = hub.files["me/judge"]
    assert files == {p.name: p.read_bytes() for p in directory.iterdir()}, "no benchmark of it is on the Hub"
    assert "0.712 (0.600–0.800)".encode() in files["README.md"]
    assert b'load_judge("me/judge", branches=1)' in files["README.md"], "the example is of where it lies now"
    assert hub.created == [{"name": "judge", "organization": "me", "visibility": "private"}]
    assert "hub: pushed the dpo judge: http://127.0.0.1" in capsys.readouterr().out
    assert not any(TOKEN.encode() in content for content in files.values())


def test_results_on_the_hub_s_benchmarks_stand_beside_the_card_which_names_the_data_sets(
    tmp_path: Path, hub: FakeHub
) -> None:
    directory = model_directory(tmp_path, base="owner/base")
    source = {"type": "hub", "path": "", "hub": {}, "adapter": None, "dataset": None}
    mine = {**source, "path": "me/dialogues"}
    sources = [mine, mine, {**source, "dataset": "alpaca", "type": "jsonl"}, {**source, "type": "world"}]
    sources += [{**source, "dataset": "alpaca", "path": "alpaca.json", "type": "jsonl"}]
    finished(tmp_path, "dialogues", "dd", config={"dialogues": {"sources": sources}})
    judge = finished(tmp_path, "dpo", "f00d", upstream={"dialogues": "dd"})
    benchmarks = [
        {"name": "world", "source": {**source, "type": "world"}},
        {"name": "judgebench", "source": {**source, "adapter": "judgebench"}},
        {"name": "own", "source": {**source, "path": "me/labels", "hub": {"name": "hard", "revision": "v2"}}},
    ]
    evaluation = finished(
        tmp_path, "evaluate", "e4a1", upstream={"dpo": "f00d"}, config={"evaluate": {"benchmarks": benchmarks}}
    )
    rows = [
        *ROWS,
        row("dpo", 1, 0.5) | {"benchmark": "judgebench"},
        row("dpo", 5, 0.62514) | {"benchmark": "judgebench"},
    ]
    rows += [row("sft", 9, 0.9) | {"benchmark": "judgebench"}]
    rows += [row("dpo", k, 0.1 * k) | {"benchmark": "own"} for k in (1, 3, 5)]
    write_json_atomic(evaluation / "metrics.json", rows)
    fill(judge)
    push(directory, "me/judge")
    files = hub.files["me/judge"]
    card = ModelCard(files["README.md"].decode()).data
    assert card.datasets == ["me/dialogues", "tatsu-lab/alpaca"] and card.base_model == "owner/base"
    assert card.library_name == "transformers"
    entries = parse_eval_result_entries(yaml.safe_load(files[".eval_results/judgetrain.yaml"]))
    day = str(date.fromtimestamp((evaluation / "manifest.json").stat().st_mtime))
    assert [(e.dataset_id, e.task_id, e.value, e.dataset_revision, e.date) for e in entries] == [
        ("ScalerLab/JudgeBench", "default", 0.6251, None, day),
        ("me/labels", "hard", 0.5, "v2", day),
    ]
    assert "300 comparisons" in str(entries[0].notes) and "5 branches" in str(entries[0].notes)
    assert not (directory / ".eval_results").exists(), "the artifact is as it was"


def test_a_judge_of_the_hub_is_loaded_at_the_commit_that_fingerprints_have(
    tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    directory = model_directory(tmp_path)
    shutil.copytree(Path(world.__file__).parent / "base", directory, dirs_exist_ok=True)
    load_prompt_set("compact").save(directory)
    save_settings(JudgeConfig(), directory, 10)

    def content(judge: str) -> Any:
        """Return what a fingerprint has of a judge's name."""
        commit_of.cache_clear()  # as another process
        return plain(VerdictsConfig(judge=judge, source=SourceConfig()), lambda key, path: path)["judge"]

    push(directory, "me/judge")
    hub.heads["me/judge:v1"] = first = hub.heads["me/judge"]
    assert content("me/judge+sampled@2") == ["me/judge+sampled@2", ["commit", first]]
    (directory / "training_args.json").write_text('{"other": 1}')
    push(directory, "me/judge")
    second = hub.heads["me/judge"]
    assert content("me/judge") == ["me/judge", ["commit", second]] and second != first
    for pinned in ("me/judge:v1", f"me/judge:{first}", "pairwise:me/judge:v1"):
        assert content(pinned) == [pinned, ["commit", first]]
    check_directories(TransformersEngineConfig(), [Method.parse("me/judge:v1")], "verdicts.judge")
    with pytest.raises(ConfigError, match=r"verdicts\.judge='me/judge:v9': .*check name and revision"):
        check_directories(TransformersEngineConfig(), [Method.parse("me/judge:v9")], "verdicts.judge")
    for name, commit in (("me/judge:v1", first), ("me/judge", second)):
        place = judge_directory(name)
        assert place.name == commit
        assert (place / "training_args.json").read_bytes() == hub.commits[commit]["training_args.json"]
    judge = load_judge("me/judge:v1", criteria_tokens=8, guideline_tokens=4, judgment_tokens=8)
    assert judge.name == "judge:v1" and judge("q", "a", "b").judgments > 0
    pinned_engine = TransformersEngineConfig(model=ModelConfig(revision="v1"))
    assert load_judge("me/judge", engine=pinned_engine).engine.model.config._name_or_path.endswith(first)
    hub.heads["me/judge"] = first  # moved since the fingerprint was made
    assert judge_directory("me/judge").name == second
    hub.shutdown()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert content("me/judge:v1")[1] == ["commit", first] and judge_directory("me/judge:v1").name == first


def test_a_hub_that_refuses_is_a_sentence_and_the_model_is_kept(tmp_path: Path, hub: FakeHub) -> None:
    directory = model_directory(tmp_path)
    hub.refuse = True
    with pytest.raises(EngineError, match=r"hub=me/judge: the Hub did not take the model: .*run the same"):
        push(directory, "me/judge")


def test_what_a_push_needs_is_checked_before_anything_runs(monkeypatch: pytest.MonkeyPatch, hub: FakeHub) -> None:
    def refused(message: str, **settings: Any) -> None:
        config = Config(stage=settings.pop("stage", "dpo"), hub="me/judge", **settings)
        with pytest.raises(ConfigError, match=message):
            check_hub(config)

    check_hub(Config(stage="tree"))
    with pytest.raises(ConfigError, match="hub='judge': expected OWNER/NAME"):
        check_hub(Config(stage="dpo", hub="judge"))
    refused(r"stage=tree makes no judge; allowed are initial, sft, dpo, rl, evaluate", stage="tree")
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    refused(r"needs a token that may write: set HF_TOKEN")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refused(r"HF_HUB_OFFLINE is set: unset it")


def test_an_encoder_that_is_no_transformers_model_has_a_commit_too(
    tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "modules.json").write_text("[]")
    push(directory, "me/static")
    assert commit_of("me/static") == hub.heads["me/static"]
    with pytest.raises(EngineError, match=r"me/static: .*holds no prompts\.yaml"):
        load_judge("me/static")


@pytest.mark.parametrize("revision", [None, "v1"])
def test_a_base_of_the_hub_is_known_and_loaded_by_its_commit(
    revision: str | None, tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("transformers.utils.hub.is_offline_mode", lambda: constants.HF_HUB_OFFLINE)
    directory = tmp_path / "model"
    shutil.copytree(Path(world.__file__).parent / "base", directory)
    model = ModelConfig(path="me/base", revision=revision)

    def content() -> Any:
        commit_of.cache_clear()  # as another process
        return plain(model, lambda key, path: path)["path"]

    def pushed(template: str) -> str:
        (directory / "chat_template.jinja").write_text(template)
        push(directory, "me/base")
        name = f"me/base:{revision}" if revision else "me/base"
        hub.heads[name] = hub.heads["me/base"]
        return hub.heads[name]

    assert content() == "me/base", "neither the Hub nor the cache has it"
    first = pushed("{{ messages[0]['content'] }} one")
    assert content() == ["me/base", ["commit", first]]
    second = pushed("{{ messages[0]['content'] }} two")
    assert content() == ["me/base", ["commit", second]] and second != first, "a changed base is another one"
    third = pushed("{{ messages[0]['content'] }} three")  # moved since the fingerprint was made
    assert str(load_tokenizer(model).chat_template).endswith("two")
    load_model(model, "cpu")
    hub.shutdown()
    hub.server_close()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert content() == ["me/base", ["commit", second]] and third != second, "what the cache has is used"
    assert str(load_tokenizer(model).chat_template).endswith("two")
    load_model(model, "cpu")
