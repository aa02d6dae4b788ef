"""Shards on Ray's workers. What is marked needs Ray itself, which has its own environment (docs/scale.md)."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.executor import Done, Executor, ExecutorConfig, Work, make_executor
from judgetrain.artifacts.stage_run import ShardResult
from judgetrain.errors import EngineError, EngineLostError
from judgetrain.extras.ray import executor as ray_executor
from judgetrain.extras.ray.cluster import Share, Worker, is_alive, passed_on
from tests.artifacts.test_shards import SIZE, fill, kept, stage
from tests.fuzz.effort import effort


def test_ray_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngineError, match=r"judgetrain\[ray\]"):
        fill(stage(tmp_path, make_executor(ExecutorConfig(type="ray"))), tmp_path / "log")


def test_secrets_do_not_go_to_workers() -> None:
    names = "HF_TOKEN VLLM_API_KEY OPENAI_API_KEY WANDB_MODE HF_HOME TOKENIZERS_PARALLELISM HOME".split()
    assert [*filter(passed_on, names)] == ["WANDB_MODE", "HF_HOME", "TOKENIZERS_PARALLELISM"]


@pytest.mark.parametrize(
    ("gpus", "cpus", "need", "expected"),
    [(0, 4, 0, 4), (8, 64, 1, 8), (8, 64, 4, 2), (7, 64, 4, 1), (8, 3, 1, 3), (2, 64, 4, 0), (8, 16, 0, 16)],
)
def test_as_many_workers_as_fit_on_a_node(gpus: int, cpus: int, need: int, expected: int) -> None:
    assert Share(gpus=gpus, cpus=cpus).holds(Share(gpus=need)) == expected


@pytest.fixture
def workers() -> Iterator[Callable[[int], Executor]]:
    executors: list[Executor] = []

    def executor(number: int) -> Executor:
        executors.append(make_executor(ExecutorConfig(type="ray", workers=number)))
        return executors[-1]

    yield executor
    for spread_executor in executors:
        spread_executor.close()


@pytest.mark.ray
@pytest.mark.parametrize("number", [1, 2])
def test_ray_workers_give_the_same_artifact(tmp_path: Path, workers: Callable[[int], Executor], number: int) -> None:
    here = stage(tmp_path / "here")
    elsewhere = stage(tmp_path / "there", workers(number))
    fill(here, tmp_path / "log")
    fill(elsewhere, tmp_path / "ray")
    assert kept(elsewhere) == kept(here)
    loaded = (tmp_path / "ray").read_text().split()
    assert len(loaded) == len({*loaded}) <= number and str(os.getpid()) not in loaded, "once in each worker"


@pytest.mark.ray
def test_killed_ray_workers_cost_their_shards_alone(tmp_path: Path, workers: Callable[[int], Executor]) -> None:
    # With ``JUDGETRAIN_FUZZ=full``, on a quiet machine, twenty workers and more are killed in one run.
    log = tmp_path / "ray"
    killed = []
    rows = range(SIZE * effort(10, 400))

    class Killing(Executor):
        """Kills the worker that loaded its model last, after every second shard."""

        def __init__(self, inner: Executor) -> None:
            self.inner = inner

        def close(self) -> None:
            self.inner.close()

        def run(self, work: Work[Any], shards: Iterable[tuple[int, Any]]) -> Iterator[Done[Any]]:
            for number, shard in enumerate(self.inner.run(work, shards)):
                yield shard
                pid = int(log.read_text().split()[-1])
                if number % 2 and pid not in killed:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    here = stage(tmp_path / "here")
    elsewhere = stage(tmp_path / "there", Killing(workers(2)))
    fill(here, tmp_path / "log", rows=rows)
    fill(elsewhere, log, pause=0.2, rows=rows)
    assert kept(elsewhere) == kept(here) and len(killed) >= effort(1, 20)


@pytest.mark.ray
def test_what_a_killed_worker_has_started_ends_with_it(tmp_path: Path, workers: Callable[[int], Executor]) -> None:
    # vLLM's engine is such a process, and holds the GPU: the next worker would find no room there.
    started = tmp_path / "started"

    def process(index: int, items: Sequence[int]) -> ShardResult:
        if not started.exists():
            started.write_text(str(subprocess.Popen(["sleep", "300"]).pid))
            os.kill(os.getpid(), signal.SIGKILL)
        return ShardResult([{"item": i} for i in items], len(items))

    stage(tmp_path / "out", workers(1)).sharded("rows", range(8), SIZE, Work(process=process, spread=True))
    pid = int(started.read_text())
    until = time.monotonic() + 120
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.1)
    assert not is_alive(pid)


@pytest.mark.ray
def test_ray_workers_are_gone_at_the_end_with_what_they_loaded(
    tmp_path: Path, workers: Callable[[int], Executor]
) -> None:
    log = tmp_path / "ray"
    executor = workers(2)
    fill(stage(tmp_path, executor), log, pause=0.1)
    executor.close()
    loads = log.read_text().split()
    pids = [int(word) for word in loads if word != "closed"]
    assert pids and loads.count("closed") == len(pids), "a model is closed before its process ends"
    assert not [pid for pid in pids if is_alive(pid)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start two nodes on this machine, each with two cores and two GPUs that are none, in place of another cluster."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    ray.shutdown()
    two_nodes = Cluster()
    for _ in range(2):
        two_nodes.add_node(num_cpus=2, num_gpus=2, include_dashboard=False)
    with pytest.MonkeyPatch.context() as patch:  # the nodes run without these
        patch.setenv("RAY_ADDRESS", two_nodes.address)
        patch.setenv("HF_HUB_ETAG_TIMEOUT", "7")
        patch.setenv("HF_TOKEN", "secret")
        yield two_nodes
    ray.shutdown()
    two_nodes.shutdown()


Pool = Callable[..., ray_executor.RayExecutor]


@pytest.fixture
def pool(cluster: Any) -> Iterator[Pool]:
    pools = []

    def executor(gpus: int = 1, say: Callable[[str], object] = print, **config: Any) -> ray_executor.RayExecutor:
        pools.append(ray_executor.RayExecutor(ExecutorConfig(type="ray", **config), gpus, say))
        return pools[-1]

    yield executor
    for running_executor in pools:
        running_executor.close()


def shards(count: int) -> Iterator[tuple[int, int]]:
    return ((i, i) for i in range(count))


@pytest.mark.ray
def test_workers_have_the_variables_and_the_gpus_of_the_model_whose_turn_it_is(pool: Pool, tmp_path: Path) -> None:
    mine = pool(gpus=2)
    pids = list[set[int]]()
    for turn, (gpus_asked_for, gpus, number) in enumerate(((1, 1, 4), (1, 1, 4), (None, 2, 2), (0, 0, 4))):
        place = tmp_path / str(turn)
        place.mkdir()

        def process(index: int, item: int, place: Path = place, number: int = number) -> tuple[Any, ...]:
            import ray

            (place / str(os.getpid())).touch()
            while len([*place.iterdir()]) < number:  # each has one, however long the others take to start
                time.sleep(0.05)
            return os.getpid(), len(ray.get_gpu_ids()), "HF_TOKEN" in os.environ, os.environ.get("HF_HUB_ETAG_TIMEOUT")

        results: list[Any] = [
            shard.result for shard in mine.run(Work(process=process, gpus=gpus_asked_for), shards(12))
        ]
        pids.append({shard[0] for shard in results})
        assert len(pids[-1]) == number and {shard[1:] for shard in results} == {(gpus, False, "7")}
    assert pids[0] == pids[1] and not (pids[0] & pids[2] or pids[2] & pids[3])


@pytest.mark.ray
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "no worker of 4 GPU, 1 CPU fits on a node .* 2 x 2 GPU, 2 CPU"),
        ({"workers": 1}, "within 1 s: each needs 4"),
    ],
)
def test_a_cluster_without_room_is_told(config: dict[str, int], message: str, pool: Pool, monkeypatch: Any) -> None:
    monkeypatch.setattr(ray_executor, "PATIENCE", 1.0)
    with pytest.raises(EngineError, match=message):
        list(pool(4, **config).run(Work(process=lambda i, x: x), shards(1)))


@pytest.mark.ray
def test_fewer_workers_than_asked_go_on_and_a_lost_engine_costs_its_shard(pool: Pool, tmp_path: Path) -> None:
    """And a call that was left before its end leaves no shard to the next."""

    def process(index: int, item: int) -> int:
        if index == 3 and not (tmp_path / "lost").exists():
            (tmp_path / "lost").touch()
            raise EngineLostError("vLLM's process has ended")
        return 10 * item

    mine = pool(workers=6)
    next(mine.run(Work(process=lambda i, x: -1), shards(9)))
    assert sorted(d.result for d in mine.run(Work(process=process), shards(9))) == [*range(0, 90, 10)]


@pytest.mark.ray
def test_a_shard_that_kills_waits_for_the_others_and_ends_the_run(pool: Pool, monkeypatch: Any) -> None:
    def process(index: int, item: int) -> None:
        if index == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(ray_executor, "WORST", 2)
    finished: list[Any] = []
    with pytest.raises(EngineError, match="workers died .* the last over shard 0"):
        finished.extend(pool(workers=2).run(Work(process=process), shards(9)))
    assert sorted(shard.index for shard in finished) == [*range(1, 9)]


@pytest.mark.ray
def test_workers_that_cannot_start_are_left_out_and_without_any_the_run_ends(
    pool: Pool, monkeypatch: Any, tmp_path: Path
) -> None:
    class First(Worker):
        def __init__(self, place: str) -> None:
            (tmp_path / str(os.getpid())).touch()
            (tmp_path / "first").touch(exist_ok=False)
            super().__init__(place)

    def process(index: int, item: int) -> None:
        while len([*tmp_path.iterdir()]) < 5:  # itself, three others, and the first's mark
            time.sleep(0.05)
        time.sleep(1)

    monkeypatch.setattr(ray_executor, "Worker", First)
    monkeypatch.setattr(ray_executor, "DEATHS", 1)
    lines: list[str] = []
    assert len([*pool(workers=2, say=lines.append).run(Work(process=process), shards(4))]) == 4
    assert [re.sub(r" \(.*", "", line) for line in lines] == [
        "executor=ray: a worker could not start, 3 times in a row, and is left out: 1 go on"
    ]
    with pytest.raises(EngineError, match="the last before it was ready .*: most often a node lacks"):
        list(pool(workers=1).run(Work(process=lambda i, x: x), shards(1)))


@pytest.mark.ray
def test_a_lost_node_costs_its_shards_and_the_others_go_on(cluster: Any, pool: Pool) -> None:
    """Shards are taken when there is room for them; an error of ours is no death, and ends the run."""
    shards_read = []
    came = []
    mine = pool()

    def items() -> Iterator[tuple[int, int]]:
        for index in range(40):
            shards_read.append(index)
            yield index, index

    for done in mine.run(Work(process=lambda i, x: time.sleep(0.2)), items()):
        came.append(done.index)
        if len(came) == 5:
            cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
        assert len(shards_read) <= len(came) + 4 + 2
    assert sorted(came) == [*range(40)]
    with pytest.raises(Exception, match="division"):
        list(mine.run(Work(process=lambda i, x: 1 // x), shards(1)))
