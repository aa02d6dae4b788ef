"""Judges: everything that compares two responses, behind one interface."""

from typing import TYPE_CHECKING

from judgetrain.lazy_names import lazy_names

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

__getattr__ = lazy_names(__name__, _PLACES)


def __dir__() -> list[str]:
    """Return the public names, also those that nobody has used yet, for tab completion."""
    return sorted(__all__)
