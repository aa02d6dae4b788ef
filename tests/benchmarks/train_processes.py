"""DPO in one process beside several, in one run.

    python -m tests.benchmarks.train_processes                       # 23M parameters, two CPU cores, minutes
    python -m tests.benchmarks.train_processes --processes 8 --size 1b --arms cached ddp zero2 zero3   # on 8 GPUs

Every arm trains the same model on the same pairs in the same order with global batches of 8, in processes of its own.
Seconds are those of the trainer's loop: on the clock, and of the busiest process, which decides on a shared CPU. Memory
is the peak of each process: resident on a CPU, allocated on a GPU. The loss is compared step by step with ``cached``.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.processes import Silent
from judgetrain.train import distributed
from judgetrain.train.config import DISTRIBUTED, DpoConfig, TrainStages
from judgetrain.train.run import RowsJob, train
from judgetrain.train.stage import run_reference
from judgetrain.train.stages import ReferenceSettings
from tests.benchmarks.common import parser_of
from tests.benchmarks.train_speed import SIZES, make_model, pairs

ARMS = ("cached", "ddp", "zero2", "zero3")
GLOBAL = 8


@dataclass(frozen=True)
class Measured:
    """What one arm took; a value for every process."""

    arm: str
    examples: int
    seconds: list[float]
    process: list[float]
    megabytes: list[float]
    losses: list[float]


def settings(arm: str, processes: int) -> DpoConfig:
    """The training: float32, and as many micro-batches as processes."""
    return DpoConfig(
        learning_rate=1e-4,
        per_device_train_batch_size=GLOBAL // processes,
        global_accumulation_steps=processes,
        max_length=1 << 20,
        save_steps=1 << 20,
        trainer={"lr_scheduler_type": "constant", "warmup_steps": 0.0},
        bf16=torch.cuda.is_available(),
    )


def run_arm(arm: str, work: Path, processes: int) -> Measured | None:
    """Run this process's part of one arm; the leader gives what all of them took."""
    import transformers

    if arm in DISTRIBUTED:
        distributed.join(TrainStages(distributed=arm))
    world = distributed.current()
    out = StageRun(work / arm, "dpo", 0, Silent(), writes=world.leads, home=work)
    spent: list[float] = []
    real = transformers.Trainer.train

    def timed(*arguments: Any, **named: Any) -> Any:
        begun = time.perf_counter(), time.process_time()
        result = real(*arguments, **named)
        spent.extend((time.perf_counter() - begun[0], time.process_time() - begun[1]))
        return result

    rows = json.loads((work / "pairs.json").read_text())
    start = ModelConfig(path=str(work / "sft" / "model"))
    with patch.object(transformers.Trainer, "train", timed):
        job = RowsJob(
            start=start,
            config=settings(arm, processes),
            key="train.dpo",
            train=rows,
            heldout=[],
            what="pairs",
            reference=work / "reference",
        )
        train(job, out, lambda directory: None)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated() / 2**20
    every = [(*spent, peak)]
    if world.group is not None:
        gathered: list[Any] = [None] * world.size
        torch.distributed.all_gather_object(gathered, every[0], group=world.group)
        every = gathered
        distributed.leave()
    if not world.leads:
        return None
    log = [json.loads(line) for line in (work / arm / "train_log.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in log if "loss" in row]
    clock, process, memory = (list(values) for values in zip(*every, strict=True))
    return Measured(arm, len(rows), clock, process, memory, losses)


def prepare(work: Path, size: str, count: int) -> None:
    """A model with random weights, pairs, and the reference's log-probabilities of them."""
    make_model(work / "sft" / "model", size, 1.0)
    rows = pairs(count, 1.0, seed=1)
    (work / "pairs.json").write_text(json.dumps(rows))
    label = StageRun(work / "label", "label", 0, Silent(), home=work)
    label.write_rows("pairs-train", rows)
    label.write_rows("pairs-heldout", [])
    config = Config(train=TrainStages(dpo=settings("cached", 1)))
    inputs = {"sft": work / "sft", "label": label.directory}
    run_reference(
        ReferenceSettings.of(config), inputs, StageRun(work / "reference", "reference", 0, Silent(), home=work)
    )


def start_arm(arm: str, work: Path, processes: int) -> Measured:
    """Run an arm in processes of its own."""
    launcher = [sys.executable]
    if arm in DISTRIBUTED:
        launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    command = [*launcher, "-m", "tests.benchmarks.train_processes", "--child", arm, str(work)]
    command += ["--processes", str(processes)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return Measured(**json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"arm"'))))


def table(measured: Sequence[Measured]) -> list[str]:
    """Markdown rows; ratios are against the first arm."""
    cached = next((m for m in measured if m.arm == "cached"), measured[0])
    first = measured[0]
    lines = [
        "| arm | processes | examples/s | step, s | process s a step | peak MB a process | step and memory to "
        f"{first.arm} | largest difference of a loss |",
        "| --- " * 8 + "|",
    ]
    for m in measured:
        steps, seconds, busy, peak = len(m.losses), max(m.seconds), max(m.process), max(m.megabytes)
        difference = max(abs(a - b) for a, b in zip(m.losses, cached.losses, strict=True))
        memory = ", ".join(f"{value:.0f}" for value in m.megabytes)
        cells = [m.arm, str(len(m.seconds)), f"{m.examples / seconds:.2f}", f"{seconds / steps:.2f}"]
        cells += [f"{busy / steps:.2f}", memory]
        cells += [f"{busy / max(first.process):.2f}x, {peak / max(first.megabytes):.2f}x", f"{difference:.1e}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the arms one after the other and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--size", choices=tuple(SIZES), default="23m")
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--processes", type=int, default=2, choices=(1, 2, 4, 8))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--child", nargs=2, metavar=("ARM", "DIR"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        mine = run_arm(options.child[0], Path(options.child[1]), options.processes)
        if mine is not None:
            print(json.dumps(vars(mine)), flush=True)
        return
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        prepare(work, options.size, options.pairs)
        measured = []
        for arm in options.arms:
            measured.append(start_arm(arm, work, options.processes))
            print(measured[-1], flush=True)
    print(f"\n{options.pairs} pairs, {options.size} parameters, global batches of {GLOBAL}\n")
    print("\n".join(table(measured)))


if __name__ == "__main__":
    main()
