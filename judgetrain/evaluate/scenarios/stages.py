"""Stage scenarios: what it reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from judgetrain.artifacts.stages import Stage, at
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.stages import check_benchmarks
from judgetrain.errors import ConfigError
from judgetrain.judges.settings import ModelSettings


@dataclass(frozen=True, kw_only=True)
class ScenariosSettings(ModelSettings):
    """Stage scenarios."""

    source: SourceConfig | None = at("evaluate.scenarios")
    benchmarks: list[BenchmarkConfig] = at("evaluate.benchmarks")
    runs: list[str] = at("scenarios.runs")

    @classmethod
    def of_world(cls, config: Any) -> bool:
        """Whether a benchmark is of the world."""
        return any(b.source.type == "world" for b in config.evaluate.benchmarks)

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """What the classifier learns from, where nothing is named."""
        return {*super().unused(config), *(() if config.evaluate.scenarios.path else ("source",))}


def _check_scenarios(config: Any) -> None:
    if not config.evaluate.scenarios.path:
        raise ConfigError(
            "evaluate.scenarios.path is empty: name queries with a category; a classifier learns from them"
        )
    config.evaluate.scenarios.check("evaluate.scenarios")
    check_benchmarks("evaluate.benchmarks", config.evaluate.benchmarks)


SCENARIOS = Stage(
    name="scenarios",
    settings=ScenariosSettings,
    code="judgetrain.evaluate.scenarios.stage:run",
    artifact="evaluation",
    inputs=lambda config: ("cluster",),
    check=_check_scenarios,
)
