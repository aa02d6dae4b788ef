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
        "dpo",
        "who judges, as in evaluate.methods: base, initial, sft, dpo, rl, teacher, external, a judge's directory or "
        "its id on the Hub (@3 behind any of these: 3 branches in place of one), the same or any model asked once "
        "(pairwise:DIR, single_token:DIR), scorer:NAME, or random, first, longer",
        content=beside(method_directory),
    )
    source: SourceConfig = key(
        SourceConfig,
        "the comparisons: a file (JSON lines or array, CSV, Parquet), a Hub data set, or type world; adapter reads the "
        "rows of published benchmarks",
        active_if=lambda c: not c.systems,
    )
    systems: list[str] = key(
        [],
        "in place of source: files or globs of several systems' answers to the same prompts (alpaca_eval's outputs, "
        "model_answer files of Arena-Hard), compared pair by pair",
        content=beside(lambda path, owner: path),
    )
    baseline: str | None = key(
        None, "compare this system with each other one, as A, and no others", active_if=lambda c: c.systems
    )
    shard_size: int = key(64, "comparisons finished together; the unit of resume", low=1)
