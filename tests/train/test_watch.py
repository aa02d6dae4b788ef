"""The stop-loss: when it stops, what it keeps, and that a kill changes neither."""

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
from judgetrain.train.config import StopConfig
from judgetrain.train.preference import agreement_then_loss, reason_to_stop
from tests.builders.train import config, logged, pair_rows, run_dpo, run_initial, same, sft_rows, weights


def evaluation(agreement: float = 0.5, chosen: float = 0.0, margin: float = 0.0, loss: float = 0.7) -> dict[str, Any]:
    return {
        "eval_rewards/accuracies": agreement,
        "eval_rewards/chosen": chosen,
        "eval_rewards/margins": margin,
        "eval_lengths/chosen": 20.0,
        "eval_loss": loss,
    }


def test_a_falling_chosen_log_probability_stops() -> None:
    # A reward of -1 at beta 0.1 is a log-ratio of -10 nats: half a nat for each of 20 tokens.
    falling = [evaluation(), evaluation(chosen=-1.0)]
    assert reason_to_stop(falling, StopConfig(chosen_drop=0.51), 0.1, "stop") is None
    reason = reason_to_stop(falling, StopConfig(chosen_drop=0.49), 0.1, "stop")
    assert reason is not None and "0.5 nats a token below the reference's (stop.chosen_drop=0.49)" in reason
    assert reason_to_stop([evaluation(chosen=1.0)], StopConfig(chosen_drop=0.0), 0.1, "stop") is None


def test_a_saturated_margin_and_a_stalled_agreement_stop() -> None:
    assert reason_to_stop([evaluation(margin=5.1)], StopConfig(margin=5.0), 0.1, "stop") is not None
    assert reason_to_stop([evaluation(margin=4.9)], StopConfig(margin=5.0), 0.1, "stop") is None
    history = [evaluation(a) for a in (0.5, 0.8, 0.8, 0.7)]
    assert reason_to_stop(history[:3], StopConfig(patience=2), 0.1, "stop") is None
    assert reason_to_stop(history, StopConfig(patience=2), 0.1, "stop") is not None
    assert reason_to_stop(history, StopConfig(), 0.1, "stop") is None


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


def settings_of(stop: StopConfig, **changes: Any) -> Config:
    made = config(
        num_train_epochs=3, eval_steps=3, lr_scheduler_type="constant", warmup_steps=0.0, learning_rate=1e-5, **changes
    )
    made.train.dpo.stop = stop
    return made


def steps(out: StageRun) -> list[int]:
    return [row["step"] for row in logged(out)]


def run_unlearning(tmp_path: Path, settings: Config, start: Path, name: str) -> StageRun:
    """DPO whose held-out pairs have the sides exchanged: training makes their chosen sides ever less likely."""
    held = [row | {"chosen": row["rejected"], "rejected": row["chosen"]} for row in pair_rows(4)]
    return run_dpo(tmp_path, settings, start, name, heldout=held)


def test_a_stop_keeps_the_best_held_out_step_and_a_kill_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = run_initial(tmp_path, config(max_steps=1), sft_rows(8)).directory
    falling = settings_of(StopConfig(chosen_drop=0.2))
    whole = run_unlearning(tmp_path, falling, start, "whole")
    stopped, kept = whole.notes["stopped"], whole.notes["kept"]
    evaluations = [row for row in logged(whole) if "eval_loss" in row]
    drops = [-row["eval_rewards/chosen"] / 0.1 / row["eval_lengths/chosen"] for row in evaluations]
    assert drops[-1] > 0.2 >= max(drops[:-1]) and len(drops) > 1
    assert stopped["step"] == evaluations[-1]["step"] < stopped["of"] == 18
    assert kept["step"] == min(evaluations, key=lambda row: row["eval_loss"])["step"] == 3
    assert whole.notes["training"]["eval_loss"] == evaluations[0]["eval_loss"]
    said = capsys.readouterr().out
    assert f"dpo: stopped at step {stopped['step']} of 18: the held-out chosen log-probability is" in said
    assert f"kept step 3 of {stopped['step']}: held-out agreement" in said
    short = run_unlearning(tmp_path, settings_of(StopConfig(), max_steps=3), start, "short")
    assert same(weights(whole.directory), weights(short.directory))

    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training, "_save", killed)
        with pytest.raises(KeyboardInterrupt):
            run_unlearning(tmp_path, falling, start, "cut")
    resumed = run_unlearning(tmp_path, falling, start, "cut")
    assert same(weights(whole.directory), weights(resumed.directory))
    assert resumed.notes["kept"] == kept and resumed.notes["training"]["steps"] == stopped["step"]
    assert max(steps(resumed)) == max(steps(whole)) == stopped["step"]


def test_a_stop_needs_held_out_pairs(tmp_path: Path) -> None:
    start = run_initial(tmp_path, config(max_steps=1), sft_rows(8)).directory
    with pytest.raises(TrainingError, match=r"train\.dpo\.stop needs held-out pairs: raise label\.holdout"):
        run_dpo(tmp_path, settings_of(StopConfig(keep_best=True)), start, data=pair_rows(8), heldout=[])
