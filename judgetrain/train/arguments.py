"""From our training configuration to TRL's, and what else a model, a tokenizer and the machine need for training."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model
from judgetrain.errors import ConfigError, TrainingError
from judgetrain.train.config import DpoConfig, SupervisedConfig, TrainConfig, TrainerConfig
from judgetrain.train.distributed import STEP_TIMEOUT, current
from judgetrain.train.internals import has_cpp_compiler

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel
    from trl import DPOConfig, SFTConfig


DEFAULTS = {"warmup_steps": 0.05, "lr_scheduler_type": "cosine"}
"""Where ours are other than TRL's; ``train.STAGE.trainer`` may say otherwise."""

RANK = 16
"""Of adapters, and no key: with adapters in all layers the result does not hang on it (QLoRA, 2305.14314, section 4).
They have no dropout: DPO and RL compare log-probabilities, experts take none, and on a CPU it is a fifth of a step."""

KEPT = 2
"""Checkpoints that are kept while training, the best among them: the last may be cut by what kills the run."""

BEST = "eval_agreement_then_loss"
"""The figure by which the trainer picks the best checkpoint."""


def training_arguments(
    config: TrainConfig, key: str, directory: Path, seed: int, evaluate: bool
) -> SFTConfig | DPOConfig:
    """TRL's arguments of a stage that trains on examples or pairs, whose settings stand at ``key``."""
    from trl import DPOConfig, SFTConfig

    batch, steps_of_each = shared_out(config, current().size)
    batches = dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size"), batch)
    steps = batches | {"gradient_accumulation_steps": steps_of_each}
    if isinstance(config, DpoConfig):
        return arguments_of(DPOConfig, config, key, directory, seed, evaluate, steps | _dpo(config))
    # The ranking loss reads a column of its own, which TRL does not know and would take away.
    ranks = isinstance(config, SupervisedConfig) and config.ranking_weight > 0
    supervised = {"completion_only_loss": True, "remove_unused_columns": not ranks}
    return arguments_of(SFTConfig, config, key, directory, seed, evaluate, steps | supervised)


def shared_out(config: TrainConfig, processes: int) -> tuple[int, int]:
    """How many examples a process computes together, and how often in an optimizer step: the global batch stays.

    Where the micro-batches of a step are no multiple of the processes, each is split over some of them.
    """
    each = math.gcd(config.global_accumulation_steps, processes)
    return config.per_device_train_batch_size * each // processes, config.global_accumulation_steps // each


def arguments_of(
    kind: type,
    config: TrainerConfig,
    key: str,
    directory: Path,
    seed: int,
    evaluate: bool,
    own: dict[str, Any],
    **defaults: Any,
) -> Any:
    """TRL's arguments: what has the same name is handed on, but for what is said here and in ``own``.

    ``defaults``: what is other than TRL's and :data:`DEFAULTS`, unless ``trainer`` says otherwise.

    The data set holds all epochs in training order, so the trainer passes over it once, in sequence: the order is
    then a function of the seed alone, also after a resume.

    Raises:
        ConfigError: TRL does not take what ``trainer`` gives.
    """
    names = {field.name for field in fields(kind)}
    same = {name: value for name in names if (value := getattr(config, name, None)) is not None}
    shared = {
        "output_dir": str(directory),
        "num_train_epochs": 1,
        "per_device_eval_batch_size": config.per_device_train_batch_size,
        "train_sampling_strategy": "sequential",
        "max_length": None,
        "eval_strategy": "steps" if evaluate else "no",
        "logging_steps": 1,
        "save_total_limit": KEPT,
        "logging_nan_inf_filter": False,
        "seed": seed,
        "data_seed": seed,
    }
    decided = same | shared | device_arguments(config.bf16) | own
    with trainer_explained(config, key):
        return kind(**(DEFAULTS | defaults | config.trainer | {name: decided[name] for name in decided.keys() & names}))


@contextmanager
def trainer_explained(config: TrainerConfig, key: str) -> Iterator[None]:
    """Say where the arguments stand that TRL does not take (ConfigError: what TRL says of them)."""
    try:
        yield
    except (ValueError, ImportError) as error:
        raise ConfigError(f"{key}.trainer={config.trainer}: {error}") from error


