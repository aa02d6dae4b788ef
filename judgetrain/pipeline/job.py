"""Hydra's jobs: from the command line to finished stages, and the reports of those that fail."""

import logging
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from pkgutil import resolve_name
from types import TracebackType
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from judgetrain import rooms
from judgetrain.artifacts.console import Console, LogLines
from judgetrain.artifacts.environment import unresolved
from judgetrain.artifacts.executor import end_with_parent, share_cores
from judgetrain.artifacts.files import FULL, refused
from judgetrain.artifacts.tracker import unless_set
from judgetrain.errors import ConfigError, JudgetrainError, printable, say_error
from judgetrain.pipeline import CONF, EXIT_ERROR
from judgetrain.pipeline.cli_errors import NO_SLURM, arguments, named_stage, sentence
from judgetrain.pipeline.compose import SHOWN, overwritten, recipe_overrides, register, typed
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.pipeline.environment import by_name
from judgetrain.pipeline.interrupts import answered
from judgetrain.pipeline.sweeps import all_failed, searches, summarise, write_job
from judgetrain.train.distributed import processes, started_by_launcher

WITHOUT_FILES = {"stage=status", "stage=clean", "stage=init"}
"""Commands that write no artifact, or remove some: a directory that was named by mistake is not made."""

# Read now: guarded() sets the variable for Hydra.
_show_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
_errors: list[BaseException] = []
"""The expected errors of this command's jobs."""
_unforeseen: list[Exception] = []
"""The other error that ended this command's job."""


@dataclass(frozen=True)
class Outcome:
    """The result of a stage.

    Args:
        directory: of its artifact.
        made: the stages that were made for it.
        reused: the stages that were there before.
        objective: the value that a search goes by, where one is set.
    """

    directory: str
    made: list[str]
    reused: list[str]
    objective: float | None = None

    @property
    def value(self) -> str | float:
        """Return the value for Hydra's sweepers: the objective, else the directory."""
        if self.objective is None:
            return self.directory
        return self.objective


def run(config: Config) -> Outcome | None:
    """Run the stage or command that ``config.stage`` names; return None for a command."""
    # torchrun, accelerate and srun start this command once a process.
    if started_by_launcher():
        from judgetrain.pipeline.processes import one_of_several

        return one_of_several(config, _run)
    return _run(config)


def _run(config: Config) -> Outcome | None:
    """Run the stage or command in this process, which leads the others where there are several."""
    # Imported here: a help page or a wrong key needs none of it.
    from judgetrain.pipeline.run import Pipeline

    if config.train.distributed != "none":
        # Results can depend on the number of processes, so fingerprints hold it.
        config.train.processes = processes(config.train)
    command = rooms.commands().get(config.stage)
    if command is not None:
        resolve_name(command.code)(Pipeline(config))
        return None

    if config.objective is not None:
        from judgetrain.evaluate.objective import check_objective

        check_objective(config.objective, config.evaluate, config.stage)
    pipeline = Pipeline(config)
    if config.dry_run:
        from judgetrain.pipeline.commands import show_cost

        show_cost(pipeline)
        return None

    from judgetrain.pipeline.cards import check_hub, fill_cards, push_last
    from judgetrain.pipeline.newest import check_name, link_newest

    check_hub(config)
    check_name(config)
    with answered(pipeline.console):
        directory = pipeline.run(config.stage)
    judges = fill_cards(pipeline)
    link_newest(pipeline, judges)
    objective = None
    if config.objective is not None:
        from judgetrain.evaluate.objective import described, objective_value

        objective = objective_value(directory, config.objective)
        pipeline.console.line(described(config.objective, objective, config.evaluate))
    # As a gate, which raises an error: a judge that fails it is not pushed.
    finished = STAGES[config.stage].finished
    if finished:
        resolve_name(finished)(directory)
    push_last(pipeline, judges)
    reused = [name for name in pipeline.needed(config.stage) if name not in pipeline.made]
    return Outcome(str(directory), pipeline.made, reused, objective)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")  # type: ignore[untyped-decorator]
def job(composed: DictConfig) -> Any:
    """Run one Hydra job from the composed configuration, and return the objective, else the directory.

    An expected error is printed here, in place of Hydra's own report.
    """
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        if started_by_launcher():
            raise ConfigError(
                f"WORLD_SIZE={os.environ['WORLD_SIZE']}: a sweep starts its jobs itself; leave out torchrun, "
                "and set train.distributed and train.processes, or sweep=slurm"
            )
        return _sweep_job(composed)
    try:
        overrides = _overrides()
        for warning in overwritten(overrides):
            logging.getLogger("judgetrain").info(warning)
        outcome = run(typed(composed, overrides))
    except (JudgetrainError, OmegaConfBaseException) as error:
        if _show_traceback:
            raise
        _report(error)
        return None
    except Exception as error:
        # Raised again behind Hydra, which would print a line of its own before the error's.
        _unforeseen.append(error)
        return None
    if outcome is None:
        return None
    return outcome.value


def _overrides() -> list[str]:
    """Return the job's part of the command line as it was written, which Hydra's own list would resolve."""
    overrides: Any = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
    return list(overrides)


