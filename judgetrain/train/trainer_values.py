"""Check before a run the values of ``trainer``: what TRL, an optimizer or a scheduler would refuse in its middle."""

from __future__ import annotations

import copy
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


PROBES: Mapping[str, tuple[Any, Any]] = {
    "adam_beta1": (0.5, 0.6),
    "adam_beta2": (0.5, 0.6),
    "adam_epsilon": (1e-3, 1e-2),
    "warmup_steps": (0, 5),
}
"""Arguments that not every optimizer or scheduler reads, with two values that make a difference where one does."""
STEPS = 10
"""Steps of the schedules that are compared."""


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
            args = getattr(trl, kind)(**values | fixed)
            _try(args)
            unread = [name for name in config.trainer if not _is_read(name, args)]
        except (AttributeError, ImportError, LookupError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ConfigError(f"{where}: {reason} ({type(error).__name__})") from error
    if unread:
        reader = f"optim={getattr(args.optim, 'value', args.optim)}"
        if unread[0] == "warmup_steps":
            reader = f"lr_scheduler_type={getattr(args.lr_scheduler_type, 'value', args.lr_scheduler_type)}"
        raise ConfigError(f"{key}.trainer.{unread[0]}: {reader} does not read it, so that it would change nothing here")


def _is_read(name: str, args: Any) -> bool:
    """Return whether the optimizer or the scheduler of arguments reads one of them, by trying other values."""
    if name == "optim_args":
        return _settings(_with(args, name, None)) != _settings(args)
    if name not in PROBES:
        return True
    first, second = (_with(args, name, value) for value in PROBES[name])
    if name == "warmup_steps":
        return _rates(first) != _rates(second)
    return _settings(first) != _settings(second)


def _with(args: Any, name: str, value: Any) -> Any:
    """Return a copy of arguments with another value."""
    changed = copy.copy(args)
    setattr(changed, name, value)
    return changed


def _settings(args: Any) -> tuple[Any, Any]:
    """Return the class of the optimizer of arguments, and what it is made with."""
    import torch
    from transformers import Trainer

    result: tuple[Any, Any] = Trainer.get_optimizer_cls_and_kwargs(args, torch.nn.Linear(2, 2))
    return result


def _rates(args: Any) -> list[float]:
    """Return the learning rates of :data:`STEPS` steps, by the scheduler of arguments."""
    import torch

    optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=1.0)
    scheduler = _scheduler(args, optimizer)
    rates = []
    for _ in range(STEPS):
        rates.append(float(scheduler.get_last_lr()[0]))
        optimizer.step()
        scheduler.step()
    return rates


def _scheduler(args: Any, optimizer: Any) -> Any:
    """Return the scheduler of arguments, over :data:`STEPS` steps."""
    from transformers import get_scheduler

    return get_scheduler(
        args.lr_scheduler_type,
        optimizer,
        num_warmup_steps=args.get_warmup_steps(STEPS),
        num_training_steps=STEPS,
        scheduler_specific_kwargs=args.lr_scheduler_kwargs,
    )


def _try(args: Any) -> None:
    """Make the optimizer and the scheduler of arguments, and take a step; raises what they raise."""
    import torch
    from transformers import Trainer

    model = torch.nn.Linear(2, 2)
    optimizer_class, settings = Trainer.get_optimizer_cls_and_kwargs(args, model)
    # Some work on a GPU alone.
    if torch.cuda.is_available():
        model = model.cuda()
    elif "bnb" in str(args.optim) or "8bit" in str(args.optim):
        return
    optimizer = optimizer_class(model.parameters(), weight_decay=args.weight_decay, **settings)
    scheduler = _scheduler(args, optimizer)
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
