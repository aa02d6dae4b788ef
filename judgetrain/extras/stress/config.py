"""Stage stress."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.data.config import SourceConfig
from judgetrain.engines.config import AnyEngine, LimitsConfig, engine_key
from judgetrain.judges.method import method_directory
from judgetrain.keys import beside, key

TRUTH = "truth"
"""The gold of the generated world: its hidden rule."""
MODE = "anchor"
"""How a judge that compares gets to a score a response: one comparison each, 256 of them; all pairs would be 32,640."""
SHARD = 2
"""Prompts finished together, with all of their responses; the unit of resume."""
RESAMPLES = 1000
"""Of prompts, for the intervals."""


@dataclass
class StressConfig(LimitsConfig):
    """Stage stress: best of n responses by a proxy (a judge, a scorer, a baseline), measured by a gold standard."""

    methods: list[str] = key(
        ["dpo", "longer"],
        "the proxies: judges as in verdicts.judge (dpo, dpo@3, ./my-judge, pairwise:external), scorer:NAME, longer, "
        "random",
        content=beside(method_directory),
    )
    gold: str = key(
        TRUTH,
        "what the chosen responses are measured by: truth (of the generated world), or a method as above that is much "
        "better than the proxies",
        content=beside(lambda text, owner: method_directory(text)),
    )
    source: SourceConfig = key(SourceConfig, "the prompts: type world, or a file of dialogues")
    prompts: int = key(
        16,
        "the first prompts of the source; intervals are over prompts, and of fewer than 8 nothing is said in words",
        low=2,
    )
    writer: AnyEngine = engine_key(None, "who writes the responses, sampled at temperature 1, 512 tokens at most")
    samples: int = key(256, "responses to each prompt; n goes up to as many", low=2, high=4096)
