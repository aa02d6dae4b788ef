"""DPO: TRL's trainer with lengths and divergence in its logs, and its stop-loss (branching paper, section 5.7).

Training that has begun to unlearn is stopped, and the best held-out checkpoint kept. Imports TRL.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import DPOTrainer

from judgetrain.artifacts.stage_run import StageRun
from judgetrain.train.config import StopConfig
from judgetrain.train.data import REFERENCE_COLUMNS, Row

BEST = "eval_agreement_then_loss"
"""The figure by which the trainer picks the best checkpoint."""

AGREEMENT = "eval_rewards/accuracies"


def agreement_then_loss(metrics: Row, pairs: int) -> float:
    """Held-out pairs that the implicit reward orders as labelled, plus less than one for a lower loss.

    A larger agreement always counts for more than any loss; a loss that is no number counts as the largest.
    """
    loss = metrics["eval_loss"]
    return round(metrics[AGREEMENT] * pairs) + (1.0 / (2.0 + max(0.0, loss)) if math.isfinite(loss) else 0.0)


def reason_to_stop(evaluations: Sequence[Row], settings: StopConfig, beta: float, key: str) -> str | None:
    """Why training should stop after the last of these evaluations, in words; None to go on.

    Args:
        evaluations: held-out metrics as TRL logs them, oldest first.
        settings: the limits.
        beta: of DPO; rewards over beta are log-ratios of policy and reference, nats.
        key: how the settings are called, ``train.dpo.stop``.
    """
    last = evaluations[-1]
    if settings.chosen_drop is not None:
        drop = -last["eval_rewards/chosen"] / beta / max(1.0, last["eval_lengths/chosen"])
        if drop > settings.chosen_drop:
            return (
                f"the held-out chosen log-probability is {drop:.3g} nats a token below the reference's "
                f"({key}.chosen_drop={settings.chosen_drop:g})"
            )
    margin = last["eval_rewards/margins"]
    if settings.margin is not None and margin > settings.margin:
        return f"the held-out reward margin of {margin:.3g} is saturated ({key}.margin={settings.margin:g})"
    if settings.patience is not None:
        agreements = [row[AGREEMENT] for row in evaluations]
        waited = len(agreements) - 1 - agreements.index(max(agreements))
        if waited >= settings.patience:
            return f"no better held-out agreement in {waited} evaluations ({key}.patience={settings.patience})"
    return None


class PreferenceTrainer(DPOTrainer):  # type: ignore[misc]
    """TRL's trainer; the loss is TRL's.

    It also logs ``lengths/chosen`` and ``lengths/rejected`` (completion tokens) and ``kl``: the mean of
    log pi_ref - log pi over both sides, nats per sequence, an estimate of KL(reference || policy) as far as the
    reference could have written the sides. Held-out figures are means over pairs, where TRL's are means over batches,
    of which the last may be short.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._evaluated: list[int] = []
        super().__init__(*args, **kwargs)

    def _prepare_dataset(self, dataset: Dataset, *_: Any, **__: Any) -> Dataset:
        """The data set as it is: :func:`judgetrain.train.data.dataset` has tokenised it."""
        return dataset

    def _precompute_ref_logps(self, dataset: Dataset, name: str, batch_size: int) -> Dataset:
        """The data set as it is where its rows bring their reference log-probabilities, else TRL's."""
        if set(REFERENCE_COLUMNS) <= set(dataset.column_names):
            return dataset
        return super()._precompute_ref_logps(dataset, name, batch_size)

    def _compute_loss(self, model: Any, inputs: Mapping[str, Any], return_outputs: bool) -> Any:
        metrics = self._metrics["train" if self.model.training else "eval"]
        loss = super()._compute_loss(model, inputs, return_outputs)
        lengths = inputs["completion_mask"].sum(dim=1).float().chunk(2)
        for side, tokens in zip(("chosen", "rejected"), lengths, strict=True):
            metrics[f"lengths/{side}"].append(self.accelerator.gather(tokens).mean().item())
        if self.beta:
            rewards = metrics["rewards/chosen"][-1] + metrics["rewards/rejected"][-1]
            metrics["kl"].append(-rewards / 2 / self.beta)
        if not self.model.training:
            pairs = torch.tensor([lengths[0].numel()], device=lengths[0].device)
            self._evaluated.append(int(self.accelerator.gather(pairs).sum()))
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's log of the figures since the last one."""
        if not self.model.training:
            for values in self._metrics["eval"].values():
                if len(values) == len(self._evaluated):  # a value for each batch; the count of tokens is one
                    total = sum(value * pairs for value, pairs in zip(values, self._evaluated, strict=True))
                    values[:] = [total / sum(self._evaluated)]
            self._evaluated.clear()
        super().log(logs, start_time)


class StopLoss(TrainerCallback):  # type: ignore[misc]
    """Watches the held-out slice; says why it stops, and which step is kept.

    What it decides depends on the logged evaluations alone, which checkpoints carry: a run that was killed after
    the stop and before its model was saved stops again without training on.
    """

    def __init__(self, settings: StopConfig, beta: float, pairs: int, out: StageRun) -> None:
        self._settings, self._beta, self._pairs, self._out = settings, beta, pairs, out
        self._stopped_at: int | None = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Find out whether the checkpoint that training resumes from is where it had stopped."""
        evaluations = _evaluations(state)
        if evaluations and evaluations[-1]["step"] == state.global_step and self._reason(evaluations):
            self._stopped_at = state.global_step

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Evaluate the last step too; undo the one step that the trainer takes after a resumed stop."""
        if self._stopped_at is not None:
            state.global_step = self._stopped_at
            control.should_log = control.should_evaluate = control.should_save = False
            control.should_training_stop = True
        elif state.global_step >= state.max_steps:
            control.should_evaluate = True

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any) -> None:
        """Give the trainer the figure that ranks checkpoints, and stop where a limit is passed."""
        event["metrics"][BEST] = agreement_then_loss(event["metrics"], self._pairs)
        reason = self._reason(_evaluations(state))
        if reason and state.global_step < state.max_steps:
            control.should_training_stop = True
            self._out.note("stopped", {"step": state.global_step, "of": state.max_steps, "reason": reason})
            if state.is_world_process_zero:
                self._out.log(f"{self._out.stage}: stopped at step {state.global_step} of {state.max_steps}: {reason}")

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Say which step is kept."""
        kept = [row for row in _evaluations(state) if row["step"] == state.best_global_step]
        if kept and state.is_world_process_zero:
            facts = {"step": state.best_global_step, "of": state.global_step, "agreement": kept[-1][AGREEMENT]}
            self._out.note("kept", facts)
            self._out.log(
                f"{self._out.stage}: kept step {facts['step']} of {facts['of']}: held-out agreement "
                f"{facts['agreement']:.3f} on {self._pairs} pairs"
            )

    def _reason(self, evaluations: Sequence[Row]) -> str | None:
        return reason_to_stop(evaluations, self._settings, self._beta, f"train.{self._out.stage}.stop")


def _evaluations(state: TrainerState) -> list[Row]:
    return [row for row in state.log_history if AGREEMENT in row]
