"""Sampling settings, and engines that fail, for trees of scripted judges."""

from judgetrain.engines.base import Request
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.config import StepsConfig
from judgetrain.judges.trees.grow import Shape, TreeModel, grow
from judgetrain.judges.trees.schema import EvaluationTree
from tests.builders.scripted import ScriptedEngine, comparison, noisy, number

SAMPLING = StepsConfig()


def noisy_trees(labels: str) -> list[EvaluationTree]:
    """Trees of four criteria by a judge whose texts vary, one for a comparison with each label."""
    comparisons = [comparison(i, label=label) for i, label in enumerate(labels)]
    shape = Shape(count=4, criteria=4, guidelines=2, judgments=2)
    return list(grow(comparisons, TreeModel(ScriptedEngine(noisy), load_prompt_set("compact"), SAMPLING), shape, 0))


def failing(request: Request, occurrence: int) -> str:
    """Return every kind of failure at every level but the list, decided by the content alone."""
    if request.step == "criteria":
        return noisy(request, occurrence)
    draw = number(sorted(request.slots.items())) % 7
    if draw in (0, 1, 2):
        return ("!too_long", "!error", "   ")[draw]
    return noisy(request, occurrence)
