"""From our training configuration to TRL's."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.train.checks import has_tf32
from judgetrain.train.config import DpoConfig, RlConfig, TrainConfig
from judgetrain.train.distributed import STEP_TIMEOUT, current

if TYPE_CHECKING:
    from trl import DPOConfig, GRPOConfig, SFTConfig


def training_arguments(
    config: TrainConfig, directory: Path, seed: int, evaluate: bool
) -> SFTConfig | DPOConfig | GRPOConfig:
    """TRL's arguments: what has the same name is handed on, but for what is said here; None takes TRL's default.

    The data set holds all epochs in training order, so the trainer passes over it once, in sequence: the order is
    then a function of the seed alone, also after a resume.
    """
    from trl import DPOConfig, GRPOConfig, SFTConfig

    own: dict[str, Any]
    if isinstance(config, RlConfig):
        kind, own = GRPOConfig, _rl(config, evaluate)
    else:
        kind, own = (DPOConfig, _dpo(config)) if isinstance(config, DpoConfig) else (SFTConfig, _sft(config))
    names = [field.name for field in fields(kind)]
    same = {name: value for name in names if (value := getattr(config, name, None)) is not None}
    shared = {
        "output_dir": str(directory),
        "num_train_epochs": 1,
        "per_device_eval_batch_size": config.per_device_train_batch_size,
        "gradient_accumulation_steps": config.global_accumulation_steps // current().size,
        "train_sampling_strategy": "sequential",
        "max_length": None,
        "save_total_limit": None,  # CheckpointMarks removes them, safely under a kill
        "eval_strategy": "steps" if evaluate else "no",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "seed": seed,
        "data_seed": seed,
    }
    given = same | shared | device_arguments(config.bf16, config.tf32) | own
    return kind(**{name: value for name, value in given.items() if name in names})


def mixed_precision(bf16: bool | None) -> bool:
    """Whether to compute in bfloat16; None: where the GPU has it."""
    import torch

    return bf16 if bf16 is not None else torch.cuda.is_available() and torch.cuda.is_bf16_supported()


def device_arguments(bf16: bool | None, tf32: bool | None) -> dict[str, Any]:
    """Arguments that say where and in which precision is computed; None: where the GPU has it."""
    import torch

    gpu = torch.cuda.is_available()
    return {
        "bf16": mixed_precision(bf16),
        "tf32": (has_tf32() if tf32 is None else tf32) or None,
        "use_cpu": not gpu,
        "dataloader_pin_memory": gpu,
        "deepspeed": current().deepspeed,
        "ddp_find_unused_parameters": False,
        "ddp_timeout": int(STEP_TIMEOUT.total_seconds()),
        "report_to": "none",
        "disable_tqdm": True,
    }


def _sft(config: TrainConfig) -> dict[str, Any]:
    """Packed sequences are made once and shuffled anew every epoch, since which examples share one has no meaning."""
    packed = {
        "eval_packing": False,
        "max_length": config.max_length,
        "num_train_epochs": config.num_train_epochs,
        "train_sampling_strategy": "random",
    }
    return {"completion_only_loss": True, **(packed if config.packing else {})}


def _dpo(config: DpoConfig) -> dict[str, Any]:
    """A stop-loss saves a checkpoint at every evaluation, so that the best one is there to be kept."""
    from judgetrain.train.preference import BEST

    weights = {config.loss_type: 1.0} | ({"sft": config.sft_weight} if config.sft_weight else {})
    losses = {"loss_type": [*weights], "loss_weights": [*weights.values()]}
    if not config.stop.watched:
        return losses
    best = {"load_best_model_at_end": True, "metric_for_best_model": BEST, "greater_is_better": True}
    return {**losses, "save_steps": config.eval_steps, **best}


def _rl(config: RlConfig, evaluate: bool) -> dict[str, Any]:
    """All branches of an optimizer step are sampled at once, and every checkpoint stands between two such batches."""
    from judgetrain.train.rl.trainer import AGREEMENT

    def whole(steps: int) -> int:
        return -(-steps // config.num_iterations) * config.num_iterations

    own: dict[str, Any] = {
        "gradient_accumulation_steps": config.rows_per_step // config.per_device_train_batch_size // current().size,
        "shuffle_dataset": False,
        "remove_unused_columns": False,
        "num_generations_eval": 1,
        "save_steps": whole(config.save_steps),
        "eval_strategy": "no",
    }
    if not evaluate:
        return own
    best = {"load_best_model_at_end": True, "metric_for_best_model": AGREEMENT, "greater_is_better": True}
    steps = dict.fromkeys(("eval_steps", "save_steps"), whole(config.eval_steps))
    return {**own, "eval_strategy": "steps", "eval_on_start": True, **steps, **best}
