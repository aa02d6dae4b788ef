"""Stage stress."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.engines.config import AnyEngine, LimitsConfig, engine_key
from judgetrain.judges.method import method_directory
from judgetrain.keys import beside, key

MODE = "anchor"
"""How a judge that compares gets to a score a response: one comparison each, 256 of them; all pairs would be 32,640."""
SHARD = 2
"""Prompts finished together, with all of their responses; the unit of resume."""
RESAMPLES = 1000
"""Of prompts, for the intervals."""


@dataclass
class StressConfig(LimitsConfig):
    """Stage stress: best of n responses by a proxy (a judge, a scorer, a baseline), measured by the world's truth."""

    methods: list[str] = key(
        ["dpo", "longer"],
        "the proxies: judges as in verdicts.judge (dpo, dpo@3, ./my-judge, pairwise:external), scorer:NAME, longer, "
        "random",
        content=beside(method_directory),
    )
    prompts: int = key(16, "the world's first held-out ones; fewer than 8 are told without words", low=2)
    writer: AnyEngine = engine_key(None, "who writes the responses, sampled at temperature 1, 512 tokens at most")
    samples: int = key(256, "responses to each prompt; n goes up to as many", low=2, high=4096)
