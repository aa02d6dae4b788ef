"""A server's throughput with many clients over one request after another, and its memory over many requests.

    python -m tests.benchmarks.server_throughput JUDGE_DIR [--rows 192] [--clients 64] [--requests N] [key=value ...]

JUDGE_DIR: a trained judge of the quickstart, as in outputs/artifacts/dpo/FINGERPRINT/model. The real command serves it
in a process of its own, on the loopback address, keeping no answers, so that everything is judged. Measured in one run:
comparisons of the world, one request after another; the same number of others from that many clients at once, each with
one comparison a request; and the memory (RSS) of the server before and after. Then a server of the baseline ``longer``
gets ``--requests`` requests (10,000): its memory after a tenth of them, and after all.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.schema import Comparison
from judgetrain.serving.client import RemoteJudge
from tests.builders.served import COMMAND, Served, served

MIB = 2**20


@dataclass(frozen=True)
class Throughput:
    """Verdicts a second: one request after another, and from many clients at once."""

    after_another: float
    at_once: float

    @property
    def times(self) -> float:
        """How much more many clients get."""
        return self.at_once / self.after_another

    def __str__(self) -> str:
        each = f"one after another {self.after_another:.2f}/s, at once {self.at_once:.2f}/s"
        return f"{each}: {self.times:.1f} times as many"


def throughput(url: str, rows: Sequence[Comparison], clients: int) -> Throughput:
    """Half of the rows one after another, the other half by so many clients."""
    half = len(rows) // 2
    return Throughput(
        *(half / seconds(url, part, n) for part, n in ((rows[:half], 1), (rows[half : 2 * half], clients)))
    )


def seconds(url: str, rows: Sequence[Comparison], clients: int) -> float:
    """How long so many clients take for the rows, each with one row a request and one request at a time."""

    def client(part: Sequence[Comparison]) -> None:
        with RemoteJudge(url, rows=1, concurrency=1) as judge:
            judge.compare_all(part)

    with ThreadPoolExecutor(clients) as threads:
        started = time.perf_counter()
        list(threads.map(client, (rows[i::clients] for i in range(clients))))
        return time.perf_counter() - started


def memory(server: Served, requests: int, clients: int = 8) -> tuple[int, int]:
    """Bytes that a server holds after a tenth of so many requests, and after all of them; no two ask the same."""
    rows = [
        Comparison.of(f"query {i} " + "of some length " * 20, "yes " * (i % 50), "no " * 20) for i in range(requests)
    ]
    warm = requests // 10
    seconds(server.url, rows[:warm], clients)
    before = server.rss()
    seconds(server.url, rows[warm:], clients)
    return before, server.rss()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("judge")
    parser.add_argument("--rows", type=int, default=192)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=10_000)
    options, overrides = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as home:
        command = [*COMMAND, "serve.port=0", f"output_dir={home}"]
        rows = eval_comparisons(WorldConfig(eval_comparisons=2 * options.rows + 8), seed=5)
        judge = [f"serve.judge={options.judge}", "serve.keep=false", *overrides]
        with served([*command, *judge], Path(home) / "judge.log") as server:
            seconds(server.url, rows[:8], 1)
            before = server.rss()
            print(throughput(server.url, rows[8:], options.clients), flush=True)
            print(
                f"memory {before / MIB:.1f} MiB before, {server.rss() / MIB:.1f} MiB after {2 * options.rows} verdicts"
            )
        with served([*command, "serve.judge=longer"], Path(home) / "longer.log") as server:
            first, last = memory(server, options.requests)
            print(
                f"longer: {first / MIB:.1f} MiB after {options.requests // 10} requests, {last / MIB:.1f} MiB after "
                f"{options.requests}"
            )


if __name__ == "__main__":
    main()
