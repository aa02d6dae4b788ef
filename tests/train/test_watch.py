"""The best held-out checkpoint of DPO: how it is chosen, and that a kill changes nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.artifacts.stage_run import StageRun
from judgetrain.errors import TrainingError
from judgetrain.pipeline.config import Config
from judgetrain.train import run as training
from judgetrain.train.trainers import agreement_then_loss
from tests.builders.train import config, logged, pair_rows, run_dpo, run_initial, same, sft_rows, weights


def evaluation(agreement: float, loss: float) -> dict[str, Any]:
    return {"eval_rewards/accuracies": agreement, "eval_loss": loss}


@given(st.integers(1, 500), st.data(), st.floats(0, 100), st.floats(0, 100))
def test_agreement_ranks_checkpoints_before_loss(pairs: int, data: Any, first: float, second: float) -> None:
    right = data.draw(st.integers(0, pairs))
    other = data.draw(st.integers(0, pairs))
    scores = [
        agreement_then_loss(evaluation(r / pairs, loss=loss), pairs) for r, loss in ((right, first), (other, second))
    ]
    if right != other:
        assert (scores[0] > scores[1]) == (right > other)
    elif abs(first - second) > 1e-3:
        assert (scores[0] > scores[1]) == (first < second)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ranks_below_every_other_of_the_same_agreement(loss: float) -> None:
    worst = agreement_then_loss(evaluation(0.5, loss=loss), 4)
    assert agreement_then_loss(evaluation(0.5, loss=1e6), 4) > worst > agreement_then_loss(evaluation(0.25, loss=0), 4)


def run_unlearning(tmp_path: Path, settings: Config, start: Path, name: str) -> StageRun:
    """DPO whose held-out pairs have the sides exchanged: training makes their chosen sides ever less likely."""
    held = [row | {"chosen": row["rejected"], "rejected": row["chosen"]} for row in pair_rows(4)]
    return run_dpo(tmp_path, settings, start, name, heldout=held)


def test_the_best_held_out_step_is_kept_and_a_kill_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = run_initial(tmp_path, config(max_steps=1), sft_rows(8)).directory
    steady = {"lr_scheduler_type": "constant", "warmup_steps": 0}
    best = config(max_steps=8, eval_steps=3, learning_rate=1e-5, keep_best=True, trainer=steady)
    whole = run_unlearning(tmp_path, best, start, "whole")
    kept, evaluations = whole.notes["kept"], [row for row in logged(whole) if "eval_loss" in row]
    assert [row["step"] for row in evaluations] == [3, 6, 8], "the last one too"
    assert kept["step"] == min(evaluations, key=lambda row: row["eval_loss"])["step"] == 3
    assert whole.notes["training"]["eval_loss"] == evaluations[0]["eval_loss"]
    assert "dpo: kept step 3 of 8: held-out agreement" in capsys.readouterr().out
    few = config(max_steps=3, learning_rate=1e-5, trainer=steady)
    short = run_dpo(tmp_path, few, start, "short")
    assert same(weights(whole.directory), weights(short.directory))

    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training, "_write", killed)
        for settings, name in ((best, "cut"), (few, "cut short")):
            with pytest.raises(KeyboardInterrupt):
                run_unlearning(tmp_path, settings, start, name)
    resumed = run_unlearning(tmp_path, best, start, "cut")
    assert same(weights(whole.directory), weights(resumed.directory)) and resumed.notes["kept"] == kept
    resumed = run_unlearning(tmp_path, few, start, "cut short")
    assert same(weights(short.directory), weights(resumed.directory)), "no step more than three"
    assert resumed.notes["training"]["steps"] == 3


def test_the_best_checkpoint_needs_held_out_pairs(tmp_path: Path) -> None:
    start = run_initial(tmp_path, config(max_steps=1), sft_rows(8)).directory
    with pytest.raises(TrainingError, match=r"train\.dpo\.keep_best=true needs held-out pairs: raise label\.holdout"):
        run_dpo(tmp_path, config(keep_best=True), start, data=pair_rows(8), heldout=[])
