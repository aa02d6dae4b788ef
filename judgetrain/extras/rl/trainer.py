"""TRL's GRPO trainer on branches, with the judge's own figures on held-out comparisons. Imports TRL."""

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

from judgetrain.artifacts.stage_run import StageRun, derive_seed
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Request
from judgetrain.engines.config import ModelConfig, SamplingConfig, TransformersEngineConfig
from judgetrain.engines.local.batch_state import Row
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.extras.rl.config import PARTS, TEMPERATURE, RlConfig
from judgetrain.judges.base import verdict_of
from judgetrain.judges.config import TREE_READS, JudgeOptions, StepsConfig
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.prompting.prompts import PromptSet
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.schema import Comparison, Reads, Verdict
from judgetrain.train.checkpoints import KeptBest
from judgetrain.train.internals import OwnMicroBatches

AGREEMENT = "eval_agreement"
"""The held-out figure by which the trainer picks the best checkpoint."""


@contextmanager
def policy(trainer: Any) -> Iterator[PreTrainedModel]:
    """The model that is trained, whole and ready to generate; adapters are inside it."""
    wrapped = trainer.model_wrapped
    with (
        torch.no_grad(),
        unwrap_model_for_generation(wrapped, trainer.accelerator, trainer.args.ds3_gather_for_generation) as model,
        torch.autocast(trainer.accelerator.device.type, dtype=torch.bfloat16, enabled=trainer.args.bf16),
    ):
        yield model.get_base_model() if hasattr(model, "peft_config") else model


