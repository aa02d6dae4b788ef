"""The pool's order of things, with a stand-in for Ray: deaths, limits, and what is taken when."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.artifacts.config import ExecutorConfig
from judgetrain.artifacts.executors.base import Work
from judgetrain.artifacts.executors.ray_workers import RayExecutor
from judgetrain.errors import EngineError
from tests.builders.fake_ray import FakeRay


def executor(patch: pytest.MonkeyPatch, ray: FakeRay, gpus: int = 1, **config: Any) -> RayExecutor:
    patch.setitem(sys.modules, "ray", ray)
    patch.setitem(sys.modules, "ray.exceptions", ray.exceptions)
    return RayExecutor(ExecutorConfig(type="ray", **config), gpus)


@settings(max_examples=40, deadline=None)
@given(
    shards=st.integers(0, 12),
    workers=st.integers(1, 5),
    fatal=st.dictionaries(st.integers(0, 11), st.integers(1, 2), max_size=6),
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
            assert len(taken) <= number + workers + 1, "a shard is taken when there is room for it"
            assert done.index not in came
            came[done.index] = done.result
        assert came == {i: 10 * i + 1 for i in range(shards)}
        assert ray.most <= workers and len(ray.alive) == (workers if shards else 0)
        assert len(ray.begun) == shards + sum(n for i, n in fatal.items() if i < shards)
        pool.close()
        assert not ray.alive


def test_a_shard_that_kills_every_worker_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = executor(monkeypatch, FakeRay(lambda index, times: index == 2), workers=2)
    done: list[Any] = []
    with pytest.raises(EngineError, match="workers died .* the last over shard 2"):
        done.extend(pool.run(Work(process=lambda i, x: x), ((i, i) for i in range(9))))
    assert {each.index for each in done} == {*range(9)} - {2}, "what others can finish is finished"


@pytest.mark.parametrize(
    ("resources", "config", "gpus", "expected"),
    [
        ({"CPU": 4.0}, {}, 1, (4, 0.0)),
        ({"CPU": 64.0, "GPU": 8.0}, {}, 1, (8, 1.0)),
        ({"CPU": 64.0, "GPU": 8.0}, {}, 4, (2, 4.0)),
        ({"CPU": 6.0, "GPU": 8.0}, {"cpus_per_worker": 2.0}, 1, (3, 1.0)),
        ({"CPU": 64.0, "GPU": 8.0}, {"gpus_per_worker": 0.5}, 1, (16, 0.5)),
        ({"CPU": 64.0, "GPU": 8.0}, {"workers": 3}, 1, (3, 1.0)),
    ],
)
def test_as_many_workers_as_fit(
    resources: dict[str, float],
    config: dict[str, Any],
    gpus: int,
    expected: tuple[int, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = FakeRay(lambda index, times: False, resources)
    list(executor(monkeypatch, ray, gpus, **config).run(Work(process=lambda i, x: x), [(0, 0)]))
    assert (len(ray.alive), ray.asked["num_gpus"]) == expected


def test_a_cluster_without_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(lambda index, times: False, {"CPU": 8.0, "GPU": 2.0})
    with pytest.raises(EngineError, match="no worker of 4 GPU and 1 CPU fits on a cluster with 2 GPU, 8 CPU"):
        list(executor(monkeypatch, ray, 4).run(Work(process=lambda i, x: x), [(0, 0)]))


def test_a_call_that_was_left_leaves_no_shard_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(lambda index, times: False)
    pool = executor(monkeypatch, ray, workers=2)
    next(pool.run(Work(process=lambda i, x: "first"), ((i, i) for i in range(9))))
    assert [d.result for d in pool.run(Work(process=lambda i, x: "second"), [(0, 0), (1, 1)])] == ["second"] * 2


def test_secrets_do_not_go_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    from judgetrain.artifacts.executors.ray_workers import connect

    ray, told = FakeRay(lambda index, times: False), {}
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(ray, "is_initialized", lambda: False, raising=False)
    monkeypatch.setattr(ray, "init", lambda **settings: told.update(settings), raising=False)
    for name in ("HF_TOKEN", "VLLM_API_KEY", "OPENAI_API_KEY", "HF_HOME", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "x")
    connect(ExecutorConfig(type="ray", address="auto"))
    passed = told["runtime_env"]["env_vars"]
    assert {"HF_HOME", "TOKENIZERS_PARALLELISM"} <= {*passed}
    assert not {"HF_TOKEN", "VLLM_API_KEY", "OPENAI_API_KEY"} & {*passed}
    assert told["address"] == "auto"
