"""Training that diverges ends with a sentence that is true of what is left, and never with a broken model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import SFTTrainer

from judgetrain.errors import TrainingError
from judgetrain.train import distributed
from judgetrain.train.checkpoints import COMPLETE, FiniteFigures, complete, finite
from tests.builders.train import config, run_initial, sft_rows

CONSTANT = {"trainer": {"warmup_steps": 0.0, "lr_scheduler_type": "constant"}}


def left(out: Path) -> list[int]:
    """Steps of the checkpoints on disk, complete or not, and 0 for a model."""
    steps = [int(path.name.split("-")[1]) for path in (out / "checkpoints").glob("checkpoint-*")]
    return sorted(steps + [0] * (out / "model").exists())


def test_weights_that_one_step_breaks_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"the weights hold nan or inf at step 1: lower .*; no checkpoint is kept"):
        run_initial(tmp_path, config(max_steps=1, learning_rate=1e38, **CONSTANT), sft_rows(8))
    assert left(tmp_path / "initial") == []


@pytest.mark.parametrize(
    ("broken", "save_steps", "message", "kept"),
    [
        ("grad", 3, r"the gradient's norm is nan at step 4: .*; checkpoint-3, the last with", 3),
        # The step's loss and gradient are fine, the weights after it are not: its checkpoint is not marked.
        ("data", 2, r"weights hold nan or inf at step 4: .*; checkpoint-2, the last with", 2),
    ],
)
def test_what_breaks_in_a_step_stops_and_the_checkpoint_before_is_named(
    broken: str, save_steps: int, message: str, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SFTTrainer.training_step

    def training_step(self: Trainer, model: Any, *arguments: Any, **named: Any) -> Any:
        loss = real(self, model, *arguments, **named)
        if self.state.global_step == 3:
            value = math.nan if broken == "grad" else math.inf
            getattr(next(model.parameters()), broken).view(-1)[:1].fill_(value)
        return loss

    monkeypatch.setattr(SFTTrainer, "training_step", training_step)
    with pytest.raises(TrainingError, match=message):
        run_initial(tmp_path, config(max_steps=4, save_steps=save_steps), sft_rows(16))
    assert left(tmp_path / "initial") == [kept]


def test_weights_that_break_after_the_last_checkpoint_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = SFTTrainer.train

    def train(self: Trainer, *arguments: Any, **named: Any) -> Any:
        result = whole(self, *arguments, **named)
        next(self.model.parameters()).data.view(-1)[-1] = math.inf
        return result

    monkeypatch.setattr(SFTTrainer, "train", train)
    with pytest.raises(TrainingError, match=r"weights hold nan or inf at step 2: .*; checkpoint-2, the last with"):
        run_initial(tmp_path, config(max_steps=2), sft_rows(8))
    assert left(tmp_path / "initial") == [2]


@pytest.mark.parametrize(
    ("key", "name"), [("loss", "loss"), ("grad_norm", "gradient's norm"), ("eval_loss", "held-out loss")]
)
def test_every_figure_that_training_depends_on_is_looked_at(key: str, name: str, tmp_path: Path) -> None:
    args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    watch: TrainerCallback = FiniteFigures()
    watch.on_log(args, TrainerState(global_step=7), TrainerControl(), logs={key: 1e30, "epoch": 1})
    with pytest.raises(TrainingError, match=f"the {name} is inf at step 7: .*no checkpoint is kept"):
        watch.on_log(args, TrainerState(global_step=7), TrainerControl(), logs={key: math.inf})
    (tmp_path / "checkpoint-10").mkdir()
    (tmp_path / "checkpoint-9").mkdir()
    (tmp_path / "checkpoint-9" / COMPLETE).touch()
    assert complete(tmp_path) == [(9, tmp_path / "checkpoint-9")]
    broken = {key: torch.tensor(math.nan), "note": "no number"}
    with pytest.raises(TrainingError, match=f"the {name} is nan at step 11: .*checkpoint-9, the last with finite"):
        watch.on_log(args, TrainerState(global_step=11), TrainerControl(), logs=broken)


NUMBERS = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf])


@given(st.lists(NUMBERS, min_size=1, max_size=8), st.integers(1, 3), st.sampled_from([torch.float32, torch.bfloat16]))
@settings(deadline=None)
def test_weights_are_finite_when_each_of_them_is(values: list[float], rows: int, dtype: torch.dtype) -> None:
    model: Any = nn.Linear(len(values), rows, bias=False)
    model.weight.data = torch.tensor([values] * rows).to(dtype)
    assert finite(model) == all(map(math.isfinite, model.weight.data.flatten().tolist()))
    model.weight.requires_grad = False
    assert finite(model), "weights that are not trained are as they were loaded"


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_of_a_partitioned_weight_each_process_sees_its_own_part_without_the_padding(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven values over three processes: parts of three, the last with two places that nothing is written to."""
    weight: Any = nn.Parameter(torch.empty(0))
    weight.ds_numel, weight.ds_process_group = 7, None
    weight.ds_tensor = torch.tensor([0.0, 1.0, 2.0] if rank < 2 else [6.0, math.nan, math.nan])
    monkeypatch.setattr("torch.distributed.get_rank", lambda group: rank)
    assert distributed.own_part(weight).tolist() == ([0.0, 1.0, 2.0] if rank < 2 else [6.0])


def test_processes_agree_that_weights_are_broken_when_one_of_them_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"finite": 1}

    def all_reduce(tensor: torch.Tensor, op: Any, group: str) -> None:
        assert (op, group) == (torch.distributed.ReduceOp.MIN, "group")
        tensor.fill_(min(int(tensor), other["finite"]))

    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    monkeypatch.setattr(distributed, "_current", distributed.ProcessGroup(0, 2, "zero3", group="group"))
    model: Any = nn.Linear(2, 2)
    assert finite(model)
    other["finite"] = 0
    assert not finite(model)
    other["finite"] = 1
    model.weight.data[0, 0] = math.nan
    assert not finite(model)
