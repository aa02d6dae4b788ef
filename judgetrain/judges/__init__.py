"""Judges: everything that compares two responses, behind one interface."""

from judgetrain.judges.asked import OneStepJudge, SingleRatingJudge
from judgetrain.judges.base import Cost, Judge, Prediction
from judgetrain.judges.branching import BranchingJudge
from judgetrain.judges.floors import FLOORS, FirstJudge, LongerJudge, RandomJudge
from judgetrain.judges.scorer import ScorerJudge

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
