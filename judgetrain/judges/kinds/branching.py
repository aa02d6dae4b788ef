"""The branching judge: k criteria, one branch each, in both orders (branching paper, section 4.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from numbers import Integral
from pathlib import Path
from typing import Any, cast, get_args

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Engine
from judgetrain.engines.config import EngineConfig, ModelConfig, TransformersEngineConfig
from judgetrain.errors import ConfigError, EngineError
from judgetrain.judges.base import Cost, Judge, Plan, Prediction, Reason, verdict_of
from judgetrain.judges.config import Aggregation, AskingConfig, JudgeConfig, aggregation_of, criteria_of, shown_with
from judgetrain.judges.kinds.aggregation import verdict
from judgetrain.judges.kinds.early_stop import next_wave, stopped
from judgetrain.judges.prompting.layout import plain
from judgetrain.judges.prompting.prompts import FILE, PromptSet, load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode, tree_tokens
from judgetrain.schema import ORDERS, Comparison, Order


class BranchingJudge(Judge):
    """Compares two responses by the first k criteria that the model names.

    Each criterion gets one guideline and, in each order, one judgment. ``aggregation`` ``vote``: the side that more
    branches prefer, a tie when equally many do. ``margin``: the side with the larger sum of scores. ``ranked``: the
    side that the first branch to see a difference prefers. ``clear``: the same, where after the first branch only
    clear differences count (``kinds/aggregation.py``).

    Asked greedily, branch i follows the i-th criterion of the most likely list, with the most likely guideline and
    judgment: branches differ by their criteria alone.

    Args:
        engine: generates the text.
        prompts: the prompt set the model was trained with.
        branches: k, at most ``settings.criteria``.
        settings: how many criteria are asked for, and the sampling at each level; greedy by default.
        aggregation: how branches become a verdict.
        name: the method's name in predictions.
        early_stop: judge the branches in waves, and in each order only until its verdict can no longer change: the
            same verdicts for fewer tokens, but in more steps, and with a margin over fewer branches.
        top_up: ask once more where fewer criteria came back than there are branches. The further list's prompt counts
            in every verdict's cost, also in those read off fewer branches.
        plan: whether both orders are judged by one list of criteria and its guidelines (``shared``), or each by its own
            (``independent``). Where these steps are greedy and their prompts do not show the responses, as in all
            shipped sets, the two plans are the same texts, and only the cost differs.
        retries: how often a comparison is asked about again where its first branch cannot be read in some order, which
            no number of ``branches`` changes: by another list, with what was greedy sampled.
        layout: ``plain`` sets the responses' headings and lists as running text before they are judged
            (``prompting/layout.py``); trees and predictions are of the comparisons as they were given.
        position_offset: by how many points the response shown first is ahead for its position alone; taken off each
            judgment's margin (:func:`~judgetrain.judges.position.position_offset` measures it).
        rule: how two orders become a verdict: ``strict``, what both say; ``summed``, the side of the mean margin over
            the branches of both, in which a preference for a position cancels.
    """

    def __init__(
        self,
        engine: Engine,
        prompts: PromptSet,
        branches: int = 1,
        settings: AskingConfig | None = None,
        aggregation: Aggregation = "vote",
        name: str = "judge",
        early_stop: bool = False,
        top_up: bool = False,
        plan: Plan = "shared",
        position_offset: float = 0.0,
        retries: int = 0,
        layout: str = "shown",
        rule: str = "strict",
    ) -> None:
        check_aggregation(aggregation)
        self.engine, self.prompts, self.branches = engine, prompts, branches
        self.settings = settings or JudgeConfig().asking(AskingConfig.criteria)
        self.aggregation, self.name, self.early_stop, self.top_up = aggregation, name, early_stop, top_up
        self.plan, self.position_offset, self.retries, self.layout = plan, position_offset, retries, layout
        self.rule = rule

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        branches: int = 1,
        *,
        engine: EngineConfig | None = None,
        aggregation: Aggregation | None = None,
        early_stop: bool = False,
        top_up: bool = False,
        prompts: str | Path | None = None,
        name: str | None = None,
        **asked: Any,
    ) -> BranchingJudge:
        """A judge from a directory that training wrote; it carries its prompt set and how it is asked.

        ``prompts``: another prompt set than its own, a name or a YAML file. ``aggregation``: None is the judge's own
        (``judge.json``). ``asked``: keys of
        :class:`~judgetrain.judges.config.JudgeConfig` that are to be otherwise, as in ``temperature=1.0``. A judge is
        asked greedily unless it or they say otherwise.

        Raises:
            EngineError: the directory has no ``prompts.yaml``: it is no judge.
            ConfigError: no such key, a value out of range, or more branches than the judge has criteria.
        """
        from judgetrain.engines.registry import make_engine

        directory = Path(path)
        if not (directory / FILE).is_file():
            raise EngineError(f"{directory} holds no {FILE}: give the model directory of a trained judge")
        settings = JudgeConfig.load(directory).changed(**asked)
        asking = settings.asking(criteria_of(directory))
        check_branches(branches, asking)
        config = engine or TransformersEngineConfig(model=ModelConfig(path=str(directory)))
        name = name or directory.name
        return cls(
            make_engine(config, model_path=str(directory), name=name),
            load_prompt_set(prompts or directory / FILE),
            branches,
            asking,
            aggregation or aggregation_of(directory),
            name,
            early_stop,
            top_up,
            cast(Plan, settings.plan),
            settings.position_offset,
            settings.retries,
            settings.layout,
            settings.verdict,
        )

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """The verdicts on many comparisons, with their reasons."""
        trees, others = self.ask(comparisons, seed, numbers=[c.number for c in comparisons])
        return self.predictions(trees, self.branches, others)

    def ask(
        self,
        comparisons: Sequence[Comparison],
        seed: int,
        branches: int | None = None,
        numbers: Sequence[int] | None = None,
    ) -> tuple[list[EvaluationTree], list[EvaluationTree]]:
        """The trees of both orders and none, or where plans are independent those of order AB and those of order BA.

        ``numbers`` decide the trees' random numbers; None: those of their places in the call.

        Raises:
            ConfigError: as of :meth:`sample`.
        """
        if self.plan == "shared":
            return self.sample(comparisons, seed, branches, numbers=numbers), []
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
    ) -> list[EvaluationTree]:
        """Grow one branch for each of the first ``branches`` criteria, in both orders.

        The list is written only as far as it is used, so that what the first k < ``branches`` branches say and
        cost is what a run with k branches would have said and cost. With ``early_stop`` only what the verdict needs
        is grown; that is also enough for every smaller number of branches.

        Raises:
            ConfigError: more branches than the judge names criteria, or none.
        """
        settings, wanted = self.settings, self.branches if branches is None else branches
        check_branches(wanted, settings)
        offset = self.position_offset
        shape = Shape(count=settings.criteria, criteria=wanted, orders=orders, top_up=self.top_up, offset=offset)
        steer = (lambda tree: next_wave(tree, wanted, self.aggregation, orders)) if self.early_stop else None
        how, shown = (self.engine, self.prompts), comparisons
        if self.layout == "plain":
            shown = [replace(c, response_a=plain(c.response_a), response_b=plain(c.response_b)) for c in comparisons]
        trees = grow(shown, *how, shape, settings, seed, steer=steer, numbers=numbers)
        places = range(len(trees)) if numbers is None else numbers
        for attempt in range(1, self.retries + 1):
            lost = [i for i, tree in enumerate(trees) if not tree.can_be_read(orders)]
            items, anew = [shown[i] for i in lost], replace(shape, attempt=attempt)
            again = grow(
                items,
                *how,
                anew,
                settings.sampled,
                derive_seed(seed, "again", attempt),
                steer=steer,
                numbers=[places[i] for i in lost],
            )
            for i, tree in zip(lost, again, strict=True):
                trees[i] = tree.instead_of(trees[i])
        return [replace(tree, comparison=given) for tree, given in zip(trees, comparisons, strict=True)]

    def predictions(
        self, trees: Sequence[EvaluationTree], branches: int, others: Sequence[EvaluationTree] = ()
    ) -> list[Prediction]:
        """What the first ``branches`` criteria say of the trees, and the ``others``, that :meth:`ask` gave."""
        shown = shown_with(self.settings.shown, self.position_offset, self.layout, self.rule)
        how = branches, self.aggregation, self.name, self.early_stop, shown
        second = others or repeat(None, len(trees))
        found = [predict(tree, *how, other) for tree, other in zip(trees, second, strict=True)]
        return by_rule(found, self.rule, self.settings.tie)

    def close(self) -> None:
        """Free the model."""
        self.engine.close()


def predict(
    tree: EvaluationTree,
    branches: int,
    aggregation: Aggregation,
    method: str,
    early_stop: bool = False,
    asked: str | None = None,
    other: EvaluationTree | None = None,
) -> Prediction:
    """One prediction from the first ``branches`` criteria of a tree, or from as many of them as settle it.

    ``asked``: how the judge was asked, for tables. ``other``: the tree of order BA where each order has its own plan;
    ``tree`` is then that of order AB.
    """
    parts: list[tuple[EvaluationTree, Sequence[Order]]] = [(tree, ORDERS)]
    if other is not None:
        parts = [(tree, ORDERS[:1]), (other, ORDERS[1:])]
    trees = [stopped(t, branches, aggregation, orders) if early_stop else t for t, orders in parts]
    found = [tree.criteria[:branches] for tree in trees]
    criteria = [c for each in found for c in each]
    nodes = [j for c in criteria for j in c.judgments]
    margins = {order: [j.margin for j in nodes if j.order == order and j.margin is not None] for order in ORDERS}
    failures = Counter(j.failure for j in nodes if j.failure)
    failures.update(f"guideline:{r}" for c in criteria for g in c.guidelines if (r := g.failure))
    failures.update(_nothing(tree) for tree, each in zip(trees, found, strict=True) if not each)
    return Prediction(
        comparison_id=tree.comparison.id,
        method=method,
        branches=branches,
        verdict_ab=verdict(found[0], "AB", aggregation),
        verdict_ba=verdict(found[-1], "BA", aggregation),
        margin=_mean([*margins["AB"], *margins["BA"]]),
        margin_ab=_mean(margins["AB"]),
        margin_ba=_mean(margins["BA"]),
        cost=_cost(trees, found),
        judgments=len(nodes),
        failures=dict(failures),
        spread=_spread(nodes),
        reasons=tuple(_reasons(criteria)),
        asked=asked,
        plan="shared" if other is None else "independent",
        asked_again=sum(len(tree.earlier) for tree in trees),
    )


def by_rule(predictions: list[Prediction], rule: str, tie: float) -> list[Prediction]:
    """The predictions with both orders' verdict by a rule: ``strict`` as they are, or :func:`summed`."""
    return [summed(p, tie) for p in predictions] if rule == "summed" else predictions


