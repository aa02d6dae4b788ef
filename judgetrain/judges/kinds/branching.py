"""The branching judge: k criteria, one branch each, in both orders (branching paper, section 4.5)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Engine
from judgetrain.errors import ConfigError
from judgetrain.judges.base import Cost, Judge, Prediction, Reason, Score, in_own_order
from judgetrain.judges.config import JudgeOptions, check_branches
from judgetrain.judges.kinds.aggregation import Rule, margin_of, margins_of, next_wave, stopped, used, verdict
from judgetrain.judges.method import Method
from judgetrain.judges.parts import parts_of
from judgetrain.judges.prompting.prompts import PromptSet, check_reads
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, cost_of
from judgetrain.rubrics import Rubric, weighted
from judgetrain.schema import ORDERS, RESPONSES, Candidates, Comparison, Order


class BranchingJudge(Judge):
    """Compares two responses by the first k criteria that the model names.

    Each criterion gets one guideline and, in each order, one judgment. ``aggregation`` ``vote``: the side that more
    branches prefer, a tie when equally many do. ``mean``: the side with the larger weighted mean of scores, where a
    criterion of the judge's own weighs a third of the one before. Asked to read one response at a time, each criterion
    gets a judgment of either.

    Asked greedily, branch i follows the i-th criterion of the most likely list, with the most likely guideline and
    judgment: branches differ by their criteria alone.

    Args:
        engine: generates the text.
        prompts: the prompt set the model was trained with.
        options: how it is asked.
        name: the method's name in predictions.
    """

    goes_by_criteria = True

    def __init__(
        self, engine: Engine, prompts: PromptSet, options: JudgeOptions | None = None, name: str = "judge"
    ) -> None:
        self.engine, self.prompts, self.options, self.name = engine, prompts, options or JudgeOptions(), name
        check_reads(prompts, self.options.orders, "judge.reads=one")

    @classmethod
    def from_pretrained(cls, path: str | Path, branches: int = 1, **how: Any) -> "BranchingJudge":
        """A judge from a directory that training wrote; it carries its prompt set and how it is asked (ConfigError: the
        directory holds no judge, no such setting, a value out of range, or more branches than the judge has criteria).

        ``how``: as of :func:`~judgetrain.judges.factory.load_judge`.
        """
        method = Method.parse(str(Path(path).expanduser().absolute()))
        options, engine, found = parts_of(method, branches, **how)
        prompts = found()
        return cls(engine(), prompts, options, method.name)

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        trees, others = self.ask(comparisons, seed, numbers=[c.number for c in comparisons])
        return self.predictions(trees, self.options.branches, others)

    def ask(
        self,
        comparisons: Sequence[Comparison],
        seed: int,
        branches: int | None = None,
        numbers: Sequence[int] | None = None,
    ) -> tuple[list[EvaluationTree], list[EvaluationTree]]:
        """The trees of both orders and none, or where plans are independent those of order AB and those of order BA.

        ``numbers`` decide the trees' random numbers; None: those of their places in the call.
        """
        if self.options.plan == "shared" or self.options.reads == "one":
            return self.sample(comparisons, seed, branches, self.options.orders, numbers), []
        first, second = (
            self.sample(comparisons, derive_seed(seed, order), branches, (order,), numbers) for order in ORDERS
        )
        return first, second

    def sample(
        self,
        comparisons: Sequence[Comparison],
        seed: int,
        branches: int | None = None,
        orders: tuple[Order, ...] = ORDERS,
        numbers: Sequence[int] | None = None,
        options: JudgeOptions | None = None,
    ) -> list[EvaluationTree]:
        """Grow one branch for each of the first ``branches`` criteria and each given one, in all ``orders``
        (ConfigError: more branches than the judge names criteria, or none).

        The list is written only as far as it is used, so that what the first k < ``branches`` branches say and
        cost is what a run with k branches would have said and cost. With ``early_stop`` only what the verdict needs
        is grown; that is also enough for every smaller number of branches. ``options``: others than the judge's own.
        """
        options = options or self.options
        steps = options.steps
        wanted = options.branches if branches is None else branches
        check_branches(wanted, steps.criteria)
        shape = Shape(count=steps.criteria, criteria=wanted, orders=orders)
        steer = (lambda tree: next_wave(tree, wanted, options.rule, orders)) if options.stops_early else None
        how = self.engine, self.prompts
        shown = [c if c.rubric else replace(c, rubric=options.rubric) for c in comparisons]
        trees = grow(shown, *how, shape, steps, seed, steer=steer, numbers=numbers)
        places = range(len(trees)) if numbers is None else numbers
        for attempt in range(1, options.retries + 1):
            lost = [i for i, tree in enumerate(trees) if not tree.can_be_read(orders)]
            items, anew = [shown[i] for i in lost], replace(shape, attempt=attempt)
            other, kept = derive_seed(seed, "again", attempt), [places[i] for i in lost]
            again = grow(items, *how, anew, steps.sampled, other, steer=steer, numbers=kept)
            for i, tree in zip(lost, again, strict=True):
                trees[i] = replace(tree, earlier=(*trees[i].earlier, replace(trees[i], earlier=())))
        return [replace(tree, comparison=given) for tree, given in zip(trees, comparisons, strict=True)]

    def predictions(
        self, trees: Sequence[EvaluationTree], branches: int, others: Sequence[EvaluationTree] = ()
    ) -> list[Prediction]:
        """What the first ``branches`` criteria say of the trees, and the ``others``, that :meth:`ask` gave."""
        second = others or repeat(None, len(trees))
        pairs = zip(trees, second, strict=True)
        return [predict(tree, branches, self.options, self.name, other) for tree, other in pairs]

    def score_all(self, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
        """How good each response of each group is: lists of the groups' lengths, in their order (ConfigError: the judge
        reads two responses at a time).

        The responses of a group share a list of criteria and its guidelines, written for the first of them, or the
        group's rubric; each costs one judgment a criterion. One without text is worth 0, and is not asked about.
        """
        if self.options.reads != "one":
            raise ConfigError(f"{self.name} reads two responses at a time: ask it with reads='one' (judge.reads=one)")
        whole = replace(self.options, early_stop=False)
        closed = replace(whole, steps=replace(whole.steps, rubric="only"))
        alone = [
            [Comparison(g.id, g.dialogue, text, "", rubric=g.rubric) for text in g.responses if text.strip()]
            for g in groups
        ]
        first = iter(self._alone([each[0] for each in alone if each], seed, whole))
        trees = [[next(first)] if each else [] for each in alone]
        rest = [
            (found, replace(one, rubric=rubric))
            for each, found in zip(alone, trees, strict=True)
            if found and (rubric := rubric_of(found[0], whole.branches))  # else no criteria came
            for one in each[1:]
        ]
        for (found, _), tree in zip(rest, self._alone([one for _, one in rest], seed, closed), strict=True):
            found.append(tree)
        return [list(_scores(group, found, whole.branches)) for group, found in zip(groups, trees, strict=True)]

    def _alone(self, items: Sequence[Comparison], seed: int, options: JudgeOptions) -> list[EvaluationTree]:
        return self.sample(items, seed, orders=RESPONSES[:1], numbers=[c.number for c in items], options=options)

    def close(self) -> None:
        self.engine.close()


def predict(
    tree: EvaluationTree, branches: int, options: JudgeOptions, method: str, other: EvaluationTree | None = None
) -> Prediction:
    """One prediction from the first ``branches`` criteria of a tree, or from as many of them as settle it.

    ``options``: how the judge was asked. ``other``: the tree of order BA where each order has its own plan; ``tree`` is
    then that of order AB.
    """
    both = options.orders
    rule = Rule(True, options.tie) if tree.given else options.rule  # the weights of a rubric count
    parts: list[tuple[EvaluationTree, Sequence[Order]]] = [(tree, both)]
    if other is not None:
        parts = [(tree, ORDERS[:1]), (other, ORDERS[1:])]
    trees = [stopped(t, branches, rule, orders) if options.stops_early else t for t, orders in parts]
    found = [used(tree, branches) for tree in trees]
    criteria = [c for each in found for c in each]
    nodes = [j for c in criteria for j in c.judgments]
    failures = Counter(j.failure for j in nodes if j.failure)
    failures.update(f"guideline:{r}" for c in criteria for g in c.guidelines if (r := g.failure))
    failures.update(_nothing(tree) for tree, each in zip(trees, found, strict=True) if not each)
    verdicts = [verdict(found[i], both[i], rule) for i in (0, -1)]
    margin, summed = _margin(criteria, both), None
    if options.fitted:
        margin = options.fitted.logit(margins_of(*found)) if None not in verdicts else None
        summed = options.fitted.verdict(margin)
    return Prediction.of(
        tree.comparison,
        method,
        *verdicts,
        branches=branches,
        margin=margin,
        summed=summed,
        # A plan that both orders share is paid once, half by each of them.
        cost=sum(map(cost_of, trees, found), Cost()) * (1.0 if options.reads == "one" else 1 / len(ORDERS)),
        judgments=len(nodes),
        failures=dict(failures),
        reasons=tuple(reasons_of(criteria)),
        asked=options.shown,
        plan=None if options.reads == "one" else "shared" if other is None else "independent",
        asked_again=sum(len(tree.earlier) for tree in trees),
        score_a=score_of(criteria, "A"),
        score_b=score_of(criteria, "B"),
    )


def _margin(criteria: Sequence[CriterionNode], orders: Sequence[Order]) -> float | None:
    found = [
        (abs(c.criterion.weight), margin)
        for order in orders
        for c in criteria
        for j in c.judgments
        if j.order == order and (margin := margin_of(c, j)) is not None
    ]
    return sum(weight * margin for weight, margin in found) / sum(weight for weight, _ in found) if found else None


def score_of(criteria: Sequence[CriterionNode], side: Order) -> float | None:
    """How good response ``A`` or ``B`` is, 0 to 1: the weighted mean over the criteria of its mean score on each.

    None where a given criterion could not be read: the rest would be another rubric, under which another response, or
    one that hides what it is asked for, may look better.
    """
    shares: list[tuple[float, float]] = []
    for criterion in criteria:
        nodes = [j for j in criterion.judgments if side in j.order]
        if scores := [s for j in nodes if (s := j.score_a if side == "A" else j.score_b) is not None]:
            share = criterion.criterion.share(sum(scores) / len(scores))
            shares.append((criterion.criterion.weight, share))
        elif criterion.criterion.source == "given":
            return None
    return weighted(shares)


def _nothing(tree: EvaluationTree) -> str:
    """Why a tree has no criteria: the engine gave no list, or none was in it."""
    unanswered = {f"criteria:{reason}" for reason in UNANSWERED}
    return next((reason for reason in tree.failures if reason in unanswered), "criteria:none")


def reasons_of(criteria: Sequence[CriterionNode]) -> Iterator[Reason]:
    """The branches by order and then by rank."""
    for order in (*ORDERS, *RESPONSES):
        for criterion in criteria:
            told = criterion.criterion
            for guideline in criterion.guidelines:
                for node in (j for j in guideline.judgments if j.order == order):
                    yield Reason(
                        order=order,
                        criterion=criterion.text,
                        guideline=guideline.text,
                        text=in_own_order(node.text, order),
                        **{name: getattr(node, name) for name in ("score_a", "score_b", "verdict", "failure")},
                        **{name: getattr(told, name) for name in ("name", "weight", "source")},
                    )


def rubric_of(tree: EvaluationTree, branches: int) -> Rubric | None:
    """The criteria that a tree was judged by, each with its first usable guideline; None where there are none."""
    # One whose guideline failed is not asked for again: later responses would be judged by another list.
    written = [(c.criterion, g.text) for c in used(tree, branches) for g in c.guidelines if g.failure is None]
    found = {c: replace(c, guideline=c.guideline or text) for c, text in reversed(written)}
    return Rubric(tuple(found.values())[::-1]) if found else None


def _scores(group: Candidates, trees: Sequence[EvaluationTree], branches: int) -> Iterator[Score]:
    """The scores of a group's responses by the trees of those that have a text, the first of which has the plan."""
    plan = used(trees[0], branches) if trees else ()
    unplanned = Counter(f"guideline:{r}" for c in plan for g in c.guidelines if (r := g.failure))
    whole = not any(c.given and all(g.failure for g in c.guidelines) for c in plan)  # else it is another rubric
    judged = sum((Cost(j.prompt_tokens, j.generated_tokens, 1) for c in plan for j in c.judgments), Cost())
    left, number = iter(trees), sum(bool(response.strip()) for response in group.responses)
    shared = (cost_of(trees[0]) + judged * -1.0) * (1 / number) if trees else Cost()
    for response in group.responses:
        if not response.strip():
            yield Score(value=0.0)
        elif (tree := next(left, None)) is None:  # nothing came to judge by
            yield Score(value=None, failures=dict(trees[0].failures), cost=shared)
        else:
            criteria = used(tree, branches)
            failures = unplanned + Counter(j.failure for c in criteria for j in c.judgments if j.failure)
            failures.update({} if criteria else tree.failures)
            yield Score(
                value=score_of(criteria, "A") if whole else None,
                reasons=tuple(reasons_of(criteria)),
                failures=dict(failures),
                cost=shared + (judged if tree is trees[0] else cost_of(tree)),
            )
