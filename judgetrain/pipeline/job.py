"""Hydra's jobs: from the command line to finished stages, and what is said where one fails."""

import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from judgetrain import rooms
from judgetrain.artifacts.console import Console, LogLines
from judgetrain.artifacts.executor import share_cores
from judgetrain.artifacts.files import FULL, refused
from judgetrain.artifacts.tracker import unless_set
from judgetrain.errors import ConfigError, JudgetrainError
from judgetrain.pipeline import CONF, EXIT_ERROR
from judgetrain.pipeline.cli_errors import NO_SLURM, arguments, named_stage, sentence
from judgetrain.pipeline.compose import overwritten, recipe_overrides, register, typed
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.pipeline.interrupts import answered
from judgetrain.pipeline.sweeps import all_failed, searches, summarise, write_job
from judgetrain.train.distributed import processes, started_by_launcher

WITHOUT_FILES = {"stage=status", "stage=clean", "stage=init"}
"""What writes no artifact, and what removes: a directory that was named by mistake is not made."""

_show_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
_errors: list[BaseException] = []
"""The expected errors of this command's jobs."""


@dataclass(frozen=True)
class Outcome:
    """What a stage came to: its directory, which stages were made for it and which were there, and the objective."""

    directory: str
    made: list[str]
    reused: list[str]
    objective: float | None = None

    @property
    def value(self) -> str | float:
        """What Hydra's sweepers are given: the objective, else the directory."""
        return self.directory if self.objective is None else self.objective


def run(config: Config) -> Outcome | None:
    """Do what ``config.stage`` says; None for what is no stage of the pipeline."""
    if started_by_launcher():
        from judgetrain.pipeline.processes import one_of_several

        return one_of_several(config, _run)
    return _run(config)


def _run(config: Config) -> Outcome | None:
    from judgetrain.pipeline.run import Pipeline

    if config.train.distributed != "none":  # a number that results can depend on is named in fingerprints
        config.train.processes = processes(config.train)
    if command := rooms.commands().get(config.stage):
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

    check_hub(config)
    with answered(pipeline.console):
        directory = pipeline.run(config.stage)
    judges = fill_cards(pipeline)
    objective = None
    if config.objective is not None:
        from judgetrain.evaluate.objective import described, objective_value

        objective = objective_value(directory, config.objective)
        pipeline.console.line(described(config.objective, objective, config.evaluate))
    if finished := STAGES[config.stage].finished:
        resolve_name(finished)(directory)
    push_last(pipeline, judges)
    reused = [name for name in pipeline.needed(config.stage) if name not in pipeline.made]
    return Outcome(str(directory), pipeline.made, reused, objective)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")  # type: ignore[untyped-decorator]
def job(composed: DictConfig) -> Any:
    """One Hydra job: from the composed configuration to the finished stage; gives the objective, else the directory.

    An expected error is printed here, in place of Hydra's own report.
    """
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        if started_by_launcher():
            told = f"WORLD_SIZE={os.environ['WORLD_SIZE']}: a sweep starts its jobs itself; leave out torchrun"
            raise ConfigError(f"{told}, and set train.distributed and train.processes, or sweep=slurm")
        return _sweep_job(composed)
    try:
        overrides = HydraConfig.get().overrides.task
        for told in overwritten(overrides):
            logging.getLogger("judgetrain").info(told)
        outcome = run(typed(composed, overrides))
    except (JudgetrainError, OmegaConfBaseException) as error:
        if _show_traceback:
            raise
        _tell(error)
        return None
    return outcome and outcome.value


def _sweep_job(composed: DictConfig) -> Any:
    """One job of a sweep: whatever happens to it is written down, and the other jobs go on."""
    settings, started = HydraConfig.get(), time.monotonic()
    aim = {}
    if metric := composed.get("objective"):
        aim = {"metric": str(metric), "direction": str(settings.sweeper.get("direction") or "maximize")}
    directory, overrides = Path(settings.runtime.output_dir), list(settings.overrides.task)
    try:
        config = typed(composed, overrides)
        if searches(settings.sweeper):
            from judgetrain.evaluate.objective import check_search

            check_search(config.objective, config.evaluate)
        group = "-".join((config.recipe_name, *Path(settings.sweep.dir).parts[-2:]))
        with unless_set(WANDB_RUN_GROUP=group, WANDB_TAGS=f"job-{settings.job.num}"):
            outcome = run(config)
    except Exception as error:
        expected = isinstance(error, (JudgetrainError, OmegaConfBaseException))
        if _show_traceback or not expected:
            traceback.print_exc()
        _tell(error)
        message = sentence(error) if expected else f"{type(error).__name__}: {sentence(error)}"
        failed = {"state": "failed", "error": message, "seconds": time.monotonic() - started}
        write_job(directory, overrides, aim | failed)
        return None
    result = asdict(outcome) if outcome else {}
    write_job(directory, overrides, aim | {"state": "done", "seconds": time.monotonic() - started, **result})
    return outcome and outcome.value


def hydra_jobs(given: Sequence[str]) -> None:
    """Run Hydra over the command line."""
    share_cores()
    helps = os.environ.get("RANK", "0") != "0"  # torchrun started it, and the first process speaks for all
    log = logging.getLogger("judgetrain")
    log.handlers = [logging.NullHandler() if helps else LogLines()]
    log.setLevel(logging.INFO)
    register(ConfigStore.instance(), given)
    named = named_stage([*given])
    sys.argv[1:] = recipe_overrides(arguments(named))
    # Hydra's own files are none of a status.
    if helps or not WITHOUT_FILES.isdisjoint(named):
        sys.argv += [f"hydra.run.dir={tempfile.gettempdir()}", "hydra.output_subdir=null"]
    job()


def guarded(work: Callable[[], None]) -> int:
    """Do what the command line asks; the exit code is 0, or 2 for an expected error."""
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
        _tell(error)
    except Exception as error:
        said = refused(error) if isinstance(error, OSError) else None
        if all_failed():  # a sweeper, as Optuna's, that has nothing to choose from
            said = f"no job of the sweep is done ({error})"
        elif 'Could not detect "srun"' in str(error):
            said = f"sweep=slurm: {NO_SLURM}"
        elif FULL.search(str(error)):
            said = "the disk is full; everything finished is kept. Free some space and run again."
        if _show_traceback or not said:
            raise
        print(f"judgetrain: {said}", file=sys.stderr)
        return EXIT_ERROR
    finally:
        fine = summarise(Console())
        os.environ["HYDRA_FULL_ERROR"] = before
    return EXIT_ERROR if _errors or not fine else 0


def _tell(error: BaseException) -> None:
    _errors.append(error)
    print(f"judgetrain: {sentence(error)}", file=sys.stderr)
