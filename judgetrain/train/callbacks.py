"""Trainer callbacks: complete checkpoints, logs, and a stop at the first loss that is no number."""

from __future__ import annotations

import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from judgetrain.artifacts import StageRun
from judgetrain.errors import TrainingError
from judgetrain.files import write_text_atomic
from judgetrain.track import EVERY, duration
from judgetrain.train.distributed import check_resume, current

COMPLETE = "complete"
"""The file that marks a checkpoint as wholly written."""


class CheckpointMarks(TrainerCallback):  # type: ignore[misc]
    """Marks a checkpoint once every process has written all of its part of it."""

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the mark; called by the trainer after a checkpoint."""
        world = current()
        world.wait()
        if world.leads:
            write_text_atomic(Path(args.output_dir) / f"checkpoint-{state.global_step}" / COMPLETE, world.layout)


def last_complete(directory: Path) -> str | None:
    """The newest complete checkpoint, if any; partly written ones are removed.

    Raises:
        TrainingError: its files are of another number of processes than this run can read.
    """
    found: list[tuple[int, Path]] = []
    for path in directory.glob("checkpoint-*"):
        if (path / COMPLETE).exists():
            found.append((int(path.name.rsplit("-", 1)[1]), path))
        else:
            shutil.rmtree(path, ignore_errors=True)
    if not found:
        return None
    newest = max(found)[1]
    check_resume(str(newest), (newest / COMPLETE).read_text(encoding="utf-8"))
    return str(newest)


def forget_logs_after(path: Path, step: int) -> None:
    """Drop the log rows of steps that will be taken again after a resume at ``step``."""
    if path.exists():
        rows = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
        write_text_atomic(path, "".join(line for line in rows if json.loads(line)["step"] <= step))


class Progress(TrainerCallback):  # type: ignore[misc]
    """Sends the trainer's logs to ``train_log.jsonl``, the tracker and, at a few points, the console."""

    def __init__(self, out: StageRun) -> None:
        self._out, self._announced, self._first = out, 0, 0
        self._started = self._told = time.monotonic()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write one row of numbers."""
        if not state.is_world_process_zero or not logs:
            return
        numbers = {k: v for k, v in ((k, _number(v)) for k, v in logs.items()) if v is not None}
        with self._out.path("train_log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, **numbers}) + "\n")
        self._out.track.log({f"{self._out.stage}/{k}": v for k, v in numbers.items()}, step=state.global_step)
        if "loss" in numbers and not self._out.console.terminal:
            self._announce(state, numbers["loss"])

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock by which the time left is told."""
        self._first, self._started = state.global_step, time.monotonic()
        self._told = self._started

    def _announce(self, state: TrainerState, loss: float) -> None:
        """A line at every fifth of the steps, and at least every :data:`EVERY` seconds."""
        step, steps, now = state.global_step, state.max_steps, time.monotonic()
        tenth = 10 * step // max(1, steps)
        if tenth <= self._announced and now - self._told < EVERY:
            return
        if tenth > self._announced:
            self._announced = max(tenth, self._announced + 2)
        self._told, left = now, (now - self._started) / max(1, step - self._first) * (steps - step)
        ahead = f", about {duration(left)} left" if step < steps else ""
        self._out.log(f"{self._out.stage}: step {step} of {steps}, loss {loss:.3f}{ahead}")


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


class FiniteLoss(TrainerCallback):  # type: ignore[misc]
    """Stops training at the first logged loss that is NaN or infinite."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Look at the loss."""
        loss = _number((logs or {}).get("loss"))
        if loss is not None and not math.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss} at step {state.global_step}: lower the learning rate "
                f"({args.learning_rate:g} now), or train in float32 or bfloat16; the last good checkpoint is kept"
            )
