"""Stage judge."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.data.config import SourceConfig
from judgetrain.engines.config import LimitsConfig
from judgetrain.judges.method import method_directory
from judgetrain.keys import beside, key


@dataclass
class VerdictsConfig(LimitsConfig):
    """Stage judge: verdicts with reasons on comparisons that need no labels."""

    judge: str = key(
        "",
        "who judges, as in evaluate.methods: a directory, an id on the Hub, dpo@3, external (docs/using.md)",
        content=beside(method_directory),
    )
    source: SourceConfig = key(
        SourceConfig,
        "the comparisons: a file, a Hub data set, or type world; adapter reads rows of published benchmarks",
        active_if=lambda c: not c.systems,
    )
    systems: list[str] = key(
        [],
        "in place of source: files of systems' answers to the same prompts, compared pair by pair",
        content=beside(lambda path, owner: path),
    )
    baseline: str | None = key(
        None, "compare this system with each other one, as A, and no others", active_if=lambda c: c.systems
    )
    reasons: bool | None = key(
        None,
        "write reasons, or scores alone (judge.reasons), in this stage; None: as judge.reasons says",
        active_if=lambda c: c.reasons is not None,
    )
    shard_size: int = key(64, "comparisons finished together; the unit of resume", low=1)
