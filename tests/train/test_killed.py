"""``kill -9`` of one process in the middle of training, and how many checkpoints there are at any time."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from judgetrain.train.checkpoints import COMPLETE, KEPT, CheckpointMarks, complete
from tests.builders.pairs_pipeline import RL, composed, plant, start
from tests.builders.train import same, weights

STEPS = {"sft": 24, "dpo": 24, "rl": 8}
CASES = {
    "sft": [
        "stage=sft",
        "train.sft={per_device_train_batch_size: 4, global_accumulation_steps: 2, num_train_epochs: 4, save_steps: 2}",
    ],
    "dpo": ["stage=dpo", "train.dpo={num_train_epochs: 4, eval_steps: 2, keep_best: true}"],
    "rl": RL,
}


def artifact(output: Path, stage: str) -> Path:
    return next((output / "artifacts" / stage).iterdir())


@pytest.mark.parametrize("stage", ["sft", "dpo", "rl"])
def test_a_killed_process_goes_on_at_its_checkpoint_and_keeps_no_more_than_it_may(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts: list[tuple[int, int]] = []
    real = CheckpointMarks.on_save

    def counted(self: CheckpointMarks, args: Any, *arguments: Any, **named: Any) -> None:
        directory = Path(args.output_dir)
        counts.append((len(complete(directory)), len(list(directory.glob("checkpoint-*")))))
        real(self, args, *arguments, **named)
        counts.append((len(complete(directory)), len(list(directory.glob("checkpoint-*"))) + 1))

    monkeypatch.setattr(CheckpointMarks, "on_save", counted)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    plant(composed(whole, *CASES[stage])).run(stage)
    run = start(cut, *CASES[stage])
    deadline = time.monotonic() + 300
    while not (marks := list(cut.glob(f"artifacts/{stage}/*/checkpoints/*/{COMPLETE}"))):
        assert run.poll() is None and time.monotonic() < deadline, run.communicate(timeout=60)[0]
        time.sleep(0.01)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate(timeout=60)
    assert marks and run.returncode == -signal.SIGKILL and not (artifact(cut, stage) / "model").exists()
    marked = complete(artifact(cut, stage) / "checkpoints")
    assert 1 <= len(marked) <= KEPT
    capsys.readouterr()
    plant(composed(cut, *CASES[stage])).run(stage)
    assert f"{stage}: resuming at step {marked[-1][0]}\n" in capsys.readouterr().out
    assert 0 < marked[-1][0] < STEPS[stage]
    assert same(weights(artifact(whole, stage)), weights(artifact(cut, stage)))
    # Beside the complete ones there is never more than the one that is being written.
    assert max(whole for whole, _ in counts) == KEPT and max(there for _, there in counts) == KEPT + 1
    assert not (artifact(cut, stage) / "checkpoints").exists()
