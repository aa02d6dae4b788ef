"""Stages whose shards are processed elsewhere: the artifacts of a run in one process, also where workers die."""

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.executor import Executor
from judgetrain.pipeline.run import Pipeline
from judgetrain.scorers.config import ScorerConfig
from tests.builders.debug_run import lasting, start
from tests.builders.pipeline import configured
from tests.builders.watched import Elsewhere

ANSWERING = "{name:%s,engine:{type:transformers,model:{path:world}}}"
STAGES = {
    "responses": (f"responses.models=[{ANSWERING % 'a'},{ANSWERING % 'b'}]", "responses.sampling.max_new_tokens=16"),
    "cluster": (),
    "teacher": (),
    "tree": (),
    "label": ("reward=both",),
    "reference": (),
    "rl": (
        "rl={labels: start, num_generations: 2, max_steps: 1}",
        *("rl.comparisons_per_step=2", "rl.per_device_train_batch_size=4", "rl.keep_best=false"),
    ),
    "evaluate": (
        "evaluate.methods=[dpo,dpo+independent@1,pairwise:dpo,scorer:sentprob]",
        "evaluate.shard_size=4",
        *("dialogues.world.eval_comparisons=8", "evaluate.branches=[1]", "robustness.sample=1"),
    ),
    "judge": ("verdicts.judge=sft", "verdicts.shard_size=6"),
    "correct": ("dialogues.world.eval_comparisons=8",),
    "selfeval": (*("scorer.model.path=world", "selfeval.limit=6", "selfeval.sampling.max_new_tokens=12"),),
}
"""Stages that go by shards, and what has them do so in little time."""


def made(stage: str, run: Path, output: Path, changes: tuple[str, ...]) -> dict[str, bytes]:
    """Make a stage anew on a copy of a finished run, and return its files by their places."""
    shutil.copytree(run, output)
    shutil.rmtree(output / "artifacts" / stage, ignore_errors=True)
    config = configured("recipe=debug", f"stage={stage}", f"output_dir={output}", "track.tracker=none", *changes)
    Pipeline(config, Console()).run(stage)
    return {name: content for name, content in lasting(output).items() if name.startswith(f"{stage}/")}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_is_the_same_wherever_its_shards_are_processed(
    stage: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ``process`` needs goes through pickle; shards come in another order."""
    monkeypatch.setattr("judgetrain.extras.correct.stage.SHARD", 2)
    monkeypatch.setattr(ScorerConfig, "shard_size", 2)
    if STAGES[stage]:
        here = made(stage, finished, tmp_path / "here", STAGES[stage])
    else:  # as the finished run made it
        here = {name: content for name, content in lasting(finished).items() if name.startswith(f"{stage}/")}
    executor = Elsewhere()

    def elsewhere(*_: Any) -> Executor:
        return executor

    monkeypatch.setattr("judgetrain.pipeline.processes.make_executor", elsewhere)
    elsewhere_artifact = made(stage, finished, tmp_path / "there", STAGES[stage])
    assert executor.carried and max(executor.carried) < 2**20, "the work goes by pickle, and holds no data of the stage"
    assert sorted(elsewhere_artifact) == sorted(here)
    assert [name for name in here if here[name] != elsewhere_artifact[name]] == []


# With real Ray, where it is installed.

RAY = "executor=ray", "executor.workers=2", "track.tracker=none"


@pytest.fixture
def partial(finished: Path, tmp_path: Path) -> Path:
    """Return a copy of the finished run whose trees and evaluation are to be made again, in small shards."""
    output = tmp_path / "outputs"
    shutil.copytree(finished, output)
    for stage in ("tree", "evaluate"):
        shutil.rmtree(output / "artifacts" / stage)
    return output


def workers_of(parent: int) -> list[int]:
    """Return the Ray workers that a process has started and that hold shards."""
    processes_text = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 1) for line in processes_text.splitlines()]
    return [int(pid) for pid, args in lines if args.startswith("ray::Worker.shard") and parent in ancestors(int(pid))]


def ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return


@pytest.mark.ray
def test_a_killed_driver_is_gone_with_its_workers_and_goes_on(finished: Path, partial: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def markers() -> list[Path]:
        return [*partial.glob("artifacts/tree/*/.trees-*-of-*.json")]

    run = start(partial, log, "stage=tree", *RAY)
    limit = threading.Timer(1200, run.kill)
    limit.start()
    workers_left = workers_of(run.pid)
    while run.poll() is None and not (markers() and workers_left):
        time.sleep(0.05)
        workers_left = workers_of(run.pid)
    run.kill()
    run.wait()
    limit.cancel()
    kept = {path: path.stat().st_mtime_ns for path in markers()}
    assert kept and workers_left, log.read_text()
    for stage in (["stage=tree"], []):  # what was made of the trees is there: no later stage asks for them
        assert start(partial, log, *stage, *RAY).wait(3000) == 0, log.read_text()
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "finished shards are not made again"
    assert not [pid for pid in workers_left if Path(f"/proc/{pid}").exists()]
    expected = lasting(finished)
    contents = lasting(partial)
    assert [name for name in expected if expected[name] != contents.get(name)] == []
