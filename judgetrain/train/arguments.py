"""From our training configuration to TRL's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from judgetrain.config import DpoConfig, LoraSettings, TrainConfig
from judgetrain.train.distributed import STEP_TIMEOUT, current


def common_arguments(config: TrainConfig, directory: Path, seed: int, evaluate: bool) -> dict[str, Any]:
    """Arguments shared by SFT and DPO.

    The data set holds all epochs in training order, so the trainer passes over it once, in sequence: the order is
    then a function of the seed alone, also after a resume.
    """
    return {
        **device_arguments(config.bf16),
        "output_dir": str(directory),
        "learning_rate": config.learning_rate,
        "num_train_epochs": 1,
        "max_steps": config.max_steps,
        "per_device_train_batch_size": config.batch_size,
        "per_device_eval_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.accumulation // current().size,
        "train_sampling_strategy": "sequential",
        "warmup_steps": config.warmup_ratio,
        "lr_scheduler_type": config.lr_scheduler,
        "weight_decay": config.weight_decay,
        "max_grad_norm": config.max_grad_norm,
        "gradient_checkpointing": config.gradient_checkpointing,
        "max_length": None,
        "save_steps": config.save_steps,
        "save_total_limit": max(2, config.keep_checkpoints),
        "eval_strategy": "steps" if evaluate else "no",
        "eval_steps": config.eval_steps,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "seed": seed,
        "data_seed": seed,
    }


def device_arguments(bf16: bool | None) -> dict[str, Any]:
    """Arguments that say where and in which precision is computed; ``bf16`` None: where the GPU has it."""
    import torch

    gpu = torch.cuda.is_available()
    wanted = bf16 if bf16 is not None else gpu and torch.cuda.is_bf16_supported()
    return {
        "bf16": bool(wanted),
        "tf32": True if gpu and torch.cuda.get_device_capability()[0] >= 8 else None,
        "use_cpu": not gpu,
        "dataloader_pin_memory": gpu,
        "deepspeed": current().deepspeed,
        "ddp_find_unused_parameters": False,
        "ddp_timeout": int(STEP_TIMEOUT.total_seconds()),
        "report_to": "none",
        "disable_tqdm": True,
    }


def dpo_arguments(config: DpoConfig) -> Mapping[str, Any]:
    """Arguments of DPO alone."""
    types, weights = [config.loss_type], [1.0]
    if config.sft_weight:
        types, weights = [*types, "sft"], [*weights, config.sft_weight]
    return {
        "beta": config.beta,
        "loss_type": types,
        "loss_weights": weights,
        "label_smoothing": config.label_smoothing,
        "precompute_ref_log_probs": config.precompute_ref_log_probs,
    }


def peft_config(settings: LoraSettings) -> Any:
    """PEFT's LoRA configuration, or None when adapters are off."""
    if not settings.enabled:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=settings.r,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=settings.target_modules,
        task_type="CAUSAL_LM",
    )
