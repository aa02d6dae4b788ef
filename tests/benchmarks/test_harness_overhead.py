"""The benchmark of the harness counts the engines' time as theirs and the rest as the harness's."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from judgetrain.data import world
from judgetrain.engines import registry
from judgetrain.engines.base import Completion, Request
from judgetrain.judges.prompting.prompts import load_prompt_set
from tests.benchmarks import harness_overhead
from tests.benchmarks.harness_overhead import Clock, Overhead, measure
from tests.builders.scripted import ScriptedEngine, noisy

LOADING, CALL = 0.3, 0.1


class SlowEngine(ScriptedEngine):
    """Takes a known time to load and to answer, on a clock that nothing else moves."""

    calls, now = 0, 0.0

    def __init__(self) -> None:
        super().__init__(noisy)
        SlowEngine.now += LOADING

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        SlowEngine.calls += 1
        SlowEngine.now += CALL
        return super().generate(requests, seed)


def test_time_is_counted_where_it_is_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = tmp_path / "judge"
    shutil.copytree(Path(world.__file__).parent / "base", judge)
    load_prompt_set("compact").save(judge)

    def make_engine(*args: Any, **options: Any) -> SlowEngine:
        return SlowEngine()

    monkeypatch.setattr(registry, "make_engine", make_engine)
    clock = SimpleNamespace(perf_counter=lambda: SlowEngine.now, process_time=lambda: SlowEngine.now)
    monkeypatch.setattr(harness_overhead, "time", clock)
    found = measure(
        [f"evaluate.methods=[{judge}]", "dialogues.world.eval_comparisons=12", "evaluate.branches=[1,2]",
         "evaluate.bootstrap=20", f"output_dir={tmp_path / 'out'}", "track.tracker=none"]
    )  # fmt: skip
    assert (found.loading.calls, found.generating.calls, found.whole.calls) == (1, SlowEngine.calls, 1)
    for clock in ("wall", "process"):
        spent = [getattr(part, clock) for part in (found.loading, found.generating, found.whole)]
        assert spent == pytest.approx([LOADING, SlowEngine.calls * CALL, LOADING + SlowEngine.calls * CALL])
    assert registry.make_engine is make_engine, "what was replaced for the measurement is put back"


def test_the_share_is_of_the_engines_own_time() -> None:
    found = Overhead(Clock(13.0, 9.0), Clock(2.0, 0.5), Clock(10.0, 8.0))
    assert found.shares == (pytest.approx(0.1), pytest.approx(0.0625))
    assert "10.0% on the clock, 6.2% of the process" in str(found)
