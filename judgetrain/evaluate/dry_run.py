"""The dry run of stage ``evaluate``: what the models that are paid for would cost."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.answers import CostProbe, Costs, described
from judgetrain.engines.config import EngineConfig
from judgetrain.evaluate.hooks import Further, calls
from judgetrain.evaluate.runners import run_method
from judgetrain.evaluate.runners.base import Evaluation
from judgetrain.evaluate.runners.responses import score_responses
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.settings import EXTERNAL


def estimate(settings: EvaluateSettings, inputs: Callable[[], Mapping[str, Path]]) -> Iterator[str]:
    """Yield the lines of a dry run of stage evaluate; its judges are not made for it."""
    costs_of = dict(estimated(settings))
    yield f"evaluate: dry run for {', '.join(costs_of)}, expected"
    # Empty, and of the type that adds up costs by step.
    total = CostProbe().costs
    for costs in costs_of.values():
        for step, cost in costs.items():
            total[step] += cost
    yield from described(total, settings.evaluate, "evaluate")


def estimated(settings: EvaluateSettings) -> Iterator[tuple[str, Costs]]:
    """Yield the methods that ask a model that is paid for, each with its costs by step.

    They go through all benchmarks with a :class:`~judgetrain.engines.answers.CostProbe` in the model's
    place, in a directory of which nothing stays. Answers that are kept already, and cost nothing, count like others.
    """
    benchmarks = settings.benchmarks
    methods = settings.evaluated
    # Attacks and the like are asked about, too, and cost as much.
    derived: list[Further] = []
    for _, make, _ in calls("benchmarks", settings):
        derived.extend(make(settings, benchmarks, methods))

    for method in methods:
        engine: EngineConfig | None = None
        if method.names_model and method.target in EXTERNAL:
            engine = getattr(settings, method.target)
        if engine is None or not engine.paid:
            continue
        probe = CostProbe(name=engine.model_name)
        changes: dict[str, Any] = {method.target: probe}
        if settings.judge is not None:
            # A probe's replies cannot be read, and are no reason to ask again.
            changes["judge"] = settings.judge.changed(retries=0)
        with tempfile.TemporaryDirectory(prefix="judgetrain-estimate-") as folder:
            # An artifact lies three folders below its home.
            out = StageRun(Path(folder) / "a" / "b" / "c", "evaluate", settings.seed, Console(silent=True))
            evaluation = Evaluation(
                settings=replace(settings, **changes),
                benchmarks=[*benchmarks, *(item.benchmark for item in derived if method in item.methods)],
                methods=[method],
                inputs={},
                out=out,
            )
            # Results come one by one: all must be drawn for the probe to count them.
            list(run_method(method, evaluation))
            if method in settings.scoring:
                of_responses = [benchmark.asked for benchmark in settings.responses]
                list(score_responses(method, replace(evaluation, benchmarks=of_responses)))
        # The directory is gone by then: the costs are all that is left.
        yield f"{method.text} ({engine.model_name})", probe.costs
