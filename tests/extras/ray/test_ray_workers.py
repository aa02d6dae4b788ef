"""The pool's order of things, with a stand-in for Ray: deaths, limits, and what is taken when."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.artifacts.executor import ExecutorConfig, Work
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import EngineError, EngineLostError
from judgetrain.extras.ray import executor as ray_workers
from judgetrain.extras.ray.cluster import connect
from judgetrain.extras.ray.executor import DEATHS, WORST, RayExecutor
from tests.builders.fake_ray import FakeRay, RayTaskError

SAME: Work[Any] = Work(process=lambda i, x: x)


def executor(patch: pytest.MonkeyPatch, ray: FakeRay, gpus: int = 1, **config: Any) -> RayExecutor:
    """A pool; what it says is in ``ray.said``."""
    patch.setitem(sys.modules, "ray", ray)
    patch.setitem(sys.modules, "ray.exceptions", ray.exceptions)
    ray.said = []  # type: ignore[attr-defined]
    return RayExecutor(ExecutorConfig(type="ray", **config), gpus, ray.said.append)  # type: ignore[attr-defined]


@settings(max_examples=40, deadline=None)
@given(
    shards=st.integers(0, 12),
    workers=st.integers(1, 5),
    fatal=st.dictionaries(st.integers(0, 11), st.integers(1, 2), max_size=3),
)
def test_every_shard_comes_once_whoever_dies(shards: int, workers: int, fatal: dict[int, int]) -> None:
    ray, taken = FakeRay(lambda index, times: times <= fatal.get(index, 0)), []

    def items() -> Iterator[tuple[int, int]]:
        for index in range(shards):
            taken.append(index)
            yield index, index * 10

    with pytest.MonkeyPatch.context() as patch:
        pool, came = executor(patch, ray, workers=workers), {}
        for number, done in enumerate(pool.run(Work(process=lambda i, x: x + 1), items())):
            assert len(taken) <= number + workers + 1 + len(fatal), "a shard is taken when there is room for it"
            assert done.index not in came
            came[done.index] = done.result
        assert came == {i: 10 * i + 1 for i in range(shards)}
        assert ray.most <= min(workers, 4) and len(ray.alive) == (workers if shards else 0)
        assert len(ray.begun) == shards + sum(n for i, n in fatal.items() if i < shards)
        pool.close()
        assert not ray.alive


@pytest.mark.parametrize(
    ("node", "asked", "alive", "pools"),
    [
        # Two 7B models, a 72B one on four GPUs, and a 7B one again: eight workers, the same eight, two, and eight.
        ({"CPU": 64.0, "GPU": 8.0}, (1, 1, 4, None, 1), [8, 8, 2, 2, 8], [0, 0, 1, 1, 2]),
        ({"CPU": 16.0, "GPU": 8.0}, (0, None, 0), [16, 2, 16], [0, 1, 2]),  # without a model no GPU is taken
        ({"CPU": 4.0}, (1, 4), [4, 4], [0, 0]),
    ],
)
def test_workers_have_the_gpus_of_the_model_whose_turn_it_is(
    node: dict[str, float], asked: tuple[int | None, ...], alive: list[int], pools: list[int], monkeypatch: Any
) -> None:
    ray = FakeRay(nodes=[node])
    pool, found = executor(monkeypatch, ray, gpus=4), list[set[int]]()
    for gpus in asked:
        assert len(list(pool.run(Work(process=lambda i, x: x, gpus=gpus), ((i, i) for i in range(20))))) == 20
        found.append({id(actor) for actor in ray.alive})
    assert [*map(len, found)] == alive
    for one, other in combinations(range(len(asked)), 2):
        assert (found[one] == found[other]) is (pools[one] == pools[other])
    pool.close()
    assert not ray.alive


@pytest.mark.parametrize(
    ("nodes", "config", "gpus", "expected"),
    [
        ([{"CPU": 4.0}], {}, 1, (4, 0.0)),
        ([{"CPU": 64.0, "GPU": 8.0}], {}, 1, (8, 1.0)),
        ([{"CPU": 64.0, "GPU": 8.0}], {}, 4, (2, 4.0)),
        ([{"CPU": 64.0, "GPU": 2.0}, {"CPU": 64.0, "GPU": 7.0}], {}, 4, (1, 4.0)),
        ([{"CPU": 3.0, "GPU": 8.0}], {}, 1, (3, 1.0)),
        ([{"CPU": 64.0, "GPU": 8.0}], {"workers": 3}, 1, (3, 1.0)),
    ],
)
def test_as_many_workers_as_fit_on_the_nodes(
    nodes: list[dict[str, float]],
    config: dict[str, Any],
    gpus: int,
    expected: tuple[int, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = FakeRay(nodes=nodes)
    list(executor(monkeypatch, ray, gpus, **config).run(SAME, [(0, 0)]))
    assert (len(ray.alive), ray.asked["num_gpus"]) == expected


def test_a_cluster_without_room_on_a_node_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(nodes=[{"CPU": 8.0, "GPU": 2.0}, {"CPU": 16.0, "GPU": 2.0}])
    message = r"no worker of 4 GPU, 1 CPU fits on a node .* 1 x 2 GPU, 8 CPU; 1 x 2 GPU, 16 CPU"
    with pytest.raises(EngineError, match=message):
        list(executor(monkeypatch, ray, 4).run(SAME, [(0, 0)]))


def test_workers_that_are_never_placed_end_the_run_with_what_the_nodes_have(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(nodes=[{"CPU": 8.0, "GPU": 2.0}] * 2)
    monkeypatch.setattr(ray_workers, "PATIENCE", 0.1)
    pool = executor(monkeypatch, ray, 4, workers=2)
    with pytest.raises(EngineError) as caught:
        list(pool.run(SAME, [(0, 0)]))
    for part in ("executor.workers", "within 0.1 s", "needs 4 GPU, 1 CPU", "2 x 2 GPU, 8 CPU"):
        assert part in str(caught.value)
    pool.close()
    assert not ray.alive


def test_a_node_that_is_lost_costs_its_shards_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(nodes=[{"CPU": 2.0}] * 2)
    pool = executor(monkeypatch, ray, workers=4)
    came = []
    for done in pool.run(SAME, ((i, i) for i in range(20))):
        came.append(done.index)
        if len(came) == 5:
            ray.lose(1)
    assert sorted(came) == [*range(20)]
    assert len(ray.begun) == 20 + 2, "a shard of each worker that was on the node is begun again"


def test_workers_that_cannot_start_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        EngineError, match="died .* the last before it was ready .*: most often a node lacks this environment"
    ):
        list(executor(monkeypatch, FakeRay(starts=False), workers=2).run(SAME, [(0, 0)]))


def test_where_no_worker_can_start_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(nodes=[{"CPU": 1.0}] * 2, barren={1})
    pool = executor(monkeypatch, ray, workers=2)
    assert {done.index for done in pool.run(SAME, ((i, i) for i in range(20)))} == {*range(20)}
    assert len(ray.alive) == 1
    assert len(ray.actors) == 2 + DEATHS * 2, "those that cannot start are not tried for ever"
    assert [*map(str, ray.said)] == [  # type: ignore[attr-defined]
        "executor=ray: a worker could not start, 7 times in a row, and is left out: 1 go on (the actor died): most "
        "often a node lacks this environment: the same Python, packages and paths are needed on every one"
    ]
    pool.close()


def test_a_bad_shard_waits_for_the_others_and_ends_the_run_soon_whatever_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = FakeRay(lambda index, times: index == 0, nodes=[{"CPU": 64.0}])
    done: list[Any] = []
    with pytest.raises(EngineError, match="workers died .* the last over shard 0"):
        done.extend(executor(monkeypatch, ray, workers=64).run(SAME, ((i, i) for i in range(300))))
    assert {each.index for each in done} == {*range(1, 300)}
    tries = [place for place, index in enumerate(ray.begun) if index == 0]
    assert len(tries) == WORST and len(ray.begun) == 299 + WORST
    assert tries[1] >= 300 - 64, "it waits until the others are under way or done"


def test_a_lost_engine_is_a_death_and_its_shard_is_done_by_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    once = tmp_path / "once"

    def process(index: int, item: Any) -> Any:
        if index == 3 and not once.exists():
            once.touch()
            raise EngineLostError("vLLM's process has ended")
        return item

    ray = FakeRay()
    pool = executor(monkeypatch, ray, workers=2)
    done = list(pool.run(Work(process=process), ((i, i) for i in range(6))))
    assert sorted(each.index for each in done) == [*range(6)] and sorted(ray.begun) == [0, 1, 2, 3, 3, 4, 5]
    assert len(ray.alive) == 2


def test_an_error_of_ours_is_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay()

    def process(index: int, item: Any) -> Any:
        raise ZeroDivisionError("ours")

    with pytest.raises(RayTaskError, match="ours"):
        list(executor(monkeypatch, ray, workers=1).run(Work(process=process), [(0, 0)]))
    assert ray.begun == [0]


@pytest.mark.parametrize(("lingers", "said"), [(0.3, []), (3600, ["2 workers have not ended within 1 s"])])
def test_close_waits_until_the_workers_are_gone_and_no_longer_than_it_must(
    lingers: float, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = FakeRay(lingers=lingers)
    pool = executor(monkeypatch, ray, workers=2)
    monkeypatch.setattr(ray_workers, "ENDING", 1.0)
    list(pool.run(SAME, [(0, 0)]))
    pool.close()
    assert [str(line).partition(": ")[2].partition(":")[0] for line in ray.said] == said  # type: ignore[attr-defined]
    assert said or all(actor.died and actor.died <= time.monotonic() for actor in ray.actors)


class Model:
    """Says in a file when it is closed."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def close(self) -> None:
        self.log.write_text("closed")


