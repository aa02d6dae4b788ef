"""Training settings that do not go together are refused before anything runs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.errors import ConfigError
from judgetrain.extras.rl.config import RlConfig
from judgetrain.pipeline.config import Config
from judgetrain.train.arguments import shared_out, training_arguments
from judgetrain.train.config import DpoConfig, TrainConfig, TrainerConfig
from judgetrain.train.stages import OWN, check_shared, check_trainer, check_training
from tests.builders.pipeline import check_stage


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (DpoConfig(trainer={"beta": 0.2}), r"k\.trainer\.beta: is not given here; see k\.beta"),
        (TrainConfig(trainer={"padding_free": True}), r"k\.trainer\.padding_free: judgetrain decides it; leave it out"),
        (DpoConfig(trainer={"ld_alpha": 0.5}), r"k\.trainer\.ld_alpha: judgetrain decides it"),
        (RlConfig(trainer={"temperature": 0.5}), r"k\.trainer\.temperature: judgetrain decides it"),
        (DpoConfig(), ""),
        (TrainConfig(per_device_train_batch_size=4, min_steps=5, trainer={"optim": "sgd"}), ""),
    ],
)
def test_settings_that_do_not_go_together_are_refused(config: TrainerConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message) if message else nullcontext():
        check_training("k", config)


@pytest.mark.parametrize(
    ("of", "processes", "each"),
    [((8, 4), 1, (8, 4)), ((8, 4), 2, (8, 2)), ((8, 1), 2, (4, 1)), ((8, 2), 4, (4, 1)), ((1, 256), 8, (1, 32))],
)
def test_the_global_batch_is_shared_out_over_any_number_of_processes(
    of: tuple[int, int], processes: int, each: tuple[int, int]
) -> None:
    config = TrainConfig(per_device_train_batch_size=of[0], global_accumulation_steps=of[1])
    check_shared("k", config, processes)
    assert shared_out(config, processes) == each and each[0] * each[1] * processes == of[0] * of[1]


def test_what_cannot_be_shared_out_is_said_with_the_mended_setting() -> None:
    config = TrainConfig(per_device_train_batch_size=6, global_accumulation_steps=2)
    with pytest.raises(ConfigError, match=r"over 8 processes: set k\.per_device_train_batch_size=8$"):
        check_shared("k", config, 8)
    check_shared("k", replace(config, per_device_train_batch_size=8), 8)


def test_what_trl_does_not_take_is_said(tmp_path: Path) -> None:
    other: Any = training_arguments(DpoConfig(trainer={"loss_type": "ipo"}), "k", tmp_path, 0, evaluate=False)
    assert other.loss_type == ["ipo"]
    further = {"warmup_steps": 7, "weight_decay": 0.25}
    made: Any = training_arguments(TrainConfig(trainer=further), "k", tmp_path, 0, evaluate=False)
    assert (made.warmup_steps, made.weight_decay, made.lr_scheduler_type) == (7, 0.25, "cosine")
    with pytest.raises(ConfigError, match=r"k\.trainer=\{'optim': 'nothing'\}: nothing is not a valid"):
        training_arguments(TrainConfig(trainer={"optim": "nothing"}), "k", tmp_path, 0, evaluate=False)
    with pytest.raises(ConfigError, match=r"k\.trainer\.warmup_stesp: TRL's SFTConfig .* did you mean warmup_steps"):
        check_trainer("k", TrainConfig(trainer={"warmup_stesp": 1}), "SFTConfig")
    check_trainer("k", TrainConfig(trainer=further), "SFTConfig")


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

    for config, name in ((TrainConfig(), "SFTConfig"), (DpoConfig(keep_best=True), "DPOConfig")):
        monkeypatch.setattr(trl, name, recorded(name))
        training_arguments(config, "k", tmp_path, 0, evaluate=True)
        free = given[name] - {field.name for field in fields(config)} - OWN
        assert free == {*arguments.DEFAULTS, *(["loss_type"] if name == "DPOConfig" else [])}
    assert not set(branch_arguments(RlConfig(), StepsConfig())) - {field.name for field in fields(RlConfig)} - OWN


def test_a_best_checkpoint_needs_held_out_pairs() -> None:
    config = Config()
    config.train.dpo.keep_best = True
    check_stage("dpo", config)
    config.label.holdout = 0.0
    with pytest.raises(ConfigError, match=r"train\.dpo\.keep_best=true: label\.holdout=0"):
        check_stage("dpo", config)
