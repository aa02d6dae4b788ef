"""Stage ``reference``: the reference model's log-probabilities of preference pairs (branching paper, equation 2).

They depend on the pairs and on that model alone. So they are an artifact, computed once, shard by shard, which every
run of a sweep over beta or the learning rate reads; no reference model is then in memory while training.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from accelerate.utils import fsdp2_prepare_model  # type: ignore[import-untyped]
from datasets import Dataset
from torch.utils.data import DataLoader
from trl import DPOConfig
from trl.models import prepare_deepspeed

from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.engines.loading import end_token_ids, load_model, load_tokenizer, own_context
from judgetrain.errors import TrainingError
from judgetrain.train.arguments import device_arguments, peft_config, trainable
from judgetrain.train.config import TrainerConfig
from judgetrain.train.data import PAIR, REFERENCE_COLUMNS, Examples, Renderer, Row, Slices, emptied, fitting, length
from judgetrain.train.distributed import current, forget_wrapping
from judgetrain.train.internals import labelled_tokens_alone
from judgetrain.train.stages import ReferenceSettings
from judgetrain.train.trainers import PreferenceTrainer

BATCH = 8
"""Pairs that the reference model reads together: what training has room for, which keeps more than log-probabilities,
is enough; more are no faster."""
SHARD = 512
"""Pairs finished together; the unit of resume, and what a worker gets at once."""
TABLES = ".tokens"
"""The directory of the tokenised pairs while the stage runs."""
_ANY_PAIR = {"prompt_ids": [0], "chosen_ids": [0], "rejected_ids": [0], **dict.fromkeys(REFERENCE_COLUMNS, 0.0)}
"""TRL's trainer looks at a row when it is made; the pairs come later, shard by shard."""


def reference_logps(
    settings: ReferenceSettings, policy: ModelConfig, pairs: Mapping[str, Collection[Row]], out: StageRun
) -> None:
    """Write ``<split>-*.jsonl``: each pair's digest and its reference log-probabilities (sums over tokens, nats).

    Pairs longer than ``max_length`` are left out and counted, as in training. Shards that an earlier run finished are
    kept.

    A process that is alone has the run's executor process the shards, whose workers hold a copy of the reference each.
    Of several that train together, every one computes its share of each shard: how they hold weights, and in which
    precision, is part of the result. The leader says which shard comes, and writes.

    Args:
        settings: of the stage.
        policy: the reference model, by whose chat template pairs are rendered.
        pairs: the preference pairs of each split.
        out: the stage's directory.

    Raises:
        TrainingError: no training pair fits.
    """
    group = current()
    tables = out.path(TABLES)
    # The leader tokenises, and the other processes map its tables.
    splits = group.decide(lambda: _fitting_pairs(policy, settings.train.max_length, pairs, tables))
    with loaded_once(lambda: _Forward(settings, policy)) as forward:
        if group.leads:
            counts = ", ".join(f"{len(examples)} {split}" for split, examples in splits.items())
            out.log(f"{out.stage}: {counts} pairs")
            for split, examples in splits.items():
                _write_split(split, examples, forward, out)
                # The pairs that fit are counted with their shards.
                out.count(in_=sum(examples.dropped.values()), dropped=examples.dropped)
            # The followers wait for the next shard until they are told that there is none.
            group.decide(lambda: None)
        else:
            _follow(splits, forward)
    forget_wrapping()
    if group.leads:
        shutil.rmtree(tables, ignore_errors=True)


def _fitting_pairs(
    policy: ModelConfig, max_length: int, pairs: Mapping[str, Collection[Row]], tables: Path
) -> dict[str, Examples]:
    """Return the pairs of each split that have at most ``max_length`` tokens, tokenised in the directory ``tables``."""
    emptied(tables)
    tokenizer = load_tokenizer(policy)
    ends = end_token_ids(policy, tokenizer)
    # As in training, so that there is a reference for every pair that training keeps.
    most_tokens = min(max_length, own_context(policy))
    splits: dict[str, Examples] = {}
    for split, rows in pairs.items():
        table = tables / f"{split}.arrow"
        try:
            splits[split] = fitting(rows, Renderer(tokenizer, ends), most_tokens, f"{split} pairs", table)
        except TrainingError:
            # Training goes on without held-out pairs, and says itself that none of them fits.
            if split == "train":
                raise
    return splits


