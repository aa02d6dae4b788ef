"""What a training stage's settings need and which go together, checked before any stage runs. Imports nothing heavy."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, version

from judgetrain.errors import ConfigError, TrainingError
from judgetrain.train.config import DpoConfig, TrainConfig

TRL = ">=1.16,<2"
"""The range of TRL that training is written for; pyproject.toml says the same."""

BITSANDBYTES = ("8bit", "paged")
"""What the names of optimizers have in them that bitsandbytes brings."""

_DIFFERENCE_LOSSES = ("sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "robust", "discopop")
_SMOOTHED = ("robust", "exo_pair", "aot", "aot_unpaired")
_SORTING = ("aot", "aot_unpaired")


def check_training(stage: str, config: TrainConfig) -> None:
    """Check one stage's training settings and the packages that they need.

    Raises:
        ConfigError: names the key, its value and what is allowed.
        TrainingError: the installed TRL is outside :data:`TRL`.
    """
    check_trl()
    key = f"train.{stage}"
    for wanted, package, extra in _packages(config):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"{key}.{wanted} needs the package {package}: pip install 'judgetrain[{extra}]'")
    if config.lora.quantize and not config.lora.enabled:
        raise ConfigError(
            f"{key}.lora.quantize={config.lora.quantize}: a quantised base is trained by adapters alone; "
            f"set {key}.lora.enabled=true"
        )
    if config.packing and config.padding_free:
        raise ConfigError(f"{key}.packing and {key}.padding_free: packed sequences have no padding; set one of them")
    if isinstance(config, DpoConfig):
        _check_dpo(key, config)


def check_trl(installed: str | None = None) -> None:
    """Check that TRL (its version is looked up by default) is one that training is written for.

    Raises:
        TrainingError: it is not, or there is none.
    """
    from packaging.specifiers import SpecifierSet

    if installed is None:
        try:
            installed = version("trl")
        except PackageNotFoundError:
            raise TrainingError(f"training needs TRL: pip install 'trl{TRL}'") from None
    if not SpecifierSet(TRL).contains(installed, prereleases=True):
        raise TrainingError(f"training is written for trl{TRL}, and {installed} is installed: pip install 'trl{TRL}'")


def gpu_only(config: TrainConfig) -> list[str]:
    """The settings of this stage that work on a GPU alone, as ``key=value``."""
    settings = []
    if config.tf32:
        settings.append("tf32=true")
    if config.liger:
        settings.append("liger=true")
    if config.lora.quantize:
        settings.append(f"lora.quantize={config.lora.quantize}")
    if config.optimizer and any(part in config.optimizer for part in BITSANDBYTES):
        settings.append(f"optimizer={config.optimizer}")
    return settings


def _packages(config: TrainConfig) -> list[tuple[str, str, str]]:
    """What is asked for, the package that brings it, and the extra that brings the package."""
    return [
        (setting, "liger_kernel", "liger") if setting.startswith("liger") else (setting, "bitsandbytes", "qlora")
        for setting in gpu_only(config)
        if not setting.startswith("tf32")
    ]


def _check_dpo(key: str, config: DpoConfig) -> None:
    loss = config.loss_type
    for name in ("packing", "padding_free"):
        if getattr(config, name):
            raise ConfigError(
                f"{key}.{name}=true: TRL packs no preference pairs; leave it false, batches hold pairs of like length"
            )
    if config.label_smoothing and loss not in _SMOOTHED:
        raise ConfigError(
            f"{key}.label_smoothing={config.label_smoothing:g}: TRL's loss_type={loss} has none; "
            f"allowed are {', '.join(_SMOOTHED)} (robust is the sigmoid loss for noisy labels)"
        )
    if loss == "exo_pair" and not config.label_smoothing:
        raise ConfigError(f"{key}.label_smoothing=0: loss_type=exo_pair needs more than 0; its paper has 0.001")
    if loss == "robust" and config.label_smoothing == 0.5:
        raise ConfigError(f"{key}.label_smoothing=0.5: loss_type=robust needs less than 0.5")
    if config.f_divergence != "reverse_kl" and loss not in _DIFFERENCE_LOSSES:
        raise ConfigError(
            f"{key}.f_divergence={config.f_divergence}: not with loss_type={loss}; "
            f"allowed are {', '.join(_DIFFERENCE_LOSSES)}"
        )
    if config.stop.chosen_drop is not None and not config.beta:
        raise ConfigError(f"{key}.stop.chosen_drop reads the log-probabilities off rewards, and {key}.beta=0 has none")
    if config.margin_weight and loss in _SORTING:
        raise ConfigError(
            f"{key}.margin_weight={config.margin_weight:g}: loss_type={loss} sorts the batch, so pairs have no loss "
            "of their own to weigh; take another loss_type"
        )
