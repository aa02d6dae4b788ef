"""The executor with 1 to 256 workers, simulated: how long a stage takes, who is busy, what failures cost.

    python -m tests.benchmarks.executor_simulation --times outputs/artifacts/tree/FINGERPRINT --mean 60 --shards 15625

The policy is that of ``judgetrain/artifacts/executors/ray_workers.py``: every worker has one shard, the driver takes
what is finished, one after the other, writes it and hands out the next; a worker that dies is replaced, loads its model
anew, and its shard is processed again. Service times are those of a finished stage's shards (``--times``), scaled to a
mean of ``--mean`` seconds; the driver's seconds a shard are measured here, by writing rows of ``--bytes`` to disk.
"""

from __future__ import annotations

import argparse
import heapq
import random
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import ShardResult, markers_of, names_of
from judgetrain.artifacts.stage_run import StageRun

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What a run is simulated on: seconds to load a model, seconds of the driver a shard, deaths a worker and hour."""

    workers: int
    load: float = 0.0
    driver: float = 0.0
    deaths: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Seconds on the clock, seconds of all workers that finished shards needed, the driver's own, and deaths."""

    seconds: float
    useful: float
    driver: float
    deaths: int

    def efficiency(self, workers: int) -> float:
        """The share of the workers' time that ended up in finished shards."""
        return self.useful / (workers * self.seconds)


def simulated(times: Sequence[float], cluster: Cluster, seed: int) -> Outcome:
    """A stage whose shards take ``times`` seconds each, on a cluster; in the order in which they are handed out."""
    chance = random.Random(seed)
    waiting, free = deque(times), deque([cluster.load] * cluster.workers)
    events: list[tuple[float, int, float, bool]] = []  # when, a number that breaks ties, the shard's time, it died
    driver = busy = 0.0
    deaths = number = left = 0
    left = len(times)
    while left:
        while waiting and free:
            ready, service = free.popleft(), waiting.popleft()
            begin = max(ready, driver)
            lives = chance.expovariate(cluster.deaths / 3600) if cluster.deaths else float("inf")
            died = lives < service
            heapq.heappush(events, (begin + min(lives, service), number, service, died))
            number += 1
        when, _, service, died = heapq.heappop(events)
        driver = max(driver, when)
        if died:
            deaths += 1
            waiting.appendleft(service)
            free.append(when + cluster.load)
            continue
        driver += cluster.driver
        busy += cluster.driver
        free.append(driver)
        left -= 1
    return Outcome(seconds=driver, useful=sum(times), driver=busy, deaths=deaths)


def measured(directory: Path) -> list[float]:
    """The seconds of the shards of a finished stage."""
    names = names_of(directory, "")
    return [marker["seconds"] for name in names for marker in markers_of(directory, name)]


def drawn(times: Sequence[float], mean: float, shards: int, seed: int) -> list[float]:
    """So many service times with this mean, drawn from measured ones."""
    scale = mean * len(times) / sum(times)
    return [t * scale for t in random.Random(seed).choices(times, k=shards)]


def driver_seconds(size: int) -> float:
    """What the driver of a stage takes to write a shard of so many bytes and its marker, here."""
    rows, number = [{"text": "x" * 2000} for _ in range(max(1, size // 2000))], 8
    with tempfile.TemporaryDirectory() as folder:
        out = StageRun(Path(folder) / "a" / "b" / "c", "tree", 1, Console())
        started = time.process_time()  # other work on this machine does not count
        out.sharded("rows", range(number), 1, lambda index, items: ShardResult(rows, len(rows)))
        return (time.process_time() - started) / number


def main() -> None:
    """Print a table, a line for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--mean", type=float, default=60.0, help="seconds of a shard")
    parser.add_argument("--shards", type=int, default=15_625)
    parser.add_argument("--load", type=float, default=120.0, help="seconds to load a model")
    parser.add_argument("--deaths", type=float, default=0.02, help="of a worker, an hour")
    parser.add_argument("--bytes", type=int, default=4_000_000, help="of a shard's rows")
    options = parser.parse_args()
    times = drawn(measured(options.times), options.mean, options.shards, 1)
    driver = driver_seconds(options.bytes)
    print(f"{options.shards} shards of {options.mean:g} s, driver {driver * 1000:.0f} ms a shard")
    print(f"{'workers':>8}{'hours':>10}{'efficiency':>12}{'driver busy':>12}{'deaths':>8}")
    for workers in WORKERS:
        cluster = Cluster(workers=workers, load=options.load, driver=driver, deaths=options.deaths)
        found = simulated(times, cluster, 2)
        busy = found.driver / found.seconds
        print(
            f"{workers:>8}{found.seconds / 3600:>10.2f}{found.efficiency(workers):>11.1%}{busy:>12.1%}{found.deaths:>8}"
        )


if __name__ == "__main__":
    main()
