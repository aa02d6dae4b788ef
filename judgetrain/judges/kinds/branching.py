"""The branching judge: k criteria, one branch each, in both orders (branching paper, section 4.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from judgetrain.engines.base import Engine
from judgetrain.engines.config import EngineConfig, ModelConfig, TransformersEngineConfig
from judgetrain.errors import ConfigError, EngineError
from judgetrain.judges.base import Cost, Judge, Prediction
from judgetrain.judges.config import Aggregation, AskingConfig
from judgetrain.judges.kinds.aggregation import verdict
from judgetrain.judges.kinds.early_stop import ORDERS, next_wave, stopped
from judgetrain.judges.prompting.prompts import FILE, PromptSet, load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, JudgmentNode
from judgetrain.schema import Comparison


class BranchingJudge(Judge):
    """Compares two responses by the first k criteria that the model names.

    Each criterion gets one guideline and, in each order, one judgment. ``aggregation`` ``vote``: the side that more
    branches prefer, a tie when equally many do. ``margin``: the side with the larger sum of scores. ``ranked``: the
    side that the first branch to see a difference prefers (``kinds/aggregation.py``).

    Args:
        engine: generates the text.
        prompts: the prompt set the model was trained with.
        branches: k, at most ``settings.criteria``.
        settings: how many criteria are asked for, and the sampling at each level.
        aggregation: how branches become a verdict.
        name: the method's name in predictions.
        early_stop: judge the branches in waves, and in each order only until its verdict can no longer change: the
            same verdicts for fewer tokens, but in more steps, and with a margin over fewer branches.
        top_up: ask once more where fewer criteria came back than there are branches. The further list's prompt counts
            in every verdict's cost, also in those read off fewer branches.
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
    ) -> None:
        self.engine, self.prompts, self.branches = engine, prompts, branches
        self.settings = settings or AskingConfig()
        self.aggregation, self.name, self.early_stop, self.top_up = aggregation, name, early_stop, top_up

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        branches: int = 1,
        *,
        engine: EngineConfig | None = None,
        settings: AskingConfig | None = None,
        aggregation: Aggregation = "vote",
        early_stop: bool = False,
        top_up: bool = False,
    ) -> BranchingJudge:
        """A judge from a directory that training wrote; it carries its prompt set and how it was sampled.

        Raises:
            EngineError: the directory has no ``prompts.yaml``: it is no judge.
        """
        from judgetrain.engines.registry import make_engine

        directory = Path(path)
        if not (directory / FILE).is_file():
            raise EngineError(f"{directory} holds no {FILE}: give the model directory of a trained judge")
        config = engine or TransformersEngineConfig(model=ModelConfig(path=str(directory)))
        return cls(
            make_engine(config, model_path=str(directory), name=directory.name),
            load_prompt_set(directory / FILE),
            branches,
            settings or AskingConfig.load(directory),
            aggregation,
            directory.name,
            early_stop,
            top_up,
        )

    def compare_all(self, comparisons: Sequence[Comparison], seed: int) -> list[Prediction]:
        """The verdicts on many comparisons."""
        return self.predictions(self.sample(comparisons, seed), self.branches)

    def sample(self, comparisons: Sequence[Comparison], seed: int, branches: int | None = None) -> list[EvaluationTree]:
        """Grow one branch for each of the first ``branches`` criteria, in both orders.

        The list is written only as far as it is used, so that what the first k < ``branches`` branches say and
        cost is what a run with k branches would have said and cost. With ``early_stop`` only what the verdict needs
        is grown; that is also enough for every smaller number of branches.

        Raises:
            ConfigError: more branches than the judge names criteria, or none.
        """
        settings, wanted = self.settings, self.branches if branches is None else branches
        if not 1 <= wanted <= settings.criteria:
            raise ConfigError(f"branches={wanted}: allowed are 1 to the {settings.criteria} criteria of this judge")
        shape = Shape(count=settings.criteria, criteria=wanted, top_up=self.top_up)
        steer = (lambda tree: next_wave(tree, wanted, self.aggregation)) if self.early_stop else None
        return grow(comparisons, self.engine, self.prompts, shape, settings, seed, steer=steer)

    def predictions(self, trees: Sequence[EvaluationTree], branches: int) -> list[Prediction]:
        """The predictions that the first ``branches`` criteria of sampled trees give."""
        return [predict(tree, branches, self.aggregation, self.name, self.early_stop) for tree in trees]

    def close(self) -> None:
        """Free the model."""
        self.engine.close()


def predict(
    tree: EvaluationTree, branches: int, aggregation: Aggregation, method: str, early_stop: bool = False
) -> Prediction:
    """One prediction from the first ``branches`` criteria of a tree, or from as many of them as settle it."""
    if early_stop:
        tree = stopped(tree, branches, aggregation)
    criteria = tree.criteria[:branches]
    nodes = [j for c in criteria for j in c.judgments]
    margins = [j.margin for j in nodes if j.margin is not None]
    failures = Counter(j.failure for j in nodes if j.failure)
    failures.update(f"guideline:{r}" for c in criteria for g in c.guidelines if (r := g.failure))
    if not criteria:
        failures["criteria:none"] += 1
    return Prediction(
        comparison_id=tree.comparison.id,
        method=method,
        branches=branches,
        verdict_ab=verdict(criteria, "AB", aggregation),
        verdict_ba=verdict(criteria, "BA", aggregation),
        margin=sum(margins) / len(margins) if margins else None,
        cost=_cost(tree, criteria),
        judgments=len(nodes),
        failures=dict(failures),
        spread=_spread(nodes),
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


def _cost(tree: EvaluationTree, criteria: Sequence[CriterionNode]) -> Cost:
    """What a verdict in one order costs, mean of the orders asked.

    The list counts fully for each, and so does a guideline in each order that was judged by it; one that nothing could
    be judged by counts for all.
    """
    guidelines = [g for c in criteria for g in c.guidelines]
    asked = {j.order for g in guidelines for j in g.judgments}
    orders = [order for order in ORDERS if order in asked] or [*ORDERS]
    prompt: float = tree.criteria_prompt_tokens
    generated: float = sum(c.generated_tokens for c in criteria) if criteria else tree.criteria_generated_tokens
    calls = 1.0
    for order in orders:
        for guideline in guidelines:
            nodes = [j for j in guideline.judgments if j.order == order]
            if nodes or not guideline.judgments:
                prompt += (guideline.prompt_tokens + sum(j.prompt_tokens for j in nodes)) / len(orders)
                generated += (guideline.generated_tokens + sum(j.generated_tokens for j in nodes)) / len(orders)
                calls += (1 + len(nodes)) / len(orders)
    return Cost(prompt, generated, calls)
