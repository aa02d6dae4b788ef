"""Branches of the model that is being trained, as the rows of a GRPO batch.

A branch is four texts with prompts of their own: a list of criteria, a guideline, and a judgment in each order. TRL
compares the rows of a group with one another; here a group is one of these parts of all branches of a comparison, so
that a list is compared with lists and a judgment with judgments. The parts of a comparison stand one after another:
its criteria, the first one's guideline, and the judgments in orders AB and BA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import UNANSWERED, Completion, Request
from judgetrain.engines.config import ModelConfig, SamplingConfig, TransformersEngineConfig
from judgetrain.engines.local.batch_state import Row
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.extras.rl.config import PARTS, TEMPERATURE, RlConfig
from judgetrain.judges.base import verdict_of
from judgetrain.judges.config import StepsConfig
from judgetrain.judges.prompting.prompts import PromptSet
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree
from judgetrain.schema import ORDERS, Comparison, Order, Verdict

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Tokens = tuple[tuple[int, ...], tuple[int, ...]]
"""The ids of a prompt, and of what was generated after it (the end token included)."""


@dataclass(frozen=True)
class Labelled:
    """A comparison and the verdict that branches are rewarded for."""

    comparison: Comparison
    verdict: Verdict


@dataclass(frozen=True)
class Outcome:
    """What one branch said, in the comparison's own order: the margins (score of A minus that of B) of both orders.

    None is an order that cannot be read, also because the criterion or the guideline before it could not be had.
    """

    label: Verdict
    margin_ab: float | None
    margin_ba: float | None

    @property
    def verdicts(self) -> tuple[Verdict | None, Verdict | None]:
        """Both verdicts."""
        return verdict_of(self.margin_ab), verdict_of(self.margin_ba)


def both_orders(outcome: Outcome) -> float:
    """1 where both orders give the label, else 0 (J1, arXiv 2505.10320). Who always prefers what is shown first gets 0.

    A label that is a tie is given by two ties.
    """
    return float(all(verdict == outcome.label for verdict in outcome.verdicts))


def unreadable(outcome: Outcome) -> float:
    """Minus the share of the orders that cannot be read: 0, -0.5 or -1."""
    return -fmean(verdict is None for verdict in outcome.verdicts)


REWARDS: Mapping[str, Callable[[Outcome], float]] = {f.__name__: f for f in (both_orders, unreadable)}
"""What a branch is rewarded for, in sum. None looks at length. A branch that cannot be read gets a number, never None:
what TRL leaves out of a group cannot be unlearned."""
OF_READING = "unreadable"
"""What a judgment can be held to by itself: whether its criterion tells the responses apart is not in its hands."""


class RecordingEngine(TransformersEngine):
    """An engine on a model in memory that also remembers the token ids of everything that it generates.

    ``tokens`` holds them by the seed of the call and the request's place in it, which tree nodes carry.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_context: int = 0) -> None:
        settings = TransformersEngineConfig(model=ModelConfig(path="policy"), batch_size=256)
        super().__init__(settings, model, tokenizer)
        self.max_context = min(self.max_context, max_context or self.max_context)
        self.tokens: dict[tuple[int | None, int | None], Tokens] = {}
        self._seed = 0

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """As of the engine; the model is left as it was, in training mode or not."""
        self._seed, training = seed, self.model.training
        try:
            return super().generate(requests, seed)
        finally:
            self.model.train(training)

    def _finish(self, row: Row, ids: Sequence[int]) -> Completion:
        self.tokens[self._seed, row.place] = (row.prompt, tuple(ids))
        return super()._finish(row, ids)


def sampled_at(asking: StepsConfig, temperature: float) -> StepsConfig:
    """The same at every level but for the temperature; judgments are read as they are written."""
    limits = {
        name: SamplingConfig(temperature, 1.0, getattr(asking, name).max_new_tokens)
        for name in ("criteria_sampling", "guideline_sampling", "judgment_sampling")
    }
    return replace(asking, score="parsed", constrained=False, **dict[str, Any](limits))


Part = tuple[Sequence[int], Sequence[int], bool, dict[str, float]]
"""Prompt, completion, whether the model wrote it, and its rewards by name."""


