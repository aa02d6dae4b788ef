"""The number that a job gives to a sweeper: any metric of ``stage=evaluate``, over the development split.

What is chosen by a number is flattered by it, so the number that hyperparameters are chosen by is not the one reported.
"""

import json
import re
from pathlib import Path
from typing import Any

from judgetrain.data.labelled import OVERALL
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.rows import MetricRow
from judgetrain.evaluate.report.table import one_each
from judgetrain.judges.method import Method

SHAPE = "BENCHMARK/METHOD/METRIC or BENCHMARK/METHOD@BRANCHES/METRIC, as in world/dpo@1/agreement"


def parse_objective(objective: str) -> tuple[str, str, int | None, str]:
    """Return the benchmark, the method, the number of branches and the metric that an objective names.

    Without a number of branches it is None, for the largest. An objective of another shape is refused (ConfigError).
    """
    # A method may hold slashes (a directory) and an @ (a revision): only the last part before the metric counts.
    match = re.fullmatch(r"([^/]+)/(.+?)(?:@([^@/]*))?/([^/]+)", objective)
    if match is None:
        raise ConfigError(f"objective={objective!r}: expected {SHAPE}")
    benchmark, method, branches, metric = match.groups()
    if branches is None:
        return benchmark, method, None, metric
    if not branches.isdigit():
        raise ConfigError(f"objective={objective!r}: expected {SHAPE}")
    return benchmark, method, int(branches), metric


def check_objective(objective: str, settings: EvaluateConfig, stage: str = "evaluate") -> None:
    """Check before anything runs that the evaluation will have the row; its metrics are known only afterwards.

    Args:
        objective: as of :func:`parse_objective`.
        settings: of the evaluation.
        stage: the stage that the command runs.

    Raises:
        ConfigError: not of that shape, another stage than evaluate, or a benchmark, a method or branches that are not
            evaluated; lists what is.
    """
    # Other stages write no metrics.json that a sweeper could read.
    if stage != "evaluate":
        raise ConfigError(f"objective={objective!r}: is a metric of stage=evaluate, not of stage={stage}")
    benchmark, name, branches, _ = parse_objective(objective)
    benchmarks = [config.name for config in settings.benchmarks]
    if benchmark not in benchmarks:
        raise ConfigError(
            f"objective={objective!r}: evaluate.benchmarks has no {benchmark!r}; it has {', '.join(benchmarks)}"
        )
    # By the names that stand in the metrics, which are not always those of the configuration.
    methods: dict[str, Method] = {}
    for text in settings.methods:
        method = Method.parse(text)
        methods[method.name] = method
    if name not in methods:
        raise ConfigError(f"objective={objective!r}: evaluate.methods has no {name!r}; it has {', '.join(methods)}")

    numbers = methods[name].branches(settings.branches)
    if branches is None or branches in numbers:
        return
    if numbers:
        listed = ", ".join(map(str, numbers))
        raise ConfigError(f"objective={objective!r}: {name} is asked with {listed}, not with {branches}")
    # A method without branches stands in the metrics with 0 of them.
    if branches != 0:
        raise ConfigError(f"objective={objective!r}: {name} is asked without branches, not with {branches}")


def check_search(objective: str | None, settings: EvaluateConfig) -> None:
    """Check before anything runs that a sweeper that chooses by the objective, as Optuna does, has one.

    Raises:
        ConfigError: no objective, or none that is measured on other comparisons than those of the report.
    """
    if objective is None:
        raise ConfigError(f"objective is empty, but the sweeper chooses by it: set it to {SHAPE}, with stage=evaluate")
    # A search takes the best of many numbers, which is better than it will be on other comparisons.
    if not settings.dev_share:
        raise ConfigError(
            f"objective={objective!r}: evaluate.dev_share is 0, and a search is not to choose by what is reported; "
            "set evaluate.dev_share=0.3, the share of comparisons to choose by"
        )


def described(objective: str, value: float, settings: EvaluateConfig) -> str:
    """Return the value in words, with what it was measured on."""
    comparisons = "the comparisons that are reported: what is chosen by it is flattered by it"
    if settings.dev_share:
        comparisons = "the development split, of which the report has nothing"
    return f"objective: {objective} = {value:.4f} on {comparisons}"


def objective_value(directory: Path, objective: str) -> float:
    """Return the objective's value over an evaluation's development split, or without one over all that it reports.

    Args:
        directory: the evaluation's.
        objective: as of :func:`parse_objective`.

    Raises:
        ConfigError: no such row or metric, or one without a value; lists what there is.
    """
    benchmark, method, branches, metric = parse_objective(objective)
    # It is there where a share of the queries was set aside to choose by.
    file = directory / "development.json"
    if not file.is_file():
        file = directory / "metrics.json"
    all_rows = [MetricRow.from_row(row) for row in json.loads(file.read_text(encoding="utf-8"))]
    rows = [row for row in all_rows if row.benchmark == benchmark and row.method == method]
    if branches is None:
        rows = one_each(rows)
    else:
        rows = [row for row in rows if row.branches == branches]
    # Verdicts first: a method may have a row in either file.
    if rows:
        metrics: dict[str, Any] | None = rows[0].to_row()
    else:
        metrics = _rated(directory, benchmark, method, branches)
    if metrics is None:
        names = ", ".join(f"{row.benchmark}/{row.key}" for row in all_rows)
        raise ConfigError(f"objective={objective!r}: the evaluation has no such row; it has {names}")

    value = metrics.get(metric)
    if not isinstance(value, (int, float)):
        # Texts, intervals and groups are in the row, too.
        numbers = [name for name, entry in metrics.items() if isinstance(entry, (int, float))]
        raise ConfigError(f"objective={objective!r}: no number called {metric!r}; there are {', '.join(numbers)}")
    return float(value)


def _rated(directory: Path, benchmark: str, method: str, branches: int | None) -> dict[str, Any] | None:
    """Return a method's row on a benchmark of single responses, as a whole, as JSON has it; None where there is none.

    Arguments as of :func:`objective_value` and its objective.
    """
    file = directory / "development_ratings.json"
    if not file.is_file():
        file = directory / "ratings.json"
    rows: list[dict[str, Any]] = []
    # Without a benchmark of single responses there is no such file.
    if file.is_file():
        rows = json.loads(file.read_text(encoding="utf-8"))
    for row in rows:
        if (row["benchmark"], row["method"], row["criterion"]) != (benchmark, method, OVERALL):
            continue
        if branches in (None, row["branches"]):
            return row
    return None
