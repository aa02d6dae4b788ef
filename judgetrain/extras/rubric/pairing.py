"""Pairs of single responses that a judge scored, so that a rubric is found in them as in comparisons.

A label of one response says nothing by itself of what is better. So each response is compared with one that people
labelled otherwise: of the same prompt where there is one, else of the prompt that shares most words. Each stands in one
pair, so that no response counts twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from judgetrain.data.votes import as_shown, messages_as_shown
from judgetrain.judges.trees.schema import NOT_SAMPLED, CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.rubrics import Criterion, criterion_key
from judgetrain.schema import Comparison, Dialogue, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class ScoredCriterion:
    """A criterion that a response was scored by.

    Args:
        text: the criterion as listed.
        name: of a rubric's criterion; empty where it has none.
        is_given: whether it is a rubric's.
        weight: its weight.
        guideline: by which it was scored.
        score: 1 to 5.
        judgment: as it was written.
    """

    text: str
    name: str
    is_given: bool
    weight: float
    guideline: str
    score: float
    judgment: str


@dataclass(frozen=True, kw_only=True)
class ScoredResponse:
    """A response with its scores.

    Args:
        id: of its row.
        dialogue: that it answers.
        response: its text.
        label: people's, 0 (worst) to 1; None where nobody labelled it.
        criteria: that it was scored by.
    """

    id: str
    dialogue: Dialogue
    response: str
    label: float | None
    criteria: tuple[ScoredCriterion, ...]


def pairs_of(responses: Sequence[ScoredResponse]) -> Iterator[EvaluationTree]:
    """Yield the comparisons of responses, each of which stands in one at most; the others are left out.

    Labelled responses are paired with ones of another label, and then those without a label with each other. Of a pair
    the criteria count that both were scored by.
    """
    labelled = [response for response in responses if response.label is not None]
    unlabelled = [response for response in responses if response.label is None]
    number = 0
    for group in (labelled, unlabelled):
        for one, other in _matched(group):
            # Sides take turns, so that A is better as often as B, whatever the order of the file.
            first, second = (one, other) if number % 2 == 0 else (other, one)
            tree = _tree_of(first, second)
            if tree.criteria:
                number += 1
                yield tree


def _matched(responses: Sequence[ScoredResponse]) -> Iterator[tuple[ScoredResponse, ScoredResponse]]:
    """Yield pairs of responses with different labels, or without any; each has the partner whose prompt is likest.

    No two responses that read the same are a pair: nothing in them could make one better.
    """
    if len(responses) < 2:
        return
    likeness = _Likeness(responses)
    free = np.ones(len(responses), dtype=bool)
    labels = np.array([np.nan if response.label is None else response.label for response in responses])
    texts = np.array([as_shown(response.response) for response in responses], dtype=object)
    for place, response in enumerate(responses):
        if not free[place]:
            continue
        candidates = free.copy()
        candidates[place] = False
        candidates &= texts != texts[place]
        if response.label is not None:
            candidates &= labels != response.label
        if not candidates.any():
            continue
        partner = likeness.nearest(place, candidates)
        free[[place, partner]] = False
        yield response, responses[partner]


class _Likeness:
    """How like the prompts of responses are, by their words.

    Args:
        responses: two at least.
    """

    def __init__(self, responses: Sequence[ScoredResponse]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        queries = [response.dialogue.query for response in responses]
        # Single letters and signs count, too: a query may be a formula.
        self._words = TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+|[^\w\s]").fit_transform(queries)
        self._prompts = [messages_as_shown(response.dialogue) for response in responses]

    def nearest(self, place: int, candidates: NDArray[np.bool_]) -> int:
        """Return which of the candidates has the likest prompt; of equally like ones the first."""
        cosines = (self._words @ self._words[place].T).toarray()[:, 0]
        for other in np.flatnonzero(candidates):
            # The same prompt goes before any that has the same words.
            if self._prompts[other] == self._prompts[place]:
                return int(other)
        cosines[~candidates] = -1.0
        return int(np.argmax(cosines))


def _tree_of(first: ScoredResponse, second: ScoredResponse) -> EvaluationTree:
    """Return the comparison of two responses as a tree, by the criteria that both were scored by."""
    label: Verdict | None = None
    if first.label is not None and second.label is not None:
        label = "A" if first.label > second.label else "B"
    is_one_prompt = messages_as_shown(first.dialogue) == messages_as_shown(second.dialogue)
    comparison = Comparison(
        id=f"{first.id}|{second.id}",
        dialogue=first.dialogue,
        response_a=first.response,
        response_b=second.response,
        label=label,
        # The page says which prompt the second response answers, where it is another one.
        made=None if is_one_prompt else second.dialogue.query,
    )
    by_name = {_name_of(criterion): criterion for criterion in second.criteria}
    nodes: list[CriterionNode] = []
    for criterion in first.criteria:
        other = by_name.get(_name_of(criterion))
        if other is not None:
            nodes.append(_node(f"{comparison.id}/c{len(nodes)}", len(nodes), criterion, other))
    return judged_tree(comparison, nodes)


def judged_tree(comparison: Comparison, criteria: Sequence[CriterionNode]) -> EvaluationTree:
    """Return the tree of a comparison that was judged elsewhere: no list was sampled, and nothing is counted."""
    return EvaluationTree(
        comparison=comparison,
        criteria_text="",
        criteria_prompt_tokens=0,
        criteria_generated_tokens=0,
        criteria=tuple(criteria),
        seed=0,
        failures={},
    )


def _name_of(criterion: ScoredCriterion) -> str:
    """Return what tells a criterion from others: its name, or what stands before its colon, or its text."""
    return criterion_key(criterion.name or criterion.text.partition(":")[0])


def _node(identifier: str, rank: int, criterion: ScoredCriterion, other: ScoredCriterion) -> CriterionNode:
    """Return a criterion with one judgment, which holds the scores of both responses."""
    judgment = JudgmentNode(
        id=f"{identifier}/g0/0",
        order="AB",
        text=criterion.judgment,
        score_a=criterion.score,
        score_b=other.score,
        failure=None,
        inverted=criterion.weight < 0,
        **NOT_SAMPLED,
    )
    guideline = GuidelineNode(id=f"{identifier}/g0", text=criterion.guideline, judgments=(judgment,), **NOT_SAMPLED)
    rubric_criterion = None
    if criterion.is_given:
        rubric_criterion = Criterion(text=criterion.text, name=criterion.name, weight=criterion.weight)
    return CriterionNode(
        id=identifier,
        text=criterion.text,
        rank=rank,
        generated_tokens=0,
        guidelines=(guideline,),
        given=rubric_criterion,
    )
