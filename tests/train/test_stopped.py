"""Trainings that are told to end: SIGTERM keeps the step under way, and no worker of a sweep trains on alone."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from judgetrain.train.checkpoints import COMPLETE, complete
from tests.builders.pairs_pipeline import OVERRIDES, ROOT, composed, first_checkpoint, plant

LONG = ["stage=sft", "train.sft={max_steps: 3000, save_steps: 3, per_device_train_batch_size: 4}"]
"""A training that does not end by itself in a test's time."""


def started(output: Path, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """The command line in a process of its own, whose lines go to ``log``."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "judgetrain", *arguments, *OVERRIDES, *LONG, f"output_dir={output}"],
            stdout=file,
            stderr=file,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )


def test_sigterm_keeps_the_step_under_way(tmp_path: Path) -> None:
    plant(composed(tmp_path, *LONG))
    log = tmp_path / "log"
    process = started(tmp_path, log)
    checkpoints = first_checkpoint(tmp_path, log, lambda: process.poll() is None)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 128 + signal.SIGTERM, log.read_text()
    printed = log.read_text()
    assert "SIGTERM again stops at once" in printed and "Traceback" not in printed
    rows = (checkpoints.parent / "train_log.jsonl").read_text().splitlines()
    last_step = json.loads(rows[-1])["step"]
    assert "interrupted in stage" in printed and f"(training step {last_step}" in printed
    assert complete(checkpoints)[-1][0] == last_step, "no step is taken twice"


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_the_jobs_of_a_sweep_end_with_the_command(tmp_path: Path, by: signal.Signals) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    for seed in (1, 2):
        plant(composed(tmp_path, *LONG, f"seed={seed}"))
    log = tmp_path / "log"
    process = started(tmp_path, log, "-m", "sweep=joblib", "seed=1,2")
    workers: list[psutil.Process] = []
    try:
        deadline = time.monotonic() + 600
        while len({mark.parents[2] for mark in tmp_path.glob(f"artifacts/sft/*/checkpoints/*/{COMPLETE}")}) < 2:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        workers = psutil.Process(process.pid).children(recursive=True)
        assert len(workers) >= 2
        process.send_signal(by)
        assert process.wait(60) == -by
        _, left = psutil.wait_procs(workers, timeout=30)
        assert not left, [worker.cmdline() for worker in left]
    finally:
        process.kill()
        for worker in workers:
            if worker.is_running():
                worker.kill()
