"""What training settings need of this machine, checked before any stage runs. Imports nothing heavy at the top."""

from __future__ import annotations

from judgetrain.errors import TrainingError
from judgetrain.train.config import DpoConfig, TrainConfig, TrainStages
from judgetrain.train.options import gpu_only


def check_here(settings: TrainStages, stage: str) -> None:
    """Check what a stage that is to be made needs of this machine; one that is made already needs it no more.

    Raises:
        TrainingError: names the key and the remedy.
    """
    if stage in ("initial", "sft", "dpo"):
        check_machine(stage, getattr(settings, stage))
    elif stage == "reference":
        check_machine("dpo", of_reference(settings.dpo))


def of_reference(config: DpoConfig) -> TrainConfig:
    """What the reference log-probabilities depend on, of all that may need a GPU."""
    return TrainConfig(lora=config.lora, tf32=config.tf32)


def has_tf32() -> bool:
    """Whether there is a GPU whose tensor cores take float32 (Ampere or newer)."""
    import torch

    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8


def check_machine(stage: str, config: TrainConfig) -> None:
    """Check that the machine has what the settings need.

    Raises:
        TrainingError: a setting that needs a GPU, and none here, or one that is too old.
    """
    needs = gpu_only(config)
    if not needs:
        return
    import torch

    if not torch.cuda.is_available():
        raise TrainingError(f"train.{stage}.{needs[0]} needs a GPU, and PyTorch sees none here: leave it out")
    if config.tf32 and not has_tf32():
        raise TrainingError(
            f"train.{stage}.tf32=true needs a GPU of compute capability 8.0 (Ampere) or newer, and "
            f"{torch.cuda.get_device_name()} is older: leave it out"
        )