def summed(prediction: Prediction, tie: float = 0.0) -> Prediction:
    """The prediction with the side of its margin as the verdict, a tie where that is at most ``tie``.

    Where one order could not be read the other one's preference for a position would decide: it stays unreadable.
    """
    if prediction.consistent is None:
        return prediction
    return replace(prediction, summed=verdict_of(prediction.margin, tie))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _nothing(tree: EvaluationTree) -> str:
    """Why a tree has no criteria: the engine gave no list, or none was in it."""
    unanswered = {f"criteria:{reason}" for reason in UNANSWERED}
    return next((reason for reason in tree.failures if reason in unanswered), "criteria:none")


def _reasons(criteria: Sequence[CriterionNode]) -> Iterator[Reason]:
    """The branches by order and then by rank."""
    for order in ORDERS:
        for criterion in criteria:
            for guideline in criterion.guidelines:
                for node in (j for j in guideline.judgments if j.order == order):
                    yield Reason(
                        order=order,
                        criterion=criterion.text,
                        guideline=guideline.text,
                        text=node.text,
                        score_a=node.score_a,
                        score_b=node.score_b,
                        verdict=node.verdict,
                        failure=node.failure,
                    )


def _spread(judgments: Sequence[JudgmentNode]) -> float | None:
    """The share of pairs of readable judgments of one order whose verdicts differ, over both orders' pairs."""
    pairs = differing = 0
    for order in ORDERS:
        counts = Counter(j.verdict for j in judgments if j.order == order and j.verdict is not None)
        n = counts.total()
        pairs += n * (n - 1) // 2
        differing += (n * n - sum(c * c for c in counts.values())) // 2
    return differing / pairs if pairs else None


