"""K-means of stage cluster at several sizes: seconds, memory, disk, and inertia beside a fit of all rows at once.

    python -m tests.benchmarks.clustering_scale
    python -m tests.benchmarks.clustering_scale --rows 2000 20000 --dimensions 16 --clusters 20 --whole 20000

The first takes hours, the second seconds. Rows are drawn around centres, block by block, and written to a file as stage
cluster writes embeddings: no process ever holds them. Each size is a process of its own. Memory is the most that it has
besides what it maps from files, which the system takes back at will, above what it has with everything imported. Disk
is the rows and their copy in single precision, which has no name and goes with the process. ``--whole`` names the size
at which scikit-learn's KMeans is also fitted to all rows in memory, by its own first centres and to its own end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from judgetrain.data.clustering import MAX_ITER, kmeans
from judgetrain.data.config import ClusterConfig
from tests.benchmarks.common import parser_of, versions

BLOCK = 20_000
"""Rows drawn at a time."""
SPREAD = 1.0
"""The noise's length beside that of a centre: clusters overlap, as those of sentences do."""
SEED = 17


def write_rows(path: Path, rows: int, dimensions: int, clusters: int) -> None:
    """Write unit vectors [rows, dimensions], float16, around twice as many centres as there are clusters."""
    rng = np.random.default_rng(SEED)
    centres = rng.normal(size=(2 * clusters, dimensions)).astype(np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    written = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(rows, dimensions))
    for start in range(0, rows, BLOCK):
        number = min(BLOCK, rows - start)
        noise = rng.standard_normal((number, dimensions), dtype=np.float32) * (SPREAD / dimensions**0.5)
        block = centres[rng.integers(len(centres), size=number)] + noise
        written[start : start + number] = block / np.linalg.norm(block, axis=1, keepdims=True)
    written.flush()


def own_memory() -> float:
    """Return the MiB that this process holds besides what it maps from files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no line RssAnon: run it on Linux")


class Peak:
    """The most memory that the process held while the block ran, in MiB above what it held before."""

    def __enter__(self) -> Peak:
        self._before = own_memory()
        self.mib = 0.0
        self._ends = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def _look(self) -> None:
        while not self._ends.wait(0.02):
            self.mib = max(self.mib, own_memory() - self._before)

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._watch.join()


def of_size(path: Path, clusters: int, whole: bool) -> dict[str, float]:
    """Return what the rows of a file take: by stage cluster, or by one fit of all of them in memory.

    Args:
        path: of the rows.
        clusters: their number.
        whole: whether scikit-learn's KMeans is fitted to all rows.
    """
    from sklearn.cluster import KMeans

    rows = np.load(path, mmap_mode="r")
    # What is imported and started at the first call is not the size's.
    kmeans(np.asarray(rows[: 2 * clusters]), ClusterConfig(n_clusters=clusters, backend="sklearn"), SEED)
    clock, processor = time.perf_counter(), time.process_time()
    with Peak() as peak:
        if whole:
            model = KMeans(clusters, n_init=1, max_iter=MAX_ITER, random_state=SEED)
            inertia = model.fit(np.asarray(rows, dtype=np.float32)).inertia_
        else:
            _, inertia, _ = kmeans(rows, ClusterConfig(n_clusters=clusters, backend="sklearn"), SEED)
    return {
        "seconds": time.perf_counter() - clock,
        "processor": time.process_time() - processor,
        "mib": peak.mib,
        "inertia": float(inertia),
    }


def measured(path: Path, options: argparse.Namespace, whole: bool) -> dict[str, float]:
    """Return what :func:`of_size` does in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.clustering_scale", "--measure", str(path)]
    if whole:
        command.append("--all-at-once")
    done = subprocess.run(
        [*command, "--clusters", str(options.clusters)], stdout=subprocess.PIPE, text=True, check=True
    )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def row(count: int, how: str, figures: dict[str, float], disk: float) -> str:
    """Return a row of the table."""
    cells: list[Any] = [f"{count:,}", how, f"{figures['seconds']:.1f}", f"{figures['processor']:.1f}"]
    cells += [f"{figures['mib']:.0f}", f"{disk / 2**20:.0f}", f"{figures['inertia'] / count:.5f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 500_000, 1_000_000, 5_000_000])
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--whole", type=int, default=500_000, help="the size that is also fitted all at once; 0: none")
    parser.add_argument("--place", type=Path, help="where the rows are written; default: the temporary directory")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--all-at-once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(of_size(options.measure, options.clusters, options.all_at_once)))
        return

    print(f"{options.dimensions} dimensions, {options.clusters} clusters; {versions('scikit-learn', 'numpy')}\n")
    print("| rows | fit | seconds | CPU seconds | MiB of memory | MiB of disk | inertia a row |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for count in options.rows:
        with tempfile.TemporaryDirectory(dir=options.place) as place:
            path = Path(place) / "embeddings.npy"
            write_rows(path, count, options.dimensions, options.clusters)
            ours = measured(path, options, whole=False)
            numbers = count * options.dimensions
            # Two bytes a number in the file, and four in its copy.
            print(row(count, "stage cluster", ours, 6 * numbers), flush=True)
            if count == options.whole:
                theirs = measured(path, options, whole=True)
                print(row(count, "all rows at once", theirs, 2 * numbers))
                more = ours["inertia"] / theirs["inertia"] - 1
                print(f"| | stage cluster's inertia beside it | | | | | {more:+.2%} |", flush=True)


if __name__ == "__main__":
    main()
