"""Sweeps (``--multirun``): what each job came to, in a file of its own, and the summary at the end.

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

from judgetrain.artifacts.console import Console, duration
from judgetrain.artifacts.files import write_json_atomic

JOB, SUMMARY = "job.json", "sweep.json"
_started: list[Path] = []
"""The directories of the sweeps that this process began and has not yet summed up."""


class SweepStart(Callback):
    """Remembers where a sweep writes, so that it can be summed up however it ends (``hydra.callbacks`` in conf/)."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Called by Hydra in the process that the user started."""
        with suppress(InterpolationResolutionError):  # as of an empty output_dir, which Hydra itself comes to next
            _started.append(Path(str(config.hydra.sweep.dir)))


def searches(sweeper: DictConfig) -> bool:
    """Whether a sweeper (``hydra.sweeper``) chooses jobs by what earlier ones gave; Hydra's own goes through a grid."""
    return not str(sweeper["_target_"]).endswith("BasicSweeper")


def write_job(directory: Path, overrides: Sequence[str], result: Mapping[str, Any]) -> None:
    """Write ``job.json``: the job's overrides, ``state`` (done or failed) and what else ``result`` says of it."""
    directory.mkdir(parents=True, exist_ok=True)
    write_json_atomic(directory / JOB, {"job": directory.name, "overrides": list(overrides), **result})


def read_jobs(directory: Path) -> list[dict[str, Any]]:
    """What the jobs of a sweep came to, in their order; a job without a result is ``unfinished``."""
    jobs = []
    for path in directory.iterdir() if directory.is_dir() else ():
        if (path / JOB).is_file():
            jobs.append(json.loads((path / JOB).read_text(encoding="utf-8")))
        elif path.is_dir() and path.name.isdigit():
            jobs.append({"job": path.name, "overrides": [], "state": "unfinished"})
    return sorted(jobs, key=lambda job: (not job["job"].isdigit(), int(job["job"]) if job["job"].isdigit() else 0))


def evaluations(jobs: Sequence[Mapping[str, Any]]) -> list[Path]:
    """The evaluations that jobs ended in."""
    found = [Path(job["directory"]) for job in jobs if job.get("directory")]
    return [path for path in found if path.parent.name == "evaluate"]


def all_failed() -> bool:
    """Whether a sweep is under way whose jobs have all ended with an error, which each of them has reported."""
    jobs = [job for directory in _started for job in read_jobs(directory)]
    return bool(jobs) and all(job["state"] == "failed" for job in jobs)


def summarise(console: Console) -> bool:
    """Print and write (``sweep.json``) the summary of every sweep begun; gives whether all jobs are done."""
    fine = True
    while _started:
        directory = _started.pop()
        if not (jobs := read_jobs(directory)):
            continue
        write_json_atomic(directory / SUMMARY, jobs)
        failed = [job for job in jobs if job["state"] != "done"]
        fine = fine and not failed
        print(f"sweep {directory}", *(_said(job, jobs) for job in jobs), sep="\n", flush=True)
        told = f"{len(jobs) - len(failed)} of {len(jobs)} jobs done"
        if failed:
            told += "; the same command again does what is missing"
        best, evaluated = best_of(jobs), evaluations(jobs)
        if best:
            what = f"{best.get('metric', 'objective')}: best {best['objective']:.4f}"
            console.line(f"sweep: {what}, job {best['job']} ({' '.join(_own(best, jobs)) or 'one job'})")
        elif evaluated:
            console.line("sweep: no objective was set; objective=BENCHMARK/METHOD/METRIC, as in world/dpo@1/agreement")
        if evaluated:
            told += f"; stage=report 'report.runs=[{directory}]' puts their evaluations together"
        console.line(f"sweep: {told}")
    return fine


def best_of(jobs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The job with the best objective: the largest, where no sweeper was told to minimise; None without objectives."""
    scored = [job for job in jobs if job.get("objective") is not None]
    lowest = any("minimize" in job.get("direction", "").lower() for job in scored)
    return min(scored, key=lambda job: job["objective"] if lowest else -job["objective"], default=None)


def _own(job: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    known = [set(job["overrides"]) for job in jobs if job["overrides"]]
    shared = set.intersection(*known) if known else set()
    return [o for o in job["overrides"] if o not in shared or len(jobs) == 1]


def _said(job: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]]) -> str:
    """The line of a job: what differs, what it came to, and its objective, of the best one with a star."""
    named = f"job {job['job']} ({' '.join(_own(job, jobs)) or 'one job'}): {job['state']}"
    if job["state"] != "done":
        return f"{named}: {job.get('error') or 'it was stopped or killed'}"
    facts = [f"{len(job['made'])} stages made"] if "made" in job else []
    facts += [duration(job["seconds"])] if "seconds" in job else []
    if (objective := job.get("objective")) is not None:
        facts.append(f"{job['metric']} {objective:.4f}{' *' if job is best_of(jobs) else ''}")
    return ", ".join([named, *facts])
