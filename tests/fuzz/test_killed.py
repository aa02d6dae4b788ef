"""``kill -9`` at random moments over the debug recipe: the artifacts are those of a run that was left alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

from tests.builders.debug_run import finish, lasting, start
from tests.fuzz.effort import effort

KILLS_A_RUN = 25
"""About how often a run is killed before it is whole."""


def test_killed_at_random_moments_it_ends_with_the_same_artifacts(tmp_path: Path) -> None:
    kills, seed = effort(3, 50), int(os.environ.get("JUDGETRAIN_FUZZ_SEED", time.time_ns() % 2**32))
    moments = random.Random(seed)
    began = time.monotonic()
    finish(tmp_path / "whole", tmp_path / "whole.log")
    whole = time.monotonic() - began
    assert "nothing to do" in finish(tmp_path / "whole", tmp_path / "again.log")
    starting = time.monotonic() - began - whole
    expected = lasting(tmp_path / "whole")
    window = starting + 2 * whole / min(kills, KILLS_A_RUN)
    where: Counter[str] = Counter()
    runs = 0
    while where.total() < kills:
        output, log = tmp_path / f"killed-{runs}", tmp_path / f"killed-{runs}.log"
        while where.total() < kills:
            run = start(output, log)
            try:
                code = run.wait(timeout=moments.uniform(0, window))
            except subprocess.TimeoutExpired:
                os.kill(run.pid, signal.SIGKILL)
                run.wait()
                where[stage(log)] += 1
            else:
                assert code == 0, log.read_text()
                break
        finish(output, log)
        found = lasting(output)
        assert "Traceback" not in log.read_text()
        assert sorted(found) == sorted(expected)
        assert [name for name in found if found[name] != expected[name]] == []
        runs += 1
    print(f"\n{kills} kills in {runs} runs (seed {seed}), last said: {dict(where)}; {len(expected)} files equal in each")


def stage(log: Path) -> str:
    """The stage that the log speaks of last."""
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    said = [words[1].rstrip(":") for words in lines if len(words) > 1 and words[1].endswith(":")]
    return said[-1] if said else "starting"
