"""Judges: everything that compares two responses, behind one interface."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from judgetrain.judges.base import Cost, Judge, Prediction
    from judgetrain.judges.factory import load_judge
    from judgetrain.judges.kinds.baselines import BASELINES, FirstJudge, LongerJudge, RandomJudge, ScorerJudge
    from judgetrain.judges.kinds.branching import BranchingJudge
    from judgetrain.judges.kinds.prompted import PairwiseJudge, PointwiseJudge, SingleTokenJudge
    from judgetrain.schema import Comparison, Dialogue, Message

_PLACES = {
    "judges.base": ("Cost", "Judge", "Prediction"),
    "judges.kinds.baselines": ("BASELINES", "FirstJudge", "LongerJudge", "RandomJudge", "ScorerJudge"),
    "judges.kinds.branching": ("BranchingJudge",),
    "judges.kinds.prompted": ("SingleTokenJudge", "PairwiseJudge", "PointwiseJudge"),
    "judges.factory": ("load_judge",),
    "schema": ("Comparison", "Dialogue", "Message"),
}

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
    "PairwiseJudge",
    "PointwiseJudge",
    "Prediction",
    "RandomJudge",
    "ScorerJudge",
    "SingleTokenJudge",
    "load_judge",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: the command line needs none of it."""
    for place, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"judgetrain.{place}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
