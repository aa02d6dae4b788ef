"""The plain way, for comparison: full logits of one unpadded sequence, all attention maps, NumPy in float64."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from judgetrain.scorers.encode import Tokens
from judgetrain.scorers.statistics import TokenScorer
from tests.builders.engines import tiny_llama, word_tokenizer


def tiny_scorer() -> TokenScorer:
    """Return a scorer over the tiny model."""
    tokenizer = word_tokenizer()
    return TokenScorer(tiny_llama(len(tokenizer), max_position_embeddings=512), tokenizer, batch_size=4)


def full_logits(model: Any, ids: tuple[int, ...]) -> np.ndarray:
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids])).logits[0].double().numpy()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


def columns(logits: np.ndarray, targets: list[int]) -> dict[str, np.ndarray]:
    """Return every statistic of each step, from its definition; logits [steps, vocabulary]."""
    logs = log_softmax(logits)
    probs = np.exp(logs)
    steps = range(len(targets))
    return {
        "logprob": np.array([logs[i, targets[i]] for i in steps]),
        "entropy": np.array([-sum(p * x for p, x in zip(probs[i], logs[i], strict=True) if p > 0) for i in steps]),
    }


def statistics(model: Any, tokens: Tokens) -> dict[str, np.ndarray]:
    """Statistics [T] of a response, as TokenStatistics.steps has them."""
    logits = full_logits(model, tokens.prompt + tokens.response)[len(tokens.prompt) - 1 : -1]
    return columns(logits, [*tokens.response])


def attention_entropies(model: Any, tokens: Tokens) -> list[list[float]]:
    """Attention entropy [layers][heads], a loop over pairs of tokens; the model must be eager."""
    with torch.inference_mode():
        maps = model(input_ids=torch.tensor([tokens.prompt + tokens.response]), output_attentions=True).attentions
    result = []
    for layer in maps:
        heads = []
        for head in layer[0].double().numpy():
            total = 0.0
            for t in range(len(tokens.response)):
                for i in range(len(tokens.prompt)):
                    weight = head[len(tokens.prompt) + t - 1, i]
                    total -= weight * np.log(weight) if weight > 0 else 0.0
            heads.append(total / len(tokens.prompt))
        result.append(heads)
    return result


def prompt_set(directory: Path, system_prompts: Sequence[str] = ("s",), **revision: str) -> str:
    """Write a prompt set whose templates but those given hold nothing but their slots, and return its file."""
    path = directory / "prompts.yaml"
    template = "{prompt}{response}"
    parts = {
        "system_prompts": [*system_prompts],
        "self_generation": template,
        "revision": revision or {"full": template},
    }
    path.write_text(json.dumps(parts))
    return str(path)
