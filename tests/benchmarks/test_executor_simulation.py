"""The simulation of the executor, against closed forms."""

from __future__ import annotations

import math

import pytest

from tests.benchmarks.executor_simulation import Cluster, drawn, simulated


@pytest.mark.parametrize("workers", [1, 3, 8, 256])
def test_equal_shards_without_failures_take_whole_rounds(workers: int) -> None:
    found = simulated([10.0] * 100, Cluster(workers=workers, load=5.0), 1)
    assert found.seconds == pytest.approx(5.0 + 10.0 * math.ceil(100 / workers))
    assert (found.useful, found.deaths) == (1000.0, 0)


def test_a_driver_that_takes_longer_than_the_workers_is_the_bottleneck() -> None:
    found = simulated([1.0] * 1000, Cluster(workers=256, driver=0.1), 1)
    assert found.seconds == pytest.approx(1000 * 0.1 + 1.0)
    assert found.driver == pytest.approx(100.0)


def test_no_worker_waits_while_shards_do() -> None:
    """Whatever the times: list scheduling ends at most one shard after the even share (Graham 1966)."""
    times = drawn([1.0, 2.0, 30.0], 12.0, 500, 3)
    for workers in (2, 7, 64):
        found = simulated(times, Cluster(workers=workers), 1)
        assert sum(times) / workers <= found.seconds <= sum(times) / workers + max(times)


def test_deaths_cost_their_shards_and_a_load_each() -> None:
    """The expected time of a shard that begins again until a worker lives as long: (e^(rs) - 1)(1/r + load)."""
    rate, service, load, shards = 3600 / 200.0, 60.0, 20.0, 4000
    found = simulated([service] * shards, Cluster(workers=1, load=load, deaths=rate), 5)
    per = rate / 3600
    expected = shards * math.expm1(per * service) * (1 / per + load)
    assert found.seconds == pytest.approx(expected, rel=0.05)
    assert found.deaths == pytest.approx(shards * math.expm1(per * service), rel=0.1)