def peft_config(config: TrainerConfig) -> Any:
    """PEFT's LoRA configuration, or None when adapters are off."""
    if not config.lora:
        return None
    from peft import LoraConfig

    return LoraConfig(r=RANK, lora_alpha=2 * RANK, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")


def onto_whole(adapted: Any, start: ModelConfig) -> Any:
    """The adapters of a base in 4 bits on the same base as it was before, in float32 on the CPU.

    Weights in 4 bits could not take them up: what was learned is smaller than their steps, and the next stage rounds
    the merged weights again.
    """
    from peft import PeftModel

    with TemporaryDirectory(prefix="judgetrain-adapters-") as place:
        adapted.save_pretrained(place)
        return PeftModel.from_pretrained(load_model(replace(start, dtype="float32"), "cpu"), place)


def mixed_precision(bf16: bool | None) -> bool:
    """Whether to compute in bfloat16; None: where the GPU has it."""
    import torch

    return bf16 if bf16 is not None else torch.cuda.is_available() and torch.cuda.is_bf16_supported()


def device_arguments(bf16: bool | None) -> dict[str, Any]:
    """Arguments that say where and in which precision is computed: TF32 wherever the GPU has it (Ampere or newer)."""
    import torch

    gpu = torch.cuda.is_available()
    return {
        "bf16": mixed_precision(bf16),
        "tf32": (gpu and torch.cuda.get_device_capability()[0] >= 8) or None,
        "use_cpu": not gpu,
        "dataloader_pin_memory": gpu,
        "deepspeed": current().deepspeed,
        "ddp_find_unused_parameters": False,
        "ddp_timeout": int(STEP_TIMEOUT.total_seconds()),
        "report_to": "none",
        "disable_tqdm": True,
    }


def _dpo(config: DpoConfig) -> dict[str, Any]:
    """Where the best checkpoint is kept there is one at every evaluation."""
    supervised = {"sft": config.sft_weight} if config.sft_weight else {}
    weights = {config.trainer.get("loss_type", "sigmoid"): 1.0, **supervised}
    losses = {"loss_type": [*weights], "loss_weights": [*weights.values()], "precompute_ref_log_probs": True}
    return losses | (kept_best(BEST, config.eval_steps) if config.keep_best else {})


def kept_best(figure: str, steps: int) -> dict[str, Any]:
    """Arguments under which the checkpoint with the largest held-out figure is loaded at the end."""
    best = {"load_best_model_at_end": True, "metric_for_best_model": figure, "greater_is_better": True}
    return {"eval_steps": steps, "save_steps": steps, **best}


@contextmanager
def memory_explained(key: str) -> Iterator[None]:
    """Turn what PyTorch raises when memory runs out, on a GPU or not, into a sentence; ``key``: of the settings
    (TrainingError: memory ran out; says what to lower)."""
    import torch

    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
        if not known and not re.search("out of memory|can't allocate memory", str(error), re.IGNORECASE):
            raise
        told = f"out of memory: lower {key}.per_device_train_batch_size (raise global_accumulation_steps as much)"
        raise TrainingError(f"{told}, or set {key}.gradient_checkpointing=true or {key}.lora=true") from error


def frozen_experts(model: PreTrainedModel) -> int:
    """How many weights are of experts, which stand together in one tensor, and have no adapters."""
    frozen = {name: getattr(p, "ds_shape", p.shape) for name, p in model.named_parameters() if not p.requires_grad}
    return sum(math.prod(s) for name, s in frozen.items() if len(s) == 3 and ".base_layer." not in name)


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

    if not has_cpp_compiler():
        return "regional_compilation is left out, since there is no C++ compiler (g++ or clang++)"
    stacks = [module for module in model.modules() if is_repeated_blocks(module) and len([*module.children()]) > 1]
    blocks = [block for stack in stacks for block in stack.children()]
    for block in blocks:
        block.compile(dynamic=True)
    return f"{len(blocks)} blocks are compiled at the first steps, which take longer"


def trainable(model: ModelConfig, bf16: bool | None, adapters: bool) -> ModelConfig:
    """How to load a model for training: weights that are all trained are kept in float32.

    AdamW's steps at these learning rates are smaller than bfloat16 can add to a weight; mixed precision (``bf16``)
    computes in bfloat16 all the same, and so can take flash attention. Under adapters the base stays as it is, and so
    do weights in half precision under ZeRO, where DeepSpeed keeps float32 ones beside them.
    """
    from transformers.utils import import_utils

    if adapters or (model.dtype != "auto" and current().deepspeed):
        return model
    attention = model.attn_implementation
    if attention is None and mixed_precision(bf16) and import_utils.is_flash_attn_2_available():
        attention = "flash_attention_2"
    return replace(model, dtype="float32", attn_implementation=attention)
