"""Stage scenarios: what it reads, and what must hold before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.artifacts.stages import Stage, at, needs
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.stages import check_benchmarks
from judgetrain.errors import ConfigError
from judgetrain.judges.settings import ModelSettings


@dataclass(frozen=True, kw_only=True)
class ScenariosSettings(ModelSettings):
    """Stage scenarios."""

    source: SourceConfig | None = at("evaluate.scenarios", active_if=lambda settings: settings.source.path)
    benchmarks: list[BenchmarkConfig] = at("evaluate.benchmarks")
    runs: list[str] = at("scenarios.runs")

    @property
    def reads_world(self) -> bool:
        """Whether a benchmark is of the world."""
        return any(b.source.type == "world" for b in self.benchmarks)


def _check(settings: ScenariosSettings) -> None:
    if settings.source is None:
        raise ConfigError(
            "evaluate.scenarios.path is empty: name queries with a category; a classifier learns from them"
        )
    settings.source.check("evaluate.scenarios")
    check_benchmarks("evaluate.benchmarks", settings.benchmarks)


SCENARIOS = Stage(
    name="scenarios", settings=ScenariosSettings, artifact="evaluation", inputs=needs("cluster"), check=_check
)
