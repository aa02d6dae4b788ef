"""Settings of stage scenarios."""

from dataclasses import dataclass

from judgetrain.data.config import SourceConfig
from judgetrain.keys import beside, key


@dataclass
class ScenariosConfig:
    """Stage scenarios: of what kinds training dialogues and ``evaluate.benchmarks`` are."""

    queries: SourceConfig = key(
        SourceConfig, "queries with a category, which a classifier learns from; benchmarks' own groups are kept"
    )
    runs: list[str] = key(
        [],
        "other training sets: directories of their finished stage scenarios, or globs of them",
        content=beside(lambda directory, owner: f"{directory}/*.json*"),
    )
