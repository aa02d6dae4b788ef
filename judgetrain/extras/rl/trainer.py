"""TRL's GRPO trainer on branches, with the judge's own figures on held-out comparisons. Imports TRL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

import torch
from transformers import PreTrainedModel, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOTrainer
from trl.models.utils import unwrap_model_for_generation
from trl.trainer.utils import split_tensor_dict

from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.base import Engine
from judgetrain.extras.rl.rollouts import Labelled, RecordingEngine, Rollouts, sampled_at
from judgetrain.judges.config import JudgeOptions
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.train.checkpoints import KeptBest

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


class BranchTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer; advantages and loss are TRL's.

    Micro-batches hold rows of like length, cut to the longest of them: prompts of criteria and of judgments differ
    much. ``evaluate`` asks the judge greedily on held-out comparisons, in both orders.
    """

    control: TrainerControl
    _buffered_inputs: Any

    def __init__(self, *args: Any, held_out: HeldOut | None = None, **kwargs: Any) -> None:
        self._held_out = held_out
        super().__init__(*args, **kwargs)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        if self._step % self.args.steps_per_generation == 0 or self._buffered_inputs is None:
            scored = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = split_tensor_dict(_by_length(scored), self.args.steps_per_generation)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _compute_loss(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        return super()._compute_loss(model, _trimmed(inputs))

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """The held-out figures of the judge as it is now."""
        if self._held_out is None:
            return {}
        training = self.model.training
        with policy(self) as model:
            metrics = self._held_out.figures(
                RecordingEngine(model, self.processing_class, self._held_out.rollouts.config.max_length)
            )
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


class HeldOut:
    """Held-out comparisons, asked greedily with one branch, as is trained.

    Args:
        labelled: comparisons and their labels, which are those that training is rewarded by, not the truth.
        rollouts: how branches are sampled.
    """

    def __init__(self, labelled: Sequence[Labelled], rollouts: Rollouts) -> None:
        self.labelled, self.rollouts = labelled, rollouts

    def figures(self, engine: Engine) -> dict[str, float]:
        """``eval_agreement`` (both orders give the label), ``eval_consistency``, ``eval_unreadable``: shares."""
        rollouts = self.rollouts
        options = JudgeOptions(branches=1, steps=sampled_at(rollouts.asking, 0.0))
        judge = BranchingJudge(engine, rollouts.prompts, options)
        said = judge.compare_all([each.comparison for each in self.labelled], rollouts.seed)
        verdicts = [(prediction.verdict_ab, prediction.verdict_ba) for prediction in said]
        return {
            AGREEMENT: fmean({*pair} == {each.verdict} for pair, each in zip(verdicts, self.labelled, strict=True)),
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
