"""Judges: everything that compares two responses, behind one interface."""

from judgetrain.judges.base import Cost, Judge, Prediction
from judgetrain.judges.kinds.asked import OneStepJudge, SingleRatingJudge
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.kinds.floors import FLOORS, FirstJudge, LongerJudge, RandomJudge
from judgetrain.judges.kinds.scorer import ScorerJudge

__all__ = [
    "FLOORS",
    "BranchingJudge",
    "Cost",
    "FirstJudge",
    "Judge",
    "LongerJudge",
    "OneStepJudge",
    "Prediction",
    "RandomJudge",
    "ScorerJudge",
    "SingleRatingJudge",
]
