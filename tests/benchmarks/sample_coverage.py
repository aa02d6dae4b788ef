"""How well samples over clusters cover a corpus, against random samples of the same size, with intervals over seeds.

    python -m tests.benchmarks.sample_coverage CLUSTER_ARTIFACT DIALOGUES_ARTIFACT --clusters 200 --samples 500 2000

CLUSTER_ARTIFACT holds the embeddings (embeddings.npy) of DIALOGUES_ARTIFACT's dialogues. For every seed the rows are
clustered anew, a tenth of them is held out, and both samples are drawn from the others. Measured are the mean cosine
distance of a held-out query to the nearest sampled one, its 95th percentile, its mean with every cluster weighing the
same, and the share of the corpus' categories that the sample has. Prints Markdown: means over seeds, the mean of the
differences (clusters - random) and its 95 % interval (Student's t).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.clustering.kmeans import kmeans
from judgetrain.data.clustering.stage import sample_uniform
from judgetrain.data.config import ClusterConfig
from tests.benchmarks.common import parser_of

HELD_OUT = 0.1
MEASURES = {
    "distance": "distance to the nearest sampled query",
    "distance_p95": "its 95th percentile",
    "distance_by_cluster": "its mean, every cluster weighing the same",
    "categories": "share of the categories",
}


def nearest(embeddings: np.ndarray, probes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Cosine distance of each probe to the nearest of ``rows``, float ``[probes]``."""
    return np.array([1.0 - float((embeddings[rows] @ embeddings[probe]).max()) for probe in probes]).clip(0.0)


def measured(
    embeddings: np.ndarray, labels: np.ndarray, categories: np.ndarray, probes: np.ndarray, rows: np.ndarray
) -> dict[str, float]:
    """The measures of one sample (``rows``) on the held-out rows (``probes``)."""
    distance = nearest(embeddings, probes, rows)
    _, place = np.unique(labels[probes], return_inverse=True)
    known = np.unique(categories[categories >= 0])
    found = np.intersect1d(categories[rows], known)
    return {
        "distance": float(distance.mean()),
        "distance_p95": float(np.percentile(distance, 95)),
        "distance_by_cluster": float((np.bincount(place, distance) / np.bincount(place)).mean()),
        "categories": len(found) / len(known) if len(known) else float("nan"),
    }


def compared(
    embeddings: np.ndarray, labels: np.ndarray, categories: np.ndarray, size: int, seed: int
) -> tuple[dict[str, float], dict[str, float]]:
    """The measures of a sample over clusters and of a random one, both without the seed's held-out rows."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(embeddings))
    held_out, others = np.split(order, [int(HELD_OUT * len(order))])
    probes, others = np.sort(held_out), np.sort(others)
    over = others[sample_uniform(labels[others], size, seed)]
    random = np.sort(rng.choice(others, size, replace=False))
    of = [measured(embeddings, labels, categories, probes, rows) for rows in (over, random)]
    return of[0], of[1]


def interval(differences: Sequence[float]) -> str:
    """The mean and its 95 % interval."""
    from scipy.stats import t

    values = np.asarray(differences)
    half = float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return f"{values.mean():+.4f} ({values.mean() - half:+.4f} to {values.mean() + half:+.4f})"


def main() -> None:
    """Measure every sample size and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("cluster", type=Path)
    parser.add_argument("dialogues", type=Path)
    parser.add_argument("--clusters", type=int, default=200)
    parser.add_argument("--samples", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    embeddings = np.array(np.load(arguments.cluster / "embeddings.npy", mmap_mode="r"), dtype=np.float32)
    known: dict[str, int] = {}
    rows = (row.get("category") for row in read_rows(arguments.dialogues, "dialogues"))
    categories = np.array([known.setdefault(c, len(known)) if c else -1 for c in rows])
    config = ClusterConfig(n_clusters=arguments.clusters, backend="sklearn")
    found: dict[int, list[tuple[dict[str, float], dict[str, float]]]] = {size: [] for size in arguments.samples}
    for seed in range(arguments.seeds):
        labels = kmeans(embeddings, config, seed).labels
        for size, results in found.items():
            results.append(compared(embeddings, labels, categories, size, seed))
    corpus = f"{len(embeddings):,} queries, {len(known)} categories"
    print(f"{corpus}, {arguments.clusters} clusters, {arguments.seeds} seeds\n")
    print("| sample | measure | over clusters | random | difference (95 % interval) |\n| --- | --- | --- | --- | --- |")
    for size, results in found.items():
        for name, text in MEASURES.items():
            if name == "categories" and not known:
                continue
            over, random = ([r[side][name] for r in results] for side in (0, 1))
            means = f"{np.mean(over):.4f} | {np.mean(random):.4f}"
            differences = [a - b for a, b in zip(over, random, strict=True)]
            print(f"| {size:,} | {text} | {means} | {interval(differences)} |")


if __name__ == "__main__":
    main()
