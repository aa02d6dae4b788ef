"""What the evaluation harness costs over the engine's own time, in one run on the quickstart's held-out comparisons.

    python -m tests.benchmarks.harness_overhead JUDGE_DIR [JUDGE_DIR ...] [key=value ...]

JUDGE_DIR: trained judges of the quickstart, as in outputs/artifacts/dpo/FINGERPRINT/model. Stage evaluate runs as the
command line runs it, whole: samples both orders, reads off every number of branches, computes metrics with their
bootstrap intervals, writes report and predictions. Timed inside of it: the engines' loading, and the engines'
``generate``. What is left of the stage is the harness. Seconds on the clock / of the process; imports that the stage
would be the first to make are made before, since every command pays them once.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from judgetrain.engines import registry
from judgetrain.engines.base import Completion, Engine, Request
from judgetrain.evaluate import stage
from judgetrain.pipeline.cli import main as judgetrain
from tests.benchmarks.common import parser_of


@dataclass
class Clock:
    """Seconds spent between starts and stops, on the clock and of the process."""

    wall: float = 0.0
    process: float = 0.0
    calls: int = 0

    def time(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function and add what it took."""
        wall, process = time.perf_counter(), time.process_time()
        try:
            return function(*args, **options)
        finally:
            self.wall += time.perf_counter() - wall
            self.process += time.process_time() - process
            self.calls += 1


class TimedEngine:
    """An engine whose ``generate`` is timed."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self.name = engine.name

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """What the engine gives."""
        return list(self._clock.time(self._engine.generate, requests, seed))

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()


@dataclass(frozen=True)
class Overhead:
    """A run of a stage: the whole stage, and in it the engines' loading and generating."""

    whole: Clock
    loading: Clock
    generating: Clock
    name: str = "evaluate"

    @property
    def shares(self) -> tuple[float, float]:
        """The harness over the engines' own time (generating), on the clock and of the process."""
        wall = self.whole.wall - self.loading.wall - self.generating.wall
        process = self.whole.process - self.loading.process - self.generating.process
        return wall / self.generating.wall, process / self.generating.process

    def __str__(self) -> str:
        rows = {
            f"stage {self.name}": self.whole,
            "engines loading": self.loading,
            "engines generating": self.generating,
        }
        lines = [f"{name:<20}{c.wall:8.1f} s / {c.process:8.1f} s, {c.calls} calls" for name, c in rows.items()]
        wall, process = (100 * share for share in self.shares)
        return "\n".join([*lines, f"harness over generating: {wall:.1f}% on the clock, {process:.1f}% of the process"])


def measure(arguments: Sequence[str], name: str = "evaluate", module: ModuleType = stage) -> Overhead:
    """Run a stage by the command line with ``arguments`` in this process and time it; ``module`` holds its ``run``.

    Raises:
        SystemExit: the command did not end well.
    """
    clocks = Overhead(Clock(), Clock(), Clock(), name)
    make_engine, run = registry.make_engine, module.run

    def timed_engine(*args: Any, **options: Any) -> Engine:
        return TimedEngine(clocks.loading.time(make_engine, *args, **options), clocks.generating)

    def timed_stage(*args: Any) -> None:
        clocks.whole.time(run, *args)

    argv = sys.argv
    sys.argv = ["judgetrain", f"stage={name}", *arguments]
    registry.make_engine, module.run = timed_engine, timed_stage  # type: ignore[attr-defined]
    try:
        code = judgetrain()
    finally:
        registry.make_engine, module.run, sys.argv = make_engine, run, argv  # type: ignore[attr-defined]
    if code:
        sys.exit(code)
    return clocks


def main(arguments: Sequence[str]) -> None:
    """Measure the judges named on the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("arguments", nargs="+", metavar="JUDGE_DIR or key=value")
    given = parser.parse_args(arguments).arguments
    judges = [str(Path(a).resolve()) for a in given if "=" not in a]
    if not judges:
        parser.error("name at least one JUDGE_DIR")
    for name in ("scipy.stats", "sklearn.linear_model", "transformers"):
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as output:
        wanted = f"evaluate.methods=[{','.join(judges)},random,first,longer]"
        overrides = [a for a in given if "=" in a]
        print(measure([wanted, f"output_dir={output}", "track.tracker=none", *overrides]))


if __name__ == "__main__":
    main(sys.argv[1:])