def _cost(trees: Sequence[EvaluationTree], criteria: Sequence[Sequence[CriterionNode]]) -> Cost:
    """Half of what both orders cost: of each tree the list as far as it is used, and the branches of its criteria.

    So a plan that both orders share is paid once, half by each of them.
    """
    prompt = generated = calls = 0
    for tree, used in zip(trees, criteria, strict=True):
        guidelines = [g for c in used for g in c.guidelines]
        nodes: list[GuidelineNode | JudgmentNode] = [*guidelines, *(j for g in guidelines for j in g.judgments)]
        prompt += tree.criteria_prompt_tokens + sum(n.prompt_tokens for n in nodes)
        generated += sum(c.generated_tokens for c in used) if used else tree.criteria_generated_tokens
        generated += sum(n.generated_tokens for n in nodes)
        calls += 1 + len(nodes)
        # What is asked again is decided by the first branch, and paid for whole, however few branches are read off.
        for lost in tree.earlier:
            whole = tree_tokens(lost)
            prompt, generated = prompt + whole[0], generated + whole[1]
            calls += 1 + sum(1 + len(guideline.judgments) for _, guideline in lost.guidelines())
    return Cost(prompt / len(ORDERS), generated / len(ORDERS), calls / len(ORDERS))


def check_branches(branches: int, asking: AskingConfig) -> None:
    """Raise ``ConfigError`` unless a judge that is asked so has that many branches."""
    if not isinstance(branches, Integral) or not 1 <= branches <= asking.criteria:
        raise ConfigError(f"branches={branches!r}: allowed are 1 to the {asking.criteria} criteria of this judge")


def check_aggregation(aggregation: str) -> None:
    """Raise ``ConfigError`` unless there is such a way from branches to a verdict."""
    if aggregation not in get_args(Aggregation):
        raise ConfigError(f"aggregation={aggregation!r}: allowed are {', '.join(get_args(Aggregation))}")
