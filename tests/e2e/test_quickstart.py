"""The real command, end to end on the debug recipe: killed in every stage, finished, and run again."""

import json
import os
import re
import resource
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.builders.debug_run import STAGES, finished_once, fork, lasting, start


def artifact(output: Path, stage: str) -> Path:
    """Return the stage's artifact that was finished first: a test evaluates again with other settings."""
    manifests = output.glob(f"artifacts/{stage}/*/manifest.json")
    return min(manifests, key=lambda path: path.stat().st_mtime_ns).parent


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("whole") / "outputs"
    shutil.copytree(finished_once(tmp_path_factory), output)
    return output


def test_every_stage_leaves_a_manifest_that_refers_to_its_inputs(uninterrupted: Path) -> None:
    for name in STAGES:
        directory = artifact(uninterrupted, name)
        manifest = json.loads((directory / "manifest.json").read_text())
        assert manifest["status"] == "complete"
        assert manifest["counts"]["in"] >= 0
        for stage, mark in manifest["upstream"].items():
            assert (uninterrupted / "artifacts" / stage / mark / "manifest.json").exists()
    rows = json.loads((artifact(uninterrupted, "evaluate") / "metrics.json").read_text())
    assert {(r["method"], r["branches"]) for r in rows} >= {("initial", 1), ("sft", 4), ("dpo", 4), ("random", 0)}
    assert all(r["n"] == 12 for r in rows)


def test_no_artifact_names_a_place_on_this_machine(tmp_path_factory: pytest.TempPathFactory) -> None:
    output = finished_once(tmp_path_factory)
    assert [name for name, content in lasting(output).items() if str(output.parent).encode() in content] == []


def test_everything_opens_with_the_usual_libraries(uninterrupted: Path, tmp_path: Path) -> None:
    import datasets

    pairs = datasets.load_dataset(
        "json",
        data_files=str(artifact(uninterrupted, "label") / "pairs-train.jsonl"),
        split="train",
        cache_dir=str(tmp_path),
    )
    assert {"prompt", "chosen", "rejected"} <= set(pairs.column_names)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = artifact(uninterrupted, "dpo") / "model"
    assert AutoModelForCausalLM.from_pretrained(model).num_parameters() < 2_000_000
    assert AutoTokenizer.from_pretrained(model).chat_template


def _seconds_of_children() -> float:
    """Return the processor time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_second_run_does_nothing_and_says_so(uninterrupted: Path) -> None:
    began = _seconds_of_children()
    log = uninterrupted.parent / "second.log"
    assert start(uninterrupted, log).wait(300) == 0, log.read_text()
    text = log.read_text()
    assert "nothing to do" in text
    assert not re.search(r"stage \d of \d", text)
    # Of processor time, which does not grow on a busy machine.
    assert _seconds_of_children() - began < 30


def test_killed_in_every_stage_it_ends_with_the_same_artifacts(uninterrupted: Path, tmp_path: Path) -> None:
    output = tmp_path / "outputs"
    log = tmp_path / "log"
    killed = 0
    for stage in STAGES:
        log.touch()
        run = fork(output, log)
        # Into the middle of the stage: a moment after the line that announces it.
        while run.is_alive() and f": {stage}: " not in log.read_text():
            time.sleep(0.02)
        time.sleep(0.4)
        if run.is_alive():
            run.kill()
            killed += 1
        run.join()
    assert killed >= len(STAGES) - 1
    before = {p: p.stat().st_mtime_ns for p in output.glob("artifacts/*/*/*-of-*.jsonl")}
    last = fork(output, log)
    last.join()
    assert last.exitcode == 0, log.read_text()
    assert all(p.stat().st_mtime_ns == mtime for p, mtime in before.items()), "a finished shard was written again"
    assert len(list(output.glob("artifacts/*/*"))) == len(STAGES), "a directory was left behind"
    for stage, files in {
        "label": ["sft-train.jsonl", "pairs-train.jsonl", "labels.jsonl"],
        "dpo": ["model/model.safetensors"],
        "evaluate": ["predictions.parquet"],
    }.items():
        for name in files:
            assert (artifact(output, stage) / name).read_bytes() == (artifact(uninterrupted, stage) / name).read_bytes()


def test_ctrl_c_keeps_what_is_finished(uninterrupted: Path, tmp_path: Path) -> None:
    output = tmp_path / "outputs"
    log = tmp_path / "log"
    log.touch()
    for stage in STAGES[:2]:
        shutil.copytree(uninterrupted / "artifacts" / stage, output / "artifacts" / stage)
    run = fork(output, log)
    while run.is_alive() and ": teacher: " not in log.read_text():
        time.sleep(0.02)
    os.kill(run.pid or 0, signal.SIGINT)
    run.join(120)
    assert run.exitcode == 130, log.read_text()
    assert "interrupted" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert artifact(output, "responses")
