"""Clustering: embeddings on disk, k-means, and a sample that is even over clusters."""

import errno
import importlib.util
import inspect
import json
import os
import re
import shutil
import sys
import tracemalloc
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from sklearn.cluster import KMeans as SklearnKMeans
from transformers import AutoModelForCausalLM, AutoTokenizer

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data import clustering
from judgetrain.data.clustering import Encoder, encode, kmeans, sample_uniform
from judgetrain.data.config import ClusterConfig, WorldConfig
from judgetrain.data.stages import ClusterSettings
from judgetrain.data.world import train_dialogues
from judgetrain.engines.config import WORLD_BASE
from judgetrain.errors import ConfigError, DataError, EngineError
from judgetrain.schema import Dialogue, Message
from tests.builders.data import run_cluster
from tests.builders.watched import interrupted

STATIC = ClusterConfig(encoder="static:world", n_clusters=4, sample=20)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=80), st.integers(1, 100), st.integers(0, 5))
def test_the_sample_is_as_even_as_cluster_sizes_allow(labels: list[int], size: int, seed: int) -> None:
    array = np.array(labels)
    chosen = sample_uniform(array, size, seed)
    assert len(chosen) == len(set(chosen.tolist())) == min(size, len(labels))
    counts = np.bincount(array[chosen], minlength=10)
    sizes = np.bincount(array, minlength=10)
    still_open = [int(t) for t, s in zip(counts, sizes, strict=True) if t < s]
    assert max(counts) <= min(still_open, default=max(counts)) + 1
    assert (sample_uniform(array, size, seed) == chosen).all()


def test_separated_blobs_are_found_and_inertia_is_the_sum_of_squares() -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 8)) * 20
    rows = np.concatenate([c + rng.normal(size=(30, 8)) for c in centres]).astype(np.float16)
    labels, inertia, backend = kmeans(rows, ClusterConfig(n_clusters=3), 1)
    assert backend == "sklearn"
    for block in range(3):
        assert len(set(labels[30 * block : 30 * block + 30])) == 1
    wide = rows.astype(np.float64)
    squares = sum(((wide[labels == c] - wide[labels == c].mean(0)) ** 2).sum() for c in range(3))
    assert inertia == pytest.approx(squares, rel=1e-3)


def test_many_rows_are_clustered_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    blobs = np.concatenate([rng.normal(size=(40, 6)) + 30 * i for i in range(3)]).astype(np.float16)
    np.save(tmp_path / "embeddings.npy", blobs)
    mapped = np.load(tmp_path / "embeddings.npy", mmap_mode="r")
    monkeypatch.setattr(clustering, "MINI_BATCH_FROM", 100)
    monkeypatch.setattr(clustering, "WIDEN", 7)
    wide = clustering.single_precision(mapped)
    assert isinstance(wide, np.memmap)
    assert (wide == blobs.astype(np.float32)).all()
    cluster_of, inertia, _ = kmeans(mapped, ClusterConfig(n_clusters=3), 1)
    labels = cluster_of.reshape(3, 40)
    assert [len(set(block)) for block in labels.tolist()] == [1, 1, 1]
    means = blobs.astype(np.float64).reshape(3, 40, 6).mean(axis=1, keepdims=True)
    squares = ((blobs.astype(np.float64).reshape(3, 40, 6) - means) ** 2).sum()
    assert inertia == pytest.approx(squares, rel=1e-3), "of all rows, about the means of their clusters"
    assert (np.asarray(mapped) == blobs).all(), "centring touches the copy alone"
    assert [p.name for p in tmp_path.iterdir()] == ["embeddings.npy"], "the copy has no name"


def test_many_rows_are_clustered_within_a_hundredth_of_fitting_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside scikit-learn's KMeans, fitted to all rows to its own end."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, 32))
    rows = centres[rng.integers(20, size=12_000)] + rng.normal(size=(12_000, 32))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)
    whole = SklearnKMeans(30, n_init=1, max_iter=300, random_state=1).fit(rows.astype(np.float32)).inertia_
    monkeypatch.setattr(clustering, "MINI_BATCH_FROM", 1000)
    _, inertia, _ = kmeans(rows, ClusterConfig(n_clusters=30), 0)
    assert inertia < 1.01 * whole
    monkeypatch.setattr(clustering, "PASSES", 1)
    _, of_one_pass, _ = kmeans(rows, ClusterConfig(n_clusters=30), 0)
    assert inertia < of_one_pass


