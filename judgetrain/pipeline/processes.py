"""Stages that several processes work on together: starting them, leading them and helping.

Two ways lead to the same code. ``python -m judgetrain`` with ``train.distributed`` set runs every stage in its one
process and starts workers for the stages that train (:func:`launch`). Under torchrun, accelerate or SLURM every process
runs ``python -m judgetrain``: the first leads and does what needs no help, the others wait for it (:func:`follow`).
"""

import gc
import re
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from judgetrain.artifacts.console import Console, quiet_libraries
from judgetrain.artifacts.executor import begin_worker, make_executor, share_cores
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.artifacts.stages import StageSettings
from judgetrain.engines.config import gpus_of
from judgetrain.errors import JudgetrainError, TrainingError
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.train import distributed

T = TypeVar("T")

GONE = r"Connection (closed|reset) by peer|Broken pipe|Connection refused"
"""How gloo says that a process is gone."""
ENDED = "another process of this run ended"


@dataclass(frozen=True)
class Task:
    """A stage that needs every process: what it reads of the configuration, and where its files are."""

    inputs: Mapping[str, Path]
    stage: str
    settings: StageSettings
    directory: str


def stage_run(config: Config, task: Task, console: Console, writes: bool = True) -> StageRun:
    """Where a stage writes."""
    home, recipe = Path(config.output_dir), config.recipe_name
    executor = make_executor(config.executor, gpus_of(task.settings), console.line)
    directory = Path(task.directory)
    return StageRun(directory, task.stage, config.seed, console, writes, home, recipe, executor=executor)


def run_stage(task: Task, out: StageRun) -> None:
    """Run the stage's code on the settings that it reads."""
    try:
        STAGES[task.stage].run(task.settings, task.inputs, out)
    finally:
        out.executor.close()
        free_memory()


def follow(config: Config) -> None:
    """Help the leader with every stage that it names, until it says that there is no more."""
    quiet_libraries()
    world = distributed.current()
    while (task := world.decide(lambda: None)) is not None:
        run_stage(task, stage_run(config, task, Console(silent=True), writes=False))


def call(task: Task | None) -> None:
    """Tell the helpers, if there are any, which stage comes; None: there is no more."""
    distributed.current().decide(lambda: task)


def one_of_several(config: Config, run: Callable[[Config], T]) -> T | None:
    """Be one of the processes that torchrun, accelerate or SLURM started: lead with ``run``, or help."""
    world = distributed.join(config.train)
    result = None
    try:
        if world.leads:
            result = run(config)
            call(None)
        else:
            follow(config)
    except RuntimeError as error:
        if not re.search(GONE, str(error)):
            raise
        raise TrainingError(f"{ENDED}; its message says why") from error
    distributed.leave()
    return result


def launch(config: Config, stage: str, make: Callable[[Config, str], None]) -> None:
    """Have ``make`` make one stage with ``train.processes`` workers on this machine, which end when this process does.

    What a worker failed with is raised here, in its own sentence where it had one.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    count = distributed.processes(config.train)
    share_cores(count)
    patient = hasattr(LaunchConfig, "shutdown_timeout")  # not in torch 2.11
    patience: dict[str, Any] = {"shutdown_timeout": 10} if patient else {}
    with tempfile.TemporaryDirectory(prefix="judgetrain-workers-") as logs:
        settings = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=count,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
            **patience,
        )
        try:
            elastic_launch(settings, work)(config, stage, make)
        except ChildFailedError as error:
            raise _failure(error, stage) from None
        except SignalException as error:
            if error.sigval == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise


def work(config: Config, stage: str, make: Callable[[Config, str], None]) -> None:
    """One worker: join the others, then lead the stage or help with it."""
    begin_worker()
    one_of_several(config, lambda config: make(config, stage))


def free_memory() -> None:
    """Give back what a stage's models held in this process: on the GPU the next stage's may run in others."""
    if (torch := sys.modules.get("torch")) is None:  # no model was here
        return
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _failure(error: Any, stage: str) -> Exception:
    """What a failed worker said: an expected error's sentence where there is one, else the first one's traceback."""
    failures = sorted(error.failures.items(), key=lambda item: item[1].timestamp)
    kinds: list[type[JudgetrainError]] = [JudgetrainError, *JudgetrainError.__subclasses__()]
    known = {kind.__name__: kind for kind in kinds}
    for _, failure in failures:
        name, _, message = _message(failure).partition(": ")
        if name in known and not message.startswith(ENDED):
            return known[name](message)
    rank, first = failures[0]
    if first.exitcode == -signal.SIGKILL:
        told = f"process {rank} of stage {stage} was killed (signal 9), most often for want of memory"
        return TrainingError(f"{told}: lower per_device_train_batch_size, and run the same command again to go on")
    trace = "" if isinstance(first.message, str) else first.message["extraInfo"]["py_callstack"]
    return RuntimeError(f"process {rank} of stage {stage} failed: {_message(first)}\n{trace}")


def _message(failure: Any) -> str:
    """``Class: text`` of a worker's exception, or what the launcher says of a worker that left no word."""
    said = failure.message
    return str(said if isinstance(said, str) else said["message"])
