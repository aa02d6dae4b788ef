"""TRL's trainers as they are used here: DPO's with more in its logs, SFT's in two phases, less work on a CPU."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from datasets import Dataset
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import TrainerControl, TrainerState, TrainingArguments, get_scheduler
from trl import DPOTrainer, SFTTrainer
from trl.trainer import utils

from judgetrain.artifacts.stage_run import StageRun
from judgetrain.train.checkpoints import KeptBest
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


class PreferenceTrainer(DPOTrainer):  # type: ignore[misc]
    """TRL's trainer; the loss is TRL's.

    It also logs ``lengths/chosen`` and ``lengths/rejected`` (completion tokens) and ``kl``: the mean of
    log pi_ref - log pi over both sides, nats per sequence, an estimate of KL(reference || policy) as far as the
    reference could have written the sides. Held-out figures are means over pairs, where TRL's are means over batches,
    of which the last may be short. The supervised term is a mean over the chosen tokens of an optimizer step, where
    TRL's is a mean of the means of its micro-batches.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._evaluated: list[int] = []
        super().__init__(*args, **kwargs)
        self._weights, self._tokens = [*self.loss_weights], 1.0  # type: ignore[has-type]

    def get_batch_samples(self, *args: Any) -> Any:
        """Transformers' micro-batches of a step, of which the chosen tokens are counted."""
        samples, items = super().get_batch_samples(*args)
        tokens = torch.tensor([float(_chosen_tokens(each)) for each in samples] or [1.0], device=self.args.device)
        self._tokens = float(self.accelerator.reduce(tokens.mean(), "mean"))
        return samples, items

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
        share = _chosen_tokens(inputs) / self._tokens if self.model.training else 1.0
        weighted = zip(self.loss_types, self._weights, strict=True)
        self.loss_weights = [weight * share if name == "sft" else weight for name, weight in weighted]
        with nullcontext() if self.model.training else self._each_pair_once():
            loss = super()._compute_loss(model, inputs, return_outputs)
            self._count(inputs, metrics)
        return loss

    def _count(self, inputs: Mapping[str, Any], metrics: dict[str, list[float]]) -> None:
        lengths = inputs["completion_mask"].sum(dim=1).float().chunk(2)
        for side, tokens in zip(("chosen", "rejected"), lengths, strict=True):
            metrics[f"lengths/{side}"].append(self.accelerator.gather(tokens).mean().item())
        if self.beta:
            rewards = metrics["rewards/chosen"][-1] + metrics["rewards/rejected"][-1]
            metrics["kl"].append(-rewards / 2 / self.beta)
        if not self.model.training:
            pairs = torch.tensor([lengths[0].numel()], device=lengths[0].device)
            self._evaluated.append(int(self.accelerator.gather(pairs).sum()))

    @contextmanager
    def _each_pair_once(self) -> Iterator[None]:
        """Leave out of what is gathered the pairs that stand in the last batch again, so that each process has some."""
        accelerator, gather = self.accelerator, self.accelerator.gather

        def gather_once(tensor: torch.Tensor) -> torch.Tensor:
            state = accelerator.gradient_state
            over = state.end_of_dataloader and state.remainder > 0
            return gather(tensor)[: state.remainder] if over else gather(tensor)

        accelerator.gather = gather_once
        try:
            yield
        finally:
            del accelerator.gather

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's log of the figures since the last one."""
        if not self.model.training:
            for values in self._metrics["eval"].values():
                if len(values) == len(self._evaluated):  # a value for each batch; the count of tokens is one
                    total = sum(value * pairs for value, pairs in zip(values, self._evaluated, strict=True))
                    values[:] = [total / sum(self._evaluated)]
            self._evaluated.clear()
        super().log(logs, start_time)


def _chosen_tokens(inputs: Mapping[str, Any]) -> int:
    return int(inputs["completion_mask"].chunk(2)[0].sum())


class KeptPairs(KeptBest):
    """Ranks DPO's checkpoints by held-out pairs: training can unlearn (branching paper, section 5.7)."""

    def __init__(self, pairs: int, out: StageRun) -> None:
        super().__init__(AGREEMENT, f"{pairs} pairs", out)
        self._pairs = pairs

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any) -> None:
        """Give the trainer the figure that ranks checkpoints."""
        event["metrics"][BEST] = agreement_then_loss(event["metrics"], self._pairs)


class SupervisedTrainer(SFTTrainer):  # type: ignore[misc]
    """TRL's SFT trainer; the held-out loss is a mean over tokens, as the training loss is, however they are batched."""

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """TRL's step; the loss is summed up over tokens besides."""
        loss, *others = super().prediction_step(model, inputs, *args, **kwargs)
        tokens = (inputs["labels"][:, 1:] != -100).sum().to(loss.device)
        sums = torch.stack([loss * tokens, tokens]).double()[None]
        self._heldout += self.accelerator.gather_for_metrics(sums).sum(dim=0).cpu()
        return (loss, *others)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Transformers' loop, with the loss per token."""
        self._heldout = torch.zeros(2, dtype=torch.float64)
        found = super().evaluation_loop(*args, **kwargs)
        found.metrics["eval_loss"] = float(self._heldout[0] / self._heldout[1])
        return found


class PhasedTrainer(SupervisedTrainer):
    """An SFT trainer whose first ``opening_steps`` have a schedule of their own.

    Under one schedule the rate would be nearly 0 by the time that a short rest begins, and nothing of it be learned.
    """

    def __init__(self, *args: Any, opening_steps: int, **kwargs: Any) -> None:
        self.opening_steps = opening_steps
        super().__init__(*args, **kwargs)

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        """The schedule of ``args.lr_scheduler_type``, with its warm-up, once for either phase."""
        if self.lr_scheduler is None:  # type: ignore[has-type]
            chosen, opening = self.optimizer if optimizer is None else optimizer, self.opening_steps
            first, rest = (
                get_scheduler(
                    self.args.lr_scheduler_type,
                    optimizer=chosen,
                    num_warmup_steps=self.args.get_warmup_steps(steps),
                    num_training_steps=steps,
                    scheduler_specific_kwargs=self.args.lr_scheduler_kwargs,
                ).lr_lambdas[0]
                for steps in (opening, num_training_steps - opening)
            )
            self.lr_scheduler = LambdaLR(chosen, lambda step: first(step) if step < opening else rest(step - opening))
            self._created_lr_scheduler = True
        return self.lr_scheduler


@contextmanager
def labelled_tokens_alone() -> Iterator[None]:
    """Have TRL's fused output layer project, on a CPU, only the positions whose next token has a label.

    TRL 1.16 does so where Triton runs its kernels, and elsewhere projects every position, lest accelerators compile
    for each number of them; a CPU compiles nothing. Of a judgment nine tokens in ten are prompt: with a vocabulary of
    262,144 most of a step's time goes there. Losses and gradients are the same
    (``tests/benchmarks/fused_head.py`` has the ratio).
    """
    on_triton = getattr(utils, "_use_triton", None)
    if on_triton is None:  # another TRL, which does it as it does
        yield
        return
    utils._use_triton = lambda device: device == torch.device("cpu") or on_triton(device)
    try:
        yield
    finally:
        utils._use_triton = on_triton