def test_the_copy_of_many_rows_gets_its_room_on_the_disk_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is an error; found while the copy is written through its map, it would end the process by SIGBUS."""
    rows = np.ones((200, 6), np.float16)
    np.save(tmp_path / "embeddings.npy", rows)
    monkeypatch.setattr(clustering, "MINI_BATCH_FROM", 100)
    asked = []

    def full(descriptor: int, offset: int, size: int) -> None:
        asked.append((offset, size))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        kmeans(np.load(tmp_path / "embeddings.npy", mmap_mode="r"), ClusterConfig(n_clusters=3), 1)
    assert asked == [(0, 4 * 200 * 6)]


def test_no_copy_of_many_rows_is_held(tmp_path: Path) -> None:
    """Of 60,000 rows in 64 dimensions one in single precision would take 15 MB."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "embeddings.npy", rng.standard_normal((60_000, 64), dtype=np.float32).astype(np.float16))
    mapped = np.load(tmp_path / "embeddings.npy", mmap_mode="r")
    # What is imported and started at the first call is not the rows'.
    kmeans(mapped[:1000], ClusterConfig(n_clusters=4), 1)
    tracemalloc.start()
    try:
        labels, _, _ = kmeans(mapped, ClusterConfig(n_clusters=4), 1)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(labels) == 60_000 and most < 4 * 60_000 * 64 / 1.5


def test_text_is_read_a_shard_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "SHARD", 5)
    taken_rows = 0
    ahead = []
    real = Encoder.__call__

    def encoding(self: Encoder, texts: list[str]) -> np.ndarray:
        ahead.append(taken_rows)
        return real(self, texts)

    def queries() -> Any:
        nonlocal taken_rows
        for d in train_dialogues(WorldConfig(train_dialogues=12), 0):
            taken_rows += 1
            yield d.query

    monkeypatch.setattr(Encoder, "__call__", encoding)
    encode(queries(), 12, STATIC, StageRun(tmp_path, "cluster", 0, Console()))
    assert ahead == [5, 10, 12]


def test_embeddings_are_unit_length_shards_that_a_restart_skips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustering, "SHARD", 5)
    queries = [d.query for d in train_dialogues(WorldConfig(train_dialogues=12), 0)]
    whole = np.array(encode(queries, len(queries), STATIC, StageRun(tmp_path / "a", "cluster", 0, Console())))
    assert whole.dtype == np.float16
    assert np.linalg.norm(whole.astype(float), axis=1) == pytest.approx(1.0, abs=2e-3)
    calls = interrupted(monkeypatch, Encoder, "__call__", 2)
    with pytest.raises(KeyboardInterrupt):
        encode(queries, len(queries), STATIC, StageRun(tmp_path / "b", "cluster", 0, Console()))
    resumed = encode(queries, len(queries), STATIC, StageRun(tmp_path / "b", "cluster", 0, Console()))
    assert len(calls) == 4, "one shard kept, one lost, then two"
    assert (np.array(resumed) == whole).all()


def test_static_embeddings_are_the_mean_of_input_embeddings(tmp_path: Path) -> None:
    from judgetrain.engines.config import ModelConfig
    from judgetrain.engines.loading import load_model, load_tokenizer

    query = "how do i cook apple cake for my son ?"
    tokenizer, model = (load(ModelConfig(path="world", dtype="float32")) for load in (load_tokenizer, load_model))
    weights = model.get_input_embeddings().weight.detach().numpy()
    mean = weights[tokenizer.encode(query, add_special_tokens=False)].mean(0)
    embedding = encode([query], 1, STATIC, StageRun(tmp_path, "cluster", 0, Console()))[0]
    assert embedding.astype(float) == pytest.approx(mean / np.linalg.norm(mean), abs=2e-3)


