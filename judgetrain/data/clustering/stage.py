"""Stage ``cluster``: embed queries, cluster them, and sample uniformly over the clusters (section 4.1, A.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from judgetrain.artifacts.files import write_rows_atomic
from judgetrain.artifacts.shards import count_rows, read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.clustering.encode import encode
from judgetrain.data.clustering.kmeans import kmeans
from judgetrain.data.stages import ClusterSettings


def run(settings: ClusterSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``embeddings.npy``, ``clusters.jsonl`` and ``sample.jsonl``."""
    config = settings.cluster

    def rows() -> Iterator[dict[str, Any]]:  # read again for each pass, never held: there may be millions
        return read_rows(inputs["dialogues"], "dialogues")

    count = count_rows(inputs["dialogues"], "dialogues")
    embeddings = encode((row["messages"][-1]["content"] for row in rows()), count, config, out)
    out.log(f"cluster: {count:,} queries embedded in {embeddings.shape[1]} dimensions")
    clustering = kmeans(embeddings, config, out.seed)
    out.log(f"cluster: {config.n_clusters:,} clusters by {clustering.backend}, inertia {clustering.inertia:.1f}")
    chosen = sample_uniform(clustering.labels, config.sample, out.seed)
    write_rows_atomic(
        out.path("clusters.jsonl"),
        ({"id": row["id"], "cluster": int(c)} for row, c in zip(rows(), clustering.labels, strict=True)),
    )
    picked = np.zeros(count, dtype=bool)
    picked[chosen] = True
    out.write_rows("sample", compress(rows(), picked))
    sizes = np.bincount(clustering.labels, minlength=config.n_clusters)
    out.note(
        "clustering",
        {
            "backend": clustering.backend,
            "encoder": config.encoder,
            "inertia": round(clustering.inertia, 4),
            "clusters": int(np.count_nonzero(sizes)),
            "empty": int(np.count_nonzero(sizes == 0)),
            "singletons": int(np.count_nonzero(sizes == 1)),
            "size_min_median_max": [int(sizes.min()), float(np.median(sizes)), int(sizes.max())],
        },
    )
    out.count(in_=count, out=len(chosen), dropped={"not_sampled": count - len(chosen)})


def sample_uniform(labels: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Sorted indices of ``min(size, n)`` rows, as evenly over the clusters as their sizes allow.

    What a short cluster cannot give is shared out over the others, so that no two clusters that still have rows
    differ by more than one.
    """
    rng = np.random.default_rng(seed)
    order = np.argsort(labels, kind="stable")
    _, sizes = np.unique(labels, return_counts=True)
    quota = quotas(sizes, min(size, len(labels)), rng)
    chosen = [
        rng.choice(rows, take, replace=False)
        for rows, take in zip(np.split(order, np.cumsum(sizes)[:-1]), quota, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def quotas(sizes: np.ndarray, total: int, rng: np.random.Generator) -> np.ndarray:
    """How many rows each cluster gives: int array that sums to ``total``, at most ``sizes``."""
    quota = np.zeros_like(sizes)
    left = total
    while left > 0:
        open_ = np.flatnonzero(quota < sizes)
        share = left // len(open_)
        if share == 0:
            quota[rng.choice(open_, left, replace=False)] += 1
            return quota
        add = np.minimum(share, sizes[open_] - quota[open_])
        quota[open_] += add
        left -= int(add.sum())
    return quota
