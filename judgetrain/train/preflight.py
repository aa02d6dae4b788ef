"""What a model, a tokenizer and the machine need for training, in sentences; and compiling of a model's blocks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from judgetrain.errors import TrainingError

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@contextmanager
def memory_explained(key: str) -> Iterator[None]:
    """Turn what PyTorch raises when memory runs out, on a GPU or not, into a sentence; ``key``: of the settings.

    Raises:
        TrainingError: memory ran out; says what to lower.
    """
    import torch

    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
        if not known and not re.search("out of memory|can't allocate memory", str(error), re.IGNORECASE):
            raise
        raise TrainingError(
            f"out of memory: lower {key}.per_device_train_batch_size (raise global_accumulation_steps as much), or set "
            f"{key}.gradient_checkpointing=true or {key}.lora.enabled=true"
        ) from error


def frozen_experts(model: PreTrainedModel) -> int:
    """How many weights are of experts, which stand together in one tensor, and have no adapters."""
    frozen = {name: getattr(p, "ds_shape", p.shape) for name, p in model.named_parameters() if not p.requires_grad}
    return sum(math.prod(s) for name, s in frozen.items() if len(s) == 3 and ".base_layer." not in name)


def check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: str) -> None:
    """Check that every token has an embedding.

    Raises:
        TrainingError: the tokenizer belongs to another model, or tokens were added to it alone.
    """
    rows, last = model.get_input_embeddings().num_embeddings, max(tokenizer.get_vocab().values())
    if last >= rows:
        raise TrainingError(
            f"the tokenizer of {path} has tokens up to id {last}, and the model embeddings for {rows}: "
            "take the tokenizer that belongs to the model, or resize the model's embeddings and save both"
        )


def without_dropout(model: nn.Module) -> None:
    """Switch off dropout that layers do by a number of their own (``attention_dropout``): TRL finds modules alone."""
    for module in model.modules():
        for name, value in vars(module).items():
            if name.endswith(("dropout", "pdrop")) and isinstance(value, float):
                setattr(module, name, 0.0)


def compiled(model: nn.Module) -> str:
    """Have every block of the model's stacks of like blocks compiled at its first call; a sentence for the log.

    In place: names of weights, saving and wrapping (PEFT, DDP) stay as they are, and the blocks share what is compiled.
    Lengths are dynamic, so that batches of another width need no other code.
    """
    from accelerate.utils.other import is_repeated_blocks  # type: ignore[import-untyped]
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()  # on a GPU, too: Triton calls a compiler of C
    except (InvalidCxxCompiler, RuntimeError):
        return "regional_compilation is left out, since there is no C++ compiler (g++ or clang++)"
    stacks = [module for module in model.modules() if is_repeated_blocks(module) and len([*module.children()]) > 1]
    blocks = [block for stack in stacks for block in stack.children()]
    for block in blocks:
        block.compile(dynamic=True)
    return f"{len(blocks)} blocks are compiled at the first steps, which take longer"
