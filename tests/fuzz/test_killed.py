"""``kill -9`` at random moments over the debug recipe: the artifacts are those of a run that was left alone."""

from __future__ import annotations

import json
import math
import os
import random
import time
from pathlib import Path

from tests.builders.debug_run import finish, fork, lasting
from tests.fuzz.effort import effort

EARLIEST, LATEST = 0.3, 0.2
"""When a process is killed: from so many seconds after it is forked, to this share of what a whole run took."""


def test_killed_at_random_moments_it_ends_with_the_same_artifacts(finished: Path, tmp_path: Path) -> None:
    kills, seed = effort(2, 50), int(os.environ.get("JUDGETRAIN_FUZZ_SEED", time.time_ns() % 2**32))
    chance, expected = random.Random(seed), lasting(finished)
    work = sum(json.loads(path.read_bytes())["seconds"] for path in finished.glob("artifacts/*/*/manifest.json"))
    runs = done = 0
    while done < kills:
        output, log = tmp_path / f"killed-{runs}", tmp_path / f"killed-{runs}.log"
        while done < kills:
            # As many after a moment as after a while: in a stage's first steps, and in the middle of the longest.
            after = math.exp(chance.uniform(math.log(EARLIEST), math.log(LATEST * work)))
            if ended(output, log, after):
                break
            done += 1
        finish(output, log)
        said, found = log.read_text(), lasting(output)
        assert "Traceback" not in said, (seed, said)
        assert sorted(found) == sorted(expected)
        assert [name for name in found if found[name] != expected[name]] == [], seed
        runs += 1


def ended(output: Path, log: Path, after: float) -> bool:
    """Start the command and kill it after so many seconds; gives whether it had ended before."""
    run = fork(output, log)
    run.join(after)
    if run.exitcode is None:
        run.kill()
        run.join()
        return False
    assert run.exitcode == 0, log.read_text()
    return True