def _sweep_job(composed: DictConfig) -> Any:
    """Run one job of a sweep and write down its result or its error, so that the other jobs go on."""
    if multiprocessing.parent_process() is not None:
        # A worker of sweep=joblib, which otherwise trains on when the sweep was killed.
        end_with_parent()
    settings = HydraConfig.get()
    started = time.monotonic()
    directory = Path(settings.runtime.output_dir)
    overrides = _overrides()
    # Written down whatever happens, so that the summary can say it of every job.
    result: dict[str, Any] = {}
    metric = composed.get("objective")
    if metric:
        result["metric"] = str(metric)
        result["direction"] = str(settings.sweeper.get("direction") or "maximize")
    try:
        config = typed(composed, overrides)
        if searches(settings.sweeper):
            from judgetrain.evaluate.objective import check_search

            check_search(config.objective, config.evaluate)
        # W&B shows runs of a group together: the jobs of one sweep, told from others by its date and time.
        group = "-".join((config.recipe_name, *Path(settings.sweep.dir).parts[-2:]))
        with unless_set(WANDB_RUN_GROUP=group, WANDB_TAGS=f"job-{settings.job.num}"):
            outcome = run(config)
    except Exception as error:
        message = sentence(error)
        is_expected = isinstance(error, (JudgetrainError, OmegaConfBaseException))
        if not is_expected:
            # The text of an error of Python alone, as 'id' of a KeyError, says little.
            message = f"{type(error).__name__}: {message}"
        # The sweep goes on and nobody else prints it.
        if _show_traceback or not is_expected:
            _show_unforeseen(type(error), error, error.__traceback__)
        _report(error)
        result |= {"state": "failed", "error": message, "seconds": time.monotonic() - started}
        write_job(directory, overrides, unresolved(result))
        return None

    result |= {"state": "done", "seconds": time.monotonic() - started}
    if outcome is None:
        write_job(directory, overrides, result)
        return None
    write_job(directory, overrides, result | asdict(outcome))
    return outcome.value


def hydra_jobs(words: Sequence[str]) -> None:
    """Run Hydra over the command line."""
    # Before anything imports torch, which reads the number of threads once.
    few_threads = share_cores()
    sys.excepthook = _show_unforeseen
    # Of the processes that torchrun starts, the first speaks for all.
    is_helper = os.environ.get("RANK", "0") != "0"
    log = logging.getLogger("judgetrain")
    log.handlers = [LogLines()]
    if is_helper:
        log.handlers = [logging.NullHandler()]
    log.setLevel(logging.INFO)
    register(ConfigStore.instance(), words)
    with_stage = named_stage(list(words))
    sys.argv[1:] = recipe_overrides(arguments(with_stage))
    # Hydra writes files of its own for every job. These have no use for a command that writes nothing.
    is_quick = not WITHOUT_FILES.isdisjoint(with_stage)
    if is_helper or is_quick:
        sys.argv += [f"hydra.run.dir={tempfile.gettempdir()}", "hydra.output_subdir=null"]
    # What is only shown need not be resolved to secrets.
    is_shown = not {"--resolve", *SHOWN}.isdisjoint(word.partition("=")[0] for word in words)
    # A process that has PyTorch keeps the threads that it has.
    if few_threads and not is_shown and not is_quick and "torch" not in sys.modules:
        log.warning(few_threads)
    naming: AbstractContextManager[None] = nullcontext()
    if is_shown:
        naming = by_name()
    _unforeseen.clear()
    with naming:
        job()
    if _unforeseen:
        raise _unforeseen.pop()


def guarded(work: Callable[[], None]) -> int:
    """Do the work of a command line, and return the exit code: 0, or 2 for an expected error."""
    # Hydra prints a traceback for every error of a job unless it is told to let it through.
    before = os.environ.get("HYDRA_FULL_ERROR", "")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # A parent's W&B process would keep the run of a killed stage open, and refuse to resume it.
    os.environ.pop("WANDB_SERVICE", None)
    _errors.clear()
    try:
        work()
    except (JudgetrainError, HydraException, OmegaConfBaseException) as error:
        if _show_traceback:
            raise
        _report(error)
    except Exception as error:
        message = _explained(error)
        if _show_traceback or not message:
            raise
        say_error(unresolved(message))
        return EXIT_ERROR
    finally:
        # Also after an interrupt: the jobs that are done have results to show.
        all_done = summarise(Console())
        os.environ["HYDRA_FULL_ERROR"] = before
    return EXIT_ERROR if _errors or not all_done else 0


def _show_unforeseen(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an error that nobody foresaw, without values of the environment."""
    text = "".join(traceback.format_exception(kind, error, trace))
    print(printable(unresolved(text)), end="", file=sys.stderr)


def _explained(error: Exception) -> str | None:
    """Return the message of an error that other code raises and a user can act on, or None."""
    if all_failed():
        # A sweeper, as Optuna's, raises its own error where it has no job's result to choose by.
        return f"no job of the sweep is done ({error})"
    if 'Could not detect "srun"' in str(error):
        return f"sweep=slurm: {NO_SLURM}"
    if FULL.search(str(error)):
        return "the disk is full; everything finished is kept. Free some space and run again."
    if isinstance(error, OSError):
        return refused(error)
    return None


def _report(error: BaseException) -> None:
    """Print an error's message, and remember that the command has failed."""
    _errors.append(error)
    say_error(unresolved(sentence(error)))
