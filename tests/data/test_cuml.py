"""The call of cuML, held against its released signature; and cuML itself, where there is a GPU."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from judgetrain.data import clustering
from judgetrain.data.clustering import kmeans
from judgetrain.data.config import ClusterConfig
from judgetrain.errors import ConfigError, EngineError

RELEASED = json.loads((Path(__file__).parent / "cuml_kmeans.json").read_text())
"""What the documentation of the release says, by hand from ``source``."""
ROWS = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float16)


def signature(parameters: dict[str, Any]) -> inspect.Signature:
    return inspect.Signature(
        [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=v) for n, v in parameters.items()]
    )


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """A class in cuML's place that takes what the released one takes, and nothing else."""

    class KMeans:
        __signature__ = signature(RELEASED["keyword_only"])
        labels = np.arange(60) % 3
        given: dict[str, Any]
        inertia_ = 1.5

        def __init__(self, *args: Any, **options: Any) -> None:
            bound = inspect.signature(type(self)).bind(*args, **options)
            bound.apply_defaults()
            KMeans.given = dict(bound.arguments)

        def fit_predict(self, rows: np.ndarray) -> np.ndarray:
            assert rows.dtype == np.float32 and rows.flags.c_contiguous, "what it takes without a copy"
            assert (rows == ROWS.astype(np.float32)).all()
            return self.labels.astype(np.int32)

    cluster = ModuleType("cuml.cluster")
    cluster.KMeans = KMeans  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuml", ModuleType("cuml"))
    monkeypatch.setitem(sys.modules, "cuml.cluster", cluster)
    monkeypatch.setitem(sys.modules, "cupy", np)  # the calls of it that are made mean the same in NumPy
    monkeypatch.setattr(clustering, "WIDEN", 7)
    return KMeans


def asked(n_clusters: int = 3) -> ClusterConfig:
    return ClusterConfig(n_clusters=n_clusters, backend="cuml")


def test_the_call_fits_the_released_signature(stand_in: type[Any]) -> None:
    found = kmeans(ROWS, asked(), 7)
    assert (found.backend, found.inertia, found.labels.tolist()) == ("cuml", 1.5, stand_in.labels.tolist())
    meant = {"n_clusters": 3, "max_iter": 300, "init": "scalable-k-means++", "random_state": 7, "output_type": "numpy"}
    assert stand_in.given == RELEASED["keyword_only"] | meant, "all else as the library has it"


def test_rows_beyond_the_gpu_name_the_way_out(stand_in: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(stand_in, "fit_predict", full)
    with pytest.raises(EngineError, match=r"60 embeddings exceed the GPU's memory; set cluster\.backend=sklearn"):
        kmeans(ROWS, asked(), 7)


def test_missing_cuml_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"key\.backend=cuml: .*judgetrain\[cuml\]"):
        asked().check_here("key")


def test_cuml_finds_what_scikit_learn_finds() -> None:
    pytest.importorskip("cuml")
    rng = np.random.default_rng(1)
    rows = np.concatenate([c + rng.normal(size=(400, 16)) for c in 12 * rng.normal(size=(10, 16))]).astype(np.float16)
    ours, theirs = (kmeans(rows, ClusterConfig(n_clusters=10, backend=b), 0) for b in ("cuml", "sklearn"))
    assert ours.inertia == pytest.approx(theirs.inertia, rel=0.1)
