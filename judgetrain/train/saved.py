"""Whether a judge that was written is the one that was trained: it is loaded again and compared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import end_token_ids, load_model, load_tokenizer
from judgetrain.engines.prompting import token_ids
from judgetrain.errors import TrainingError

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase

PROBES = 4
"""Training rows that both are read on."""
LONGEST = 256
"""Tokens of a row: with a large vocabulary more would take gigabytes."""


def logprobs(model: Any, rows: Sequence[Sequence[int]]) -> list[float]:
    """The mean log-probability of each row's tokens after its first, nats; every process of ZeRO-3 has to call it."""
    import torch

    training, found = model.training, []
    model.eval()
    with torch.no_grad():
        for row in rows:
            ids = torch.tensor([row[:LONGEST]], device=next(model.parameters()).device)
            scores = model(input_ids=ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
            found.append(float(scores.gather(1, ids[0, 1:, None]).mean()))
    model.train(training)
    return found


def check_saved(
    directory: Path,
    start: ModelConfig,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Sequence[int]],
    said: Sequence[float],
    allowed: float,
) -> str:
    """Load the judge of a directory again and compare it with what the one in memory ``said`` of ``rows``.

    On the CPU and in float32, since training still holds the GPUs.

    Returns:
        Why its weights were not compared, where the memory has no room for them a second time; else nothing.

    Raises:
        TrainingError: they are more than ``allowed`` nats a token apart, or it is prompted or ended otherwise.
    """
    flash = "flash" in str(start.attn_implementation)
    config = replace(
        start.at(directory), dtype="float32", attn_implementation=None if flash else start.attn_implementation
    )
    again = load_tokenizer(config)
    text = tokenizer.decode(list(rows[0]))
    same = token_ids(again, text) == token_ids(tokenizer, text) and again.chat_template == tokenizer.chat_template
    if not same or end_token_ids(config, again) != end_token_ids(start, tokenizer):
        raise TrainingError(
            f"{directory}: the tokenizer that was written reads texts, or ends answers, otherwise than the one trained "
            "with; the checkpoints are kept"
        )
    size = sum(file.stat().st_size for file in directory.glob("*.safetensors"))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 4 * size > memory:  # float32 may take twice what is written, and training still holds its own
        return f"weights of {size / 1e9:.3g} GB are not loaded again to be compared, in {memory / 1e9:.3g} GB of memory"
    for there, here in zip(logprobs(load_model(config, "cpu"), rows), said, strict=True):
        if not abs(there - here) <= allowed:
            raise TrainingError(
                f"{directory}: the judge that was written is not the one that was trained: it gives a training row "
                f"{there:.4f} nats a token, and the one in memory {here:.4f} (at most {allowed:g} apart); the "
                "checkpoints are kept"
            )
    return ""


def neutral_generation(start: ModelConfig, tokenizer: PreTrainedTokenizerBase) -> GenerationConfig:
    """A generation_config with nothing in it but where answers end: servers would take penalties and top_k from it."""
    from transformers import GenerationConfig

    ends = sorted(end_token_ids(start, tokenizer)) or None
    return GenerationConfig(bos_token_id=tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id)
