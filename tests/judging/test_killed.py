"""Stages judge and stress, killed at a random moment and run again: the same files."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from judgetrain.artifacts.console import Console
from judgetrain.pipeline.run import Pipeline
from tests.builders.debug_run import lasting
from tests.builders.judging import lines
from tests.builders.pipeline import configured

ROWS, PROMPTS = 48, 8


def words(output: Path, *overrides: str) -> list[str]:
    """A judge with weights (the world's untrained base), asked for a branch, sampled: what depends on chance shows."""
    return [
        *("recipe=debug", "track.tracker=none", f"output_dir={output}"),
        *("judge.criteria_tokens=16", "judge.guideline_tokens=12", "judge.judgment_tokens=24", *overrides),
    ]


def stopped_and_finished(stage: str, home: Path, shards: str, moment: int, *overrides: str) -> None:
    """Run a stage whole, and again where ``kill -9`` ends it after so many shards and it goes on: the same files."""
    whole, killed = (words(home / name, *overrides) for name in ("whole", "killed"))
    Pipeline(configured(*whole), Console()).run(stage)
    process = subprocess.Popen(
        [sys.executable, "-m", "judgetrain", stage, *killed], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 1200
        while len(done := list((home / "killed").glob(f"artifacts/{stage}/*/.{shards}-*.json"))) < moment:
            assert process.poll() is None and time.monotonic() < until, "it ended before it was to be killed"
            time.sleep(0.005)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    (place,) = (home / "killed").glob(f"artifacts/{stage}/*")
    assert not (place / "manifest.json").exists()
    before = {path: path.stat().st_mtime_ns for path in done}
    printed = StringIO()
    with redirect_stdout(printed):
        assert Pipeline(configured(*killed), Console()).run(stage) == place
    assert f"{stage}: resuming" in printed.getvalue()
    assert before == {path: os.stat(path).st_mtime_ns for path in before}, "finished shards are not made again"
    assert lasting(home / "killed") == lasting(home / "whole"), f"killed after {moment} shards"


def test_a_run_that_was_killed_and_goes_on_ends_with_the_same_file(tmp_path: Path) -> None:
    asked = ("how do i cook apple cake ?", "why is my cat sad ?", "can you plan a trip ?")
    rows = [
        {"query": asked[i % 3], "response_a": "use three cups of warm water .", "response_b": f"it takes {i} minutes ."}
        for i in range(ROWS)
    ]
    source = lines(tmp_path / "mine.jsonl", rows)
    wanted = ("verdicts.judge=base+sampled", f"verdicts.source.path={source}", "verdicts.shard_size=4")
    stopped_and_finished("judge", tmp_path, "judged", random.Random().randrange(1, ROWS // 4), *wanted)


def test_a_stress_test_that_was_killed_and_goes_on_ends_with_the_same_files(tmp_path: Path) -> None:
    """Killed while the judge scores: neither a response nor a score that is there is made again."""
    wanted = (
        "stress.methods=[base+sampled@1,longer]",
        *("stress.writer={type: world, skill: 0.5}", "stress.samples=4", f"stress.prompts={PROMPTS}"),
    )
    stopped_and_finished("stress", tmp_path, "scores-base*", random.Random().randrange(1, PROMPTS // 2), *wanted)
