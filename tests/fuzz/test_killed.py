"""``kill -9`` at random moments over the debug recipe: the artifacts are those of a run that was left alone."""

import json
import math
import os
import random
import shutil
import time
from pathlib import Path

from tests.builders.debug_run import STAGES, fork, lasting
from tests.fuzz.effort import effort

EARLIEST = 0.3
LATEST = 0.2
"""When a process is killed: from so many seconds after it is forked, to this share of what a whole run took."""


def test_killed_at_random_moments_it_ends_with_the_same_artifacts(finished: Path, tmp_path: Path) -> None:
    # In short form two stages are killed, drawn anew each time; all others are finished.
    kills = effort(2, 50)
    seed = int(os.environ.get("JUDGETRAIN_FUZZ_SEED", time.time_ns() % 2**32))
    chance = random.Random(seed)
    whole = lasting(finished)
    length = effort(2, len(STAGES))
    runs = done = 0
    while done < kills:
        first = chance.randrange(len(STAGES) - length + 1)
        again = STAGES[first : first + length]
        output = tmp_path / f"killed-{runs}"
        log = tmp_path / f"killed-{runs}.log"
        shutil.copytree(finished, output)
        seconds_taken = [
            json.loads(p.read_bytes())["seconds"] for s in again for p in output.glob(f"artifacts/{s}/*/manifest.json")
        ]
        for stage in STAGES[first:]:
            shutil.rmtree(output / "artifacts" / stage)
        while done < kills:
            # As many after a moment as after a while: in a stage's first steps, and in the middle of the longest.
            after = math.exp(chance.uniform(math.log(EARLIEST), math.log(max(EARLIEST, LATEST * sum(seconds_taken)))))
            if ended(output, log, again[-1], after):
                break
            done += 1
        assert ended(output, log, again[-1], None)
        log_text = log.read_text()
        contents = lasting(output)
        assert "Traceback" not in log_text, (seed, log_text)
        assert sorted(contents) == [
            name for name in sorted(whole) if name.split("/")[0] not in STAGES[first + length :]
        ]
        assert [name for name in contents if contents[name] != whole[name]] == [], seed
        runs += 1


def ended(output: Path, log: Path, stage: str, after: float | None) -> bool:
    """Start the command and kill it after so many seconds, or never; gives whether it had ended before."""
    run = fork(output, log, f"stage={stage}")
    run.join(after)
    if run.exitcode is None:
        run.kill()
        run.join()
        return False
    assert run.exitcode == 0, log.read_text()
    return True