def test_adapters_load_with_a_tokenizer_and_are_said_to_lack_one(tmp_path: Path) -> None:
    # The paper's encoder is published so: adapters alone, whose base model has the tokenizer.
    base = AutoModelForCausalLM.from_pretrained(WORLD_BASE)
    lora = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    get_peft_model(base, lora).save_pretrained(tmp_path)
    config = ClusterConfig(encoder=str(tmp_path))
    with pytest.raises(ConfigError, match=r"adapters without tokenizer\.json: put"):
        config.check_here("cluster")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(WORLD_BASE / name, tmp_path)
    config.check_here("cluster")
    text = "What is a dog?"
    tokens = AutoTokenizer.from_pretrained(WORLD_BASE)(text, return_tensors="pt")
    with torch.no_grad():
        last = base(**tokens, output_hidden_states=True).hidden_states[-1][0, -1]
    embedding = Encoder(config)([text])[0]
    assert float(embedding @ (last / last.norm()).numpy()) == pytest.approx(1, abs=1e-3)


def test_the_stage_groups_queries_of_a_kind(tmp_path: Path) -> None:
    dialogues = train_dialogues(WorldConfig(train_dialogues=200), 0)
    out = run_cluster(tmp_path, dialogues, replace(STATIC, n_clusters=24, sample=48))
    clusters = {r["id"]: r["cluster"] for r in read_rows(out.directory, "clusters")}
    assert set(clusters) == {d.id for d in dialogues}
    from sklearn.metrics import adjusted_mutual_info_score

    assert adjusted_mutual_info_score([d.category for d in dialogues], [clusters[d.id] for d in dialogues]) > 0.2
    sample = [r["id"] for r in read_rows(out.directory, "sample")]
    assert len(set(sample)) == 48
    assert len({clusters[i] for i in sample}) == 24
    assert out.notes["clustering"]["clusters"] == 24


def test_queries_that_are_all_alike_leave_clusters_empty_and_are_sampled_all_the_same(tmp_path: Path) -> None:
    same = [Dialogue(f"a{i}", "x", (Message("user", "how do i cook ?"),)) for i in range(20)]
    other = Dialogue("b", "x", (Message("user", "my son likes apple cake ."),))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn says that there are fewer distinct points than clusters
        out = run_cluster(tmp_path, [*same, other], ClusterConfig(encoder="static:world", n_clusters=5, sample=4))
    facts = out.notes["clustering"]
    assert (facts["clusters"], facts["empty"], facts["singletons"]) == (2, 3, 1)
    sample = [r["id"] for r in read_rows(out.directory, "sample")]
    assert len(sample) == 4 and "b" in sample, "what the singleton cannot give, the other cluster does"


def test_other_clusters_of_the_same_queries_need_no_new_embeddings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = StageRun(tmp_path / "dialogues", "dialogues", 0, Console())

    def clustered(name: str, dialogues: int, **changed: Any) -> Path:
        read.write_rows("dialogues", (d.to_row() for d in train_dialogues(WorldConfig(train_dialogues=dialogues), 0)))
        out = StageRun(tmp_path / "cluster" / name, "cluster", 0, Console())
        values = ClusterSettings(seed=17, cluster=replace(STATIC, **changed))
        clustering.run(values, {"dialogues": read.directory}, out)
        assert out.notes["cut_by_encoder"] == 0
        return out.directory / "embeddings.npy"

    made = clustered("first", 40)
    calls: list[int] = []
    embedding = Encoder.__call__

    def counting(encoder: Encoder, texts: list[str]) -> np.ndarray:
        calls.append(len(texts))
        return embedding(encoder, texts)

    monkeypatch.setattr(Encoder, "__call__", counting)
    taken = clustered("second", 40, n_clusters=6, sample=9, backend="sklearn")
    assert calls == [] and taken.read_bytes() == made.read_bytes()

    clustered("third", 41)
    assert calls == [41], "other queries"
    # The stage of these failed behind the embeddings, whose file then lost its end.
    for file in (made, taken):
        file.unlink()
        file.write_bytes((tmp_path / "cluster" / "third" / "embeddings.npy").read_bytes()[:-9])
    again = clustered("fourth", 40)
    assert calls == [41, 40] and len(np.load(again)) == 40


