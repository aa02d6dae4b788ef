"""Stage scenarios: what it reads, and what must hold before it runs."""

from dataclasses import dataclass

from judgetrain.artifacts.stages import Stage, at, by_name, needs
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.stages import check_benchmarks
from judgetrain.errors import ConfigError
from judgetrain.judges.settings import ModelSettings


@dataclass(frozen=True, kw_only=True)
class ScenariosSettings(ModelSettings):
    """Stage scenarios."""

    queries: SourceConfig = at("scenarios.queries")
    benchmarks: list[BenchmarkConfig] = at("evaluate.benchmarks")
    runs: list[str] = at("scenarios.runs")

    @property
    def uses_world(self) -> bool:
        """Return whether a benchmark is of the world."""
        return any(b.source.type == "world" for b in self.benchmarks)


def _check(settings: ScenariosSettings) -> None:
    if not settings.queries.path:
        raise ConfigError("scenarios.queries.path is empty: name a file of queries with a category, to learn from")
    settings.queries.check("scenarios.queries")
    check_benchmarks("evaluate.benchmarks", settings.benchmarks)


SCENARIOS = Stage(
    name="scenarios",
    settings=ScenariosSettings,
    inputs=needs("cluster"),
    check=_check,
    check_here=by_name("judgetrain.extras.scenarios.stage:check_here"),
    artifact="evaluation",
)
