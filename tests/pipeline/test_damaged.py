"""The command before damaged files, and in places where it may not write: a sentence, and what to do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from judgetrain.errors import ConfigError, JudgetrainError
from judgetrain.extras.reports.merged import merge
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.train.checkpoints import complete
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

    real, saves = torch.save, list[str]()

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
    assert [step for step, _ in complete(checkpoints)] == [2]
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
    """The command as a user for whom permissions hold, root included."""
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


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "a/b", "..", ".", ""])
def test_a_report_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    config = Config(output_dir=str(tmp_path / "a" / "o"))
    config.report.name = name
    with pytest.raises(ConfigError, match=r"report\.name='.*': must be the name of one folder"):
        merge(Pipeline(config))
    assert list(tmp_path.iterdir()) == []
