"""Judges: everything that compares two responses, behind one interface."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from judgetrain.judges.base import Judge
    from judgetrain.judges.factory import load_judge
    from judgetrain.judges.kinds.baselines import BASELINES, LongerJudge
    from judgetrain.judges.kinds.branching import BranchingJudge
    from judgetrain.judges.predictions import Prediction
    from judgetrain.schema import Comparison, Message

# By module, which is imported when one of its names is first used.
_PLACES = {
    "judges.base": ("Judge",),
    "judges.predictions": ("Prediction",),
    "judges.kinds.baselines": ("BASELINES", "LongerJudge"),
    "judges.kinds.branching": ("BranchingJudge",),
    "judges.factory": ("load_judge",),
    "schema": ("Comparison", "Message"),
}
__all__ = ["BASELINES", "BranchingJudge", "Comparison", "Judge", "LongerJudge", "Message", "Prediction", "load_judge"]


def __getattr__(name: str) -> Any:
    """Import a public name of the package at its first use, since the command line needs none of them."""
    for place, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"judgetrain.{place}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
