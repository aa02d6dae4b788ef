"""The reference model's log-probabilities of preference pairs, as an artifact (branching paper, equation 2).

They depend on the pairs and on the reference model alone, so they are computed once, shard by shard, and every run of
a sweep over beta or the learning rate reads them; no reference model is then in memory while training.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from trl import DPOConfig
from trl.models import prepare_deepspeed

from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.engines.loading import end_token_ids, load_model, load_tokenizer, own_context
from judgetrain.errors import TrainingError
from judgetrain.train.arguments import device_arguments
from judgetrain.train.data import PAIR, REFERENCE_COLUMNS, Examples, Row, Slices, emptied, fitting, length
from judgetrain.train.distributed import current, forget_deepspeed
from judgetrain.train.run import trainable
from judgetrain.train.stages import ReferenceSettings
from judgetrain.train.trainers import PreferenceTrainer, labelled_tokens_alone

BATCH = 8
"""Pairs that the reference model reads together: what training has room for, which keeps more than log-probabilities,
is enough; more are no faster."""
SHARD = 512
"""Pairs finished together; the unit of resume, and what a worker gets at once."""
TABLES = ".tokens"
"""The directory of the tokenised pairs while the stage runs."""
_ANY = [{"prompt_ids": [0], "chosen_ids": [0], "rejected_ids": [0], **dict.fromkeys(REFERENCE_COLUMNS, 0.0)}]
"""TRL's trainer looks at a row when it is made; the pairs come later, shard by shard."""


def reference_logps(
    settings: ReferenceSettings, policy: ModelConfig, pairs: Mapping[str, Collection[Row]], out: StageRun
) -> None:
    """Write ``<split>-*.jsonl``: each pair's digest and its reference log-probabilities (sums over tokens, nats).

    ``policy`` is the reference, by whose chat template pairs are rendered. Pairs longer than ``max_length`` are left
    out and counted, as in training. Shards that an earlier run finished are kept. A process that is alone has the run's
    executor process them, whose workers hold a copy of the reference each. Of several that train together every one
    computes its share of each shard: how they hold weights, and in which precision, is part of the result. The leader
    then says which shard comes, and writes.
    """
    group, place = current(), out.path(TABLES)
    splits = group.decide(lambda: _that_fit(policy, settings.train.max_length, pairs, place))
    with loaded_once(lambda: _Forward(settings, policy)) as forward:
        if group.leads:
            out.log(f"{out.stage}: {', '.join(f'{len(e)} {split}' for split, e in splits.items())} pairs")
            for split, examples in splits.items():
                _fill(split, examples, forward, out)
                out.count(in_=sum(examples.dropped.values()), dropped=examples.dropped)
            group.decide(lambda: None)
        else:
            while (task := group.decide(lambda: None)) is not None:
                split, index = task
                forward()(Slices(splits[split].data)[index * SHARD : (index + 1) * SHARD])
    if group.deepspeed:
        forget_deepspeed()
    if group.leads:
        shutil.rmtree(place, ignore_errors=True)


def _that_fit(
    policy: ModelConfig, max_length: int, pairs: Mapping[str, Collection[Row]], place: Path
) -> dict[str, Examples]:
    """The pairs of each split that are trained on, or watched, tokenised in ``place``."""
    emptied(place)
    tokenizer, splits = load_tokenizer(policy), dict[str, Examples]()
    ends, most = end_token_ids(policy, tokenizer), min(max_length, own_context(policy))
    for split, rows in pairs.items():
        try:
            splits[split] = fitting(rows, tokenizer, most, f"{split} pairs", ends, place / f"{split}.arrow")
        except TrainingError:
            if split == "train":  # of held-out pairs training says what it means that none fits
                raise
    return splits


def _fill(split: str, examples: Examples, forward: Callable[[], _Forward], out: StageRun) -> None:
    """The shards of a split, by the executor or together with the other processes."""
    group = current()

    def process(index: int, items: Sequence[Row]) -> ShardResult:
        if group.group is not None:  # before the model is loaded, which takes all of them under ZeRO-3
            group.decide(lambda: (split, index))
        return ShardResult(forward()(items), len(items))

    alone = group.group is None
    out.sharded(split, Slices(examples.data), SHARD, process, "pairs", forward if alone else None, spread=alone)


class _Forward:
    """The reference model in this process, and TRL's trainer around it; a call gives the rows of pairs."""

    def __init__(self, settings: ReferenceSettings, policy: ModelConfig) -> None:
        self._place = TemporaryDirectory(prefix="judgetrain-reference-")  # TRL's trainer wants one; it stays empty
        self._batch, bf16 = min(BATCH, settings.batch_size), settings.train.bf16
        args = DPOConfig(
            output_dir=self._place.name,
            precompute_ref_log_probs=True,
            per_device_train_batch_size=self._batch,
            max_length=None,
            **device_arguments(bf16),
        )
        tokenizer = load_tokenizer(policy)
        tokenizer.padding_side = "right"
        model, row = load_model(trainable(policy, bf16, settings.adapters)), Dataset.from_list(_ANY)
        trainer = PreferenceTrainer(model=model, args=args, train_dataset=row, processing_class=tokenizer)
        if trainer.is_deepspeed_enabled:
            self._model: Any = prepare_deepspeed(trainer.model, trainer.accelerator)
        else:
            self._model = trainer.accelerator.prepare_model(trainer.model, evaluation_mode=True)
        self._trainer: Any = trainer

    def __call__(self, pairs: Sequence[Row]) -> list[Row]:
        """A row for each pair of token ids, in their order."""
        by_length = sorted(range(len(pairs)), key=lambda i: length(pairs[i]))
        data = Dataset.from_list([pairs[i] for i in by_length]).remove_columns(PAIR)
        trainer, parts = self._trainer, []
        loader = DataLoader(data, batch_size=self._batch, collate_fn=trainer.data_collator)
        with labelled_tokens_alone():
            for batch in trainer.accelerator.prepare(loader):
                sides = torch.stack(trainer.compute_ref_log_probs(self._model, batch), dim=1)
                parts.append(trainer.accelerator.gather_for_metrics(sides).float().cpu())
        logps = dict(zip(by_length, torch.cat(parts).tolist(), strict=True))
        return [
            {"pair": row[PAIR], **dict(zip(REFERENCE_COLUMNS, logps[i], strict=True))} for i, row in enumerate(pairs)
        ]

    def close(self) -> None:
        """Free the model."""
        self._trainer = self._model = None
        self._place.cleanup()
