"""What a training stage's settings need and which go together, checked before any stage runs. Imports nothing heavy."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import version

from judgetrain.errors import ConfigError, TrainingError
from judgetrain.schema import ORDERS
from judgetrain.train.config import DpoConfig, InitialConfig, RlConfig, TrainConfig, TrainStages

WITHOUT_BETAS = ("adafactor", "sgd", "rmsprop")
"""Optimizers that Transformers gives no ``betas``."""
TRL = ">=1.16,<2"
"""The range of TRL that training is written for; pyproject.toml says the same."""

_DIFFERENCE_LOSSES = ("sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "robust", "discopop")
_SMOOTHED = ("robust", "exo_pair", "aot", "aot_unpaired")


def check_training(stage: str, config: TrainConfig) -> None:
    """Check one stage's training settings and the packages that they need.

    Raises:
        ConfigError: names the key, its value and what is allowed.
        TrainingError: the installed TRL is outside :data:`TRL`.
    """
    check_trl()
    key = f"train.{stage}"
    for wanted in gpu_only(config):
        package, extra = ("liger_kernel", "liger") if "liger" in wanted else ("bitsandbytes", "qlora")
        if not wanted.startswith("tf32") and importlib.util.find_spec(package) is None:
            raise ConfigError(f"{key}.{wanted} needs the package {package}: pip install 'judgetrain[{extra}]'")
    if config.lora.quantize and not config.lora.enabled:
        raise ConfigError(
            f"{key}.lora.quantize={config.lora.quantize}: a quantised base is trained by adapters alone; "
            f"set {key}.lora.enabled=true"
        )
    if config.packing and config.padding_free:
        raise ConfigError(f"{key}.packing and {key}.padding_free: packed sequences have no padding; set one of them")
    if config.min_steps and config.packing:
        raise ConfigError(
            f"{key}.min_steps={config.min_steps}: {key}.packing puts several examples into one, so that "
            "fewer steps are left; raise num_train_epochs, or leave out packing"
        )
    if config.optim in WITHOUT_BETAS and config.adam_beta2 != type(config).adam_beta2:
        raise ConfigError(
            f"{key}.adam_beta2={config.adam_beta2:g}: {config.optim} has none; leave it out, or set "
            f"{key}.optim=adamw_torch"
        )
    if config.orders_together and config.packing:
        raise ConfigError(f"{key}.packing: fills sequences as they fit; leave out {key}.orders_together, or packing")
    if config.orders_together and config.per_device_train_batch_size % len(ORDERS):
        raise ConfigError(
            f"{key}.per_device_train_batch_size={config.per_device_train_batch_size}: "
            f"{key}.orders_together puts both orders into one batch; give an even number"
        )
    if isinstance(config, InitialConfig):
        _check_initial(key, config)
    if isinstance(config, DpoConfig):
        _check_dpo(key, config)
    if isinstance(config, RlConfig):
        _check_rl(key, config)


def _check_initial(key: str, config: InitialConfig) -> None:
    if config.verdicts_first and not config.orders_together:
        raise ConfigError(
            f"{key}.verdicts_first={config.verdicts_first:g}: a verdict is learned from both orders at once; set "
            f"{key}.orders_together=true"
        )
    if config.verdicts_first and config.max_steps > 0:
        raise ConfigError(
            f"{key}.max_steps={config.max_steps}: counts the steps of {key}.verdicts_first too, so that little "
            f"of the form would be learned; leave one of them out, or set {key}.num_train_epochs"
        )


def check_trl(installed: str = "") -> None:
    """Check that TRL (its version is looked up by default) is one that training is written for.

    Raises:
        TrainingError: it is not.
    """
    from packaging.specifiers import SpecifierSet

    installed = installed or version("trl")
    if not SpecifierSet(TRL).contains(installed, prereleases=True):
        raise TrainingError(f"training is written for trl{TRL}, and {installed} is installed: pip install 'trl{TRL}'")


def gpu_only(config: TrainConfig) -> list[str]:
    """The settings of this stage that work on a GPU alone, as ``key=value``."""
    settings = {
        "tf32=true": config.tf32,
        "use_liger_kernel=true": config.use_liger_kernel,
        f"lora.quantize={config.lora.quantize}": config.lora.quantize,
        f"optim={config.optim}": re.search("8bit|paged", config.optim or ""),
    }
    return [setting for setting, wanted in settings.items() if wanted]


def check_machine(settings: TrainStages, stage: str) -> None:
    """Check what a stage that is to be made needs of this machine; one that is made already needs it no more.

    Raises:
        TrainingError: a setting that needs a GPU, and none here, or one that is too old.
    """
    config: TrainConfig | None = getattr(settings, "dpo" if stage == "reference" else stage, None)
    if not isinstance(config, TrainConfig):
        return
    if stage == "reference":  # of all that may need a GPU, what the reference's log-probabilities are computed with
        stage, config = "dpo", TrainConfig(lora=config.lora, tf32=config.tf32)
    if not (needs := gpu_only(config)):
        return
    import torch

    if not torch.cuda.is_available():
        raise TrainingError(f"train.{stage}.{needs[0]} needs a GPU, and PyTorch sees none here: leave it out")
    if config.tf32 and not has_tf32():
        raise TrainingError(
            f"train.{stage}.tf32=true needs a GPU of compute capability 8.0 (Ampere) or newer, and "
            f"{torch.cuda.get_device_name()} is older: leave it out"
        )


def has_tf32() -> bool:
    """Whether there is a GPU whose tensor cores take float32 (Ampere or newer)."""
    import torch

    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8


def _check_dpo(key: str, config: DpoConfig) -> None:
    loss = config.loss_type
    if config.orders_together:
        raise ConfigError(f"{key}.orders_together=true: a preference pair is of one order; it is for initial and sft")
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
    if config.f_divergence_type != "reverse_kl" and loss not in _DIFFERENCE_LOSSES:
        raise ConfigError(
            f"{key}.f_divergence_type={config.f_divergence_type}: not with loss_type={loss}; "
            f"allowed are {', '.join(_DIFFERENCE_LOSSES)}"
        )


def _check_rl(key: str, config: RlConfig) -> None:
    for name in ("orders_together", "min_steps"):
        if getattr(config, name):
            raise ConfigError(f"{key}.{name}={getattr(config, name)}: rl samples its own branches; leave it out")
    for name in ("packing", "padding_free"):
        if getattr(config, name):
            raise ConfigError(f"{key}.{name}=true: branches are padded to batches of like length; leave it false")
    if config.regional_compilation:
        raise ConfigError(f"{key}.regional_compilation=true: the model that is trained also samples; leave it false")
    if config.global_accumulation_steps != 1:
        raise ConfigError(
            f"{key}.global_accumulation_steps={config.global_accumulation_steps}: a step holds comparisons_per_step x "
            "num_generations branches however they are split; leave it out and set per_device_train_batch_size"
        )
    if config.pass_rate:
        lowest_first = len(config.pass_rate) == 2 and 0 <= config.pass_rate[0] < config.pass_rate[1] <= 1
        if not lowest_first:
            raise ConfigError(f"{key}.pass_rate={config.pass_rate}: two shares, the lower first, as [0.2, 0.8]; or []")
    if config.patience and not config.keep_best:
        raise ConfigError(f"{key}.patience={config.patience} needs {key}.keep_best=true")
    if not any(vars(config.rewards).values()):
        raise ConfigError(f"{key}.rewards: every weight is 0; give both_orders or another reward a weight")
    if config.credit == "level" and not (config.rewards.unreadable or config.rewards.consistent):
        raise ConfigError(
            f"{key}.credit=level rewards judgments only by {key}.rewards.unreadable and .consistent: give one a weight"
        )
