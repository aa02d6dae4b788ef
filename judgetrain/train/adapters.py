"""Low-rank adapters: PEFT's configuration from ours, and merging."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.errors import TrainingError
from judgetrain.train.config import AdapterConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def targets(text: str) -> str | list[str]:
    """PEFT's ``target_modules``: names become a list, matched by their last part; anything else is a pattern."""
    if text == "all-linear" or not re.fullmatch(r"\w+(\.\w+)*(,\s*\w+(\.\w+)*)*", text):
        return text
    return [name.strip() for name in text.split(",")]


def peft_config(settings: AdapterConfig, model: PreTrainedModel, key: str) -> Any:
    """PEFT's LoRA configuration, or None when adapters are off; ``key`` is where the stage's settings stand.

    Raises:
        TrainingError: ``target_modules`` matches no module of the model, or its output layer.
    """
    if not settings.enabled:
        return None
    from peft import LoraConfig

    config = LoraConfig(
        r=settings.r,
        lora_alpha=2 * settings.r,
        lora_dropout=settings.lora_dropout,
        target_modules=targets(settings.target_modules),
        task_type="CAUSAL_LM",
    )
    if settings.target_modules != "all-linear":
        _check_targets(config, model, f"{key}.lora.target_modules={settings.target_modules}")
    return config


def _check_targets(config: Any, model: PreTrainedModel, setting: str) -> None:
    import torch
    from peft.tuners.tuners_utils import check_target_module_exists

    matched = [name for name, _ in model.named_modules() if check_target_module_exists(config, name)]
    head = model.get_output_embeddings()
    if any(model.get_submodule(name) is head for name in matched):
        raise TrainingError(f"{setting} takes in the output layer, which TRL computes without adapters: leave it out")
    if not matched:
        linear = {
            n.rsplit(".", 1)[-1] for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and m is not head
        }
        raise TrainingError(
            f"{setting} matches no module of {type(model).__name__}: name some of {', '.join(sorted(linear))}, "
            "or take all-linear"
        )


def save_adapted(model: Any, state: Mapping[str, Any], settings: AdapterConfig, directory: Path) -> None:
    """Write a trained PEFT model: merged into ordinary weights, or as adapters."""
    if settings.merge:
        whole = model.merge_and_unload()
        whole.save_pretrained(directory, state_dict={k: v.contiguous() for k, v in whole.state_dict().items()})
        return
    for config in model.peft_config.values():
        base = config.base_model_name_or_path
        config.base_model_name_or_path = str(Path(base).resolve()) if base and Path(base).is_dir() else base
    model.save_pretrained(directory, state_dict=dict(state))
    (directory / "README.md").unlink(missing_ok=True)  # PEFT's; ours is written at the end
    model.generation_config.save_pretrained(directory)
