"""``kill -9`` at random moments over the debug recipe: the artifacts are those of a run that was left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

from tests.builders.debug_run import finish, lasting, start
from tests.fuzz.effort import effort

KILLS_A_RUN = 50
"""About how often a run is killed before it is whole."""
IN_START = 0.1
"""Share of the kills that may come while the process starts; the others come once it has said what it does."""


def test_killed_at_random_moments_it_ends_with_the_same_artifacts(finished: Path, tmp_path: Path) -> None:
    kills, seed = effort(3, 50), int(os.environ.get("JUDGETRAIN_FUZZ_SEED", time.time_ns() % 2**32))
    moments, expected = random.Random(seed), lasting(finished)
    work = sum(json.loads(path.read_bytes())["seconds"] for path in finished.glob("artifacts/*/*/manifest.json"))
    where: Counter[str] = Counter()
    runs = 0
    while where.total() < kills:
        output, log = tmp_path / f"killed-{runs}", tmp_path / f"killed-{runs}.log"
        while where.total() < kills and not killed(output, log, moments, 2 * work / min(kills, KILLS_A_RUN)):
            where[stage(log)] += 1
        finish(output, log)
        found = lasting(output)
        assert "Traceback" not in log.read_text()
        assert sorted(found) == sorted(expected)
        assert [name for name in found if found[name] != expected[name]] == []
        runs += 1
    print(
        f"\n{kills} kills in {runs} runs (seed {seed}), last said: {dict(where)}; {len(expected)} files equal in each"
    )


def killed(output: Path, log: Path, moments: random.Random, window: float) -> bool:
    """Start the command and kill it at a random moment of a window, seconds; gives whether it came to its end first."""
    before = log.stat().st_size if log.exists() else 0
    run = start(output, log)
    while run.poll() is None and log.stat().st_size == before:
        time.sleep(0.05)
        if moments.random() < IN_START / 100:
            break
    try:
        assert run.wait(timeout=moments.uniform(0, window)) == 0, log.read_text()
        return True
    except subprocess.TimeoutExpired:
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        return False


def stage(log: Path) -> str:
    """The stage that the log speaks of last."""
    lines = [line.split() for line in log.read_text().splitlines()]
    said = [words[1].rstrip(":") for words in lines if len(words) > 1 and words[1].endswith(":")]
    return said[-1] if said else "starting"