@dataclass(frozen=True)
class Rollouts:
    """TRL's ``rollout_func``: samples branches for the comparisons of a batch, whose prompts are their ids.

    Args:
        labelled: the comparisons by their ids.
        prompts: the judge's prompt set.
        asking: how many criteria are listed, and how long texts may be.
        config: the stage's settings.
        seed: with the step and the comparison's place in it, decides every random number: they do not depend on how
            many processes share the batch.
        lend: gives the model to generate with, given the trainer (under ZeRO-3 its weights come together for it).
    """

    labelled: Mapping[str, Labelled]
    prompts: PromptSet
    asking: StepsConfig
    config: RlConfig
    seed: int
    lend: Callable[[Any], Any]

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """The rows of a batch in the order of its prompts, with ``rewards``: every part's reward by name."""
        config = self.config
        generations = config.num_generations
        ids = [prompt[-1]["content"] for prompt in prompts][:: generations * PARTS]
        first = trainer.accelerator.process_index * len(ids) * generations
        comparisons = [self.labelled[i].comparison for i in ids for _ in range(generations)]
        with self.lend(trainer) as model:
            engine = RecordingEngine(model, trainer.processing_class, config.max_length)
            trees = self.grow(comparisons, engine, derive_seed(self.seed, "rollout", trainer.state.global_step), first)
        rows: dict[str, list[Any]] = {"prompt_ids": [], "completion_ids": [], "env_mask": [], "rewards": []}
        for number, identifier in enumerate(ids):
            group = trees[number * generations : (number + 1) * generations]
            label = self.labelled[identifier].verdict
            for part in zip(*(self._parts(tree, label, engine) for tree in group), strict=True):
                for prompt, completion, generated, rewards in part:
                    rows["prompt_ids"].append([*prompt])
                    rows["completion_ids"].append([*completion])
                    rows["env_mask"].append([int(generated)] * len(completion))
                    rows["rewards"].append(rewards)
        return {**rows, "logprobs": None}  # type: ignore[dict-item]

    def grow(
        self, comparisons: Sequence[Comparison], engine: TransformersEngine, seed: int, first: int = 0
    ) -> list[EvaluationTree]:
        """One list of criteria for each, and a branch in both orders for its first criterion."""
        shape = Shape(count=self.asking.criteria, criteria=1)
        asking = sampled_at(self.asking, TEMPERATURE)
        numbers = range(first, first + len(comparisons))
        return grow(comparisons, engine, self.prompts, shape, asking, seed, numbers=numbers)

    def _parts(self, tree: EvaluationTree, label: Verdict, engine: RecordingEngine) -> Iterator[Part]:
        """The parts of a tree in their order; those that never came about are stand-ins that nothing is learned from.

        A stand-in has its branch's reward, which counts in what the others of its group are compared with.
        """

        def row(node: Any, rewards: dict[str, float]) -> Part:
            if node is None or node.finish_reason in UNANSWERED:
                end = engine.tokenizer.eos_token_id
                return (end,), (end,), False, rewards
            return *engine.tokens[node.seed, node.place], True, rewards

        node = tree.criteria[0] if tree.criteria else None
        outcome = outcome_of(node, label)
        branch = {name: reward(outcome) for name, reward in REWARDS.items()}
        guideline = node.guidelines[0] if node and node.guidelines else None
        judgments = {j.order: j for j in guideline.judgments} if guideline else {}
        alone = branch if self.config.credit == "branch" else {OF_READING: branch[OF_READING]}
        yield from (row(tree.lists[0], branch), row(guideline, branch))
        yield from (row(judgments.get(order), alone) for order in ORDERS)


def outcome_of(node: CriterionNode | None, label: Verdict) -> Outcome:
    """What the first judgment in each order of a criterion's branches says."""
    margins: dict[Order, float | None] = {}
    for judgment in node.judgments if node else ():
        margins.setdefault(judgment.order, judgment.margin)
    return Outcome(label, margins.get("AB"), margins.get("BA"))


def reward_functions() -> list[Callable[..., list[float | None]]]:
    """What TRL calls for each reward; a part that a reward is not about gets None."""

    def function(name: str) -> Callable[..., list[float | None]]:
        def reward(rewards: Sequence[Mapping[str, float]], **columns: Any) -> list[float | None]:
            return [row.get(name) for row in rewards]

        reward.__name__ = name
        return reward

    return [function(name) for name in REWARDS]