def test_as_many_clusters_as_queries_and_one_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dialogues = train_dialogues(WorldConfig(train_dialogues=12), 0)
    out = run_cluster(tmp_path, dialogues, ClusterConfig(encoder="static:world", n_clusters=12, sample=7))
    assert len(list(read_rows(out.directory, "sample"))) == 7
    # Before the queries are embedded, which may take hours.
    monkeypatch.setattr(clustering, "encode", None)
    with pytest.raises(ConfigError, match=r"cluster\.n_clusters=13: there are only 12 dialogues"):
        run_cluster(tmp_path, dialogues, ClusterConfig(encoder="static:world", n_clusters=13, sample=7))


def test_a_tokenizer_file_that_cuts_is_not_heeded(tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(WORLD_BASE, cut)
    tokenizer_json = json.loads((cut / "tokenizer.json").read_text())
    tokenizer_json["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    (cut / "tokenizer.json").write_text(json.dumps(tokenizer_json))
    texts = ["the cat reads a book for my sister and gives a clear example of it", "?"]
    whole = Encoder(ClusterConfig(encoder="static:world"))
    read = Encoder(ClusterConfig(encoder=f"static:{cut}"))
    assert np.array_equal(whole(texts), read(texts))


def test_texts_that_the_encoder_cuts_are_counted_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The encoder reads 12 tokens by its own tokenizer, so that texts of 13 and of 40 are cut.
    encoder = tmp_path / "encoder"
    shutil.copytree(WORLD_BASE, encoder)
    tokenizer_config = json.loads((encoder / "tokenizer_config.json").read_text())
    (encoder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config | {"model_max_length": 12}))
    tokenizer = AutoTokenizer.from_pretrained(WORLD_BASE)
    queries = [" ".join(["cat"] * number) for number in (1, 2, 12, 13, 40)]
    dialogues = [Dialogue(f"d{i}", "x", (Message("user", query),)) for i, query in enumerate(queries)]
    out = run_cluster(tmp_path, dialogues, ClusterConfig(encoder=str(encoder), n_clusters=2, sample=4))
    cut = sum(len(tokenizer(query)["input_ids"]) > 12 for query in queries)
    assert 0 < cut < 5 and out.notes["cut_by_encoder"] == cut
    assert f"cluster: {cut} of 5 queries are longer than" in "".join(capsys.readouterr())
    assert not list(out.directory.glob("embeddings-*"))


def test_an_embedding_that_is_no_number_names_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(ClusterConfig(encoder="static:world"))
    vectors = np.ones((3, 4), dtype=np.float32)
    vectors[1, 2] = np.nan
    monkeypatch.setattr(encoder._model, "encode", lambda texts, **options: vectors)
    with pytest.raises(DataError, match=r"static:world: the embedding of 'b' is no number"):
        encoder(["a", "b", "c"])


RELEASED = json.loads((Path(__file__).parent / "cuml_kmeans.json").read_text())
"""What the documentation of the release says, by hand from ``source``."""
ROWS = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float16)


class StandIn:
    """cuML's KMeans without a GPU: its parameters as released, its clusters by scikit-learn on what it is given."""

    made: ClassVar[list[dict[str, Any]]] = []
    rows: ClassVar[list[np.ndarray]] = []

    def __init__(self, **options: Any) -> None:
        assert options.keys() <= RELEASED["keyword_only"].keys()
        self.made.append(options)

    def fit_predict(self, rows: np.ndarray) -> np.ndarray:
        options = self.made[-1]
        if options["random_state"] == 8:
            raise MemoryError
        assert rows.dtype == np.float32 and rows.flags.c_contiguous, "what it takes without a copy"
        self.rows.append(rows)
        model = SklearnKMeans(options["n_clusters"], n_init=1, random_state=options["random_state"])
        labels = model.fit_predict(np.array(rows))
        self.inertia_ = model.inertia_
        return labels


