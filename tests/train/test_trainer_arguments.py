"""What ``trainer`` may hold: every argument that is allowed changes what it is for, and nothing else is let in."""

import importlib.util
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import trl

from judgetrain.artifacts.stage_run import StageRun
from judgetrain.errors import ConfigError
from judgetrain.extras.rl.config import RlConfig
from judgetrain.train import stages
from judgetrain.train.config import DpoConfig, TrainConfig
from judgetrain.train.trainer_values import LOSSES, SMOOTHED
from tests.builders.closeness import assert_same_but_for_rounding
from tests.builders.train import config, logged, run_dpo, run_initial, same, sft_rows, weights

STEPS: dict[str, Any] = {"max_steps": 3, "per_device_train_batch_size": 4}
CHANGES: dict[str, list[dict[str, Any]]] = {
    "optim": [{"optim": "adafactor"}],
    "optim_args": [{"optim": "adamw_anyprecision", "optim_args": "use_kahan_summation=True"}],
    "adam_beta1": [{"adam_beta1": 0.5}],
    "adam_beta2": [{"adam_beta2": 0.5}],
    "adam_epsilon": [{"adam_epsilon": 1e-3}],
    "weight_decay": [{"weight_decay": 0.5}],
    "max_grad_norm": [{"max_grad_norm": 1e-5}],
    "lr_scheduler_type": [{"lr_scheduler_type": "constant"}],
    "lr_scheduler_kwargs": [{"lr_scheduler_type": "cosine_with_restarts", "lr_scheduler_kwargs": {"num_cycles": 2}}],
    "warmup_steps": [{"warmup_steps": 2}],
    "neftune_noise_alpha": [{"neftune_noise_alpha": 20}],
}
SAME = {"dataloader_num_workers": 1, "torch_empty_cache_steps": 1}
"""Arguments that change no weight."""
OTHERWISE_SEEN = {"optim_args", "gradient_checkpointing_kwargs", "use_liger_kernel"}
"""Seen elsewhere: with packages, or on a GPU, that are not here; the second with gradient_checkpointing (below)."""
OF_LOSSES: dict[str, dict[str, Any]] = {
    "loss_type": {"loss_type": "hinge"},
    "label_smoothing": {"loss_type": "robust", "label_smoothing": 0.3},
    "f_divergence_type": {"f_divergence_type": "js_divergence"},
    "f_alpha_divergence_coef": {"f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 2.0},
    "discopop_tau": {"loss_type": "discopop", "discopop_tau": 0.5},
}
WITHOUT = {
    "label_smoothing": {"loss_type": "robust"},
    "f_alpha_divergence_coef": {"f_divergence_type": "alpha_divergence"},
    "discopop_tau": {"loss_type": "discopop"},
    "lr_scheduler_kwargs": {"lr_scheduler_type": "cosine_with_restarts"},
}
"""What an argument is compared with that changes nothing by itself."""


def initial(directory: Path, trainer: dict[str, Any], **settings: Any) -> dict[str, torch.Tensor]:
    stages.check_trainer("train.initial", TrainConfig(trainer=trainer), "SFTConfig")
    return weights(run_initial(directory, config(trainer=trainer, **(STEPS | settings)), sft_rows(12)).directory)


def test_every_argument_of_steps_changes_weights(tmp_path: Path) -> None:
    assert set(CHANGES) | set(SAME) | OTHERWISE_SEEN == stages.ALLOWED["SFTConfig"]
    plain = initial(tmp_path / "plain", {})
    for name, (trainer,) in CHANGES.items():
        if name in OTHERWISE_SEEN:
            continue
        before = plain
        if name in WITHOUT:
            before = initial(tmp_path / f"{name}-without", WITHOUT[name])
        assert not same(before, initial(tmp_path / name, trainer)), name


def test_arguments_of_cost_change_no_weight(tmp_path: Path) -> None:
    plain = initial(tmp_path / "plain", {})
    for name, value in SAME.items():
        assert same(plain, initial(tmp_path / name, {name: value})), name
    kept = {"gradient_checkpointing_kwargs": {"use_reentrant": True}}
    for name, trainer in (("kept", kept), ("plain", {})):
        recomputed = initial(tmp_path / f"recomputed-{name}", trainer, gradient_checkpointing=True)
        assert_same_but_for_rounding(plain, recomputed, STEPS["max_steps"], config().train.initial.learning_rate)


def test_every_argument_of_the_preference_loss_changes_weights(tmp_path: Path) -> None:
    assert set(OF_LOSSES) == stages.ALLOWED["DPOConfig"] - stages.OPTIMISATION - stages.COST
    start = run_initial(tmp_path, config(max_steps=2), sft_rows(20))

    def trained(name: str, trainer: dict[str, Any]) -> dict[str, torch.Tensor]:
        stages.check_trainer("train.dpo", DpoConfig(trainer=trainer), "DPOConfig")
        settings = config(trainer=trainer, learning_rate=1e-3, **STEPS)
        return weights(run_dpo(tmp_path / name, settings, start.directory).directory)

    plain = trained("plain", {})
    for name, trainer in OF_LOSSES.items():
        before = trained(f"{name}-without", WITHOUT[name]) if name in WITHOUT else plain
        assert not same(before, trained(name, trainer)), name


@pytest.mark.parametrize(
    ("kind", "trainer", "reason"),
    [
        ("SFTConfig", {"chat_template_path": "x.jinja"}, "rows are tokenised before"),
        ("SFTConfig", {"eos_token": "</s>"}, "rows are tokenised before"),
        ("SFTConfig", {"save_only_model": True}, "could not go on"),
        ("DPOConfig", {"ignore_data_skip": True}, "could not go on"),
        ("DPOConfig", {"dataloader_drop_last": True}, "left out of figures"),
        ("DPOConfig", {"neftune_noise_alpha": 5}, "reference without noise"),
        ("DPOConfig", {"label_smoothing_factor": 0.3}, "do not read it"),
        ("DPOConfig", {"label_smoothing": 0.3}, "loss_type=exo_pair or robust alone"),
        ("DPOConfig", {"loss_type": "aot"}, "sorts the pairs of a micro-batch"),
        ("DPOConfig", {"loss_type": "aot_unpaired"}, "sorts the pairs of a micro-batch"),
        ("DPOConfig", {"loss_type": "sft"}, "prefers nothing"),
        ("DPOConfig", {"loss_type": "sigmod"}, "there is no such loss"),
        ("DPOConfig", {"f_divergence_type": "kl"}, "expected one of reverse_kl, forward_kl"),
        ("DPOConfig", {"label_smoothing": 0.5, "loss_type": "robust"}, "expected a number from 0, and below 0.5"),
        ("DPOConfig", {"label_smoothing": 0.0, "loss_type": "exo_pair"}, "expected a number above 0, and below 0.5"),
        ("DPOConfig", {"loss_type": ["sigmoid", "hinge"]}, "expected one loss"),
        ("GRPOConfig", {"repetition_penalty": 1.1}, "sampled by the judge's own settings"),
        ("GRPOConfig", {"mask_truncated_completions": True}, "cannot be read"),
        ("SFTConfig", {"group_by_length": True}, "no such argument"),
        ("SFTConfig", {"torch_compile": True}, "nobody has tried here what it does"),
    ],
)
def test_what_would_do_nothing_or_harm_is_refused_with_its_reason(
    kind: str, trainer: dict[str, Any], reason: str
) -> None:
    of = {"SFTConfig": TrainConfig, "DPOConfig": DpoConfig, "GRPOConfig": RlConfig}[kind]
    with pytest.raises(ConfigError, match=rf"k\.trainer\.{next(iter(trainer))}.*{reason}"):
        stages.check_trainer("k", of(trainer=trainer), kind)


@pytest.mark.parametrize(
    ("trainer", "reason"),
    [
        ({"optim": "adamx"}, "adamx is not a valid OptimizerNames"),
        ({"optim": "galore_adamw"}, "(galore_torch|no such)"),
        ({"optim_args": "x"}, "not enough values"),
        ({"lr_scheduler_type": "cosine_with_restarts", "lr_scheduler_kwargs": {"cycles": 2}}, "'cycles'"),
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "min_lr"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau"}, "requires an eval strategy"),
        ({"adam_beta1": 2}, "Invalid beta parameter"),
        ({"adam_epsilon": "1e-8"}, "not supported between"),
        ({"weight_decay": "x"}, "(weight_decay|not supported|unsupported|must be|could not)"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"max_grad_norm": "x"}, "TypeError|ValueError"),
        ({"warmup_steps": "x"}, "not supported between"),
        ({"torch_empty_cache_steps": 0}, "bigger than 0"),
    ],
)
def test_values_that_would_fail_in_the_middle_of_a_run_are_refused_before_it(
    trainer: dict[str, Any], reason: str
) -> None:
    if trainer.get("optim") == "galore_adamw" and importlib.util.find_spec("galore_torch"):
        pytest.skip("galore_torch is here")
    with pytest.raises(ConfigError, match=rf"^k\.trainer={{.*{next(iter(trainer))}.*{reason}") as refusal:
        stages.check_trainer("k", TrainConfig(trainer=trainer), "SFTConfig")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("trainer", "unread", "reader"),
    [
        ({"optim": "adafactor", "adam_beta1": 0.5}, "adam_beta1", "optim=adafactor"),
        ({"optim": "sgd", "adam_beta2": 0.5}, "adam_beta2", "optim=sgd"),
        ({"adam_epsilon": 1e-3, "optim": "adafactor"}, "adam_epsilon", "optim=adafactor"),
        ({"optim_args": "use_kahan_summation=True"}, "optim_args", "optim=adamw_torch"),
        ({"lr_scheduler_type": "constant", "warmup_steps": 5}, "warmup_steps", "lr_scheduler_type=constant"),
    ],
)
def test_what_the_chosen_optimizer_or_scheduler_does_not_read_is_refused(
    trainer: dict[str, Any], unread: str, reader: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^k\.trainer\.{unread}: {reader}\S* does not read it"):
        stages.check_trainer("k", TrainConfig(trainer=trainer), "SFTConfig")


@pytest.mark.parametrize(
    "trainer",
    [
        {"warmup_steps": 0},
        {"warmup_steps": 0.05},
        {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 3},
        {"lr_scheduler_type": "constant"},
        {"adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8},
        {"optim": "rmsprop", "weight_decay": 0.1},
    ],
)
def test_what_is_read_may_have_the_value_that_it_would_have_anyway(trainer: dict[str, Any]) -> None:
    stages.check_trainer("k", TrainConfig(trainer=trainer), "SFTConfig")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> StageRun:
    """Return stage initial, from which stage dpo starts."""
    return run_initial(tmp_path_factory.mktemp("start"), config(max_steps=1), sft_rows(8))


@pytest.mark.parametrize("loss", LOSSES)
def test_every_allowed_loss_is_trls_and_trains(loss: str, start: StageRun, tmp_path: Path) -> None:
    trainer: dict[str, Any] = {"loss_type": loss}
    if loss in SMOOTHED:
        trainer["label_smoothing"] = 0.1
    stages.check_trainer("train.dpo", DpoConfig(trainer=trainer), "DPOConfig")
    out = run_dpo(tmp_path, config(max_steps=1, trainer=trainer), start.directory, heldout=[])
    assert math.isfinite(logged(out)[0]["loss"])


@pytest.mark.parametrize("kind", stages.ALLOWED)
def test_allowed_and_refused_arguments_are_trls_and_not_decided_here(kind: str) -> None:
    names = {field.name for field in fields(getattr(trl, kind))}
    assert stages.ALLOWED[kind] <= names
    assert not stages.ALLOWED[kind] & stages.DECIDED_HERE
