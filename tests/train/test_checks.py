"""Training settings that do not go together are refused before anything runs, and the packages they need are named."""

from __future__ import annotations

import tomllib
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from judgetrain.errors import ConfigError, JudgetrainError, TrainingError
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.graph import STAGES
from judgetrain.train import checks
from judgetrain.train.checks import TRL, check_training, check_trl, gpu_only
from judgetrain.train.config import AdapterConfig, DpoConfig, InitialConfig, RlConfig, TrainConfig

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"packing": True}, r"train\.dpo\.packing=true: TRL packs no preference pairs"),
        ({"padding_free": True}, r"train\.dpo\.padding_free=true: TRL packs no preference pairs"),
        ({"label_smoothing": 0.1}, r"train\.dpo\.label_smoothing=0\.1: TRL's loss_type=sigmoid has none.*robust"),
        ({"loss_type": "exo_pair"}, r"label_smoothing=0: loss_type=exo_pair needs more than 0"),
        ({"loss_type": "robust", "label_smoothing": 0.5}, r"label_smoothing=0\.5: loss_type=robust"),
        (
            {"loss_type": "apo_zero", "f_divergence_type": "forward_kl"},
            r"f_divergence_type=forward_kl: not with loss_type=apo_z",
        ),
        ({"lora": AdapterConfig(quantize="4bit")}, r"lora\.quantize=4bit.*set train\.dpo\.lora\.enabled=true"),
    ],
)
def test_settings_that_would_do_nothing_or_fail_are_refused(
    settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: ModuleSpec(name, None))
    with pytest.raises(ConfigError, match=message):
        check_training("dpo", DpoConfig(**settings))
    check_training("dpo", DpoConfig())


def test_both_orders_in_one_batch_need_a_batch_that_holds_them() -> None:
    odd = TrainConfig(orders_together=True, per_device_train_batch_size=3)
    with pytest.raises(ConfigError, match=r"train\.sft\.per_device_train_batch_size=3: .*orders_together.*even"):
        check_training("sft", odd)
    with pytest.raises(ConfigError, match=r"train\.sft\.packing: .*orders_together"):
        check_training("sft", TrainConfig(orders_together=True, packing=True))
    with pytest.raises(ConfigError, match=r"train\.sft\.min_steps=5: .*packing puts several"):
        check_training("sft", TrainConfig(min_steps=5, packing=True))
    with pytest.raises(ConfigError, match=r"train\.dpo\.orders_together=true: a preference pair is of one order"):
        check_training("dpo", DpoConfig(orders_together=True))
    with pytest.raises(ConfigError, match=r"train\.rl\.min_steps=5: rl samples its own branches"):
        check_training("rl", RlConfig(min_steps=5))
    check_training("sft", TrainConfig(orders_together=True, per_device_train_batch_size=4, min_steps=5))
    with pytest.raises(ConfigError, match=r"train\.initial\.verdicts_first=1: .*train\.initial\.orders_together=true"):
        check_training("initial", InitialConfig(verdicts_first=1.0))
    with pytest.raises(ConfigError, match=r"train\.initial\.max_steps=9: counts the steps of train\.initial\.verdicts"):
        check_training("initial", InitialConfig(verdicts_first=1.0, orders_together=True, max_steps=9))
    check_training("initial", InitialConfig(verdicts_first=1.0, orders_together=True))
    with pytest.raises(ConfigError, match=r"train\.rl\.adam_beta2=0\.9: sgd has none"):
        check_training("rl", RlConfig(adam_beta2=0.9, optim="sgd"))
    check_training("sft", TrainConfig(adam_beta2=0.999, optim="sgd"))
    check_training("sft", TrainConfig(adam_beta2=0.9, optim="adamw_torch"))


def test_every_loss_is_accepted_by_trl_with_the_settings_that_are_let_through(tmp_path: Path) -> None:
    from judgetrain.train.arguments import training_arguments
    from judgetrain.train.config import DPO_LOSSES

    for loss in DPO_LOSSES:
        settings = DpoConfig(loss_type=loss, label_smoothing=0.1 if loss in ("exo_pair", "robust") else 0.0)
        check_training("dpo", settings)
        made = training_arguments(settings, tmp_path, 0, evaluate=False)
        assert made.loss_type == [loss]


def test_packages_and_gpus_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"train\.sft\.use_liger_kernel=true needs the package liger_kernel: pip install"
    ):
        check_training("sft", TrainConfig(use_liger_kernel=True))
    with pytest.raises(ConfigError, match=r"train\.sft\.lora\.quantize=4bit needs .* 'judgetrain\[qlora\]'"):
        check_training("sft", TrainConfig(lora=AdapterConfig(enabled=True, quantize="4bit")))
    with pytest.raises(ConfigError, match=r"optim=paged_adamw_8bit needs the package bitsandbytes"):
        check_training("sft", TrainConfig(optim="paged_adamw_8bit"))
    assert gpu_only(TrainConfig(optim="adafactor", packing=True, lora=AdapterConfig(enabled=True))) == []


@pytest.mark.parametrize("installed", ["1.8.3", "0.29.1", "2.0.0"])
def test_a_trl_that_training_is_not_written_for_is_refused(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrainingError, match=rf"training is written for trl>=.*, and {installed} is installed: pip"):
        check_trl(installed)
    monkeypatch.setattr(checks, "version", lambda name: installed)
    with pytest.raises(TrainingError, match="training is written for trl"):
        STAGES["sft"].check(Config())


def test_pyproject_and_the_check_name_the_same_range_of_trl() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"trl{TRL}" in project["dependencies"]
    check_trl()


def test_adapters_are_not_left_on_adapters_and_a_stop_needs_held_out_pairs() -> None:
    config = Config()
    for settings in (config.train.initial, config.train.sft):
        settings.lora = AdapterConfig(enabled=True, merge=False)
    with pytest.raises(ConfigError, match=r"train\.sft\.lora\.merge=false: .* set train\.initial\.lora\.merge=true"):
        STAGES["sft"].check(config)
    config.train.dpo.stop.patience = 2
    STAGES["dpo"].check(config)
    config.label.holdout = 0.0
    with pytest.raises(JudgetrainError, match=r"train\.dpo\.stop watches held-out pairs, and label\.holdout=0"):
        STAGES["dpo"].check(config)


@pytest.mark.parametrize("stage", ["reference", "dpo"])
def test_a_reference_on_several_gpus_is_refused_and_what_shares_it_out_is_named(stage: str) -> None:
    config = Config()
    config.train.dpo.reference.path = "world"
    config.train.dpo.reference.gpus = 2
    with pytest.raises(ConfigError, match=r"train\.dpo\.reference\.gpus=2: .* train\.distributed=zero3"):
        STAGES[stage].check(config)
