"""What a training stage's settings need and which go together, checked before any stage runs."""

from __future__ import annotations

import math
from dataclasses import fields

from judgetrain.errors import ConfigError
from judgetrain.keys import did_you_mean
from judgetrain.schema import ORDERS
from judgetrain.train.config import InitialConfig, TrainConfig, TrainerConfig

OWN = frozenset(
    (
        *("output_dir", "seed", "data_seed", "report_to", "disable_tqdm", "logging_steps", "logging_nan_inf_filter"),
        *("eval_strategy", "eval_on_start", "save_total_limit", "load_best_model_at_end", "metric_for_best_model"),
        *("greater_is_better", "per_device_eval_batch_size", "gradient_accumulation_steps", "train_sampling_strategy"),
        *("tf32", "use_cpu", "dataloader_pin_memory", "deepspeed", "ddp_find_unused_parameters", "ddp_timeout"),
        *("packing", "padding_free", "completion_only_loss", "loss_weights", "precompute_ref_log_probs", "ld_alpha"),
        *("shuffle_dataset", "remove_unused_columns", "disable_dropout"),
        *("num_generations_eval", "reward_weights", "max_completion_length", "num_iterations", "temperature"),
    )
)
"""Arguments of TRL that are decided here. Packing among them: batches hold examples of like length, so little is
padding; ld_alpha: the reference's log-probabilities are sums; num_iterations and temperature: branches are the
policy's own."""


def check_training(key: str, config: TrainerConfig) -> None:
    """Check the training settings that stand at ``key``.

    Raises:
        ConfigError: names the key, its value and what is allowed.
    """
    if known := next((name for name in config.trainer if hasattr(config, name)), None):
        raise ConfigError(f"{key}.trainer.{known}: is not given here; see {key}.{known}")
    if decided := next((name for name in config.trainer if name in OWN), None):
        raise ConfigError(f"{key}.trainer.{decided}: judgetrain decides it; leave it out")
    if not isinstance(config, InitialConfig) or not config.verdict_token_warmup:
        return
    check_together(key, config, f"{key}.verdict_token_warmup")
    if config.max_steps > 0:
        told = f"counts the steps of {key}.verdict_token_warmup too; leave one of them out"
        raise ConfigError(f"{key}.max_steps={config.max_steps}: {told}, or set {key}.num_train_epochs")


def check_together(key: str, config: TrainConfig, why: str) -> None:
    """Check that a batch has room for judgments in both orders, as the setting ``why`` has them.

    Raises:
        ConfigError: it has an odd number of places.
    """
    if (batch := config.per_device_train_batch_size) % len(ORDERS):
        raise ConfigError(
            f"{key}.per_device_train_batch_size={batch}: {why} puts both orders into one batch; give an even number"
        )


def check_shared(key: str, config: TrainConfig, processes: int) -> None:
    """Check that the global batch is shared out evenly over the processes.

    Raises:
        ConfigError: it cannot be.
    """
    steps, batch = config.global_accumulation_steps, config.per_device_train_batch_size
    parts = processes // math.gcd(steps, processes)  # of a micro-batch
    if batch % parts:
        shared = f"{batch} x global_accumulation_steps={steps} cannot be shared out evenly over {processes} processes"
        batch_size = f"{key}.per_device_train_batch_size"
        raise ConfigError(f"{batch_size}={shared}: set {batch_size}={-(-batch // parts) * parts}")


def check_trainer(key: str, config: TrainerConfig, kind: str) -> None:
    """Check that TRL's configuration ``kind`` has the arguments of ``trainer``; imports TRL where there are any.

    Raises:
        ConfigError: names the argument.
    """
    if config.trainer:
        import trl

        known = {field.name for field in fields(getattr(trl, kind))}
        if wrong := next((name for name in config.trainer if name not in known), None):
            raise ConfigError(f"{key}.trainer.{wrong}: TRL's {kind} has no such argument{did_you_mean(wrong, known)}")
