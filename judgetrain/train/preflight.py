"""What can be wrong with a model, a tokenizer and the memory, said in a sentence before or while training."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from judgetrain.errors import TrainingError

if TYPE_CHECKING:
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
