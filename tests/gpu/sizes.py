"""Models of the usual sizes with random weights, training steps on them, and what those take."""

import math
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import WORLD_BASE, ModelConfig
from judgetrain.engines.loading import load_tokenizer
from judgetrain.train import run
from judgetrain.train.checkpoints import AtReference
from judgetrain.train.config import DpoConfig, TrainConfig
from judgetrain.train.data import PAIR, REFERENCE_COLUMNS, Examples
from judgetrain.train.internals import labelled_tokens_alone

TINY = os.environ.get("JUDGETRAIN_GPU_KIT") == "tiny"
"""The same code with tiny sizes, on a CPU too: its figures mean nothing."""
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = {
    # hidden, feed-forward, layers, heads, key-value heads, their size: as Qwen2.5 0.5B and 7B, Qwen3 4B
    "0.5B": (896, 4864, 24, 14, 2, 64),
    "4B": (2560, 9728, 36, 32, 8, 128),
    "7B": (3584, 18944, 28, 28, 4, 128),
}
NAMES = "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim".split()
VOCABULARY = 1024 if TINY else 151936
ANSWER = 0.15
"""Of a row's tokens; the rest is prompt."""


def random_model(name: str) -> LlamaForCausalLM:
    """Return the model in bfloat16, made where it is computed."""
    shape = dict(zip(NAMES, (64, 128, 2, 4, 2, 16) if TINY else SHAPES[name], strict=True))
    ids = {"pad_token_id": 0, "eos_token_id": 2, "bos_token_id": None}
    config = LlamaConfig(
        **shape, **ids, vocab_size=VOCABULARY, max_position_embeddings=8192, tie_word_embeddings=name != "7B"
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(DEVICE):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(torch.float32)


def saved(name: str, place: Path) -> Path:
    """Return the model in a directory, with the shipped base's tokenizer and chat template."""
    directory = place / name
    shutil.copytree(WORLD_BASE, directory, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    random_model(name).save_pretrained(directory, max_shard_size="2GB")
    return directory


class Watch(TrainerCallback):
    """Seconds and loss of every optimizer step."""

    def __init__(self) -> None:
        self.seconds = list[float]()
        self.losses = list[float]()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        synchronize()
        self._began = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        synchronize()
        self.seconds.append(time.perf_counter() - self._began)

    def on_log(self, *_: Any, logs: dict[str, float], **__: Any) -> None:
        self.losses += [logs["loss"]] if "loss" in logs else []


def steps(place: Path, base: Path, *, pairs: bool = False, length: int, batch: int, count: int = 6, **own: Any) -> Any:
    """So many training steps of this project's trainer on rows of one length.

    Returns:
        Seconds of a step (the median after the first two) and the most GiB held from loading on, as text; the GiB; the
        losses.
    """
    length = min(length, 64) if TINY else length
    settings: dict[str, Any] = {"trainer": {"save_strategy": "no"}, "bf16": True, "learning_rate": 1e-4}
    settings |= {"per_device_train_batch_size": batch, "max_length": 8192} | own
    config = (DpoConfig if pairs else TrainConfig)(**settings)
    start = ModelConfig(path=str(base))
    job = run.RowsJob(start=start, config=config, key="train.gpu", train=[], heldout=[], what="rows")
    out = StageRun(place, "gpu", 0, Console(silent=True))
    watch = Watch()
    examples = Examples(data=random_rows(pairs, length, batch * count), lengths=[length] * batch * count, dropped={})
    forget_peak()
    with labelled_tokens_alone():
        trainer = run.make_trainer(job, examples, load_tokenizer(start), out.path("checkpoints"), out)
        trainer.remove_callback(AtReference)  # the rows' reference is none
        trainer.add_callback(watch)
        trainer.train()
    assert len(watch.losses) == count and all(map(math.isfinite, watch.losses))
    assert next(trainer.model.parameters()).device.type == DEVICE
    return f"{statistics.median(watch.seconds[2:]):.3g} s a step, {peak():.1f} GiB", peak(), watch.losses


def random_rows(pairs: bool, length: int, count: int) -> Dataset:
    """Rows of random tokens, as training's tables hold them."""
    generator = torch.Generator().manual_seed(1)
    answer = int(ANSWER * length)

    def some(size: int) -> list[int]:
        return torch.randint(3, 500, (size,), generator=generator).tolist()

    def row(i: int) -> dict[str, Any]:
        if not pairs:
            return {"input_ids": some(length), "completion_mask": [0] * (length - answer) + [1] * answer}
        sides = {"prompt_ids": some(length - answer), "chosen_ids": some(answer), "rejected_ids": some(answer)}
        return {**sides, PAIR: str(i), **dict.fromkeys(REFERENCE_COLUMNS, -100.0)}

    return Dataset.from_list([row(i) for i in range(count)])


def synchronize() -> None:
    """Wait for what the GPU has been given."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def forget_peak() -> None:
    """Begin to look at memory anew."""
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak() -> float:
    """Return the most memory that PyTorch has held since then, GiB."""
    return torch.cuda.max_memory_reserved() / 2**30 if DEVICE == "cuda" else 0.0
