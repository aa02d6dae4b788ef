"""What training logs: to a file, the tracker and the console."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from judgetrain.artifacts.console import EVERY, duration
from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.stage_run import StageRun


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

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any) -> None:
        """Write one row of numbers."""
        if not state.is_world_process_zero:
            return
        numbers = numbers_of(event)
        with self._out.path("train_log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, **numbers}) + "\n")
        self._out.track.log({f"{self._out.stage}/{k}": v for k, v in numbers.items()}, step=state.global_step)
        if "loss" in numbers and not self._out.console.terminal:
            self._announce(state, numbers["loss"])

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
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


def numbers_of(event: Mapping[str, Any]) -> dict[str, float]:
    """What the trainer logs, as far as it is numbers."""
    return {k: float(v) for k, v in event["logs"].items() if isinstance(v, Real)}
