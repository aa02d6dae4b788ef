"""TRL's DPO trainer with lengths and divergence in its logs, and with weights of pairs. Imports TRL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from datasets import Dataset
from trl import DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference

from judgetrain.train.data import REFERENCE_COLUMNS

WEIGHT = "weight"
"""The column that holds a pair's weight."""


class WeightedCollator(DataCollatorForPreference):  # type: ignore[misc]
    """TRL's collator that also hands on the pairs' weights, float [pairs]."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """One batch; chosen sides first, then rejected ones."""
        batch: dict[str, Any] = super().torch_call(examples)
        if WEIGHT in examples[0]:
            batch[WEIGHT] = torch.tensor([float(example[WEIGHT]) for example in examples])
        return batch


class PreferenceTrainer(DPOTrainer):  # type: ignore[misc]
    """TRL's trainer; the loss is TRL's.

    It also logs ``lengths/chosen`` and ``lengths/rejected`` (completion tokens) and ``kl``: the mean of
    log pi_ref - log pi over both sides, nats per sequence, an estimate of KL(reference || policy) as far as the
    reference could have written the sides. Held-out figures are means over pairs, where TRL's are means over batches,
    of which the last may be short. Where pairs have a weight, the batch's loss is the mean of weight times
    the pair's own loss, of whatever type.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._evaluated: list[int] = []
        super().__init__(*args, **kwargs)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        if WEIGHT not in self._signature_columns:
            self._signature_columns.append(WEIGHT)

    def _precompute_ref_logps(self, dataset: Dataset, name: str, batch_size: int) -> Dataset:
        """The data set as it is where its rows bring their reference log-probabilities, else TRL's."""
        if set(REFERENCE_COLUMNS) <= set(dataset.column_names):
            return dataset
        return super()._precompute_ref_logps(dataset, name, batch_size)

    def compute_ref_log_probs(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        """TRL's, which takes every column that it does not know for the model's."""
        return super().compute_ref_log_probs(model, {k: v for k, v in inputs.items() if k != WEIGHT})

    def _compute_loss(self, model: Any, inputs: Mapping[str, Any], return_outputs: bool) -> Any:
        known = {k: v for k, v in inputs.items() if k != WEIGHT}
        metrics = self._metrics["train" if self.model.training else "eval"]
        before = len(metrics["rewards/chosen"])
        if WEIGHT in inputs:
            loss = self._weighted_loss(model, known, inputs[WEIGHT])
        else:
            loss = super()._compute_loss(model, known, return_outputs)
        lengths = known["completion_mask"].sum(dim=1).float().chunk(2)
        for side, tokens in zip(("chosen", "rejected"), lengths, strict=True):
            metrics[f"lengths/{side}"].append(self.accelerator.gather(tokens).mean().item())
        if self.beta:
            rewards = [*metrics["rewards/chosen"][before:], *metrics["rewards/rejected"][before:]]
            metrics["kl"].append(-sum(rewards) / len(rewards) / self.beta)
        if not self.model.training:
            pairs = torch.tensor([lengths[0].numel()], device=lengths[0].device)
            self._evaluated.append(int(self.accelerator.gather(pairs).sum()))
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's log of the figures since the last one."""
        if not self.model.training:
            for values in self._metrics["eval"].values():
                if len(values) == len(self._evaluated):  # a value for each batch; weighted pairs have one each
                    total = sum(value * pairs for value, pairs in zip(values, self._evaluated, strict=True))
                    values[:] = [total / sum(self._evaluated)]
            self._evaluated.clear()
        super().log(logs, start_time)

    def _weighted_loss(self, model: Any, inputs: dict[str, Any], weights: torch.Tensor) -> torch.Tensor:
        """The mean of weight times loss: TRL's loss of each pair on its rows of one forward pass of all."""
        pairs = weights.size(0)
        forward = _Forward(model, inputs)
        losses = []
        for pair in range(pairs):
            forward.rows = [pair, pairs + pair]
            one = {k: v[forward.rows] if v.size(0) == 2 * pairs else v[[pair]] for k, v in inputs.items()}
            losses.append(super()._compute_loss(forward, one, False))
        return (weights.to(losses[0].device) * torch.stack(losses)).mean()


class _Forward:
    """A model that is run once, on the whole batch, and gives the outputs of :attr:`rows`."""

    def __init__(self, model: Any, inputs: Mapping[str, Any]) -> None:
        self._model, self._inputs = model, inputs
        self._outputs: Any = None
        self.rows: list[int] = []

    def __call__(self, **arguments: Any) -> Any:
        if self._outputs is None:
            whole = {k: self._inputs.get(k, v) for k, v in arguments.items()}
            whole["labels"] = self._inputs["input_ids"].masked_fill(self._inputs["completion_mask"] == 0, -100)
            self._outputs = self._model(**whole)
        batch = self._inputs["input_ids"].size(0)
        rows = {
            k: v[self.rows] if isinstance(v, torch.Tensor) and v.dim() and v.size(0) == batch else v
            for k, v in self._outputs.items()
        }
        return type(self._outputs)(**rows)
