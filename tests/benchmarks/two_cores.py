"""What a second core gives a training of the quickstart's size: a second thread, or a second process by DDP.

    python -m tests.benchmarks.two_cores

The rows, base, batch and rate of stage sft of the quickstart, trained by one process with one thread, by one with two,
and by two with one each (``train.distributed=ddp train.processes=2``), in turns. All make the same steps, and the
largest difference of the weights is printed. Rows a second of the training's loop are on the clock, so the machine has
to be idle. Where it is not, the main thread's CPU seconds say the least that the loop can take: forward and backward
pass run in it, its waiting does not count. What comes before the loop is paid by each process: imports, above all.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.files import read_json, write_json_atomic, write_rows_atomic
from judgetrain.artifacts.stage_run import RunOptions, StageRun
from tests.benchmarks.common import parser_of, versions
from tests.benchmarks.workloads import examples
from tests.builders.served import free_port

BATCH = 16
RATE = 4e-4
ARMS = {"one process, one thread": (1, 1), "one process, two threads": (1, 2), "two processes, one thread each": (2, 1)}
"""Processes, and threads of each."""


@dataclass(frozen=True)
class Turn:
    """What one training took; of several processes the most.

    Args:
        clock: seconds of the training's loop on the clock.
        main: CPU seconds of its main thread.
        cpu: CPU seconds of all threads and processes in the loop.
        before: CPU seconds of a process before it.
        steps: optimizer steps.
    """

    clock: float
    main: float
    cpu: float
    before: float
    steps: int


def trained(directory: Path, rows: Path, processes: int, threads: int) -> Turn:
    """Train in so many processes, and return what it took; the model is in ``directory/sft/model``.

    Raises:
        subprocess.CalledProcessError: a process failed; its output is on standard error.
    """
    common = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "OMP_NUM_THREADS": threads}
    common |= {"MASTER_ADDR": "localhost", "MASTER_PORT": free_port()}
    command = [sys.executable, "-m", "tests.benchmarks.two_cores", "--worker", str(directory), "--rows", str(rows)]
    running = []
    for rank in range(processes):
        own = {name: str(value) for name, value in (common | {"RANK": rank, "LOCAL_RANK": rank}).items()}
        # As every command of the project sets it, so that threads that wait leave their core to others.
        environment = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"} | os.environ | own
        running.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
    for process in running:
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, command)
    taken = [read_json(directory / f"rank-{rank}.json") for rank in range(processes)]
    return Turn(
        clock=max(each["clock"] for each in taken),
        main=max(each["main"] for each in taken),
        cpu=sum(each["cpu"] for each in taken),
        before=max(each["before"] for each in taken),
        steps=taken[0]["steps"],
    )


def work(directory: Path, rows: Path) -> None:
    """Train as one of the processes, and write ``rank-I.json``."""
    from transformers import Trainer

    from judgetrain.engines.config import ModelConfig
    from judgetrain.train import distributed
    from judgetrain.train.config import SupervisedConfig, TrainStages
    from judgetrain.train.run import RowsJob, train

    rank = int(os.environ["RANK"])
    if int(os.environ["WORLD_SIZE"]) > 1:
        distributed.join(TrainStages(distributed="ddp"))
    job = RowsJob(
        start=ModelConfig(path="world"),
        config=SupervisedConfig(learning_rate=RATE, per_device_train_batch_size=BATCH, save_steps=10**6),
        key="train.sft",
        train=[json.loads(line) for line in rows.open(encoding="utf-8")],
        heldout=[],
        what="examples",
    )
    figures = {}
    loop = Trainer.train

    def measured(trainer: Trainer, *args: object, **kwargs: object) -> object:
        figures["before"] = time.process_time()
        began = {"clock": time.perf_counter(), "main": time.thread_time(), "cpu": time.process_time()}
        result = loop(trainer, *args, **kwargs)
        ended = {"clock": time.perf_counter(), "main": time.thread_time(), "cpu": time.process_time()}
        for name, start in began.items():
            figures[name] = ended[name] - start
        figures["steps"] = trainer.state.global_step
        return result

    out = StageRun(directory / "sft", "sft", 0, Console(silent=True), RunOptions(writes=rank == 0))
    with patch.object(Trainer, "train", measured):
        train(job, out, lambda model: None)
    distributed.leave()
    write_json_atomic(directory / f"rank-{rank}.json", figures)


def difference(first: Path, second: Path) -> float:
    """Return the largest difference between two models' weights."""
    from safetensors.torch import load_file

    one = load_file(first / "model.safetensors")
    other = load_file(second / "model.safetensors")
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)


def table(turns: dict[str, list[Turn]], apart: dict[str, float], rows: int) -> str:
    """Return Markdown: a row an arm, medians of its turns."""
    lines = [
        "| | rows/s on the clock | CPU seconds of the main thread | of all | CPU seconds before | weights apart |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, taken in turns.items():
        seconds = [each.clock for each in taken]
        main, cpu, before = (
            statistics.median(getattr(each, field) for each in taken) for field in ("main", "cpu", "before")
        )
        speed = f"{rows / statistics.median(seconds):.3g} ({rows / max(seconds):.3g} to {rows / min(seconds):.3g})"
        lines.append(f"| {name} | {speed} | {main:.1f} | {cpu:.1f} | {before:.1f} | {apart[name]:.1e} |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--comparisons", type=int, default=80)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--worker", type=Path, help="for the program itself: the directory that a process writes to")
    parser.add_argument("--rows", type=Path, help="for the program itself")
    options = parser.parse_args(words)
    if options.worker:
        work(options.worker, options.rows)
        return
    data = [*examples(options.comparisons)]
    turns: dict[str, list[Turn]] = {name: [] for name in ARMS}
    apart = {}
    with TemporaryDirectory() as name:
        place = Path(name)
        rows = place / "rows.jsonl"
        write_rows_atomic(rows, data)
        for turn in range(options.repeats):
            for arm, (processes, threads) in ARMS.items():
                directory = place / f"{turn}-{processes}-{threads}"
                directory.mkdir()
                turns[arm].append(trained(directory, rows, processes, threads))
                alone = place / f"{turn}-1-1" / "sft" / "model"
                apart[arm] = difference(alone, directory / "sft" / "model")
    steps = next(iter(turns.values()))[0].steps
    print(f"{len(data)} examples, {steps} steps of {BATCH}, {options.repeats} turns; {versions('torch')}\n")
    print(table(turns, apart, len(data)))


if __name__ == "__main__":
    main()
