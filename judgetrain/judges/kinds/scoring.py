"""Responses scored one by one: n judgments a criterion for n responses, under one list of criteria."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from judgetrain.errors import ConfigError
from judgetrain.judges.base import Cost, Reason, Score
from judgetrain.judges.kinds.aggregation import used
from judgetrain.judges.trees.schema import EvaluationTree, JudgmentNode, cost_of
from judgetrain.rubrics import Rubric
from judgetrain.schema import RESPONSES, Candidates, Comparison

if TYPE_CHECKING:
    from judgetrain.judges.kinds.branching import BranchingJudge


def score_all(judge: BranchingJudge, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
    """The scores of each group's responses, as :meth:`~judgetrain.judges.kinds.branching.BranchingJudge.score_all`.

    One without text is worth 0, and is not asked about.
    """
    if judge.options.reads != "one":
        raise ConfigError(
            f"{judge.name} reads two responses at a time, which gives no score to one: ask it with reads='one' "
            "(judge.reads=one)"
        )
    with_text = [[i for i, response in enumerate(group.responses) if response.strip()] for group in groups]
    asked = [
        replace(group, responses=tuple(group.responses[i] for i in places))
        for group, places in zip(groups, with_text, strict=True)
        if places
    ]
    whole = type(judge)(judge.engine, judge.prompts, replace(judge.options, early_stop=False), judge.name)
    found = iter(_score(whole, asked, seed))
    result = [[Score(value=0.0)] * len(group.responses) for group in groups]
    for scores, places in zip(result, with_text, strict=True):
        for i, score in zip(places, next(found) if places else (), strict=True):
            scores[i] = score
    return result


def _score(judge: BranchingJudge, groups: Sequence[Candidates], seed: int) -> list[list[Score]]:
    """The scores of responses that have a text.

    Two responses of each group are judged first; the criteria and guidelines that were written for them are then the
    rubric of the others.
    """
    first = _grown(judge, [next(_pairs(group)) for group in groups], seed)
    rubrics = [rubric_of(tree, judge.options.branches) for tree in first]
    asked = [
        (i, replace(pair, rubric=rubric))
        for i, (group, rubric) in enumerate(zip(groups, rubrics, strict=True))
        if rubric  # else no criteria came
        for pair in list(_pairs(group))[1:]
    ]
    closed = type(judge)(
        judge.engine,
        judge.prompts,
        replace(judge.options, steps=replace(judge.options.steps, rubric="only")),
        judge.name,
    )
    rest = _grown(closed, [pair for _, pair in asked], seed)
    trees: list[list[EvaluationTree]] = [[tree] for tree in first]
    for (i, _), tree in zip(asked, rest, strict=True):
        trees[i].append(tree)
    return [list(_scores(judge, group, found)) for group, found in zip(groups, trees, strict=True)]


def rubric_of(tree: EvaluationTree, branches: int) -> Rubric | None:
    """The criteria that a tree was judged by, each with its first usable guideline; None where there are none."""
    # One whose guideline failed is not asked for again: later responses would be judged by another list.
    written = [(c.criterion, g.text) for c in used(tree, branches) for g in c.guidelines if g.failure is None]
    found = {c: replace(c, guideline=c.guideline or text) for c, text in reversed(written)}
    return Rubric(tuple(found.values())[::-1]) if found else None


def _pairs(group: Candidates) -> Iterator[Comparison]:
    """The responses two by two; where their number is odd the last one stands alone."""
    for i in range(0, len(group.responses), 2):
        a, b = (*group.responses[i : i + 2], "")[:2]
        yield Comparison(group.id, group.dialogue, a, b, rubric=group.rubric)


def _grown(judge: BranchingJudge, pairs: Sequence[Comparison], seed: int) -> list[EvaluationTree]:
    """The trees of pairs, in their order; of a response that stands alone with judgments of it alone."""
    found: dict[int, EvaluationTree] = {}
    for orders in (RESPONSES, RESPONSES[:1]):
        here = [i for i, pair in enumerate(pairs) if bool(pair.response_b) == (len(orders) > 1)]
        items = [pairs[i] for i in here]
        grown = judge.sample(items, seed, orders=orders, numbers=[c.number for c in items]) if items else []
        found.update(zip(here, grown, strict=True))
    return [found[i] for i in range(len(pairs))]


def _scores(judge: BranchingJudge, group: Candidates, trees: Sequence[EvaluationTree]) -> Iterator[Score]:
    from judgetrain.judges.kinds.branching import reasons_of, score_of

    plan = used(trees[0], judge.options.branches)
    unplanned = Counter(f"guideline:{r}" for c in plan for g in c.guidelines if (r := g.failure))
    whole = not any(c.given and all(g.failure for g in c.guidelines) for c in plan)  # else it is another rubric
    shared = _besides(trees[0]) * (1 / len(group.responses))
    for i in range(len(group.responses)):
        if i // 2 >= len(trees):  # nothing came to judge by
            yield Score(value=None, failures=dict(trees[0].failures), cost=shared)
            continue
        tree, side = trees[i // 2], RESPONSES[i % 2]
        criteria = used(tree, judge.options.branches)
        nodes = [j for c in criteria for j in c.judgments if j.order == side]
        failures = unplanned + Counter(j.failure for j in nodes if j.failure)
        failures.update({} if criteria else tree.failures)
        again = _besides(tree) * (1 / len(group.responses[i // 2 * 2 :][:2])) if i > 1 else Cost()
        yield Score(
            value=score_of(criteria, side) if whole else None,
            reasons=tuple(_by_itself(r) for r in reasons_of(criteria) if r.order == side),
            failures=dict(failures),
            cost=_judged(nodes) + shared + again,
        )


def _by_itself(reason: Reason) -> Reason:
    """A judgment of one response, without what it means beside another."""
    own = reason.score_a if reason.order == "A" else reason.score_b
    return replace(reason, order="A", score_a=own, score_b=None, verdict=None)


def _judged(nodes: Iterable[JudgmentNode]) -> Cost:
    return sum((Cost(node.prompt_tokens, node.generated_tokens, 1) for node in nodes), Cost())


def _besides(tree: EvaluationTree) -> Cost:
    """What a tree cost besides its judgments: its list, its guidelines, and trees that could not be read before it."""
    return cost_of(tree) + _judged(judgment for _, _, judgment in tree.judgments()) * -1.0
