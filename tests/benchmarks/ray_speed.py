"""Stage tree by this process, by one Ray worker and by two: seconds of its shards, and whether the artifacts are equal.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.ray_speed outputs recipe=quickstart tree.max_comparisons=256

The first argument is the ``output_dir`` of a run that has the stages before ``tree``; it is copied. Needs Ray, a core
for each worker, and a machine with nothing else to do. Seconds are from the end of the first shard of each worker to
that of the last: without the start of Ray and of the models.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import judgetrain.pipeline.processes as processes
from judgetrain.artifacts.console import Console
from judgetrain.artifacts.executors.base import Done, Executor, R, Work, make_executor
from judgetrain.pipeline.run import Pipeline
from tests.builders.debug_run import lasting
from tests.builders.pipeline import configured

WAYS = {
    "local": ("executor.type=local",),
    "ray, 1 worker": ("executor.type=ray", "executor.workers=1"),
    "ray, 2 workers": ("executor.type=ray", "executor.workers=2"),
}


class Timed:
    """An executor with the seconds from the first result to the last: models are loaded by then."""

    def __init__(self, inner: Executor, warm: int) -> None:
        self.inner, self.warm, self.seconds, self.shards = inner, warm, 0.0, 0
        self.close = inner.close

    def run(self, work: Work[R], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[R]]:
        started = 0.0
        for number, each in enumerate(self.inner.run(work, shards), start=1):
            yield each
            if number == self.warm:
                started = time.perf_counter()
            self.shards, self.seconds = number - self.warm, time.perf_counter() - started


def timed(run: Path, output: Path, overrides: tuple[str, ...]) -> tuple[Timed, dict[str, bytes]]:
    """The stage made anew on a copy of a run."""
    shutil.copytree(run, output)
    shutil.rmtree(output / "artifacts" / "tree", ignore_errors=True)
    config = configured("stage=tree", f"output_dir={output}", "track.tracker=none", *overrides)
    executor = Timed(make_executor(config.executor), config.executor.workers or 1)
    processes.make_executor = lambda *_: executor  # type: ignore[assignment]
    Pipeline(config, Console()).run("tree")
    return executor, {name: content for name, content in lasting(output).items() if name.startswith("tree/")}


def main() -> None:
    """Print a line for each way."""
    run, overrides = Path(sys.argv[1]), tuple(sys.argv[2:])
    first: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (way, own) in enumerate(WAYS.items()):
            executor, files = timed(run, Path(folder) / str(number), (*overrides, *own))
            first = first or files
            rate = executor.shards / executor.seconds
            same = "the same artifact" if files == first else "ANOTHER ARTIFACT"
            print(f"{way:<16}{executor.shards:>4} shards in {executor.seconds:7.1f} s, {rate:.3f} a second; {same}")


if __name__ == "__main__":
    main()
