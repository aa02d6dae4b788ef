"""Near-duplicates in a file of dialogues with signatures made here and by workers: ``dialogues``, in seconds.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.signing_speed FILE --workers 0 1 2

For each number of Ray's workers (0: this process; without near-duplicates, too) the CPU seconds of this process, which
is what bounds the stage however many workers there are, and those on the clock. The files have to be the same.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from pathlib import Path

from judgetrain.artifacts.config import ExecutorConfig
from judgetrain.artifacts.console import Console
from judgetrain.artifacts.executors.base import Executor, LocalExecutor, make_executor
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import DialoguesConfig, DialogueSourceConfig
from judgetrain.data.dialogues import run
from judgetrain.data.stages import DialoguesSettings
from judgetrain.extras.ray.cluster import connect


def stage(file: str, near: bool, executor: Executor) -> tuple[float, float, str]:
    """CPU seconds, seconds, and a hash of what the stage writes."""
    settings = DialoguesConfig([DialogueSourceConfig(name="d", path=file)], near_dedup=near, max_query_chars=10**6)
    with tempfile.TemporaryDirectory() as place:
        out = StageRun(Path(place) / "a" / "dialogues" / "f", "dialogues", 1, Console(), executor=executor)
        cpu, clock = time.process_time(), time.monotonic()
        run(DialoguesSettings(seed=1, dialogues=settings), {}, out)
        cpu, clock = time.process_time() - cpu, time.monotonic() - clock
        executor.close()
        written = b"".join(path.read_bytes() for path in sorted(out.directory.glob("*.jsonl")))
    return cpu, clock, hashlib.sha256(written).hexdigest()[:12]


def main() -> None:
    """Print a row for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="JSONL with messages or query")
    parser.add_argument("--workers", type=int, nargs="+", default=[0])
    given = parser.parse_args()
    print("| near-duplicates | workers | CPU s of this process | s | files |\n| --- | --- | --- | --- | --- |")
    print("| no | 0 | {:.2f} | {:.2f} | {} |".format(*stage(given.file, False, LocalExecutor())), flush=True)
    for number in given.workers:
        executor: Executor = LocalExecutor()
        if number:
            config = ExecutorConfig(type="ray", workers=number, cpus_per_worker=0.5)
            connect(config)  # the start of Ray is no part of it
            executor = make_executor(config)
        found = stage(given.file, True, executor)
        print(f"| yes | {number} | {found[0]:.2f} | {found[1]:.2f} | {found[2]} |", flush=True)


if __name__ == "__main__":
    main()
