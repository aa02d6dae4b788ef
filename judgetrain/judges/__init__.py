"""Judges: everything that compares two responses, behind one interface."""

from judgetrain.judges.base import Cost, Judge, Prediction
from judgetrain.judges.kinds.baselines import BASELINES, FirstJudge, LongerJudge, RandomJudge
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.kinds.prompted import OneStepJudge, SingleRatingJudge
from judgetrain.judges.kinds.scorer import ScorerJudge
from judgetrain.schema import Comparison, Dialogue, Message

__all__ = [
    "BASELINES",
    "BranchingJudge",
    "Comparison",
    "Cost",
    "Dialogue",
    "FirstJudge",
    "Judge",
    "LongerJudge",
    "Message",
    "OneStepJudge",
    "Prediction",
    "RandomJudge",
    "ScorerJudge",
    "SingleRatingJudge",
]
