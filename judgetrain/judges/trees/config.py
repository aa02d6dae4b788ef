"""Settings of how trees are grown and their judgments read, and the section ``tree`` of the configuration."""

from dataclasses import dataclass, replace
from typing import Self

from judgetrain.engines.config import SamplingConfig
from judgetrain.keys import key
from judgetrain.schema import ORDERS, RESPONSES, Order

LEVELS = ("criteria", "guideline", "judgment")
"""The levels of an evaluation tree, and the steps of a branch."""
SCORED = ("parsed", "expected")
"""The ways to read a score; ``judge.score`` has ``auto`` besides."""
TREE_READS: dict[str, tuple[Order, ...]] = {"two": ORDERS, "one": RESPONSES, "both": (*ORDERS, *RESPONSES)}
"""The orders of the judgments in trees, by ``tree.reads``."""
GIVEN = ("only", "first")
"""The roles of a given rubric: all the criteria that count, or the head of a list that the judge goes on with."""


@dataclass
class ReadingConfig:
    """Settings of how judgments are written and read, which trees and judges share."""

    score: str = key("parsed", "parsed, as written; expected, the mean of 1 to 5 by probabilities", choices=SCORED)
    constrained: bool = key(False, "enforce the judgment's form while decoding (needs the extra 'constrained')")
    reference: bool = key(True, "show the reference answer in every step, where there is one")
    rubric: str = key("only", "given criteria are: only, all there is; first, the head of a list", choices=GIVEN)
    write_guidelines: bool = key(True, "write the guideline of a given criterion without one; false: judge without")


@dataclass
class StepsConfig(ReadingConfig):
    """Settings of a tree's growth: how many criteria the model is asked for, and the sampling of each step."""

    criteria: int = key(10, "k, criteria named per dialogue", low=1, high=100)
    criteria_sampling: SamplingConfig = key(SamplingConfig, "listing criteria")
    guideline_sampling: SamplingConfig = key(SamplingConfig, "guidelines")
    judgment_sampling: SamplingConfig = key(SamplingConfig, "judgments")

    @property
    def shown(self) -> str:
        """Return the sampling in a few words: ``greedy``, or the temperature, by step where steps differ.

        Scores that are not parsed and an enforced form are named behind it.
        """
        samplings = (self.criteria_sampling, self.guideline_sampling, self.judgment_sampling)
        steps = [sampling.shown for sampling in samplings]
        parts = []
        if len(set(steps)) == 1:
            parts.append(steps[0])
        else:
            parts.append(" / ".join(steps))
        if self.score != "parsed":
            parts.append(self.score)
        if self.constrained:
            parts.append("constrained")
        return ", ".join(parts)

    @property
    def sampled(self) -> Self:
        """Return the same settings, with greedy steps sampled at the model's own probabilities."""
        changes = {}
        for step in LEVELS:
            name = f"{step}_sampling"
            sampling = getattr(self, name)
            if sampling.temperature == 0:
                changes[name] = replace(sampling, temperature=1.0)
        return replace(self, **changes)


@dataclass
class TreeConfig(StepsConfig):
    """Stage tree: what is sampled at each level."""

    reads: str = key("two", "responses a judgment reads: two, in both orders; one; both", choices=tuple(TREE_READS))
    guidelines: int = key(2, "guidelines per criterion", low=1)
    judgments: int = key(2, "judgments per guideline and order", low=1)
    max_comparisons: int | None = key(None, "grow at most this many trees", low=1)
    shard_size: int = key(32, "comparisons finished together; the unit of resume", low=1)
