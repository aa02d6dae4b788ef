"""judgetrain: train your own LLM judge by branching preference learning."""

from typing import TYPE_CHECKING

from judgetrain.lazy_names import lazy_names

if TYPE_CHECKING:
    from judgetrain.errors import JudgetrainError
    from judgetrain.evaluate.in_memory import evaluate_judge
    from judgetrain.judges.base import Judge
    from judgetrain.judges.factory import load_judge
    from judgetrain.judges.kinds.branching import BranchingJudge
    from judgetrain.judges.predictions import Prediction, Score
    from judgetrain.rubrics import Criterion, Rubric
    from judgetrain.schema import Candidates, Comparison, Message

__version__ = "0.1.0"

# By module, which is imported when one of its names is first used.
_PLACES = {
    "errors": ("JudgetrainError",),
    "evaluate.in_memory": ("evaluate_judge",),
    "judges.base": ("Judge",),
    "judges.predictions": ("Prediction", "Score"),
    "judges.factory": ("load_judge",),
    "judges.kinds.branching": ("BranchingJudge",),
    "rubrics": ("Criterion", "Rubric"),
    "schema": ("Candidates", "Comparison", "Message"),
}
__all__ = [
    "BranchingJudge",
    "Candidates",
    "Comparison",
    "Criterion",
    "Judge",
    "JudgetrainError",
    "Message",
    "Prediction",
    "Rubric",
    "Score",
    "__version__",
    "evaluate_judge",
    "load_judge",
]

__getattr__ = lazy_names(__name__, _PLACES)


def __dir__() -> list[str]:
    """Return the public names, also those that nobody has used yet, for tab completion."""
    # What the module itself imports is nobody else's.
    return sorted(__all__)
