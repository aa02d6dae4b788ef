"""Trees of the generated world by its annotator, and criteria put into them whose worth is known."""

import random
from collections.abc import Sequence
from dataclasses import replace

from judgetrain.data.config import WorldEngineConfig
from judgetrain.data.world import labelled_comparison, queries
from judgetrain.data.world.engine import WorldEngine, criterion_name
from judgetrain.data.world.rule import World, load_world
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.config import StepsConfig
from judgetrain.judges.trees.grow import Shape, TreeModel, grow
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, JudgmentNode
from judgetrain.schema import Comparison
from tests.builders.wordings import REPORTING

ERRORS = 0.15
"""The share of judgments that the quickstart's annotator gets wrong."""


def world_comparisons(world: World, number: int, seed: int) -> list[Comparison]:
    """Return labelled comparisons of training queries."""
    rng = random.Random(seed)
    drawn = rng.sample(queries("train"), number)
    return [labelled_comparison(world, query, f"w{place}", rng) for place, query in enumerate(drawn)]


def annotated(rule: int, number: int, seed: int = 11, labelled: int | None = None) -> list[EvaluationTree]:
    """Return trees of all ten criteria; the comparisons of the first ``labelled`` keep their label (None: all)."""
    world = load_world(rule)
    comparisons = []
    for place, comparison in enumerate(world_comparisons(world, number, 1000 * seed + rule)):
        if labelled is not None and place >= labelled:
            comparison = replace(comparison, label=None)
        comparisons.append(comparison)
    return judged_again(world, comparisons, seed)


def judged_again(world: World, comparisons: Sequence[Comparison], seed: int) -> list[EvaluationTree]:
    """Return trees of comparisons by an annotator whose errors the seed decides."""
    engine = WorldEngine(WorldEngineConfig(error_rate=ERRORS), world)
    count = len(world.language.properties)
    model = TreeModel(engine, load_prompt_set("compact"), StepsConfig())
    return grow(comparisons, model, Shape(count=count, criteria=count), seed)


INJECTED = ("luck", "amounts", "bluntness", "grammar")
"""Names of the criteria that :func:`injected` adds: worthless, as ``numbers``, reversed, never different."""


def injected(rule: int, trees: Sequence[EvaluationTree]) -> list[EvaluationTree]:
    """Return trees with the :data:`INJECTED` criteria, each judged with errors of its own."""
    world = load_world(rule)
    again = judged_again(world, [tree.comparison for tree in trees], seed=99)
    rng = random.Random(rule)
    result = []
    for tree, other in zip(trees, again, strict=True):
        by_name = {criterion_name(criterion.text): criterion for criterion in other.criteria}
        primary = by_name[world.deciding_for(tree.comparison.dialogue.query).primary]
        numbers = by_name["numbers"]
        added = [
            _as_criterion(tree, numbers, "luck: it is lucky", lambda judgment: _scored(judgment, *_drawn(rng))),
            _as_criterion(tree, numbers, "amounts: it says how much", lambda judgment: judgment),
            _as_criterion(tree, primary, "bluntness: it is curt", _exchanged),
            _as_criterion(tree, numbers, "grammar: it is correct", lambda judgment: _scored(judgment, 5.0, 5.0)),
        ]
        result.append(replace(tree, criteria=(*tree.criteria, *added)))
    return result


def _drawn(rng: random.Random) -> tuple[float, float]:
    return float(rng.randint(1, 5)), float(rng.randint(1, 5))


def _scored(judgment: JudgmentNode, score_a: float, score_b: float) -> JudgmentNode:
    return replace(judgment, score_a=score_a, score_b=score_b)


def _exchanged(judgment: JudgmentNode) -> JudgmentNode:
    return replace(judgment, score_a=judgment.score_b, score_b=judgment.score_a)


def _as_criterion(tree, criterion: CriterionNode, text: str, change) -> CriterionNode:  # type: ignore[no-untyped-def]
    """Return a criterion with another text and changed judgments."""
    guidelines = []
    for guideline in criterion.guidelines:
        judgments = tuple(change(judgment) for judgment in guideline.judgments)
        guidelines.append(replace(guideline, judgments=judgments))
    name = criterion_name(text)
    return replace(criterion, id=f"{tree.comparison.id}/{name}", text=text, guidelines=tuple(guidelines))


def reworded(rule: int, trees: Sequence[EvaluationTree], seed: int = 0) -> list[EvaluationTree]:
    """Return trees in which each criterion's text is one of six wordings, drawn anew for each tree; judgments stay.

    The world's ten criteria are those of :data:`~tests.builders.wordings.REPORTING` in :func:`stands_for`.
    """
    by_property = {name: REPORTING[other] for other, name in stands_for(rule).items()}
    rng = random.Random(seed)
    result = []
    for tree in trees:
        criteria = []
        for criterion in tree.criteria:
            text = rng.choice(by_property[criterion_name(criterion.text)])
            criteria.append(replace(criterion, text=text))
        result.append(replace(tree, criteria=tuple(criteria)))
    return result


def stands_for(rule: int) -> dict[str, str]:
    """Return which of the world's criteria ten of :data:`~tests.builders.wordings.REPORTING` stand for."""
    properties = sorted(load_world(rule).language.properties)
    chosen = random.Random(rule).sample(sorted(REPORTING), len(properties))
    return dict(zip(chosen, properties, strict=True))
