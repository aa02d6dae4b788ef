"""Stage ``cluster``: embed queries, cluster them, and sample uniformly over the clusters (section 4.1, A.1).

k-means is cuML's on a GPU and scikit-learn's otherwise.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from judgetrain.artifacts.files import write_rows_atomic
from judgetrain.artifacts.shards import count_rows, read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.clustering.encode import device, encode
from judgetrain.data.config import ClusterConfig
from judgetrain.data.stages import ClusterSettings
from judgetrain.errors import ConfigError, EngineError

MINI_BATCH_FROM = 50_000
"""Rows from which scikit-learn's k-means starts from mini-batches, and embeddings are no longer held in memory."""
MAX_ITER = 300
"""Iterations of k-means at most, as scikit-learn and cuML have it by default."""
PASSES = 5
"""Passes over all rows after mini-batches have placed the centres; five more gain under a part in 5,000."""
WIDEN = 65_536
"""Rows brought to single precision at a time."""


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
    labelled = zip(rows(), clustering.labels, strict=True)
    write_rows_atomic(out.path("clusters.jsonl"), ({"id": row["id"], "cluster": int(c)} for row, c in labelled))
    picked = np.zeros(count, dtype=bool)
    picked[chosen] = True
    out.write_rows("sample", compress(rows(), picked))
    sizes = np.bincount(clustering.labels, minlength=config.n_clusters)
    facts = {
        "backend": clustering.backend,
        "encoder": config.encoder,
        "inertia": round(clustering.inertia, 4),
        "clusters": int(np.count_nonzero(sizes)),
        "empty": int(np.count_nonzero(sizes == 0)),
        "singletons": int(np.count_nonzero(sizes == 1)),
        "size_min_median_max": [int(sizes.min()), float(np.median(sizes)), int(sizes.max())],
    }
    out.note("clustering", facts)
    out.count(in_=count, out=len(chosen), dropped={"not_sampled": count - len(chosen)})


def sample_uniform(labels: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Sorted indices of ``min(size, n)`` rows, as evenly over the clusters as their sizes allow.

    What a short cluster cannot give is shared out over the others, so that no two clusters that still have rows
    differ by more than one.
    """
    rng = np.random.default_rng(seed)
    _, sizes = np.unique(labels, return_counts=True)
    quota = quotas(sizes, min(size, len(labels)), rng)
    clusters = np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])
    chosen = [rng.choice(rows, take, replace=False) for rows, take in zip(clusters, quota, strict=True)]
    return np.sort(np.concatenate(chosen))


def quotas(sizes: np.ndarray, total: int, rng: np.random.Generator) -> np.ndarray:
    """How many rows each cluster gives: int array that sums to ``total``, at most ``sizes``."""
    quota = np.zeros_like(sizes)
    while (left := total - int(quota.sum())) > 0:
        open_ = np.flatnonzero(quota < sizes)
        if share := left // len(open_):
            quota[open_] += np.minimum(share, sizes[open_] - quota[open_])
        else:
            quota[rng.choice(open_, left, replace=False)] += 1
    return quota


@dataclass(frozen=True)
class Clustering:
    """``labels``: int array [rows]; ``inertia``: sum of squared distances to the centres; which backend ran."""

    labels: np.ndarray
    inertia: float
    backend: str


def kmeans(embeddings: np.ndarray, config: ClusterConfig, seed: int) -> Clustering:
    """Cluster rows ``[n, dimension]`` into ``config.n_clusters``.

    Raises:
        ConfigError: more clusters than rows.
        EngineError: the rows exceed the GPU's memory.
    """
    rows = len(embeddings)
    if config.n_clusters > rows:
        raise ConfigError(f"cluster.n_clusters={config.n_clusters}: there are only {rows} dialogues to cluster")
    backend = config.backend
    if backend == "auto":
        gpu = importlib.util.find_spec("cuml") is not None and device().startswith("cuda")
        backend = "cuml" if gpu else "sklearn"
    labels, inertia = (_cuml if backend == "cuml" else _sklearn)(embeddings, config, seed)
    return Clustering(np.asarray(labels, dtype=np.int64), float(inertia), backend)


def _sklearn(embeddings: np.ndarray, config: ClusterConfig, seed: int) -> tuple[np.ndarray, float]:
    from sklearn.cluster import KMeans, MiniBatchKMeans

    options: dict[str, Any] = {"n_clusters": config.n_clusters, "max_iter": MAX_ITER, "random_state": seed}
    rows, many = single_precision(embeddings), len(embeddings) >= MINI_BATCH_FROM
    if many:
        size = 3 * config.n_clusters
        batches = MiniBatchKMeans(batch_size=max(10_000, size), init_size=size, n_init=1, **options).fit(rows)
        options |= {"init": batches.cluster_centers_, "max_iter": PASSES}
    model = KMeans(n_init=1, copy_x=not many, **options)  # without a copy it centres the rows of the file in place
    return model.fit_predict(rows), model.inertia_


def _cuml(embeddings: np.ndarray, config: ClusterConfig, seed: int) -> tuple[np.ndarray, float]:
    from cuml.cluster import KMeans

    options: dict[str, Any] = {"n_clusters": config.n_clusters, "max_iter": MAX_ITER, "random_state": seed}
    model = KMeans(init="scalable-k-means++", output_type="numpy", **options)
    try:
        return model.fit_predict(_on_device(embeddings)), model.inertia_
    except MemoryError as error:  # cupy's, too
        told = f"{len(embeddings)} embeddings exceed the GPU's memory; set cluster.backend=sklearn, which needs none"
        raise EngineError(f"cluster.backend=cuml: {told}") from error


def _on_device(embeddings: np.ndarray) -> Any:
    """All rows on the GPU in single precision; they travel as they are on disk, a block at a time."""
    import cupy

    wide = cupy.empty(embeddings.shape, dtype=cupy.float32)
    for start in range(0, len(embeddings), WIDEN):
        wide[start : start + WIDEN] = cupy.asarray(embeddings[start : start + WIDEN])
    return wide


def single_precision(embeddings: np.ndarray) -> np.ndarray:
    """Rows in single precision, which scikit-learn takes as they are; memory-mapped when there are many.

    The file lies beside the embeddings and has no name: it goes with the process, whatever ends it.
    """
    if len(embeddings) < MINI_BATCH_FROM:
        return np.asarray(embeddings, dtype=np.float32)
    beside = Path(embeddings.filename).parent if isinstance(embeddings, np.memmap) and embeddings.filename else None
    with tempfile.TemporaryFile(dir=beside) as file:
        wide = np.memmap(file, dtype=np.float32, mode="w+", shape=embeddings.shape)
        for start in range(0, len(embeddings), WIDEN):
            wide[start : start + WIDEN] = embeddings[start : start + WIDEN]
        return wide
