"""The reference model's log-probabilities of preference pairs, as an artifact (branching paper, equation 2).

They depend on the pairs and on the reference model alone, so they are computed once, shard by shard, and every run of
a sweep over beta or the learning rate reads them; no reference model is then in memory while training.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase
from trl import DPOConfig, DPOTrainer
from trl.models import prepare_deepspeed

from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import end_token_ids, load_model, load_tokenizer
from judgetrain.errors import TrainingError
from judgetrain.train.adapters import peft_config, quantization
from judgetrain.train.arguments import device_arguments
from judgetrain.train.config import DpoConfig
from judgetrain.train.data import REFERENCE_COLUMNS, Examples, Row, dataset, digest, fitting
from judgetrain.train.distributed import current, forget_deepspeed
from judgetrain.train.fused_head import labelled_tokens_alone
from judgetrain.train.preflight import check_same_vocabulary

TRAINER = ".trainer"
"""The directory that TRL's trainer wants to have."""
SHARD = 512
"""Pairs finished together; the unit of resume."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The reference model and how its log-probabilities are computed."""

    model: ModelConfig
    policy: ModelConfig
    """Whose tokenizer and chat template the pairs are rendered with."""
    config: DpoConfig


class _Untrained(DPOTrainer):  # type: ignore[misc]
    """TRL's trainer for its collator and its log-probabilities, computed when they are asked for."""

    def _prepare_dataset(self, dataset: Dataset, *_: Any, **__: Any) -> Dataset:
        """The data set as it is: :func:`judgetrain.train.data.dataset` has tokenised it."""
        return dataset

    def _precompute_ref_logps(self, dataset: Dataset, name: str, batch_size: int) -> Dataset:
        """The data set as it is."""
        return dataset


def reference_logps(reference: Reference, pairs: Mapping[str, Sequence[Row]], out: StageRun) -> None:
    """Write ``<split>-*.jsonl``: each pair's digest and its reference log-probabilities (sums over tokens, nats).

    Pairs longer than ``max_length`` are left out and counted, as in training. Shards that an earlier run finished are
    kept. Every process computes its share of each shard; the leader says which shard comes, and writes.
    """
    group = current()
    tokenizer = load_tokenizer(reference.policy)
    check_same_vocabulary(tokenizer, reference.model, reference.policy)
    tokenizer.padding_side = "right"
    ends = end_token_ids(reference.policy, tokenizer)
    length = reference.config.max_length
    splits = {"train": fitting(pairs["train"], tokenizer, length, "preference pairs", ends)}
    with contextlib.suppress(TrainingError):  # training says what it means that no held-out pair fits
        splits["heldout"] = fitting(pairs.get("heldout", []), tokenizer, length, "held-out pairs", ends)
    forward = _Forward(reference, splits, tokenizer, out)
    if group.leads:
        for split, examples in splits.items():

            def process(index: int, rows: Sequence[Row], split: str = split) -> ShardResult:
                task = (split, index * SHARD, len(rows))
                group.decide(lambda: task)
                return ShardResult(forward(*task), len(rows))

            out.sharded(split, examples.rows, SHARD, process, unit="pairs")
            out.count(in_=sum(examples.dropped.values()), dropped=examples.dropped)
        group.decide(lambda: None)
        shutil.rmtree(out.path(TRAINER), ignore_errors=True)
    else:
        while (task := group.decide(_nothing)) is not None:
            forward(*task)
    if group.deepspeed:
        forget_deepspeed()


def _nothing() -> tuple[str, int, int] | None:
    return None


class _Forward:
    """The reference model, loaded when the first shard needs it; calls give a shard's rows on every process."""

    def __init__(
        self, reference: Reference, splits: Mapping[str, Examples], tokenizer: PreTrainedTokenizerBase, out: StageRun
    ) -> None:
        self._reference, self._splits, self._tokenizer, self._out = reference, splits, tokenizer, out

    def __call__(self, split: str, start: int, count: int) -> list[Row]:
        """Rows of ``count`` pairs of a split from ``start`` on."""
        examples = self._splits[split]
        indices = range(start, start + count)
        by_length = sorted(indices, key=lambda i: examples.lengths[i])
        logps = dict(zip(by_length, self._logps(split, by_length), strict=True))
        return [
            {"pair": digest(examples.rows[i]), **dict(zip(REFERENCE_COLUMNS, logps[i], strict=True))} for i in indices
        ]

    def _logps(self, split: str, indices: Sequence[int]) -> list[tuple[float, float]]:
        """Reference log-probabilities (chosen, rejected) of the pairs, in the order of the indices."""
        trainer = self._trainer
        loader = DataLoader(
            (trainer.train_dataset if split == "train" else trainer.eval_dataset[split]).select(indices),
            batch_size=self._reference.config.precompute_ref_batch_size,
            collate_fn=trainer.data_collator,
        )
        parts = []
        with labelled_tokens_alone():
            for batch in trainer.accelerator.prepare(loader):
                sides = torch.stack(trainer.compute_ref_log_probs(self._model, batch), dim=1)
                parts.append(trainer.accelerator.gather_for_metrics(sides).float().cpu())
        return [(chosen, rejected) for chosen, rejected in torch.cat(parts).tolist()]

    @cached_property
    def _trainer(self) -> Any:
        settings = self._reference.config
        args = DPOConfig(
            output_dir=str(self._out.path(TRAINER)),
            precompute_ref_log_probs=True,
            per_device_train_batch_size=settings.precompute_ref_batch_size,
            max_length=None,
            ld_alpha=settings.ld_alpha,
            **device_arguments(settings.bf16, settings.tf32),
        )
        data = {split: dataset(examples, range(len(examples.rows))) for split, examples in self._splits.items()}
        self._out.log(f"{self._out.stage}: {', '.join(f'{len(d)} {split}' for split, d in data.items())} pairs")
        model = load_model(self._reference.model, quantization=quantization(settings.lora))
        # A trainer takes a quantised model with adapters only; log-probabilities are computed with them switched off.
        adapters = peft_config(settings.lora, model, "dpo") if settings.lora.quantize else None
        return _Untrained(
            model=model,
            peft_config=adapters,
            args=args,
            train_dataset=data.pop("train"),
            eval_dataset=data or None,
            processing_class=self._tokenizer,
        )

    @cached_property
    def _model(self) -> Any:
        trainer = self._trainer
        if trainer.is_deepspeed_enabled:
            return prepare_deepspeed(trainer.model, trainer.accelerator)
        return trainer.accelerator.prepare_model(trainer.model, evaluation_mode=True)
