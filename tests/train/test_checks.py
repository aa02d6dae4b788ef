"""Training settings that do not go together are refused before anything runs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from judgetrain.errors import ConfigError
from judgetrain.extras.rl.config import RlConfig
from judgetrain.pipeline.config import Config
from judgetrain.train.arguments import training_arguments
from judgetrain.train.checks import OWN, check_trainer, check_training
from judgetrain.train.config import DPO_LOSSES, DpoConfig, InitialConfig, SftConfig, TrainerConfig
from tests.builders.pipeline import check_stage


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (DpoConfig(trainer={"beta": 0.2}), r"k\.trainer\.beta: is not given here; see k\.beta"),
        (SftConfig(trainer={"packing": True}), r"k\.trainer\.packing: judgetrain decides it; leave it out"),
        (DpoConfig(trainer={"ld_alpha": 0.5}), r"k\.trainer\.ld_alpha: judgetrain decides it"),
        (RlConfig(trainer={"temperature": 0.5}), r"k\.trainer\.temperature: judgetrain decides it"),
        (
            SftConfig(orders_together=True, per_device_train_batch_size=3),
            r"k\.per_device_train_batch_size=3: .*orders_together.*even",
        ),
        (InitialConfig(verdict_token_warmup=1.0), r"k\.verdict_token_warmup=1: .*k\.orders_together=true"),
        (
            InitialConfig(verdict_token_warmup=1.0, orders_together=True, max_steps=9),
            r"k\.max_steps=9: counts the steps of k\.verdict_token_warmup",
        ),
        (DpoConfig(), ""),
        (SftConfig(orders_together=True, per_device_train_batch_size=4, min_steps=5, trainer={"optim": "sgd"}), ""),
        (InitialConfig(verdict_token_warmup=1.0, orders_together=True), ""),
    ],
)
def test_settings_that_do_not_go_together_are_refused(config: TrainerConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message) if message else nullcontext():
        check_training("k", config)


def test_every_loss_is_taken_by_trl_and_what_it_does_not_take_is_said(tmp_path: Path) -> None:
    for loss in DPO_LOSSES:
        assert training_arguments(DpoConfig(loss_type=loss), "k", tmp_path, 0, evaluate=False).loss_type == [loss]
    further = {"warmup_steps": 7, "weight_decay": 0.25}
    made: Any = training_arguments(SftConfig(trainer=further), "k", tmp_path, 0, evaluate=False)
    assert (made.warmup_steps, made.weight_decay, made.lr_scheduler_type) == (7, 0.25, "cosine")
    with pytest.raises(ConfigError, match=r"k\.trainer=\{'optim': 'nothing'\}: nothing is not a valid"):
        training_arguments(SftConfig(trainer={"optim": "nothing"}), "k", tmp_path, 0, evaluate=False)
    with pytest.raises(ConfigError, match=r"k\.trainer\.warmup_stesp: TRL's SFTConfig .* did you mean warmup_steps"):
        check_trainer("k", SftConfig(trainer={"warmup_stesp": 1}), "SFTConfig")
    check_trainer("k", SftConfig(trainer=further), "SFTConfig")


def test_no_argument_that_is_decided_here_can_be_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every argument that stages hand to TRL is a key, a default that may be set, or refused."""
    import trl

    from judgetrain.extras.rl.run import branch_arguments
    from judgetrain.judges.config import StepsConfig
    from judgetrain.train import arguments

    given: dict[str, set[str]] = {}

    def recorded(name: str) -> Any:
        real = getattr(trl, name)

        def make(**settings: Any) -> Any:
            given[name] = set(settings)
            return real(**settings)

        make.__dataclass_fields__ = real.__dataclass_fields__  # type: ignore[attr-defined]
        return make

    for config, name in ((SftConfig(), "SFTConfig"), (DpoConfig(keep_best=True), "DPOConfig")):
        monkeypatch.setattr(trl, name, recorded(name))
        training_arguments(config, "k", tmp_path, 0, evaluate=True)
        free = given[name] - {field.name for field in fields(config)} - OWN
        assert free == set(arguments.DEFAULTS)
    assert not set(branch_arguments(RlConfig(), StepsConfig())) - {field.name for field in fields(RlConfig)} - OWN


def test_a_best_checkpoint_needs_held_out_pairs() -> None:
    config = Config()
    config.train.dpo.keep_best = True
    check_stage("dpo", config)
    config.label.holdout = 0.0
    with pytest.raises(ConfigError, match=r"train\.dpo\.keep_best=true: label\.holdout=0"):
        check_stage("dpo", config)
