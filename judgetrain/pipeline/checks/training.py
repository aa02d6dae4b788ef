"""Stages initial, sft, reference and dpo."""

from __future__ import annotations

from judgetrain.errors import ConfigError
from judgetrain.pipeline.checks.models import check_base, check_model
from judgetrain.pipeline.config import Config
from judgetrain.train.checks import check_training
from judgetrain.train.config import TrainConfig
from judgetrain.train.distributed import check_distributed


def check_initial(config: Config) -> None:
    """The base model and how it is trained."""
    check_base(config)
    _training(config, "initial")


def check_sft(config: Config) -> None:
    """How the SFT judge is trained."""
    _training(config, "sft")
    _adapters_on_adapters("sft", config.train.sft, "initial", config.train.initial)


def check_dpo(config: Config) -> None:
    """How the DPO judge is trained, and on which pairs."""
    _training(config, "dpo")
    _adapters_on_adapters("dpo", config.train.dpo, "sft", config.train.sft)
    if config.train.dpo.reference.path:
        check_model("train.dpo.reference", config.train.dpo.reference)
    if not config.label.max_pairs_per_level:
        raise ConfigError("label.max_pairs_per_level=0 keeps no preference pairs for stage dpo: raise it")
    if config.train.dpo.stop.watched and not config.label.holdout:
        raise ConfigError("train.dpo.stop watches held-out pairs, and label.holdout=0 keeps none: raise it")


def _training(config: Config, stage: str) -> None:
    check_training(stage, getattr(config.train, stage))
    check_distributed(config.train, stage)


def _adapters_on_adapters(stage: str, settings: TrainConfig, start: str, before: TrainConfig) -> None:
    if all(s.lora.enabled and not s.lora.merge for s in (settings, before)):
        raise ConfigError(
            f"train.{stage}.lora.merge=false: its base would be the adapters of {start}; "
            f"set train.{start}.lora.merge=true"
        )
