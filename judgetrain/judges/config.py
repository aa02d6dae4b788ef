"""Judges: how many branches they grow, and how they are asked."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.engines.config import SamplingConfig
from judgetrain.keys import key


@dataclass
class TreeConfig:
    """Stages teacher and tree, and every branching judge: what is sampled at each level."""

    criteria: int = key(10, "k, criteria named per dialogue", low=1, high=100)
    guidelines: int = key(2, "guidelines per criterion", low=1)
    judgments: int = key(2, "judgments per guideline and order", low=1)
    criteria_sampling: SamplingConfig = key(SamplingConfig, "brainstorming")
    guideline_sampling: SamplingConfig = key(SamplingConfig, "guidelines")
    judgment_sampling: SamplingConfig = key(SamplingConfig, "judgments")
    readout: str = key(
        "parsed",
        "scores of a judgment: parsed, as written; expected, the mean of 1 to 5 weighted by the tokens' probabilities",
        choices=("parsed", "expected"),
    )
    constrained: bool = key(False, "enforce the judgment's form while decoding (needs the extra 'constrained')")
    tie: float = key(0.0, "scores at most so far apart are a tie", low=0.0, high=4.0, unit="points")
    retries: int = key(
        0, "stage tree: times a judgment that cannot be read is sampled again, at a temperature above 0", low=0
    )
    max_comparisons: int | None = key(None, "grow at most this many trees", low=1)
    shard_size: int = key(32, "comparisons finished together; the unit of resume", low=1)
