"""Stage judge, killed at a random moment and run again: the same file."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.builders.judging import lines

ROWS = 48


def command(source: Path, output: Path) -> list[str]:
    """A judge with weights (the world's untrained base), asked for a branch, sampled: what depends on chance shows."""
    return [
        *(sys.executable, "-m", "judgetrain", "judge", "recipe=debug", "track.tracker=none", f"output_dir={output}"),
        *("verdicts.judge=base+sampled", f"verdicts.source.path={source}", "verdicts.shard_size=4"),
        *("judge.criteria_tokens=16", "judge.guideline_tokens=12", "judge.judgment_tokens=24"),
    ]


def files(output: Path) -> dict[str, bytes]:
    (directory,) = output.glob("artifacts/judge/*")
    return {name: (directory / name).read_bytes() for name in ("verdicts.jsonl", "verdicts.parquet", "summary.json")}


def test_a_run_that_was_killed_and_goes_on_ends_with_the_same_file(tmp_path: Path) -> None:
    asked = ("how do i cook apple cake ?", "why is my cat sad ?", "can you plan a trip ?")
    rows = [
        {"query": asked[i % 3], "response_a": "use three cups of warm water .", "response_b": f"it takes {i} minutes ."}
        for i in range(ROWS)
    ]
    source = lines(tmp_path / "mine.jsonl", rows)
    subprocess.run(command(source, tmp_path / "whole"), check=True, capture_output=True, timeout=1200)
    moment = random.Random().randrange(1, ROWS // 4)
    process = subprocess.Popen(
        command(source, tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 1200
        while len(done := list((tmp_path / "killed").glob("artifacts/judge/*/.judged-*.json"))) < moment:
            assert process.poll() is None and time.monotonic() < until, "it ended before it was to be killed"
            time.sleep(0.005)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    (place,) = (tmp_path / "killed").glob("artifacts/judge/*")
    assert not (place / "manifest.json").exists()
    before = {path: path.stat().st_mtime_ns for path in done}
    again = subprocess.run(
        command(source, tmp_path / "killed"), capture_output=True, text=True, timeout=1200, check=False
    )
    assert again.returncode == 0, again.stderr
    assert "judge: resuming" in again.stdout
    assert before == {path: os.stat(path).st_mtime_ns for path in before}, "finished shards are not judged again"
    assert files(tmp_path / "killed") == files(tmp_path / "whole"), f"killed after {moment} shards"
