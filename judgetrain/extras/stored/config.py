"""Verdicts read from files (docs/benchmarks.md)."""

from dataclasses import dataclass

from judgetrain.data.config import SourceConfig
from judgetrain.keys import key


@dataclass
class StoredConfig:
    """Verdicts read from a file, as a method called ``stored:NAME``."""

    name: str = key("", "the method is called stored:NAME")
    benchmark: str = key("", "name of the benchmark that the verdicts are about; rows are matched by its ids")
    source: SourceConfig = key(SourceConfig, "where the verdicts are; without a path, the benchmark's own rows")
    where: dict[str, str] = key({}, "take only rows whose columns have these values")
    verdict_ab: str = key("verdict_ab", "column of the verdict with the responses as they are")
    verdict_ba: str = key("", "column of the verdict with the responses exchanged; empty: verdict_ab is for both")
    ba_mirrored: bool = key(False, "verdict_ba names the responses as in the benchmark, not as they were shown")
    labels: dict[str, str] = key({}, "how verdicts are written -> A, B, tie, unreadable or (one for both) conflict")


@dataclass
class StoredVerdictsConfig:
    """Published predictions beside one's own judges."""

    verdicts: list[StoredConfig] = key([], "verdicts read from files, methods stored:NAME of evaluate.methods")
