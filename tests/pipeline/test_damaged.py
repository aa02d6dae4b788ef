"""The command before damaged files, and in places where it may not write: a sentence, and what to do."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from judgetrain.artifacts import integrity
from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.errors import ConfigError, DataError, JudgetrainError
from judgetrain.extras.reports.merged import merge
from judgetrain.pipeline import commands
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.train.complete import complete_checkpoints
from tests.builders.pairs_pipeline import composed, plant
from tests.builders.pipeline import configured, judgetrain

READ = ("recipe=debug", "stage=cluster", "track.tracker=none", "cluster={n_clusters: 2, sample: 8}")


def made(tmp_path: Path) -> Config:
    config = configured(*READ, "dialogues.world={train_dialogues: 16, eval_comparisons: 8}", f"output_dir={tmp_path}/o")
    Pipeline(config).run("dialogues")
    return config


def test_a_disk_that_is_full_while_a_checkpoint_is_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    real = torch.save
    saves = list[str]()

    def full(value: object, file: object, *arguments: object, **named: object) -> None:
        saves.append(str(file))
        # PyTorch's own writer, on a device that is always full, from the second checkpoint on.
        real(value, "/dev/full" if "checkpoint-4" in str(file) else file, *arguments, **named)

    settings = ["stage=sft", "train.sft={max_steps: 6, save_steps: 2, per_device_train_batch_size: 4}"]
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(JudgetrainError, match=r"^the disk is full while writing \S+: free some space") as error:
            plant(composed(tmp_path, *settings)).run("sft")
    assert "\n" not in str(error.value) and any("checkpoint-4" in name for name in saves)
    [checkpoints] = tmp_path.glob("artifacts/sft/*/checkpoints")
    assert [step for step, _ in complete_checkpoints(checkpoints)] == [2]
    directory = plant(composed(tmp_path, *settings)).run("sft")
    assert json.loads((directory / "manifest.json").read_text())["notes"]["training"]["steps"] == 6


def test_an_output_dir_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for stage in ("status", "dialogues"):
        done = judgetrain("recipe=debug", f"stage={stage}", f"output_dir={tmp_path}/file")
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1 and f"{tmp_path}/file" in done.stderr
        assert "director" in done.stderr
    assert (tmp_path / "file").read_text() == "mine"


def unprivileged(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the command for a user for whom permissions hold, root included."""
    import ctypes

    libc = ctypes.CDLL(None)

    def drop() -> None:
        libc.prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE: without effect for who does not have it

    command = [sys.executable, "-m", "judgetrain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, preexec_fn=drop)


def test_a_status_writes_nothing_and_a_run_that_may_not_write_is_one_sentence(tmp_path: Path) -> None:
    made(tmp_path)
    output = tmp_path / "o"
    [finished] = output.glob("artifacts/dialogues/*")
    (finished / ".lock").touch()
    for place in [output, *output.rglob("*")]:
        place.chmod(0o555 if place.is_dir() else 0o444)
    before = {path: path.stat().st_mtime_ns for path in [output, *output.rglob("*")]}
    try:
        done = unprivileged(*READ, "stage=status", f"output_dir={output}")
        assert done.returncode == 0 and "dialogues" in done.stdout, done.stderr
        assert {path: path.stat().st_mtime_ns for path in [output, *output.rglob("*")]} == before
        done = unprivileged(*READ, "stage=cluster", f"output_dir={output}")
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
        assert "Permission denied" in done.stderr and "output_dir must be a directory" in done.stderr
    finally:
        for place in [output, *output.rglob("*")]:
            place.chmod(0o755)


def states(config: Config) -> dict[str, dict[str, str]]:
    """Return the rows of status by their stage."""
    return {row["stage"]: row for row in commands.rows(Pipeline(config))}


def turned(path: Path) -> None:
    """Turn a bit in the middle of a file, which keeps its size."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_status_and_a_run_say_the_same_of_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = made(tmp_path)
    # Every file is a large one: runs read what they need whole, and status must not call it whole unread.
    monkeypatch.setattr(integrity, "SMALL", 0)
    [dialogues] = tmp_path.glob("o/artifacts/dialogues/*")
    whole = (dialogues / "dialogues.jsonl").read_bytes()
    turned(dialogues / "dialogues.jsonl")

    row = states(config)["dialogues"]
    assert (row["state"], row["stage=dpo"]) == ("damaged", "stop")
    with pytest.raises(ConfigError) as of_status:
        commands.show(Pipeline(config))
    with pytest.raises(DataError) as of_run:
        Pipeline(config).run("cluster")
    assert str(of_status.value) == str(of_run.value)
    assert "dialogues.jsonl holds other bytes than were written; stage dialogues has to be made" in str(of_run.value)

    # Once nothing reads it any more a run goes on, and status foresees that.
    (dialogues / "dialogues.jsonl").write_bytes(whole)
    Pipeline(config).run("responses")
    (dialogues / "dialogues.jsonl").write_bytes(whole[:-9])
    row = states(config)["dialogues"]
    assert (row["state"], row["stage=dpo"], row["stage=evaluate"]) == ("damaged", "unread", "unread")
    commands.show(Pipeline(config))
    capsys.readouterr()
    Pipeline(config).run("responses")
    printed = capsys.readouterr().out
    assert f"dialogues: {row['detail']}; no stage reads it now" in printed and "nothing to do" in printed


def test_status_and_a_run_say_the_same_of_an_artifact_in_the_place_of_another(tmp_path: Path) -> None:
    config = made(tmp_path)
    [dialogues] = tmp_path.glob("o/artifacts/dialogues/*")
    other = configured(*READ, "dialogues.world={train_dialogues: 17, eval_comparisons: 8}", f"output_dir={tmp_path}/o")
    # Under the name of other settings, as after a copy into the wrong folder.
    dialogues.rename(Pipeline(other).plan("dialogues").directory)
    assert states(config)["dialogues"]["state"] == "missing"
    assert states(other)["dialogues"]["state"] == "damaged"
    with pytest.raises(ConfigError, match=rf"manifest\.json is that of dialogues/{dialogues.name}") as of_status:
        commands.show(Pipeline(other))
    with pytest.raises(DataError) as of_run:
        Pipeline(other).run("cluster")
    assert str(of_status.value) == str(of_run.value)


def test_status_foresees_the_end_of_a_run_on_broken_notes(tmp_path: Path) -> None:
    config = made(tmp_path)
    unfinished = Pipeline(config).plan("cluster").directory
    unfinished.mkdir(parents=True)
    (unfinished / ".notes.json").write_text("{")
    row = states(config)["cluster"]
    assert (row["state"], row["stage=dpo"], row["detail"]) == ("damaged", "stop", ".notes.json is damaged")
    with pytest.raises(DataError, match=r"\.notes\.json is damaged: remove .*, which is not finished") as of_run:
        Pipeline(config).run("cluster")
    with pytest.raises(ConfigError, match=re.escape(str(of_run.value))):
        commands.show(Pipeline(config))


def test_the_progress_of_unfinished_work_counts_what_a_run_goes_on_from(tmp_path: Path) -> None:
    plan = Pipeline(made(tmp_path)).plan("cluster")
    out = StageRun(plan.directory, "cluster", 1, Console())
    out.sharded("rows", range(12), 4, lambda index, items: ShardResult([{"value": i} for i in items], len(items)))
    for step in (2, 4):
        checkpoint = plan.directory / "checkpoints" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "weights").write_bytes(bytes(10))
        (checkpoint / "complete").write_text('{"layout": "one", "bytes": {"weights": 10}}')
    assert plan.progress.startswith("3 of 3 shards, training step 4")

    out.path("rows-00001-of-00003.jsonl").write_text("{}\n")
    # Of a run that split the items otherwise.
    out.path(".rows-00000-of-00002.json").write_text("{}")
    (plan.directory / "checkpoints" / "checkpoint-4" / "weights").write_bytes(bytes(9))
    assert plan.progress.startswith("2 of 3 shards, training step 2")


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "a/b", "..", ".", ""])
def test_a_report_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    config = Config(output_dir=str(tmp_path / "a" / "o"))
    config.report.name = name
    with pytest.raises(ConfigError, match=r"report\.name='.*': must be the name of one folder"):
        merge(Pipeline(config))
    assert list(tmp_path.iterdir()) == []