def test_a_worker_closes_its_model_before_it_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "log"
    pool = executor(monkeypatch, FakeRay(), workers=1)
    with loaded_once(lambda: Model(log)) as model:
        list(pool.run(Work(process=lambda i, x: str(model().log)), [(0, 0)]))
        assert not log.exists()
        pool.close()
        assert log.read_text() == "closed"


def test_a_call_that_was_left_leaves_no_shard_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay()
    pool = executor(monkeypatch, ray, workers=2)
    next(pool.run(Work(process=lambda i, x: "first"), ((i, i) for i in range(9))))
    assert [d.result for d in pool.run(Work(process=lambda i, x: "second"), [(0, 0), (1, 1)])] == ["second"] * 2


def test_secrets_do_not_go_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    ray, told = FakeRay(), {}
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(ray, "is_initialized", lambda: False, raising=False)
    monkeypatch.setattr(ray, "init", lambda **settings: told.update(settings), raising=False)
    for name in ("HF_TOKEN", "VLLM_API_KEY", "OPENAI_API_KEY", "HF_HOME", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    connect()
    passed = told["runtime_env"]["env_vars"]
    assert {"HF_HOME", "TOKENIZERS_PARALLELISM"} <= {*passed}
    assert not {"HF_TOKEN", "VLLM_API_KEY", "OPENAI_API_KEY"} & {*passed}
    assert told["address"] == "auto"
