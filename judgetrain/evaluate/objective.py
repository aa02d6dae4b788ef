"""The number that a job gives to a sweeper: any metric of ``stage=evaluate``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from judgetrain.errors import ConfigError
from judgetrain.evaluate.sections import one_each

SHAPE = "BENCHMARK/METHOD/METRIC or BENCHMARK/METHOD@BRANCHES/METRIC, as in world/dpo@1/agreement"


def parse_objective(objective: str) -> tuple[str, str, int | None, str]:
    """Benchmark, method, number of branches (None: the chosen, else the largest) and metric.

    Raises:
        ConfigError: not of that shape.
    """
    benchmark, _, rest = objective.partition("/")
    name, _, metric = rest.rpartition("/")
    method, at, branches = name.rpartition("@")
    if not at:
        method, branches = name, ""
    if not (benchmark and method and metric) or (at and not branches.isdigit()):
        raise ConfigError(f"objective={objective!r}: expected {SHAPE}")
    return benchmark, method, int(branches) if at else None, metric


def objective_value(directory: Path, objective: str) -> float:
    """The value in an evaluation's ``metrics.json``; ``votes.agreement`` is the agreement among the votes.

    Raises:
        ConfigError: no such row or metric, or one without a value; lists what there is.
    """
    benchmark, method, branches, metric = parse_objective(objective)
    rows: list[dict[str, Any]] = json.loads((directory / "metrics.json").read_text(encoding="utf-8"))
    of_method = [row for row in rows if (row["benchmark"], row["method"]) == (benchmark, method)]
    found = one_each(of_method) if branches is None else [row for row in of_method if row["branches"] == branches]
    if not found:
        there = ", ".join(f"{r['benchmark']}/{r['method']}@{r['branches']}" for r in rows)
        raise ConfigError(f"objective={objective!r}: the evaluation has no such row; it has {there}")
    value: Any = found[0]
    for part in metric.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(
            f"objective={objective!r}: no number called {metric!r}; there are {', '.join(_numbers(found))}"
        )
    return float(value)


def _numbers(rows: Sequence[Any]) -> list[str]:
    return [k for k, v in rows[0].items() if isinstance(v, (int, float)) and not isinstance(v, bool)]
