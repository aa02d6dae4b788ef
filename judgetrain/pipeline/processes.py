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
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from judgetrain.artifacts.console import Console, quiet_libraries
from judgetrain.artifacts.executor import begin_worker, make_executor, share_cores
from judgetrain.artifacts.signals import ENDING, error_of, start_resource_tracker
from judgetrain.artifacts.stage_run import RunOptions, StageRun
from judgetrain.artifacts.stages import StageSettings
from judgetrain.engines.config import gpus_of
from judgetrain.errors import JudgetrainError, TrainingError
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.train import distributed

T = TypeVar("T")

GONE = r"Connection (closed|reset) by peer|Broken pipe|Connection refused"
"""The messages of gloo for a process that is gone."""
LAST_STEP = 600
"""Seconds that workers which were told to end have for their training step and its checkpoint."""
ENDED = "another process of this run ended"
"""The beginning of the error in a process that has lost another one."""


@dataclass(frozen=True)
class Task:
    """A stage that every process works on.

    Args:
        inputs: the directories of its inputs, by stage.
        stage: its name.
        settings: the part of the configuration that it reads.
        directory: of its artifact.
    """

    inputs: Mapping[str, Path]
    stage: str
    settings: StageSettings
    directory: str


def stage_run(config: Config, task: Task, console: Console, writes: bool = True) -> StageRun:
    """Return the run of a stage, which writes its files.

    Args:
        config: the whole configuration.
        task: the stage.
        console: prints lines.
        writes: False in a process that only helps.
    """
    options = RunOptions(
        writes=writes,
        home=Path(config.output_dir),
        recipe=config.recipe_name,
        asking=config.asking,
        executor=make_executor(config.executor, gpus_of(task.settings), console.line),
        written=config.environment.written,
    )
    return StageRun(Path(task.directory), task.stage, config.seed, console, options)


def run_stage(task: Task, out: StageRun) -> None:
    """Run the stage's code on the settings that it reads."""
    try:
        STAGES[task.stage].run(task.settings, task.inputs, out)
    finally:
        out.executor.close()
        free_memory()


def follow(config: Config) -> None:
    """Help the leader with every stage that it names (:func:`call`), until it names none."""
    quiet_libraries()
    world = distributed.current()
    while True:
        # Every process gets the leader's decision, whatever its own would be.
        task = world.decide(lambda: None)
        if task is None:
            return
        run_stage(task, stage_run(config, task, Console(silent=True), writes=False))


def call(task: Task | None) -> None:
    """Name the next stage to the helpers, if there are any; None ends their work."""
    distributed.current().decide(lambda: task)


def one_of_several(config: Config, run: Callable[[Config], T]) -> T | None:
    """Lead or help, as one of the processes that torchrun, accelerate or SLURM started.

    Args:
        config: the whole configuration.
        run: the work of the process that leads.

    Returns:
        The result of ``run``, or None in a process that helps.

    Raises:
        TrainingError: another process has ended.
    """
    world = distributed.join(config.train)
    result = None
    try:
        if world.leads:
            result = run(config)
            call(None)
        else:
            follow(config)
    except RuntimeError as error:
        # PyTorch raises a RuntimeError for anything that goes wrong between processes.
        if not re.search(GONE, str(error)):
            raise
        raise TrainingError(f"{ENDED}; its message says why") from error
    distributed.leave()
    return result


def launch(config: Config, stage: str, make: Callable[[Config, str], None]) -> None:
    """Make one stage with ``train.processes`` workers on this machine, which end when this process does.

    Args:
        config: the whole configuration.
        stage: the stage's name.
        make: makes it, in the worker that leads.

    Raises:
        JudgetrainError: a worker failed with this error.
        RuntimeError: a worker failed with any other error; has its traceback.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # The workers register what they share with the tracker of this process.
    start_resource_tracker()
    count = distributed.processes(config.train)
    # The workers inherit the environment, and share the cores of this machine.
    share_cores(count)
    ending: dict[str, Any] = {}
    # Torch 2.11 has neither setting: it waits for half a minute, and hands no SIGUSR1 on.
    if hasattr(LaunchConfig, "shutdown_timeout"):
        ending["shutdown_timeout"] = LAST_STEP
    if hasattr(LaunchConfig, "signals_to_handle"):
        handed_on = (*ENDING, signal.SIGHUP, signal.SIGQUIT)
        ending["signals_to_handle"] = ",".join(number.name for number in handed_on)
    with tempfile.TemporaryDirectory(prefix="judgetrain-workers-") as logs:
        settings = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=count,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            # Port 0: the system chooses a free one, so that several runs fit on one machine.
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            # The same command goes on from the last checkpoint; a restart here would repeat what made a worker fail.
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
            **ending,
        )
        try:
            with _own_handlers():
                elastic_launch(settings, work)(config, stage, make)
        except ChildFailedError as error:
            # The launcher's own report repeats the traceback of every worker.
            raise _failure(error, stage) from None
        except SignalException as error:
            # Torch has its own error for the signals that end a run.
            if error.sigval in ENDING:
                raise error_of(error.sigval) from None
            raise


@contextmanager
def _own_handlers() -> Iterator[None]:
    """Give signals the handlers back that they have now, which torch replaces by its own for good."""
    handlers = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGHUP, signal.SIGQUIT)}
    try:
        yield
    finally:
        # Only the main thread may, and only there torch does.
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)


def work(config: Config, stage: str, make: Callable[[Config, str], None]) -> None:
    """Join the other workers, then lead the stage or help with it."""
    begin_worker()
    # A training hears Ctrl-C and keeps its step; elsewhere the worker ends at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    one_of_several(config, lambda config: make(config, stage))


def free_memory() -> None:
    """Free the memory of a stage's models in this process: the next stage's may need the GPU in other processes."""
    torch = sys.modules.get("torch")
    if torch is None:
        # Without torch there was no model.
        return
    # Trainers refer to their models in circles, which only a collection frees.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _failure(error: Any, stage: str) -> Exception:
    """Return the error to raise for failed workers: an expected error of one of them, else the first one's traceback.

    Args:
        error: torch's ChildFailedError.
        stage: the stage's name.
    """
    # The first to fail is the cause; the others have lost it.
    failures = sorted(error.failures.items(), key=lambda item: item[1].timestamp)
    kinds: list[type[JudgetrainError]] = [JudgetrainError, *JudgetrainError.__subclasses__()]
    kind_of_name = {kind.__name__: kind for kind in kinds}
    for _, failure in failures:
        name, _, message = _message(failure).partition(": ")
        # A worker that has only lost another one does not know why.
        if name in kind_of_name and not message.startswith(ENDED):
            return kind_of_name[name](message)

    rank, first = failures[0]
    if first.exitcode == -signal.SIGKILL:
        return TrainingError(
            f"process {rank} of stage {stage} was killed (signal 9), most often for want of memory: "
            "lower per_device_train_batch_size, and run the same command again to go on"
        )
    # A worker that was killed by a signal left no traceback, and the launcher's words are its message.
    trace = ""
    if not isinstance(first.message, str):
        trace = first.message["extraInfo"]["py_callstack"]
    return RuntimeError(f"process {rank} of stage {stage} failed: {_message(first)}\n{trace}")


def _message(failure: Any) -> str:
    """Return ``Class: text`` of a worker's exception, or the launcher's words for a worker that left none."""
    message = failure.message
    if not isinstance(message, str):
        message = message["message"]
    return str(message)
