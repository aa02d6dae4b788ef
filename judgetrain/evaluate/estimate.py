"""What the judges of stage ``evaluate`` that are paid for are expected to cost, before they are asked anything."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.answers import CostProbe, Costs, described
from judgetrain.engines.config import EngineConfig
from judgetrain.evaluate.hooks import calls
from judgetrain.evaluate.runners import runner_of
from judgetrain.evaluate.runners.base import Evaluation
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.settings import EXTERNAL


def estimate(settings: EvaluateSettings, inputs: Callable[[], Mapping[str, Path]]) -> Iterator[str]:
    """The lines of a dry run of stage evaluate; its judges are not made for it."""
    found = dict(estimated(settings))
    yield f"evaluate: dry run for {', '.join(found)}, expected"
    total = CostProbe().costs
    for costs in found.values():
        for step, cost in costs.items():
            total[step] += cost
    yield from described(total, settings.evaluate, "evaluate")


def estimated(settings: EvaluateSettings) -> Iterator[tuple[str, Costs]]:
    """The methods that ask a model that is paid for, each with its costs by step.

    Their runners go through all benchmarks with a :class:`~judgetrain.engines.answers.CostProbe` in the model's
    place, in a directory of which nothing stays. Answers that are kept already, and cost nothing, count like others.
    """
    benchmarks, methods = settings.benchmarks, settings.evaluated
    further = [each for _, make, _ in calls("benchmarks", settings) for each in make(settings, benchmarks, methods)]
    for method in methods:
        asked_of = method.names_model and method.target in EXTERNAL
        engine: EngineConfig | None = getattr(settings, method.target) if asked_of else None
        if engine is None or not engine.paid:
            continue
        probe = CostProbe(name=engine.model_name)
        changes: dict[str, Any] = {method.target: probe}
        acted = replace(settings, **changes)
        if acted.judge is not None:  # a probe's replies cannot be read, and are no reason to ask again
            acted = replace(acted, judge=acted.judge.changed(retries=0))
        with tempfile.TemporaryDirectory(prefix="judgetrain-estimate-") as folder:
            out = StageRun(Path(folder) / "a" / "b" / "c", "evaluate", settings.seed, Console(silent=True))
            asked = [*benchmarks, *(each.benchmark for each in further if method in each.methods)]
            evaluation = Evaluation(settings=acted, benchmarks=asked, methods=[method], inputs={}, out=out)
            list(runner_of(method).run(method, evaluation))
        yield f"{method.text} ({engine.model_name})", probe.costs
