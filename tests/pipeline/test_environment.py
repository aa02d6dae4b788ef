"""What a configuration takes from the environment is never written resolved: settings, trackers, requests, messages."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.environment import TEXTS
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.answers import AnswerStore
from judgetrain.engines.base import Completion, Request, Sampling
from judgetrain.extras.reports.merged import FinishedEvaluation
from judgetrain.pipeline.environment import FromEnvironment
from judgetrain.pipeline.run import Pipeline
from tests.builders.evaluate import manifest
from tests.builders.pairs_pipeline import composed, plant
from tests.builders.pipeline import configured, here

SECRET = "hush-hush-4711"
RATE = "0.00123456789"


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Variables that a recipe may name, which no later test knows."""
    values = {"A_WORD": SECRET, "A_RATE": RATE, "A_COUNT": "7", "A_LIST": f"[{SECRET},b]", "AN_OPTIM": "adamw_torch"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    yield
    TEXTS.clear()


def test_every_form_of_a_setting_is_named_by_its_variable() -> None:
    config = OmegaConf.create(
        {
            "plain": "${oc.env:A_WORD}",
            "inside": "Bearer ${oc.env:A_WORD} of ${oc.env:A_COUNT}",
            "by_reference": "${inside}/x",
            "fallback": "${oc.env:NOT_SET_HERE,${oc.env:A_WORD}}",
            "decoded": "${oc.decode:${oc.env:A_LIST}}",
            "not_set": "${oc.env:NOT_SET_HERE,words}",
            "own": "hush",
            "list": [{"a.b": "${oc.env:A_WORD}"}, "${seed}"],
            "whole": "${list}",
            "seed": 3,
        }
    )
    settings = FromEnvironment.of(config).settings
    assert set(settings) == {
        ("plain",),
        ("inside",),
        ("by_reference",),
        ("fallback",),
        ("decoded",),
        ("list", "0", "a.b"),
        ("whole", "0", "a.b"),
    }
    assert SECRET not in str(settings)
    assert settings["inside",].startswith("Bearer ${oc.env:A_WORD} of ${oc.env:A_COUNT} (")
    assert settings["by_reference",].startswith("Bearer ${oc.env:A_WORD} of ${oc.env:A_COUNT}/x (")
    assert OmegaConf.to_container(config, resolve=True)["decoded"] == [SECRET, "b"], "a run reads the values"  # type: ignore[index, call-overload]


def test_a_judge_is_trained_with_the_value_and_its_files_name_the_variable(tmp_path: Path) -> None:
    settings = ["train.sft.learning_rate=${oc.env:A_RATE}", "++train.sft.trainer={optim: '${oc.env:AN_OPTIM}'}"]
    config = composed(tmp_path, "stage=sft", "train.sft={max_steps: 2, per_device_train_batch_size: 4}", *settings)
    assert config.train.sft.learning_rate == float(RATE)
    pipeline = plant(config)
    directory = pipeline.run("sft")
    rates = [json.loads(line).get("learning_rate") for line in (directory / "train_log.jsonl").read_text().splitlines()]
    assert max(rate for rate in rates if rate is not None) == pytest.approx(float(RATE))

    written = json.loads((directory / "manifest.json").read_text())["config"]["train.sft"]
    arguments = json.loads((directory / "model" / "training_args.json").read_text())
    of_tracker = pipeline.plan("sft").lineage["train.sft"]
    for place in (written, arguments, of_tracker):
        assert place["learning_rate"].startswith("${oc.env:A_RATE} (")
        assert place["trainer"]["optim"].startswith("${oc.env:AN_OPTIM} (")
    log = directory / "train_log.jsonl"
    for path in tmp_path.rglob("*"):
        if path.is_file() and path != log:
            assert RATE.encode() not in path.read_bytes(), path


def test_values_of_lists_and_of_sections_by_reference_are_named(tmp_path: Path) -> None:
    (tmp_path / SECRET).mkdir()
    (tmp_path / SECRET / "in.jsonl").write_text('{"query": "a"}\n{"query": "b"}\n')
    source = f"{{name: mine, path: '{tmp_path}/${{oc.env:A_WORD}}/in.jsonl'}}"
    config = configured("recipe=debug", f"dialogues.sources=[{source}]", f"output_dir={tmp_path}/o")
    directory = Pipeline(config).run("dialogues")
    assert SECRET not in (directory / "manifest.json").read_text()
    shown = json.loads((directory / "manifest.json").read_text())["config"]["dialogues"]["sources"][0]["path"]
    assert shown.startswith(f"{tmp_path}/${{oc.env:A_WORD}}/in.jsonl (")


def test_facts_and_lines_that_a_stage_keeps_name_the_variable(tmp_path: Path) -> None:
    """A source's name is the key of its counts in the manifest."""
    source = "{name: '${oc.env:A_WORD}', type: world}"
    config = configured("recipe=debug", f"dialogues.sources=[{source}]", f"output_dir={tmp_path}/o")
    directory = Pipeline(config).run("dialogues")
    notes = json.loads((directory / "manifest.json").read_text())["notes"]
    assert [*notes["sources"]] == ["${oc.env:A_WORD}"] and notes["sources"]["${oc.env:A_WORD}"]["kept"] > 0
    out = StageRun(tmp_path / "a" / "b" / "judge", "judge", 1, Console())
    out.log(f"asked {SECRET}", keep=True)
    out.tell([f"asked {SECRET}, too"])
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


def test_runs_with_other_values_do_not_look_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a merged report would average them as runs that differ in nothing but the seed."""
    runs = []
    for place, rate in enumerate(("0.1", "0.2")):
        monkeypatch.setenv("A_RATE", rate)
        config = configured("recipe=debug", "train.dpo.beta=${oc.env:A_RATE}", "seed=${oc.env:A_COUNT}")
        artifact = manifest(tmp_path, "evaluate", str(place), {})
        shown = Pipeline(config).plan("dpo").shown
        content: dict[str, Any] = {"stage": "evaluate", "seed": config.seed, "recipe": "debug", "upstream": {}}
        (artifact / "manifest.json").write_text(json.dumps(content | {"config": shown, "fingerprint": str(place)}))
        (artifact / "metrics.json").write_text("[]")
        (artifact / "paired.json").write_text("[]")
        runs.append(FinishedEvaluation.read(artifact).settings)
    assert runs[0]["train.dpo.beta"] != runs[1]["train.dpo.beta"]
    assert "0.1" not in runs[0]["train.dpo.beta"] and runs[0]["seed"] == "7"


def test_a_stored_request_names_the_variable_and_its_answer_is_found_again(tmp_path: Path) -> None:
    configured("recipe=debug", "data_dir=${oc.env:A_WORD}")
    store = AnswerStore(tmp_path, 1)
    request = Request(messages=({"role": "user", "content": f"{SECRET}?"},), sampling=Sampling())
    [content] = store.contents("m", [request], "http://x", lambda request: {"user": f"id {SECRET}"})
    store.put(content, Completion(text="yes", finish_reason="stop"))
    [path] = tmp_path.rglob("*.json")
    written = json.loads(path.read_text())["request"]
    assert written["parameters"] == {"user": "id ${oc.env:A_WORD}"}
    assert written["messages"][0]["content"] == f"{SECRET}?", "what was asked is data"
    answer = store.get(content)
    assert answer is not None and answer.text == "yes"


def test_messages_and_sweeps_name_the_variable(tmp_path: Path) -> None:
    source = "dialogues.sources=[{name: x, path: '${oc.env:A_WORD}.jsonl'}]"
    done = here("-m", "stage=dialogues", "recipe=debug", source, "seed=1,2", f"output_dir={tmp_path}")
    assert done.returncode == 2 and "path='${oc.env:A_WORD}.jsonl': no such file" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    jobs = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "job.json" for path in jobs) and any(path.name == "multirun.yaml" for path in jobs)
    for path in jobs:
        assert SECRET not in path.read_text(errors="replace"), path


def test_a_resolved_configuration_is_shown_with_names() -> None:
    done = here("--cfg", "job", "--resolve", "recipe=debug", "data_dir=${oc.env:A_WORD}", "prompts=${data_dir}/p.yaml")
    assert done.returncode == 0 and SECRET not in done.stdout
    assert "prompts: ${oc.env:A_WORD}/p.yaml" in done.stdout
    done = here("--cfg", "job", "--resolve", "recipe=debug", "seed=${oc.env:A_COUNT}")
    assert (
        done.returncode == 2 and "seed=${oc.env:A_COUNT}: what comes from the environment is not shown" in done.stderr
    )
