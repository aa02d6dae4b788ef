"""Stage tree by this process, by one Ray worker and by two: shards a second, and whether the artifacts are equal.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.ray_speed outputs recipe=quickstart seed=17 tree.shard_size=36

The first argument is the ``output_dir`` of a run that has the stages before ``tree``; it is copied, and a stage that
the given settings make otherwise is made again first, which is not counted. Needs Ray, a core for each worker, and a
machine with nothing else to do; with the quickstart's judge some seven minutes. Counted are the shards after the first
of every worker, and the seconds from then to the end: without the start of Ray and of the models, with the writing of
shards and with the end, where a worker waits for the last.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import judgetrain.pipeline.processes as processes
from judgetrain.artifacts.console import Console
from judgetrain.artifacts.executors.base import Done, Executor, Work, make_executor
from judgetrain.pipeline.run import Pipeline
from tests.benchmarks.common import parser_of
from tests.builders.debug_run import lasting
from tests.builders.pipeline import configured

WAYS = {
    "local": ("executor.type=local",),
    "ray, 1 worker": ("executor.type=ray", "executor.workers=1"),
    "ray, 2 workers": ("executor.type=ray", "executor.workers=2"),
}


@dataclass(frozen=True)
class Signed:
    """What is done with a shard, which says beside its result which process did it."""

    process: Callable[[int, Any], Any]

    def __call__(self, index: int, items: Any) -> tuple[int, Any]:
        return os.getpid(), self.process(index, items)


class Timed:
    """An executor that counts shards and seconds after the first shard of each of its workers."""

    def __init__(self, inner: Executor, workers: int) -> None:
        self.inner, self.workers = inner, workers
        self.seconds, self.shards, self.spent = 0.0, 0, 0.0
        self.close = inner.close

    def run(self, work: Work[Any], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[Any]]:
        began, seen = 0.0, set[int]()
        for each in self.inner.run(replace(work, process=Signed(work.process)), shards):
            pid, result = each.result  # type: ignore[misc]
            yield replace(each, result=result)
            if len(seen) == self.workers:
                self.shards += 1
                self.spent += each.seconds
                self.seconds = time.perf_counter() - began
            elif pid not in seen:
                seen.add(pid)
                began = time.perf_counter()

    @property
    def rate(self) -> float:
        """Shards a second.

        Raises:
            SystemExit: there were too few.
        """
        if self.shards < 2 * self.workers:
            raise SystemExit(f"{self.shards} shards were left to be timed: lower tree.shard_size")
        return self.shards / self.seconds


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
    """Print a line for each way, the overhead of one worker, and how much faster two are."""
    os.environ.setdefault("RAY_worker_niceness", "0")  # as this process; Ray's own default is 15
    parser = parser_of(__doc__)
    parser.add_argument("run", type=Path, help="output_dir of a run that has the stages before tree")
    parser.add_argument("overrides", nargs="*", help="of its settings, as recipe=quickstart")
    arguments = parser.parse_args()
    first: dict[str, bytes] = {}
    rates = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (way, own) in enumerate(WAYS.items()):
            executor, files = timed(arguments.run, Path(folder) / str(number), (*arguments.overrides, *own))
            first = first or files
            rates.append(executor.rate)
            same = "the same artifact" if files == first else "ANOTHER ARTIFACT"
            print(
                f"{way:<16}{executor.shards:>4} shards of {executor.spent / executor.shards:.1f} s in "
                f"{executor.seconds:7.1f} s, {executor.rate:.4f} a second; {same}",
                flush=True,
            )
    here, one, two = rates
    print(f"one worker takes {here / one - 1:+.1%} time over local; two workers are {two / one:.2f} times one")


if __name__ == "__main__":
    main()
