"""The stage graph: what is reused, what is made again, and what a second process does."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from judgetrain.artifacts.console import Console, duration
from judgetrain.artifacts.files import locked
from judgetrain.artifacts.tracker import TrackConfig
from judgetrain.data.config import (
    BenchmarkConfig,
    DialoguesConfig,
    DialogueSourceConfig,
    SourceConfig,
    WorldEngineConfig,
)
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig, VllmEngineConfig
from judgetrain.errors import ConfigError, DataError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.judges.prompting.prompts import prompt_file
from judgetrain.label.config import TeacherConfig
from judgetrain.pipeline.commands import rows
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.train.config import TrainStages


def config(tmp_path: Path, **dialogues: object) -> Config:
    source = DialogueSourceConfig(name="mine", path=str(tmp_path / "in.jsonl"))
    settings = DialoguesConfig(sources=[source], **dialogues)  # type: ignore[arg-type]
    return Config(
        stage="dialogues", output_dir=str(tmp_path / "outputs"), dialogues=settings, track=TrackConfig("none")
    )


def write(tmp_path: Path, *queries: str) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"query": q}) + "\n" for q in queries))


def test_the_time_told_beforehand_is_that_of_the_same_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "How are you?")
    settings = config(tmp_path)
    own_times, other = ({"recipe": name, "seconds": 61.0} for name in (settings.recipe_name, "another"))
    files = {
        "a": own_times,
        "b": other | {"seconds": 7200.0},
        "c": own_times | {"seconds": "long"},
        "d": [],
        "e": "damaged",
    }
    for i, (name, manifest) in enumerate(files.items()):
        path = tmp_path / "outputs" / "artifacts" / "dialogues" / name / "manifest.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(manifest)[: -1 if name == "e" else None])
        os.utime(path, (i, i))
    Pipeline(settings).run("dialogues")
    assert f"(last time {duration(61.0)}; all that is left {duration(61.0)})" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_finished_stage_prints_again_what_it_printed_at_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate = EvaluateConfig([BenchmarkConfig("world", SourceConfig(name="world", type="world"))], ["longer", "first"])
    settings = Config(stage="evaluate", output_dir=str(tmp_path), evaluate=evaluate, track=TrackConfig("none"))
    settings.dialogues.world.eval_comparisons = 12
    directory = Pipeline(settings).run("evaluate")
    first = capsys.readouterr().out
    Pipeline(settings).run("evaluate")
    again = capsys.readouterr().out
    printed = (directory / "printed.txt").read_text().rstrip("\n")
    assert "longer" in printed and "agreement" in printed and str(tmp_path) not in printed
    assert printed in first and printed in again
    summary = next(line[10:] for line in first.splitlines() if " read, " in line)
    assert summary in again and "nothing to do" in again


def test_a_finished_stage_needs_its_inputs_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "a", "b")
    pipeline = Pipeline(config(tmp_path))
    cluster = pipeline.plan("cluster")
    cluster.directory.mkdir(parents=True)
    manifest = {"counts": {"in": 2, "out": 2, "dropped": {}}, "tokens": {"prompt": 0, "generated": 0}, "seconds": 1.0}
    (cluster.directory / "manifest.json").write_text(json.dumps({"stage": "cluster", **manifest}))
    assert list(pipeline.missing("responses")) == ["dialogues", "responses"]
    assert pipeline.run("cluster") == cluster.directory
    assert "nothing to do" in capsys.readouterr().out
    assert not pipeline.plan("dialogues").directory.exists()


def test_files_of_one_name_in_several_directories_all_count(tmp_path: Path) -> None:
    settings = config(tmp_path)
    settings.dialogues.sources[0].path = str(tmp_path / "*" / "in.jsonl")
    marks = []
    for first in ("x", "y"):
        for name, query in (("a", first), ("b", "z")):
            (tmp_path / name).mkdir(exist_ok=True)
            write(tmp_path / name, query)
        marks.append(Pipeline(settings).plan("dialogues").fingerprint)
    assert marks[0] != marks[1]


def test_what_a_later_stage_lacks_is_said_before_the_first_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a")
    base = config(tmp_path)
    base.teacher.engine = WorldEngineConfig()
    fine = replace(base, train=TrainStages(base=ModelConfig(path="a/b")))
    monkeypatch.setitem(sys.modules, "vllm", None)
    broken = tmp_path / "mine.yaml"
    shipped = prompt_file("compact").read_text()
    broken.write_text(shipped.replace("{guideline}", "guideline"))
    wrong = {
        r"train\.base\.path is empty": base,
        r"train\.base\.path=\./nowhere": replace(base, train=TrainStages(base=ModelConfig(path="./nowhere"))),
        r"there is no teacher; choose one: teacher=openai": replace(
            base, teacher=TeacherConfig(engine=TransformersEngineConfig())
        ),
        r"mine\.yaml: .*judgment.*slot": replace(base, prompts=str(broken)),
        r"engine\.type=vllm: the package vllm is not installed": replace(fine, engine=VllmEngineConfig()),
        r"label\.balance: verdict and place": replace(fine, label=replace(base.label, balance=["verdict", "place"])),
        r"label\.max_pairs_per_level=0": replace(fine, label=replace(base.label, max_pairs_per_level=0)),
    }
    for message, settings in wrong.items():
        with pytest.raises(ConfigError, match=message):
            Pipeline(settings).run("dpo")
    benchmark = BenchmarkConfig(name="mine", source=SourceConfig(name="mine", path=str(tmp_path / "in.jsonl")))
    for message, evaluate in {
        r"evaluate\.benchmarks is empty": EvaluateConfig(methods=["random"]),
        r"evaluate\.methods: 'dop' is none of base": EvaluateConfig([benchmark], methods=["dop"]),
        r"'x' is used twice": EvaluateConfig([benchmark], methods=["a/x", "b/x"]),
    }.items():
        with pytest.raises(ConfigError, match=message):
            Pipeline(replace(base, evaluate=evaluate)).run("evaluate")
    assert not (tmp_path / "outputs" / "artifacts").exists()


@pytest.mark.parametrize("path", ["", "directory"])
def test_a_source_must_be_files(tmp_path: Path, path: str) -> None:
    settings = config(tmp_path)
    (tmp_path / "directory").mkdir()
    settings.dialogues.sources[0].path = path and str(tmp_path / path)
    with pytest.raises(ConfigError, match=r"dialogues\.sources\[0\]\.path"):
        Pipeline(settings).run("dialogues")


def test_a_failed_stage_leaves_no_manifest_and_is_partial(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"query": "a"}\nnot json\n')
    pipeline = Pipeline(config(tmp_path))
    with pytest.raises(DataError, match=r"in\.jsonl:2"):
        pipeline.run("dialogues")
    row = rows(Pipeline(config(tmp_path)))[0]
    assert (row["state"], row["stage=dpo"]) == ("partial", "resume")
    # The same directory is finished once the configuration allows it; strict is part of the fingerprint.
    lenient = Pipeline(config(tmp_path, strict=False)).run("dialogues")
    assert (lenient / "rejects.jsonl").read_text().count("\n") == 1


def test_a_stage_that_is_being_made_is_running(tmp_path: Path) -> None:
    write(tmp_path, "a")
    pipeline = Pipeline(config(tmp_path))
    with locked(pipeline.plan("dialogues").directory, Console()):
        row = rows(Pipeline(config(tmp_path)))[0]
    assert (row["state"], row["detail"], row["stage=dpo"]) == ("running", "started", "wait")
    row = rows(Pipeline(config(tmp_path)))[0]
    assert (row["state"], row["stage=dpo"]) == ("partial", "resume")


def test_two_processes_make_an_artifact_once(tmp_path: Path) -> None:
    write(tmp_path, *(f"query {i}" for i in range(200)))
    command = [
        sys.executable, "-m", "judgetrain", "stage=dialogues", f"output_dir={tmp_path / 'out'}", "track.tracker=none",
        f"dialogues.sources=[{{name: mine, path: '{tmp_path / 'in.jsonl'}'}}]",
    ]  # fmt: skip
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy()) for _ in range(2)]
    outputs = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sum(": dialogues: " in text for text in outputs) == 1
    manifests = list((tmp_path / "out").glob("artifacts/dialogues/*/manifest.json"))
    assert len(manifests) == 1
    assert json.loads(manifests[0].read_text())["counts"]["out"] == 200
