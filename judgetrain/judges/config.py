"""The section ``judge`` of the configuration: how a branching judge is asked."""

from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

from judgetrain.engines.config import SamplingConfig
from judgetrain.judges.trees.config import SCORED, ReadingConfig, StepsConfig
from judgetrain.keys import changed, key, of_file
from judgetrain.schema import Reads

BESIDES = ("branches", "plan", "prompts", "engine", "model")
"""The other arguments of a judge in Python, which a misspelt setting may have meant."""

Aggregation = Literal["vote", "mean", "fitted"]
"""The ways from branches to a verdict (``judges/kinds/aggregation.py``).

``vote``: the side that more of them prefer; ``mean``: the side with the larger weighted mean of scores; ``fitted``: the
side that fitted weights make the likelier one.
"""


@dataclass
class JudgeConfig(ReadingConfig):
    """Settings of a branching judge (stages that ask a judge; Python); SFT and DPO read none of them."""

    reads: str = key("two", "responses that a judgment reads: two, in both orders, or one", choices=get_args(Reads))
    score: str = key(
        "auto", "parsed; expected, by probabilities; auto: expected if reads=one", choices=("auto", *SCORED)
    )
    temperature: float = key(0.0, "of every step: criteria, guidelines, judgments; 0 is greedy", low=0.0, high=10.0)
    criteria_tokens: int = key(512, "longest list of criteria", low=1, unit="tokens")
    guideline_tokens: int = key(512, "longest guideline", low=1, unit="tokens")
    judgment_tokens: int = key(512, "longest judgment", low=1, unit="tokens")
    retries: int = key(1, "times to ask again, sampled, where the first branch cannot be read", low=0, high=10)
    aggregation: str = key(
        "vote",
        "how branches become a verdict: vote; mean, weighted; fitted, by judge.fitted (docs/asking.md)",
        choices=get_args(Aggregation),
    )
    tie: float = key(
        0.0, "how far apart means may be for a tie, as a share of the scale: 0.125 is half a level", low=0.0, high=1.0
    )
    least_read: float = key(
        1.0,
        "share of given criteria's weight that a verdict or a score must have read; below it is none; 1: all",
        low=0.0,
        high=1.0,
    )
    reasons: bool = key(
        True,
        "write judgments with their reasons; false: their scores alone, by probabilities, one pass of the model for "
        "each criterion of a response (judges that read one response)",
    )
    early_stop: bool = key(False, "judge only until the verdict can no longer change: fewer tokens in more steps")
    fitted: str | None = key(
        None,
        "fitted.json of stage calibrate: how much each criterion counts; None: the one in the judge's directory",
        content=of_file,
        active_if=lambda c: c.aggregation == "fitted",
    )
    decided: str | None = key(
        None,
        "decided.json of stage calibrate (calibrate.error): answers are decided or undecided by its thresholds; None: "
        "by the one in the judge's directory, if there is one",
        content=of_file,
        active_if=lambda c: c.decided is not None,
    )

    def asking(self, criteria: int) -> StepsConfig:
        """Return the settings that the judge's trees are grown with, which name so many criteria."""
        score = self.score
        if score == "auto":
            score = "parsed"
            # Judgments of one response tie often as whole numbers; probabilities tell them apart.
            if self.reads == "one":
                score = "expected"
        return StepsConfig(
            criteria=criteria,
            score=score,
            constrained=self.constrained,
            reference=self.reference,
            rubric=self.rubric,
            write_guidelines=self.write_guidelines,
            criteria_sampling=SamplingConfig(self.temperature, 1.0, self.criteria_tokens),
            guideline_sampling=SamplingConfig(self.temperature, 1.0, self.guideline_tokens),
            judgment_sampling=SamplingConfig(self.temperature, 1.0, self.judgment_tokens),
        )

    def changed(self, **changes: Any) -> Self:
        """Return the same settings with some keys changed; raises as :func:`changed`."""
        return changed(self, changes, "judge.", BESIDES)
