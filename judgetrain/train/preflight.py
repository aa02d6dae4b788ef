"""What can be wrong with a model, a tokenizer and the memory, said in a sentence before or while training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_tokenizer
from judgetrain.errors import TrainingError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PACKING_TOLERANCE = 1e-2
"""Largest difference of logits, as a share of their range, between examples in one row and each by itself."""


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


def check_same_vocabulary(tokenizer: PreTrainedTokenizerBase, reference: ModelConfig, policy: ModelConfig) -> None:
    """Check that the reference model reads the policy's tokens as they were meant.

    Raises:
        TrainingError: their vocabularies differ; log-probabilities of the same ids would be of different texts.
    """
    if reference.path == policy.path:
        return
    ours, theirs = tokenizer.get_vocab(), load_tokenizer(reference).get_vocab()
    if ours != theirs:
        other = sorted(ours.items() ^ theirs.items())[0][0]
        raise TrainingError(
            f"train.dpo.reference.path={reference.path} and the policy have different vocabularies ({len(theirs)} and "
            f"{len(ours)} tokens; {other!r} is not the same in both): take a reference with the policy's tokenizer, or "
            "leave train.dpo.reference out"
        )


def check_packing(model: Any, key: str, wrapped: Any = None, device: Any = "cpu") -> None:
    """Check that examples in one row do not see each other under this model's attention: a probe with two of them.

    ``wrapped`` is what computes, where that is DeepSpeed's or another engine with the model in it, on ``device``.

    Raises:
        TrainingError: they do; padding-free training would learn from other examples' text.
    """
    import torch

    device, forward = torch.device(device), model if wrapped is None else wrapped
    lengths = (5, 7)
    parts = [torch.arange(1, n + 1, device=device)[None] for n in lengths]
    positions = torch.cat([torch.arange(n, device=device) for n in lengths])[None]
    training = model.training
    forward.eval()
    with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
        alone = torch.cat([forward(input_ids=part).logits for part in parts], dim=1).float()
        packed = forward(input_ids=torch.cat(parts, dim=1), position_ids=positions).logits.float()
    forward.train(training)
    if float((alone - packed).abs().max()) > PACKING_TOLERANCE * float(alone.max() - alone.min()):
        raise TrainingError(
            f"{type(model).__name__} with attention {model.config._attn_implementation!r} mixes examples that share a "
            f"row: leave out {key}.trainer.padding_free, or set train.base.attn_implementation=sdpa"
        )
