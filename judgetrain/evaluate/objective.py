"""The number that a job gives to a sweeper: any metric of ``stage=evaluate``, over the development split.

What is chosen by a number is flattered by it, so the number that hyperparameters are chosen by is not the one reported.
"""

import json
import re
from pathlib import Path

from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.report.table import one_each
from judgetrain.judges.method import Method

SHAPE = "BENCHMARK/METHOD/METRIC or BENCHMARK/METHOD@BRANCHES/METRIC, as in world/dpo@1/agreement"


def parse_objective(objective: str) -> tuple[str, str, int | None, str]:
    """Benchmark, method, number of branches (None: the largest) and metric (ConfigError: not of that shape)."""
    found = re.fullmatch(r"([^/]+)/(.+?)(?:@([^@/]*))?/([^/]+)", objective)
    if found is None or (found[3] is not None and not found[3].isdigit()):
        raise ConfigError(f"objective={objective!r}: expected {SHAPE}")
    return found[1], found[2], None if found[3] is None else int(found[3]), found[4]


def check_objective(objective: str, settings: EvaluateConfig, stage: str = "evaluate") -> None:
    """Check before anything runs that the evaluation will have the row; its metrics are known only afterwards
    (ConfigError: not of that shape, another stage than evaluate, or a benchmark, a method or branches that are not
    evaluated; lists what is)."""
    if stage != "evaluate":
        raise ConfigError(f"objective={objective!r}: is a metric of stage=evaluate, not of stage={stage}")
    benchmark, method, branches, _ = parse_objective(objective)
    methods = {m.name: m for m in map(Method.parse, settings.methods)}
    known = {"benchmarks": (benchmark, [b.name for b in settings.benchmarks]), "methods": (method, [*methods])}
    for key, (name, names) in known.items():
        if name not in names:
            raise ConfigError(f"objective={objective!r}: evaluate.{key} has no {name!r}; it has {', '.join(names)}")
    there = methods[method].branches(settings.branches)
    if branches is not None and branches not in (there or [0]):
        asked = f"with {', '.join(map(str, there))}" if there else "without branches"
        raise ConfigError(f"objective={objective!r}: {method} is asked {asked}, not with {branches}")


def check_search(objective: str | None, settings: EvaluateConfig) -> None:
    """Check before anything runs what a sweeper that chooses by the objective, as Optuna does, needs (ConfigError: no
    objective, or none that is measured on other comparisons than those of the report)."""
    if objective is None:
        raise ConfigError(f"objective is empty, but the sweeper chooses by it: set it to {SHAPE}, with stage=evaluate")
    if not settings.dev_share:
        told = f"objective={objective!r}: evaluate.dev_share is 0, and a search is not to choose by what is reported"
        raise ConfigError(f"{told}; set evaluate.dev_share=0.3, the share of comparisons to choose by")


def described(objective: str, value: float, settings: EvaluateConfig) -> str:
    """The value in words, with what it was measured on."""
    reported = "the comparisons that are reported: what is chosen by it is flattered by it"
    measured = "the development split, of which the report has nothing" if settings.dev_share else reported
    return f"objective: {objective} = {value:.4f} on {measured}"


def objective_value(directory: Path, objective: str) -> float:
    """The value over an evaluation's development split, or where it has none, over all that it reports (ConfigError: no
    such row or metric, or one without a value; lists what there is)."""
    benchmark, method, branches, metric = parse_objective(objective)
    development = directory / "development.json"
    found_in = development if development.is_file() else directory / "metrics.json"
    rows = [MetricRow.from_row(row) for row in json.loads(found_in.read_text(encoding="utf-8"))]
    of_method = [row for row in rows if (row.benchmark, row.method) == (benchmark, method)]
    found = one_each(of_method) if branches is None else [row for row in of_method if row.branches == branches]
    if not found:
        there = (f"{row.benchmark}/{row.key}" for row in rows)
        raise ConfigError(f"objective={objective!r}: the evaluation has no such row; it has {', '.join(there)}")
    metrics = found[0].to_row()
    value = metrics.get(metric)
    if not isinstance(value, (int, float)):
        numbers = [k for k, v in metrics.items() if isinstance(v, (int, float))]
        raise ConfigError(f"objective={objective!r}: no number called {metric!r}; there are {', '.join(numbers)}")
    return float(value)
