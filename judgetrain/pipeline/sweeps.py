"""Sweeps (``--multirun``): the result of each job in a file of its own, and the summary at the end.

A job that fails fails alone. Running the same command again does only what is missing, since finished stages are found
by their fingerprints.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import InterpolationResolutionError

from judgetrain.amounts import amount
from judgetrain.artifacts.console import Console, duration
from judgetrain.artifacts.files import write_json_atomic
from judgetrain.errors import printable

JOB = "job.json"
"""The file of a job's result."""
SUMMARY = "sweep.json"
"""The file of all jobs' results."""
_started: list[Path] = []
"""The directories of the sweeps that this process began and has not yet summed up."""


class SweepStart(Callback):
    """Remembers a sweep's directory, so that it can be summed up however it ends (``hydra.callbacks`` in conf/)."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Remember the directory; Hydra calls this in the process that the user started."""
        # The directory of an empty output_dir cannot be resolved; Hydra itself reports that next.
        with suppress(InterpolationResolutionError):
            _started.append(Path(str(config.hydra.sweep.dir)))


def searches(sweeper: DictConfig) -> bool:
    """Return whether a sweeper (``hydra.sweeper``) chooses jobs by the results of earlier ones, unlike Hydra's own."""
    return not str(sweeper["_target_"]).endswith("BasicSweeper")


def write_job(directory: Path, overrides: Sequence[str], result: Mapping[str, Any]) -> None:
    """Write a job's result as ``job.json``.

    Args:
        directory: of the job.
        overrides: its part of the command line.
        result: ``state`` (done or failed) and further facts.
    """
    directory.mkdir(parents=True, exist_ok=True)
    write_json_atomic(directory / JOB, {"job": directory.name, "overrides": list(overrides), **result})


def read_jobs(directory: Path) -> list[dict[str, Any]]:
    """Return the results of a sweep's jobs, in their order; the state of a job without a result is ``unfinished``."""
    if not directory.is_dir():
        return []
    jobs = []
    for path in directory.iterdir():
        if (path / JOB).is_file():
            jobs.append(json.loads((path / JOB).read_text(encoding="utf-8")))
        elif path.is_dir() and path.name.isdigit():
            # Hydra makes a numbered folder before a job begins.
            jobs.append({"job": path.name, "overrides": [], "state": "unfinished"})
    return sorted(jobs, key=_place_of)


def _place_of(job: Mapping[str, Any]) -> tuple[bool, int]:
    """Return the place of a job among others: by its number, and without one (another job's name) at the end."""
    name = job["job"]
    if name.isdigit():
        return False, int(name)
    return True, 0


def evaluations(jobs: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Return the directories of the evaluations that jobs ended in."""
    directories = [Path(job["directory"]) for job in jobs if job.get("directory")]
    return [directory for directory in directories if directory.parent.name == "evaluate"]


def all_failed() -> bool:
    """Return whether all jobs of the sweep under way have failed; each of them has reported its error."""
    jobs = [job for directory in _started for job in read_jobs(directory)]
    return bool(jobs) and all(job["state"] == "failed" for job in jobs)


def summarise(console: Console) -> bool:
    """Print and write (``sweep.json``) the summary of every sweep begun, and return whether all jobs are done."""
    all_done = True
    # Taken off the list, so that a second call has nothing to print again.
    while _started:
        directory = _started.pop()
        jobs = read_jobs(directory)
        if not jobs:
            continue
        write_json_atomic(directory / SUMMARY, jobs)
        if any(job["state"] != "done" for job in jobs):
            all_done = False
        # A table of results, without the time of day that lines of progress have.
        lines = [f"sweep {directory}", *(_line(job, jobs) for job in jobs)]
        print(printable("\n".join(lines)), flush=True)
        _summarise_one(directory, jobs, console)
    return all_done


def _summarise_one(directory: Path, jobs: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print a sweep's best job and the number of jobs that are done, and what to do next."""
    best = best_of(jobs)
    evaluated = evaluations(jobs)
    if best:
        metric = best.get("metric", "objective")
        changes = " ".join(_changes(best, jobs)) or "one job"
        console.line(f"sweep: {metric}: best {best['objective']:.4f}, job {best['job']} ({changes})")
    elif evaluated:
        console.line("sweep: no objective was set; objective=BENCHMARK/METHOD/METRIC, as in world/dpo@1/agreement")

    done = sum(job["state"] == "done" for job in jobs)
    summary = f"{done} of {amount(len(jobs), 'job')} done"
    if done < len(jobs):
        summary = f"{summary}; the same command again does what is missing"
    if evaluated:
        summary = f"{summary}; stage=report 'report.runs=[{directory}]' puts their evaluations together"
    console.line(f"sweep: {summary}")


def best_of(jobs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the job with the best objective, or None where no job has one.

    The largest is best, unless a sweeper was told to minimise.
    """
    scored = [job for job in jobs if job.get("objective") is not None]
    # By its end: the default of Optuna's sweeper is an enumeration, whose text is Direction.minimize.
    lowest = any("minimize" in job.get("direction", "").lower() for job in scored)
    if lowest:
        return min(scored, key=lambda job: job["objective"], default=None)
    return max(scored, key=lambda job: job["objective"], default=None)


def _changes(job: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the overrides of a job that not all jobs have; of a single job, all of them."""
    overrides: list[str] = job["overrides"]
    if len(jobs) == 1:
        return overrides
    # An unfinished job has written none.
    written = [set(other["overrides"]) for other in jobs if other["overrides"]]
    shared: set[str] = set()
    if written:
        shared = set.intersection(*written)
    return [override for override in overrides if override not in shared]


def _line(job: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]]) -> str:
    """Return the line of a job: its changes, its state and its objective, with a star after the best one."""
    changes = " ".join(_changes(job, jobs)) or "one job"
    line = f"job {job['job']} ({changes}): {job['state']}"
    if job["state"] != "done":
        return f"{line}: {job.get('error') or 'it was stopped or killed'}"
    facts = [line]
    if "made" in job:
        facts.append(f"{amount(len(job['made']), 'stage')} made")
    if "seconds" in job:
        facts.append(duration(job["seconds"]))
    objective = job.get("objective")
    if objective is not None:
        fact = f"{job['metric']} {objective:.4f}"
        if job is best_of(jobs):
            fact = f"{fact} *"
        facts.append(fact)
    return ", ".join(facts)
