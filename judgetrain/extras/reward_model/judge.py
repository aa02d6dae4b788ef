"""A judge that is a scalar reward model: of two responses, the one with the higher reward is better."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from judgetrain.amounts import amount
from judgetrain.errors import ConfigError
from judgetrain.judges.base import Judge
from judgetrain.judges.kinds.kind import Parts, Use
from judgetrain.judges.method import Method
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import Cost, Prediction
from judgetrain.judges.settings import ModelSettings
from judgetrain.schema import Comparison, Dialogue

BATCH = 16
"""Responses that are read together."""


def conversation(dialogue: Dialogue, response: str) -> list[dict[str, str]]:
    """Return a dialogue with a response as messages: what a reward model is trained on and reads."""
    messages = [{"role": message.role, "content": message.content} for message in dialogue.messages]
    return [*messages, {"role": "assistant", "content": response}]


class RewardJudge(Judge):
    """Gives each response a reward by itself; no order is shown, so that both have the same verdict.

    A prediction's margin is the reward of A less that of B, log-odds as the model was trained (Bradley and Terry's).

    Args:
        directory: of a sequence classifier with one label, its tokenizer and a chat template.
        name: the judge's name in tables.

    Raises:
        ConfigError: the model has several labels, or its tokenizer no chat template.
    """

    def __init__(self, directory: str, name: str) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self.name = name
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._tokenizer: Any = AutoTokenizer.from_pretrained(directory)
        model: Any = AutoModelForSequenceClassification.from_pretrained(directory, use_safetensors=True)
        if model.config.num_labels != 1:
            raise ConfigError(
                f"{name!r}: the model has {amount(model.config.num_labels, 'label')}; a reward model has one"
            )
        if not self._tokenizer.chat_template:
            raise ConfigError(f"{name!r}: its tokenizer has no chat template, by which it was trained")
        # The reward is read at the last token that is no padding.
        self._tokenizer.padding_side = "right"
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        model.config.get_text_config().pad_token_id = self._tokenizer.pad_token_id
        self._model: Any = model.to(self._device).eval()

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """Return the verdicts on many comparisons; nothing is drawn, so that ``seed`` changes nothing."""
        conversations = []
        for comparison in comparisons:
            conversations.append(conversation(comparison.dialogue, comparison.response_a))
            conversations.append(conversation(comparison.dialogue, comparison.response_b))
        token_ids = self.token_ids(conversations)
        rewards = self.rewards(token_ids)
        predictions = []
        for place, comparison in enumerate(comparisons):
            margin = rewards[2 * place] - rewards[2 * place + 1]
            tokens = len(token_ids[2 * place]) + len(token_ids[2 * place + 1])
            cost = Cost(prompt_tokens=tokens, calls=2)
            predictions.append(Prediction.by_margin(comparison, self.name, margin, cost))
        return predictions

    def token_ids(self, conversations: Sequence[Sequence[dict[str, str]]]) -> list[list[int]]:
        """Return the tokens of conversations that end with a response, as the trainer makes them."""
        rendered = self._tokenizer.apply_chat_template(conversations, tokenize=True, return_dict=True)
        return [list(ids) for ids in rendered["input_ids"]]

    def rewards(self, token_ids: Sequence[Sequence[int]]) -> list[float]:
        """Return the reward of each row of tokens, in its order."""
        import torch

        # Rows of like length together, so that little of a batch is padding.
        places = sorted(range(len(token_ids)), key=lambda place: len(token_ids[place]))
        rewards = [0.0] * len(token_ids)
        for start in range(0, len(places), BATCH):
            batch = places[start : start + BATCH]
            padded = self._tokenizer.pad(
                {"input_ids": [list(token_ids[place]) for place in batch]}, return_tensors="pt"
            )
            with torch.no_grad():
                logits = self._model(**padded.to(self._device)).logits
            for place, reward in zip(batch, logits[:, 0].float().tolist(), strict=True):
                rewards[place] = reward
        return rewards

    def close(self) -> None:
        """Free the model."""
        del self._model


def check(settings: ModelSettings, method: Method, use: Use) -> None:
    """Refuse (ConfigError) a directory that holds no model."""
    if not (Path(method.target).expanduser() / "config.json").is_file():
        raise ConfigError(f"{use.key}={method.text!r}: expected a directory with a reward model (config.json, weights)")


def build(method: Method, options: JudgeOptions, parts: Parts) -> Judge:
    """Return the judge."""
    return RewardJudge(str(Path(method.target).expanduser()), method.name)