class BranchTrainer(OwnMicroBatches, GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer; advantages and loss are TRL's.

    Micro-batches hold rows of like length, cut to the longest of them: prompts of criteria and of judgments differ
    much. ``evaluate`` asks the judge greedily on held-out comparisons, in both orders.
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
        training, rollouts = self.model.training, self.rollout_func
        with rollouts.engine(self) as engine:
            metrics = held_out_figures(engine, self._held_out, rollouts)
        self.model.eval()  # TRL sorts what it logs by the model's mode
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        self.model.train(training)
        return metrics


def _by_length(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of a batch, sorted by the tokens that are read; what is no column of rows stays."""
    lengths = batch["prompt_mask"].sum(dim=1) + batch["completion_mask"].sum(dim=1)
    order, count = torch.argsort(lengths, stable=True), len(lengths)
    return {
        name: value[order] if isinstance(value, torch.Tensor) and value.dim() and len(value) == count else value
        for name, value in batch.items()
    }


def _trimmed(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs without the columns that are padding in every row: prompts on the left, completions on the right."""
    prompt = int(inputs["prompt_mask"].sum(dim=1).max())
    width, completion = inputs["completion_mask"].shape[1], int(inputs["completion_mask"].sum(dim=1).max())
    cut = dict(inputs)
    for name, value in inputs.items():
        if name.startswith("prompt_"):
            cut[name] = value[:, value.shape[1] - prompt :]
        elif isinstance(value, torch.Tensor) and value.dim() == 2 and value.shape[1] == width:
            cut[name] = value[:, :completion]
    return cut


def held_out_figures(engine: Engine, labelled: Sequence[Labelled], rollouts: Rollouts) -> dict[str, float]:
    """Shares of held-out comparisons, asked greedily with one branch, as is trained: ``eval_agreement`` (both orders
    give the label that training is rewarded by), ``eval_consistency``, ``eval_unreadable``."""
    options = JudgeOptions(branches=1, steps=sampled_at(rollouts.asking, 0.0), reads=rollouts.reads)
    judge = BranchingJudge(engine, rollouts.prompts, options)
    said = judge.compare_all([each.comparison for each in labelled], rollouts.seed)
    verdicts = [(prediction.verdict_ab, prediction.verdict_ba) for prediction in said]
    return {
        AGREEMENT: fmean({*pair} == {each.verdict} for pair, each in zip(verdicts, labelled, strict=True)),
        "eval_consistency": fmean(a is not None and a == b for a, b in verdicts),
        "eval_unreadable": fmean(verdict is None for pair in verdicts for verdict in pair),
    }


class KeptLabels(KeptBest):
    """Has the start count as the first of the steps to choose from.

    A step is better only if it agrees with more of the held-out labels than the start did; where none does, there is
    no best checkpoint, and :func:`judgetrain.train.run.complete` writes the start.
    """

    def __init__(self, held_out: int, out: StageRun) -> None:
        super().__init__(AGREEMENT, f"{held_out} comparisons", out)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, metrics: dict[str, float], **_: Any
    ) -> None:
        """Have later steps compared with the start."""
        if state.global_step == 0:
            state.best_metric = metrics[AGREEMENT]


Tokens = tuple[tuple[int, ...], tuple[int, ...]]
"""The ids of a prompt, and of what was generated after it (the end token included)."""


@dataclass(frozen=True)
class Labelled:
    """A comparison and the verdict that branches are rewarded for."""

    comparison: Comparison
    verdict: Verdict


def rewards_of(label: Verdict, margins: Sequence[float | None]) -> dict[str, float]:
    """What a branch, or a judgment, is rewarded for, in sum. Nothing looks at length.

    ``both_orders``: 1 where all judgments give the label, a tie included, else 0 (J1, arXiv 2505.10320): who always
    prefers what is shown first gets 0. ``unreadable``: minus the share of judgments that cannot be read. A branch that
    cannot be read gets a number, never None: what TRL leaves out of a group cannot be unlearned.

    Args:
        label: the verdict to give.
        margins: score of A minus that of B, by each judgment; None where it cannot be read, or never came about.
    """
    verdicts = [verdict_of(margin) for margin in margins]
    right, unread = all(verdict == label for verdict in verdicts), fmean(verdict is None for verdict in verdicts)
    return {"both_orders": float(right), "unreadable": -unread}


class Recording(Engine, Protocol):
    """An engine that remembers the token ids of all that it reads and generates.

    ``tokens`` holds them by the seed of the call and the request's place in it, which tree nodes carry.
    """

    tokens: dict[tuple[int | None, int | None], Tokens]
    tokenizer: PreTrainedTokenizerBase


class RecordingEngine(TransformersEngine):
    """A :class:`Recording` on a model in memory."""

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


@contextmanager
def own_engine(trainer: Any) -> Iterator[RecordingEngine]:
    """The policy itself, decoded here (under ZeRO-3 its weights come together for it)."""
    with policy(trainer) as model:
        yield RecordingEngine(model, trainer.processing_class, trainer.rollout_func.config.max_length)


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
        """The rows of a batch in the order of its prompts, with ``rewards``: every part's reward by name."""
        config = self.config
        generations = config.num_generations
        ids = [prompt[-1]["content"] for prompt in prompts][:: generations * PARTS]
        first = trainer.accelerator.process_index * len(ids) * generations
        comparisons = [self.labelled[i].comparison for i in ids for _ in range(generations)]
        with self.engine(trainer) as engine:
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
        self, comparisons: Sequence[Comparison], engine: Engine, seed: int, first: int = 0
    ) -> list[EvaluationTree]:
        """One list of criteria for each, and a branch of its first one: in both orders, or of either response."""
        shape = Shape(count=self.asking.criteria, criteria=1, orders=TREE_READS[self.reads])
        asking = sampled_at(self.asking, TEMPERATURE)
        numbers = range(first, first + len(comparisons))
        return grow(comparisons, engine, self.prompts, shape, asking, seed, numbers=numbers)

    def _parts(self, tree: EvaluationTree, label: Verdict, engine: Recording) -> Iterator[Part]:
        """The parts of a tree in their order; those that never came about are stand-ins that nothing is learned from.

        A stand-in has its branch's reward, which counts in what the others of its group are compared with.
        """

        def row(node: Any, rewards: dict[str, float]) -> Part:
            if node is None or node.finish_reason in UNANSWERED:
                end = engine.tokenizer.eos_token_id
                return (end,), (end,), False, rewards
            return *engine.tokens[node.seed, node.place], True, rewards

        orders = TREE_READS[self.reads]
        guideline = next((g for criterion in tree.criteria for g in criterion.guidelines), None)
        judgments = {j.order: j for j in guideline.judgments} if guideline else {}
        margins = [judgments[order].margin if order in judgments else None for order in orders]
        branch = rewards_of(label, margins)
        yield from (row(tree.lists[0], branch), row(guideline, branch))
        for order, margin in zip(orders, margins, strict=True):
            # Whether its criterion tells the responses apart is not in a judgment's hands; whether it can be read is.
            reading = {"unreadable": branch["unreadable"]}
            own = {"branch": branch, "criterion": rewards_of(label, [margin]), "level": reading}
            yield row(judgments.get(order), own[self.config.credit])


def both_orders(rewards: Sequence[Mapping[str, float]], **columns: Any) -> list[float | None]:
    """What TRL calls for the reward of this name; a part that it is not about gets None."""
    return [row.get("both_orders") for row in rewards]


def unreadable(rewards: Sequence[Mapping[str, float]], **columns: Any) -> list[float | None]:
    """As :func:`both_orders`."""
    return [row.get("unreadable") for row in rewards]
