"""From our training configuration to TRL's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from judgetrain.config import DpoConfig, TrainConfig


def common_arguments(config: TrainConfig, directory: Path, seed: int, evaluate: bool) -> dict[str, Any]:
    """Arguments shared by SFT and DPO.

    The data set holds all epochs in training order, so the trainer passes over it once, in sequence: the order is
    then a function of the seed alone, also after a resume.
    """
    import torch

    gpu = torch.cuda.is_available()
    bf16 = config.bf16 if config.bf16 is not None else gpu and torch.cuda.is_bf16_supported()
    tf32 = config.tf32 if config.tf32 is not None else gpu and torch.cuda.get_device_capability()[0] >= 8
    chosen = {"optim": config.optimizer} if config.optimizer else {}
    return chosen | {
        "output_dir": str(directory),
        "learning_rate": config.learning_rate,
        "num_train_epochs": 1,
        "max_steps": config.max_steps,
        "per_device_train_batch_size": config.batch_size,
        "per_device_eval_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.accumulation,
        "train_sampling_strategy": "sequential",
        "warmup_steps": config.warmup_ratio,
        "lr_scheduler_type": config.lr_scheduler,
        "weight_decay": config.weight_decay,
        "max_grad_norm": config.max_grad_norm,
        "gradient_checkpointing": config.gradient_checkpointing,
        "bf16": bool(bf16),
        "tf32": True if tf32 else None,
        "use_liger_kernel": config.liger,
        "use_cpu": not gpu,
        "max_length": None,
        "save_steps": config.save_steps,
        "save_total_limit": max(2, config.keep_checkpoints),
        "eval_strategy": "steps" if evaluate else "no",
        "eval_steps": config.eval_steps,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "deepspeed": config.deepspeed,
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": gpu,
        "seed": seed,
        "data_seed": seed,
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
            "num_train_epochs": config.epochs,
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
        "f_divergence_type": config.f_divergence,
        "f_alpha_divergence_coef": config.f_alpha,
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