def _write_split(split: str, examples: Examples, forward: Callable[[], _Forward], out: StageRun) -> None:
    """Write the shards of a split, by the executor or together with the other processes."""
    group = current()
    is_alone = group.group is None

    def process(index: int, items: Sequence[Row]) -> ShardResult:
        if not is_alone:
            # Before the model is loaded, for which all processes are needed under ZeRO-3.
            group.decide(lambda: (split, index))
        return ShardResult(forward()(items), len(items))

    # Alone, the model is loaded before a shard's clock runs; together, once every process has been told of the shard.
    load_early = None
    if is_alone:
        load_early = forward
    work = Work(process=process, load=load_early, spread=is_alone)
    out.sharded(split, Slices(examples.data), SHARD, work, "pairs")


def _follow(splits: Mapping[str, Examples], forward: Callable[[], _Forward]) -> None:
    """Compute this process's share of every shard that the leader names, until it says that there is none left."""
    group = current()
    while True:
        # The leader's function decides, so this one is never called.
        task = group.decide(lambda: None)
        if task is None:
            return
        split, index = task
        forward()(Slices(splits[split].data)[index * SHARD : (index + 1) * SHARD])


class _Forward:
    """The reference model in this process, inside TRL's trainer; a call returns the rows of pairs."""

    def __init__(self, settings: ReferenceSettings, policy: ModelConfig) -> None:
        # TRL's trainer wants a directory; it stays empty.
        self._directory = TemporaryDirectory(prefix="judgetrain-reference-")
        self._batch = min(BATCH, settings.batch_size)
        bf16 = settings.train.bf16
        args = DPOConfig(
            output_dir=self._directory.name,
            precompute_ref_log_probs=True,
            per_device_train_batch_size=self._batch,
            # TRL's default is True, and nothing is trained here.
            gradient_checkpointing=False,
            # Longer pairs were left out and counted; TRL would cut them.
            max_length=None,
            **device_arguments(bf16, policy.dtype),
        )
        tokenizer = load_tokenizer(policy)
        # TRL pads on the right. The tokenizer of a judge pads on the left, for generation.
        tokenizer.padding_side = "right"
        # A trainer takes weights in 4 bits with adapters alone; new ones change nothing.
        adapters = peft_config(TrainerConfig(lora=bool(settings.four_bit)))
        model = load_model(trainable(policy, bf16, settings.adapters), four_bit=bool(settings.four_bit))
        # The trainer of stage dpo itself, so that the reference is computed as the policy will be.
        trainer = PreferenceTrainer(
            model=model,
            args=args,
            train_dataset=Dataset.from_list([_ANY_PAIR]),
            processing_class=tokenizer,
            peft_config=adapters,
        )
        if trainer.is_deepspeed_enabled:
            self._model: Any = prepare_deepspeed(trainer.model, trainer.accelerator)
        elif trainer.is_fsdp_enabled:
            # Block by block, as the trainer does it. TRL's own prepare_fsdp gathers the whole model at once.
            self._model = fsdp2_prepare_model(trainer.accelerator, trainer.model).eval()
        else:
            self._model = trainer.accelerator.prepare_model(trainer.model, evaluation_mode=True)
        self._trainer: Any = trainer

    def __call__(self, pairs: Sequence[Row]) -> list[Row]:
        """Return a row for each pair of token ids, in their order: its digest and both sides' log-probabilities."""
        trainer = self._trainer
        # Pairs of like length are read together, so that little of a batch is padding.
        by_length = sorted(range(len(pairs)), key=lambda index: length(pairs[index]))
        # The collator would make a tensor of the digest, which is text.
        data = Dataset.from_list([pairs[index] for index in by_length]).remove_columns(PAIR)
        loader = DataLoader(data, batch_size=self._batch, collate_fn=trainer.data_collator)
        batches = []
        with labelled_tokens_alone():
            for batch in trainer.accelerator.prepare(loader):
                sides = torch.stack(trainer.compute_ref_log_probs(self._model, batch), dim=1)
                # The last batch is padded with repeated rows where processes share it; these are left out here.
                batches.append(trainer.accelerator.gather_for_metrics(sides).float().cpu())
        logps = dict(zip(by_length, torch.cat(batches).tolist(), strict=True))
        rows = []
        for index, pair in enumerate(pairs):
            columns = dict(zip(REFERENCE_COLUMNS, logps[index], strict=True))
            rows.append({"pair": pair[PAIR], **columns})
        return rows

    def close(self) -> None:
        """Free the model."""
        self._trainer = None
        self._model = None
        self._directory.cleanup()
