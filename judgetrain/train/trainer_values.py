"""Check before a run the values of ``trainer``: what TRL, an optimizer or a scheduler would refuse in its middle."""

from __future__ import annotations

from collections.abc import Mapping
from tempfile import TemporaryDirectory
from typing import Any

from judgetrain.errors import ConfigError
from judgetrain.train.arguments import DEFAULTS
from judgetrain.train.config import TrainerConfig

LOSSES = (
    *("sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "robust", "discopop", "apo_zero", "apo_down", "nca_pair"),
    *("bco_pair", "sppo_hard"),
)
"""TRL's preference losses that are a mean over pairs."""
_SORTED = (
    "it sorts the pairs of a micro-batch, so that what is learned depends on how pairs are shared out, and held-out "
    "figures would be of another loss"
)
REFUSED_LOSSES: Mapping[str, str] = {
    "aot": _SORTED,
    "aot_unpaired": _SORTED,
    "sft": "it prefers nothing; set sft_weight for a supervised term, or train with stage sft alone",
}
DIVERGENCES = ("reverse_kl", "forward_kl", "js_divergence", "alpha_divergence")
SMOOTHED: Mapping[str, tuple[str, float]] = {
    # With one half nothing is preferred, and with more the worse side.
    "robust": ("from 0, and below 0.5", 0.0),
    # Its logarithm is taken.
    "exo_pair": ("above 0, and below 0.5", 1e-12),
}
"""Losses that read ``label_smoothing``: what it may be, in words, and the least."""


def check_values(key: str, config: TrainerConfig, kind: str) -> None:
    """Check the values of ``trainer``, whose names were checked before.

    The arguments are made, and with them the optimizer and the scheduler of one weight.

    Args:
        key: where the settings stand.
        config: the settings.
        kind: TRL's class of arguments.

    Raises:
        ConfigError: names the argument and the reason.
    """
    if kind == "DPOConfig":
        _check_loss(key, config.trainer)
    import trl

    where = f"{key}.trainer={config.trainer}"
    with TemporaryDirectory(prefix="judgetrain-arguments-") as place:
        values = DEFAULTS | config.trainer
        fixed = {"output_dir": place, "report_to": "none", "bf16": False, "learning_rate": config.learning_rate}
        try:
            _try(getattr(trl, kind)(**values | fixed))
        except (AttributeError, ImportError, LookupError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ConfigError(f"{where}: {reason} ({type(error).__name__})") from error


def _try(args: Any) -> None:
    """Make the optimizer and the scheduler of arguments, and take a step; raises what they raise."""
    import torch
    from transformers import Trainer, get_scheduler

    model = torch.nn.Linear(2, 2)
    optimizer_class, settings = Trainer.get_optimizer_cls_and_kwargs(args, model)
    # Some work on a GPU alone.
    if torch.cuda.is_available():
        model = model.cuda()
    elif "bnb" in str(args.optim) or "8bit" in str(args.optim):
        return
    optimizer = optimizer_class(model.parameters(), weight_decay=args.weight_decay, **settings)
    scheduler = get_scheduler(
        args.lr_scheduler_type,
        optimizer,
        num_warmup_steps=args.get_warmup_steps(10),
        num_training_steps=10,
        scheduler_specific_kwargs=args.lr_scheduler_kwargs,
    )
    model(torch.ones((1, 2), device=next(model.parameters()).device)).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
    optimizer.step()
    scheduler.step()


def _check_loss(key: str, trainer: Mapping[str, Any]) -> None:
    """Check the loss of stage dpo and its settings (ConfigError)."""
    loss = trainer.get("loss_type", "sigmoid")
    if loss not in LOSSES:
        reason = REFUSED_LOSSES.get(loss, "there is no such loss")
        raise ConfigError(f"{key}.trainer.loss_type={loss}: {reason}. Allowed are {', '.join(LOSSES)}")
    divergence = trainer.get("f_divergence_type", "reverse_kl")
    if divergence not in DIVERGENCES:
        raise ConfigError(f"{key}.trainer.f_divergence_type={divergence}: expected one of {', '.join(DIVERGENCES)}")
    if loss not in SMOOTHED:
        return
    expected, least = SMOOTHED[loss]
    smoothing = trainer.get("label_smoothing", 0.0)
    is_number = isinstance(smoothing, (int, float)) and not isinstance(smoothing, bool)
    if not is_number or not least <= smoothing < 0.5:
        raise ConfigError(
            f"{key}.trainer.label_smoothing={smoothing}: with loss_type={loss} expected a number {expected}"
        )
