"""Train a judge on its own branches by TRL's GRPO trainer, and measure it on held-out comparisons. Imports TRL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOTrainer
from trl.models.utils import unwrap_model_for_generation
from trl.trainer.utils import split_tensor_dict

from judgetrain.amounts import amount
from judgetrain.artifacts.stage_run import StageRun, derive_seed
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Request
from judgetrain.engines.config import ModelConfig, SamplingConfig, TransformersEngineConfig
from judgetrain.engines.local.batch_state import Row
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.extras.rl.config import PARTS, TEMPERATURE, RlConfig
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import verdict_of
from judgetrain.judges.prompting.prompts import PromptSet
from judgetrain.judges.trees.config import TREE_READS, StepsConfig
from judgetrain.judges.trees.grow import Shape, TreeModel, grow
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.schema import Comparison, Reads, Verdict
from judgetrain.train.checkpoints import DeafLoaders, KeptBest
from judgetrain.train.internals import OwnMicroBatches

AGREEMENT = "eval_agreement"
"""The held-out figure by which the trainer picks the best checkpoint."""


@contextmanager
def policy(trainer: Any) -> Iterator[PreTrainedModel]:
    """Yield the model that is trained, whole and ready to generate; adapters are inside it."""
    # Under ZeRO-3 a process holds a part of the weights; TRL gathers them for as long as the block lasts.
    wrapped = trainer.model_wrapped
    with (
        torch.no_grad(),
        unwrap_model_for_generation(wrapped, trainer.accelerator, trainer.args.ds3_gather_for_generation) as model,
        torch.autocast(trainer.accelerator.device.type, dtype=torch.bfloat16, enabled=trainer.args.bf16),
    ):
        if hasattr(model, "peft_config"):
            # PEFT puts adapters into the base's own layers, so that the base generates with them.
            yield model.get_base_model()
        else:
            yield model


class BranchTrainer(DeafLoaders, OwnMicroBatches, GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer; advantages and loss are TRL's.

    Micro-batches hold rows of like length, cut to the longest of them: prompts of criteria and of judgments differ
    much. ``evaluate`` asks the judge greedily on held-out comparisons, in both orders.

    Args:
        held_out: comparisons to measure the judge on; without any there are no figures.
    """

    control: TrainerControl

    def __init__(self, *args: Any, held_out: Sequence[Labelled] = (), **kwargs: Any) -> None:
        self._held_out = held_out
        super().__init__(*args, **kwargs)

    def micro_batches(self, scored: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows sampled at once as micro-batches of rows of like length."""
        batches: list[dict[str, Any]] = split_tensor_dict(_by_length(scored), self.args.steps_per_generation)
        return batches

    def compute_loss(self, model: Any, inputs: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Return TRL's loss of a micro-batch (scalar tensor), computed without its common padding."""
        return super().compute_loss(model, _trimmed(inputs), *args, **kwargs)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Return the held-out figures of the judge as it is now."""
        if not self._held_out:
            return {}
        was_training = self.model.training
        rollouts = self.rollout_func
        with rollouts.engine(self) as engine:
            metrics = held_out_figures(engine, self._held_out, rollouts)
        # TRL sorts what it logs by the model's mode.
        self.model.eval()
        self.log(metrics)

        # Transformers' own evaluate ends so: callbacks pick the best checkpoint by these figures.
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        self.model.train(was_training)
        return metrics


def _by_length(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows of a batch, sorted by the tokens that are read; what is no column of rows stays."""
    # By mask: columns are padded to the longest row of the whole batch.
    lengths = batch["prompt_mask"].sum(dim=1) + batch["completion_mask"].sum(dim=1)
    order = torch.argsort(lengths, stable=True)
    in_order = dict(batch)
    for name, value in batch.items():
        # Everything that has a row for each text must be sorted the same way, whatever TRL calls it.
        if isinstance(value, torch.Tensor) and value.dim() and len(value) == len(lengths):
            in_order[name] = value[order]
    return in_order


def _trimmed(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs without the columns that are padding in every row.

    Prompts are padded on the left and completions on the right.
    """
    prompt = int(inputs["prompt_mask"].sum(dim=1).max())
    completion = int(inputs["completion_mask"].sum(dim=1).max())
    # Advantages and the like have one column, and stay; what is as wide as the completions is cut with them.
    width = inputs["completion_mask"].shape[1]
    cut = dict(inputs)
    for name, value in inputs.items():
        if name.startswith("prompt_"):
            cut[name] = value[:, value.shape[1] - prompt :]
        elif isinstance(value, torch.Tensor) and value.dim() == 2 and value.shape[1] == width:
            cut[name] = value[:, :completion]
    return cut


def held_out_figures(engine: Engine, labelled: Sequence[Labelled], rollouts: Rollouts) -> dict[str, float]:
    """Return shares of held-out comparisons, asked greedily with one branch, as is trained.

    Args:
        engine: has the policy's weights.
        labelled: the comparisons.
        rollouts: how the policy is asked.

    Returns:
        ``eval_agreement`` (both orders give the label that training is rewarded by), ``eval_consistency`` and
        ``eval_unreadable``.
    """
    # One branch, though a judge may be asked with ten later: it is the branch that is trained.
    options = JudgeOptions(branches=1, steps=sampled_at(rollouts.asking, 0.0), reads=rollouts.reads)
    judge = BranchingJudge(engine, rollouts.prompts, options)
    predictions = judge.compare_batch([item.comparison for item in labelled], rollouts.seed)
    agrees = []
    is_consistent = []
    is_unreadable = []
    for prediction, item in zip(predictions, labelled, strict=True):
        verdicts = (prediction.verdict_ab, prediction.verdict_ba)
        # Both orders, as a branch's reward asks for; None is no label, so that unreadable agrees with nothing.
        agrees.append(set(verdicts) == {item.verdict})
        is_consistent.append(verdicts[0] is not None and verdicts[0] == verdicts[1])
        is_unreadable += [verdict is None for verdict in verdicts]
    return {AGREEMENT: fmean(agrees), "eval_consistency": fmean(is_consistent), "eval_unreadable": fmean(is_unreadable)}


class KeptLabels(KeptBest):
    """Has the start count as the first of the steps to choose from.

    A step is better only if it agrees with more of the held-out labels than the start did; where none does, there is
    no best checkpoint, and :func:`judgetrain.train.run.train_and_write` writes the start.
    """

    def __init__(self, held_out: int, out: StageRun) -> None:
        super().__init__(AGREEMENT, f"{amount(held_out, 'comparison')}", out)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, metrics: dict[str, float], **_: Any
    ) -> None:
        """Have later steps compared with the start, which is the first to be evaluated."""
        if state.global_step == 0:
            state.best_metric = metrics[AGREEMENT]


Tokens = tuple[tuple[int, ...], tuple[int, ...]]
"""The token ids of a prompt, and of the text generated after it (the end token included)."""


@dataclass(frozen=True)
class Labelled:
    """A comparison and the verdict that branches are rewarded for."""

    comparison: Comparison
    verdict: Verdict


def rewards_of(label: Verdict, margins: Sequence[float | None]) -> dict[str, float]:
    """Return the parts of the reward of a branch, or of a judgment. Nothing looks at length.

    ``both_orders``: 1 where all judgments give the label, a tie included, else 0 (J1, arXiv 2505.10320): a judge that
    always prefers what is shown first gets 0. ``unreadable``: minus the share of judgments that cannot be read. A
    branch that cannot be read gets a number, never None: what TRL leaves out of a group cannot be unlearned.

    Args:
        label: the verdict to give.
        margins: score of A minus that of B, by each judgment; None where it cannot be read, or never came about.
    """
    verdicts = [verdict_of(margin) for margin in margins]
    # No part of it for one right order: half a reward would be had by always naming the first response.
    is_right = all(verdict == label for verdict in verdicts)
    unreadable_share = fmean(verdict is None for verdict in verdicts)
    return {"both_orders": float(is_right), "unreadable": -unreadable_share}


class Recording(Engine, Protocol):
    """An engine that remembers the token ids of all that it reads and generates."""

    tokens: dict[tuple[int | None, int | None], Tokens]
    """Token ids by the seed of the call and the request's place in it, which tree nodes carry."""
    tokenizer: PreTrainedTokenizerBase


class RecordingEngine(TransformersEngine):
    """A :class:`Recording` on a model in memory."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_context: int = 0) -> None:
        settings = TransformersEngineConfig(model=ModelConfig(path="policy"), batch_size=256)
        super().__init__(settings, model, tokenizer)
        # Texts beyond rl.max_length could not be learned from, so that none is generated.
        self.max_context = min(self.max_context, max_context or self.max_context)
        self.tokens: dict[tuple[int | None, int | None], Tokens] = {}
        self._seed = 0

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        """Return completions as the engine does; the model is left as it was, in training mode or not."""
        self._seed = seed
        # The engine puts the model into evaluation mode; TRL goes on in the mode that it left.
        was_training = self.model.training
        try:
            return super().generate(requests, seed)
        finally:
            self.model.train(was_training)

    def _finish(self, row: Row, ids: Sequence[int]) -> Completion:
        """Remember a request's tokens, and return its completion."""
        self.tokens[self._seed, row.place] = (row.prompt, tuple(ids))
        return super()._finish(row, ids)


@contextmanager
def own_engine(trainer: Any) -> Iterator[RecordingEngine]:
    """Yield an engine on the policy itself, in this process; under ZeRO-3 its weights come together for it."""
    with policy(trainer) as model:
        yield RecordingEngine(model, trainer.processing_class, trainer.rollout_func.config.max_length)


def sampled_at(asking: StepsConfig, temperature: float) -> StepsConfig:
    """Return settings that sample every level at one temperature, and read judgments as they are written."""
    sampling: dict[str, Any] = {}
    for name in ("criteria_sampling", "guideline_sampling", "judgment_sampling"):
        sampling[name] = SamplingConfig(temperature, 1.0, getattr(asking, name).max_new_tokens)
    return replace(asking, score="parsed", constrained=False, **sampling)


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
        engine: gives what samples with the policy's weights, given the trainer.
        reads: what the judgments are shown.
    """

    labelled: Mapping[str, Labelled]
    prompts: PromptSet
    asking: StepsConfig
    config: RlConfig
    seed: int
    engine: Callable[[Any], AbstractContextManager[Recording]]
    reads: Reads = "two"

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Return the rows of a batch in the order of its prompts.

        Args:
            prompts: their texts are the ids of comparisons; each stands there once for each row of its branches.
            trainer: TRL's.

        Returns:
            TRL's columns, and ``rewards``: every part's reward by name.
        """
        config = self.config
        generations = config.num_generations
        # One id for each comparison: TRL repeats a row for each generation, and the data set for each part.
        ids = [prompt[-1]["content"] for prompt in prompts][:: generations * PARTS]
        # Branches are numbered over all processes, so that their random numbers do not depend on who samples them.
        first = trainer.accelerator.process_index * len(ids) * generations
        comparisons = []
        for identifier in ids:
            comparisons += [self.labelled[identifier].comparison] * generations
        # By the step, so that a training that goes on from a checkpoint samples what it would have sampled.
        seed = derive_seed(self.seed, "rollout", trainer.state.global_step)
        with self.engine(trainer) as engine:
            trees = self.grow(comparisons, engine, seed, first)
        rows: dict[str, list[Any]] = {"prompt_ids": [], "completion_ids": [], "env_mask": [], "rewards": []}
        for number, identifier in enumerate(ids):
            group = trees[number * generations : (number + 1) * generations]
            label = self.labelled[identifier].verdict
            parts_of_trees = [self._parts(tree, label, engine) for tree in group]
            # TRL compares the rows of a group with one another, so the same part of all branches stands together.
            for same_parts in zip(*parts_of_trees, strict=True):
                for prompt, completion, generated, rewards in same_parts:
                    rows["prompt_ids"].append([*prompt])
                    rows["completion_ids"].append([*completion])
                    rows["env_mask"].append([int(generated)] * len(completion))
                    rows["rewards"].append(rewards)
        # None: the texts count as the policy's own, without a correction for the engine that sampled them.
        return {**rows, "logprobs": None}  # type: ignore[dict-item]

    def grow(
        self, comparisons: Sequence[Comparison], engine: Engine, seed: int, first: int = 0
    ) -> list[EvaluationTree]:
        """Return a tree for each comparison: a list of criteria, and a branch of its first one.

        The branch judges in both orders, or either response.

        Args:
            comparisons: to grow trees of.
            engine: has the policy's weights.
            seed: of the step.
            first: the number of the first tree among those of all processes.
        """
        shape = Shape(count=self.asking.criteria, criteria=1, orders=TREE_READS[self.reads])
        asking = sampled_at(self.asking, TEMPERATURE)
        numbers = range(first, first + len(comparisons))
        return grow(comparisons, TreeModel(engine, self.prompts, asking), shape, seed, numbers=numbers)

    def _parts(self, tree: EvaluationTree, label: Verdict, engine: Recording) -> Iterator[Part]:
        """Yield the parts of a tree in their order; those that never came about are stand-ins.

        Nothing is learned from a stand-in. It has its branch's reward, which counts in what the others of its group are
        compared with.

        Args:
            tree: with one branch.
            label: the verdict to give.
            engine: has the tokens of the tree's nodes.
        """
        orders = TREE_READS[self.reads]
        # There is one at most: the list may be unreadable, or the guideline missing.
        guideline = next((node for criterion in tree.criteria for node in criterion.guidelines), None)
        judgments = {}
        if guideline is not None:
            judgments = {judgment.order: judgment for judgment in guideline.judgments}
        margins = []
        for order in orders:
            margin = None
            if order in judgments:
                margin = judgments[order].margin
            margins.append(margin)
        branch = rewards_of(label, margins)
        # The list and the guideline decide what the judgments say, and are rewarded for all of it.
        yield _part(tree.lists[0], branch, engine)
        yield _part(guideline, branch, engine)
        for order, margin in zip(orders, margins, strict=True):
            rewards = branch
            if self.config.credit == "criterion":
                rewards = rewards_of(label, [margin])
            elif self.config.credit == "level":
                # Whether its criterion tells the responses apart is not in a judgment's hands; if it can be read is.
                rewards = {"unreadable": branch["unreadable"]}
            yield _part(judgments.get(order), rewards, engine)


def _part(node: Any, rewards: dict[str, float], engine: Recording) -> Part:
    """Return the part of a tree's node; a stand-in where there is none, or the model gave no answer."""
    if node is None or node.finish_reason in UNANSWERED:
        # A row needs a token in either column; the mask keeps it out of the loss.
        end = engine.tokenizer.eos_token_id
        return (end,), (end,), False, rewards
    prompt, completion = engine.tokens[node.seed, node.place]
    return prompt, completion, True, rewards


def both_orders(rewards: Sequence[Mapping[str, float]], **columns: Any) -> list[float | None]:
    """Return the rewards of this name, as TRL asks for them; a part that it is not about gets None."""
    return [row.get("both_orders") for row in rewards]


def unreadable(rewards: Sequence[Mapping[str, float]], **columns: Any) -> list[float | None]:
    """Return the rewards of this name, as :func:`both_orders` does."""
    return [row.get("unreadable") for row in rewards]
