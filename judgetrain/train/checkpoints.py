"""Checkpoints that are whole, finite and few; training stops at figures and weights that are NaN or infinite."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.errors import TrainingError
from judgetrain.train.distributed import current, own_part
from judgetrain.train.progress import numbers_of

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

COMPLETE = "complete"
"""The file that marks a checkpoint as wholly written, by every process, with finite weights."""


FIGURES = {"loss": "loss", "grad_norm": "gradient's norm", "eval_loss": "held-out loss"}
"""Logged figures that training cannot go on without, and how they are called."""


class FiniteFigures(TrainerCallback):  # type: ignore[misc]
    """Stops training at the first logged loss, gradient norm or held-out loss that is NaN or infinite."""

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any) -> None:
        """Look at the figures; the step's checkpoint is not written yet."""
        numbers = numbers_of(event)
        for key, name in FIGURES.items():
            if not math.isfinite(value := numbers.get(key, 0.0)):
                raise no_number(f"{name} is {value}", args, state.global_step)


class CheckpointMarks(TrainerCallback):  # type: ignore[misc]
    """Marks a checkpoint once every process has written its part of it and found its weights finite.

    The oldest ones are removed after that, down to ``keep`` (at least 2), but never the best one; the mark goes first,
    so that what a kill leaves of them is not taken for whole. The time spent so far is kept with every checkpoint.
    """

    def __init__(self, keep: int, out: StageRun) -> None:
        self._keep, self._out = keep, out

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any) -> None:
        """Write the mark; called by the trainer after a checkpoint.

        Raises:
            TrainingError: a weight is NaN or infinite; the checkpoint is removed.
        """
        written = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        group = current()
        if not finite(event["model"]):  # which no process knows before all have written their parts
            if group.leads:
                shutil.rmtree(written, ignore_errors=True)
            raise no_number("weights hold nan or inf", args, state.global_step)
        if group.leads:
            write_text_atomic(written / COMPLETE, group.layout)
            self._out.keep_seconds()
            self._remove_old(Path(args.output_dir), state.best_model_checkpoint)

    def _remove_old(self, directory: Path, best: str | None) -> None:
        marked = complete(directory)
        spared = {path.name for _, path in marked[-1:]} | ({Path(best).name} if best else set())
        removable = [path for _, path in marked if path.name not in spared]
        for path in removable[: max(0, len(marked) - self._keep)]:
            (path / COMPLETE).unlink()
            shutil.rmtree(path, ignore_errors=True)


def complete(directory: Path) -> list[tuple[int, Path]]:
    """Steps and directories of the complete checkpoints, oldest first."""
    return sorted((int(path.parent.name.rsplit("-", 1)[1]), path.parent) for path in directory.glob(f"*-*/{COMPLETE}"))


def last_complete(directory: Path) -> str | None:
    """The newest complete checkpoint, if any; partly written ones are removed.

    Raises:
        TrainingError: its files are of another number of processes than this run can read.
    """
    marked = complete(directory)
    for path in {*directory.glob("checkpoint-*")} - {path for _, path in marked}:
        shutil.rmtree(path, ignore_errors=True)
    if not marked:
        return None
    newest, layout = marked[-1][1], current().layout
    written = (newest / COMPLETE).read_text(encoding="utf-8")
    if written != layout:
        raise TrainingError(
            f"{newest} was written under {written}, and this run is under {layout}: go on with the train.distributed "
            "and train.processes that it was begun with, or remove it to begin again"
        )
    return str(newest)


def finite(model: PreTrainedModel) -> bool:
    """Whether every trained weight is a number, on every process; under ZeRO-3 each looks at its own part.

    One pass that reads each weight once and makes no copy; NaN goes through minimum and maximum.
    """
    return current().all(all(_finite(own_part(p)) for p in model.parameters() if p.requires_grad))


def _finite(weights: torch.Tensor) -> bool:
    import torch

    if not weights.numel():
        return True
    return bool(torch.isfinite(torch.stack(torch.aminmax(weights.detach()))).all())


def no_number(what: str, args: TrainingArguments, step: int) -> TrainingError:
    """The error of a run that has diverged: ``what`` is wrong at a step, what to do, and what is left of the run."""
    marked = complete(Path(args.output_dir))
    left = f"{marked[-1][1].name}, the last with finite weights, is kept" if marked else "no checkpoint is kept"
    return TrainingError(
        f"the {what} at step {step}: lower the learning rate ({args.learning_rate:g} now), or train in float32 or "
        f"bfloat16; {left}"
    )
