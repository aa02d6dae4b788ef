"""From our training configuration to TRL's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from judgetrain.train.checks import has_tf32
from judgetrain.train.config import DpoConfig, TrainConfig
from judgetrain.train.distributed import STEP_TIMEOUT, current


def common_arguments(config: TrainConfig, directory: Path, seed: int, evaluate: bool) -> dict[str, Any]:
    """Arguments shared by SFT and DPO.

    The data set holds all epochs in training order, so the trainer passes over it once, in sequence: the order is
    then a function of the seed alone, also after a resume.
    """
    chosen = {"optim": config.optim} if config.optim else {}
    return {
        **chosen,
        **device_arguments(config.bf16, config.tf32),
        "output_dir": str(directory),
        "learning_rate": config.learning_rate,
        "num_train_epochs": 1,
        "max_steps": config.max_steps,
        "per_device_train_batch_size": config.per_device_train_batch_size,
        "per_device_eval_batch_size": config.per_device_train_batch_size,
        "gradient_accumulation_steps": config.global_accumulation_steps // current().size,
        "train_sampling_strategy": "sequential",
        "warmup_steps": config.warmup_steps,
        "lr_scheduler_type": config.lr_scheduler_type,
        "weight_decay": config.weight_decay,
        "max_grad_norm": config.max_grad_norm,
        "gradient_checkpointing": config.gradient_checkpointing,
        "use_liger_kernel": config.use_liger_kernel,
        "max_length": None,
        "save_steps": config.save_steps,
        "save_total_limit": None,  # CheckpointMarks removes them, safely under a kill
        "eval_strategy": "steps" if evaluate else "no",
        "eval_steps": config.eval_steps,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "seed": seed,
        "data_seed": seed,
    }


def mixed_precision(bf16: bool | None) -> bool:
    """Whether to compute in bfloat16; None: where the GPU has it."""
    import torch

    return bf16 if bf16 is not None else torch.cuda.is_available() and torch.cuda.is_bf16_supported()


def device_arguments(bf16: bool | None, tf32: bool | None) -> dict[str, Any]:
    """Arguments that say where and in which precision is computed; None: where the GPU has it."""
    import torch

    gpu = torch.cuda.is_available()
    if tf32 is None:
        tf32 = has_tf32()
    return {
        "bf16": mixed_precision(bf16),
        "tf32": True if tf32 else None,
        "use_cpu": not gpu,
        "dataloader_pin_memory": gpu,
        "deepspeed": current().deepspeed,
        "ddp_find_unused_parameters": False,
        "ddp_timeout": int(STEP_TIMEOUT.total_seconds()),
        "report_to": "none",
        "disable_tqdm": True,
    }


def sft_arguments(config: TrainConfig) -> dict[str, Any]:
    """Arguments of SFT alone, over the shared ones.

    Packed sequences are made once and shuffled anew every epoch, since which examples share one has no meaning.
    """
    arguments: dict[str, Any] = {"completion_only_loss": True, "padding_free": config.padding_free}
    if config.packing:
        arguments |= {
            "packing": True,
            "eval_packing": False,
            "max_length": config.max_length,
            "num_train_epochs": config.num_train_epochs,
            "train_sampling_strategy": "random",
        }
    return arguments


def dpo_arguments(config: DpoConfig) -> dict[str, Any]:
    """Arguments of DPO alone, over the shared ones.

    A stop-loss saves a checkpoint at every evaluation, so that the best one is there to be kept.
    """
    types, weights = [config.loss_type], [1.0]
    if config.sft_weight:
        types, weights = [*types, "sft"], [*weights, config.sft_weight]
    arguments: dict[str, Any] = {
        "beta": config.beta,
        "loss_type": types,
        "loss_weights": weights,
        "label_smoothing": config.label_smoothing,
        "ld_alpha": config.ld_alpha,
        "f_divergence_type": config.f_divergence_type,
        "f_alpha_divergence_coef": config.f_alpha_divergence_coef,
        "precompute_ref_log_probs": config.precompute_ref_log_probs,
    }
    if config.stop.watched:
        from judgetrain.train.watch import BEST

        arguments |= {
            "save_steps": config.eval_steps,
            "load_best_model_at_end": True,
            "metric_for_best_model": BEST,
            "greater_is_better": True,
        }
    return arguments