@pytest.fixture
def cuml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """cuML and CuPy, whose calls mean what NumPy's do; ``free`` is how many bytes the GPU has."""
    gpu = SimpleNamespace(free=1 << 30)
    runtime = SimpleNamespace(memGetInfo=lambda: (gpu.free, 2 * gpu.free))
    cupy = SimpleNamespace(
        empty=np.empty, asarray=np.asarray, float32=np.float32, cuda=SimpleNamespace(runtime=runtime)
    )
    modules = {"cuml": None, "cuml.cluster": SimpleNamespace(KMeans=StandIn), "cupy": cupy}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(clustering, "WIDEN", 7)
    monkeypatch.setattr(StandIn, "made", [])
    monkeypatch.setattr(StandIn, "rows", [])
    return gpu


CUML = ClusterConfig(n_clusters=3, backend="cuml")


def test_rows_that_fit_lie_in_the_gpus_memory(cuml: SimpleNamespace) -> None:
    """What cuML finds, a GPU tells: tests/gpu."""
    labels, inertia, backend = kmeans(ROWS, CUML, 7)
    assert backend == "cuml" and inertia > 0 and set(labels) == {0, 1, 2}
    meant = {"n_clusters": 3, "max_iter": 300, "init": "scalable-k-means++", "random_state": 7, "output_type": "numpy"}
    assert StandIn.made == [meant]
    assert (StandIn.rows[0] == ROWS.astype(np.float32)).all()


def test_more_rows_than_the_gpu_holds_are_streamed_from_a_file(
    cuml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(clustering, "MINI_BATCH_FROM", 50)
    np.save(tmp_path / "embeddings.npy", ROWS)
    mapped = np.load(tmp_path / "embeddings.npy", mmap_mode="r")
    # Rows of 16 bytes: 60 take 960, of which half of 1,600 holds 50.
    cuml.free = 1600
    labels, inertia, _ = kmeans(mapped, CUML, 7)
    (options,) = StandIn.made
    assert (options["device_buffer_samples"], options["init_size"]) == (12, 12), "an eighth of the memory"
    assert isinstance(StandIn.rows[0], np.memmap) and (StandIn.rows[0] == ROWS.astype(np.float32)).all()
    wide = ROWS.astype(np.float64)
    squares = sum(((wide[labels == c] - wide[labels == c].mean(0)) ** 2).sum() for c in range(3))
    assert inertia == pytest.approx(squares, rel=1e-5)


def test_a_gpu_without_room_is_told(cuml: SimpleNamespace) -> None:
    with pytest.raises(EngineError, match=r"clustering 60 embeddings exceeds the 1.07 GB .*cluster\.backend=sklearn"):
        kmeans(ROWS, CUML, 8)
    cuml.free = 300
    with pytest.raises(EngineError, match=r"cluster\.n_clusters=3: .* 3e-07 GB .* hold no block of rows"):
        kmeans(ROWS, CUML, 7)


def cuml_source() -> str:
    """Return the source of the installed package's KMeans, which comes with it; importing cuML needs a GPU's libraries.

    Its wheel alone will do: ``pip download --no-deps cuml-cu13``, unpacked, on PYTHONPATH.
    """
    package = importlib.util.find_spec("cuml")
    if package is None or package.origin is None:
        pytest.skip("cuML is not installed")
    return (Path(package.origin).parent / "cluster" / "kmeans.pyx").read_text()


def test_the_released_signature_is_that_of_the_installed_package() -> None:
    (parameters,) = re.findall(r"def __init__\(\s*self,\s*\*,(.*?)\):", cuml_source(), re.DOTALL)
    made: dict[str, Any] = {}
    exec(f"def signature(*, {parameters}): pass", made)
    defaults = {name: parameter.default for name, parameter in inspect.signature(made["signature"]).parameters.items()}
    assert defaults == RELEASED["keyword_only"]


def test_the_installed_package_streams_rows_of_this_machines_memory_by_blocks() -> None:
    """The branch that ``_cuml`` counts on where rows do not fit into the GPU's memory, as its source has it."""
    source = " ".join(cuml_source().split())
    assert "use_host_path = (not data_on_device) and device_buffer_samples > 0" in source
    assert "mem_type=None" in source, "rows stay where they lie"
    assert "labels, inertia = _kmeans_predict_host_chunked(" in source, "labels by blocks as well"
    assert "init_size = int(kmeans.init_size)" in source
