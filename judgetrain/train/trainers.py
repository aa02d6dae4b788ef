"""TRL's SFT and DPO trainers as they are used here, with more in their logs and held-out figures that are exact."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import TrainerControl, TrainerState, TrainingArguments
from trl import DPOTrainer, SFTTrainer

from judgetrain.amounts import amount
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.internals import check_internals
from judgetrain.scorers.head import Head
from judgetrain.train import internals
from judgetrain.train.arguments import BEST
from judgetrain.train.checkpoints import DeafLoaders, KeptBest, rounding
from judgetrain.train.data import Row
from judgetrain.train.internals import SharedOutByFsdp, TokenisedPairs, figures
from judgetrain.train.prefix_trees import ENDS, POSITIONS
from judgetrain.train.ranking import PAIR_NUMBERS, PAIRS, RANK, RANKED, RANKED_NUMBERS, levels_of, ranked_in_batch
from judgetrain.train.tree_attention import TreeAttention, tree_columns

AGREEMENT = "eval_rewards/accuracies"
TRIED_AMONG = 256
"""Rows of which the one with the longest example is tried, where a model reads prefix trees."""


def agreement_then_loss(metrics: Row, pairs: int) -> float:
    """Return the number of held-out pairs that the implicit reward orders as labelled, plus less than 1 for the loss.

    A larger agreement always counts for more than any loss; of equal ones, the lower loss has the higher value. A
    loss that is no number counts as the largest.

    Args:
        metrics: an evaluation's figures, with the agreement as a share of the pairs.
        pairs: how many pairs are held out.
    """
    ordered_as_labelled = round(metrics[AGREEMENT] * pairs)
    loss = metrics["eval_loss"]
    if not math.isfinite(loss):
        return float(ordered_as_labelled)
    # One half at most, so that no loss outweighs a pair.
    return ordered_as_labelled + 1.0 / (2.0 + max(0.0, loss))


class RowMeans(DeafLoaders):
    """A trainer whose held-out figures are means over rows, each row once, however rows are batched or shared out.

    Stands before one of TRL's trainers among a class's bases. The model reads a batch at once; from its outputs TRL
    then computes the loss and the figures of each row by itself.
    """

    _row_sums: list[torch.Tensor] | None = None
    """For each batch evaluated so far, the sum of its rows' weights and of each figure times the weight; None outside
    an evaluation."""
    _figure_names: Sequence[str] = ()

    def weights(self, inputs: Mapping[str, Any]) -> list[float]:
        """Return how much each row of a batch counts in a mean."""
        raise NotImplementedError

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a batch's loss (scalar tensor); in an evaluation, also add its rows to the means."""
        if self._row_sums is None:
            return super().compute_loss(model, inputs, *args, **kwargs)

        # The model reads the whole batch once; below, TRL computes the loss of each row from the recorded outputs.
        outputs: list[Any] = []

        def recording(**arguments: Any) -> Any:
            outputs.append(model(**arguments))
            return outputs[-1]

        metrics = figures(self)
        weights = self.weights(inputs)
        weighted_figures = []
        with _ungathered(self.accelerator):
            super().compute_loss(recording, inputs)
            for row, weight in enumerate(weights):
                metrics.clear()
                # In a batch of pairs, the rejected side stands as many rows below the chosen one as there are pairs.
                rows = slice(row, None, len(weights))
                loss = super().compute_loss(_replaying(outputs, rows), _part(inputs, rows))
                row_figures = {"loss": float(loss)}

                # Sorted, since sums of several processes are added by their place.
                for name, values in sorted(metrics.items()):
                    row_figures[name] = values[-1]
                weighted_figures.append([weight, *(weight * value for value in row_figures.values())])
        metrics.clear()

        sums = torch.tensor(weighted_figures, dtype=torch.float64, device=self.args.device)
        self._row_sums.append(self.accelerator.gather_for_metrics(sums).sum(dim=0).cpu())
        # Every row has the same figures, so the last row's names are those of all.
        self._figure_names = [*row_figures]
        total_weight, total_loss = sums.sum(dim=0)[:2]
        return total_loss / total_weight

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Return what Transformers' loop does, with the means over rows in place of those over batches."""
        self._row_sums = []
        try:
            output = super().evaluation_loop(*args, **kwargs)
            # The first entry is the weights' sum, by which all figures are divided.
            total = torch.stack(self._row_sums).sum(dim=0)
        finally:
            self._row_sums = None
        means = dict(zip(self._figure_names, (total[1:] / total[0]).tolist(), strict=True))
        output.metrics["eval_loss"] = means.pop("loss")
        # TRL adds the means of these lists to the log's row of this evaluation.
        figures(self).update({name: [mean] for name, mean in means.items()})
        return output


def _part(batch: Mapping[str, Any], rows: slice) -> Any:
    """Return some rows of a batch, or of a model's output for it, as a mapping of the same class."""
    parts = dict(batch)
    for name, value in batch.items():
        if isinstance(value, torch.Tensor) and value.ndim:
            parts[name] = value[rows]
    if type(batch) is dict:
        return parts
    return type(batch)(**parts)


def _replaying(outputs: Sequence[Mapping[str, Any]], rows: slice) -> Callable[..., Any]:
    """Return a stand-in for the model that gives some rows of its recorded outputs, one output a call."""
    recorded = iter(outputs)
    return lambda **_: _part(next(recorded), rows)


@contextmanager
def _ungathered(accelerator: Any) -> Iterator[None]:
    """Have each process compute figures from its own rows alone; their sums are gathered later."""
    accelerator.gather = accelerator.gather_for_metrics = lambda tensor: tensor
    try:
        yield
    finally:
        # The instance's attributes go, and with them what hid the class's methods.
        del accelerator.gather, accelerator.gather_for_metrics


class PairLoss(SharedOutByFsdp, TokenisedPairs, DPOTrainer):  # type: ignore[misc]
    """TRL's DPO trainer and loss, with a supervised term that weighs tokens alike and with more in the logs.

    Logged besides TRL's figures: ``lengths/chosen`` and ``lengths/rejected`` (completion tokens), and ``kl``: the mean
    of log pi_ref - log pi over both sides (nats per sequence), an estimate of KL(reference || policy) as far as the
    reference could have written the sides.

    The supervised term is a mean over the chosen tokens of an optimizer step, where TRL's is a mean of the means of its
    micro-batches. Held out, it is a mean over pairs, as all figures are.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._configured_weights = [*self.loss_weights]  # type: ignore[has-type]
        self._mean_chosen_tokens = 1.0

    def get_batch_samples(self, *args: Any) -> Any:
        """Return Transformers' micro-batches of the next step, after their chosen tokens have been counted."""
        samples, items = super().get_batch_samples(*args)
        # An empty list of micro-batches ends an epoch; the mean needs a value all the same.
        counts = [float(_chosen_tokens(batch)) for batch in samples] or [1.0]
        mean = torch.tensor(counts, device=self.args.device).mean()
        self._mean_chosen_tokens = float(self.accelerator.reduce(mean, "mean"))
        return samples, items

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return TRL's loss (scalar tensor), and log the figures of the class's description."""
        metrics = figures(self)
        self.loss_weights = self._weights_for(inputs)
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        if self.model.training:
            self._average_over_unequal_pairs(inputs)

        # Chosen sides are the first half of a batch, rejected ones the second.
        lengths = inputs["completion_mask"].sum(dim=1).float().chunk(2)
        for side, tokens in zip(("chosen", "rejected"), lengths, strict=True):
            metrics[f"lengths/{side}"].append(self.accelerator.gather(tokens).mean().item())
        if self.beta:
            # A reward is beta (log pi - log pi_ref) (DPO, arXiv 2305.18290, equation 5 without the partition function).
            rewards = metrics["rewards/chosen"][-1] + metrics["rewards/rejected"][-1]
            metrics["kl"].append(-rewards / 2 / self.beta)
        return loss

    def _weights_for(self, inputs: Mapping[str, Any]) -> list[float]:
        """Return the losses' weights for one micro-batch.

        TRL's supervised term is the mean over the micro-batch's chosen tokens. So in training its weight is multiplied
        by this micro-batch's share of the step's tokens.
        """
        if not self.model.training:
            return [*self._configured_weights]
        share = _chosen_tokens(inputs) / self._mean_chosen_tokens
        weights = []
        for name, weight in zip(self.loss_types, self._configured_weights, strict=True):
            if name == "sft":
                weights.append(weight * share)
            else:
                weights.append(weight)
        return weights

    def _average_over_unequal_pairs(self, inputs: Mapping[str, Any]) -> None:
        """Have the logged accuracy and margin be means over pairs of unequal sides, each of which counts once.

        A pair of equal sides (:class:`judgetrain.train.data.WithReminders`) prefers nothing: its margin is 0 and it is
        never ordered as labelled, so it would lower both figures.
        """
        metrics = figures(self)
        unequal = self.accelerator.gather(torch.ne(*inputs["input_ids"].chunk(2)).any(dim=1)).tolist()
        count = sum(unequal)
        for name in ("rewards/accuracies", "rewards/margins"):
            *earlier, mean = metrics.pop(name)
            values = earlier + count * [mean * len(unequal) / max(1, count)]
            # TRL divides by the length of the list, so an empty one must not stay.
            if values:
                metrics[name] = values


def _chosen_tokens(inputs: Mapping[str, Any]) -> int:
    """Return the number of completion tokens of a batch's chosen sides, which are its first half."""
    return int(inputs["completion_mask"].chunk(2)[0].sum())


class PreferenceTrainer(RowMeans, PairLoss):
    """The trainer of stage dpo."""

    def weights(self, inputs: Mapping[str, Any]) -> list[float]:
        """Return 1 for every pair."""
        return [1.0] * (len(inputs["input_ids"]) // 2)


class KeptPairs(KeptBest):
    """Ranks DPO's checkpoints by held-out pairs: training can unlearn (branching paper, section 5.7)."""

    def __init__(self, pairs: int, out: StageRun) -> None:
        super().__init__(AGREEMENT, f"{amount(pairs, 'pair')}", out)
        self._pairs = pairs

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any) -> None:
        """Add the figure that ranks checkpoints to the evaluation's figures, where the trainer looks for it."""
        event["metrics"][BEST] = agreement_then_loss(event["metrics"], self._pairs)


class JudgmentLoss(SharedOutByFsdp, SFTTrainer):  # type: ignore[misc]
    """TRL's SFT trainer, which may read prefix trees, and whose loss may share with one that ranks pairs.

    The ranking loss of a pair of responses that are judged singly is -log sigmoid(2 (E_better - E_worse)), where E is
    the expected score; a tie has the mean of both orders. Every pair weighs the same, and a micro-batch on average
    their mean.

    Where the rows are prefix trees (:mod:`judgetrain.train.prefix_trees`), the loss of a row is the sum of its
    examples'. Both need an argument ``remove_unused_columns=False``, or their columns would not arrive.

    Args:
        ranking: the ranking loss's share of the loss, 0 to 1.
    """

    def __init__(self, *args: Any, ranking: float = 0.0, **kwargs: Any) -> None:
        check_internals(internals.SFT)
        super().__init__(*args, **kwargs)
        self._ranking = ranking
        self._trees: TreeAttention | None = None
        self._trees_are_tried = False
        if ENDS in self.train_dataset.column_names:
            self._trees = TreeAttention(self.model, self.aux_loss_enabled)
        if ranking:
            self._prepare_ranking()
        if ranking or self._trees:
            self._bring_columns()

    def _bring_columns(self) -> None:
        """Have batches bring the columns of prefix trees and of the ranking loss."""
        collate: Any = self.data_collator  # type: ignore[has-type]

        def with_columns(rows: Sequence[Row]) -> dict[str, Any]:
            batch = collate(rows)
            # Held-out rows are examples, and are not ranked.
            if ENDS in rows[0]:
                batch |= tree_columns(rows, batch["input_ids"].shape[1])
            # A batch may have no pair.
            ranked = torch.tensor(ranked_in_batch(rows), dtype=torch.long)
            return {**batch, RANKED: ranked.reshape(-1, RANKED_NUMBERS)}

        self.data_collator = with_columns

    def _prepare_ranking(self) -> None:
        """Have the model leave its last hidden states, and know how many pairs a micro-batch has on average."""
        rows = self.train_dataset
        if self._trees:
            pairs = sum(map(len, rows[PAIRS])) / PAIR_NUMBERS
        else:
            pairs = sum(map(bool, rows[RANK])) / 2
        # Of few steps no batch may have a pair; their ranking loss is 0, and no mean over nothing.
        self._pairs_per_batch = self.args.per_device_train_batch_size * pairs / len(rows) or 1.0
        self._levels = levels_of(self.processing_class)
        # TRL's fused output layer makes no logits, so those of the scores are made from the hidden states.
        self._head = Head(self.model.eval())
        self._hidden: torch.Tensor | None = None

        def keep_hidden_states(_module: Any, _inputs: Any, output: Any) -> None:
            self._hidden = output[0]

        self._head.decoder.register_forward_hook(keep_hidden_states)

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return TRL's loss, in training shared with the ranking loss (scalar tensor)."""
        ranked = inputs.pop(RANKED, None)
        ends = inputs.pop(ENDS, None)
        reading = model
        if ends is not None:
            reading = self._reading_trees(model, ends, inputs[POSITIONS])
        loss = super().compute_loss(reading, inputs, *args, **kwargs)
        if not self._ranking or not self.model.training:
            return loss
        assert self._hidden is not None, "the model has been read for TRL's loss"
        ranking_loss = self._ranking_loss(self._hidden, ranked)
        # The graph behind it is freed with the step, not with the next one.
        self._hidden = None
        return (1 - self._ranking) * loss + self._ranking * ranking_loss

    def _reading_trees(self, model: Any, ends: torch.Tensor, depths: torch.Tensor) -> Callable[..., Any]:
        """Return the model with the masks of a batch of prefix trees, after it was tried once (TrainingError)."""
        assert self._trees is not None, "the rows are prefix trees"
        if not self._trees_are_tried:
            # Here, and not before the first step: only now the model is wrapped, and every process runs it.
            self._trees_are_tried = True
            first_rows = self.train_dataset.select(range(min(TRIED_AMONG, len(self.train_dataset)))).to_list()
            # A window shows in long examples alone.
            longest = max(first_rows, key=lambda row: max(row[POSITIONS]))
            self._trees.check(model, longest, ends.device, rounding(self.args, self.model))
        masks = self._trees.masks(ends, depths)
        # TRL counts tokens by the mask of two dimensions that the batch brings.
        return lambda **inputs: model(**{**inputs, "attention_mask": masks})

    def _ranking_loss(self, hidden: torch.Tensor, ranked: torch.Tensor) -> torch.Tensor:
        """Return the ranking loss of a micro-batch (scalar tensor), and log it with its accuracy.

        Args:
            hidden: the decoder's last hidden states [rows, tokens, width].
            ranked: the pairs [pairs, 5], as :func:`ranked_in_batch` gives them.
        """
        better_row, better_place, worse_row, worse_place, tie = ranked.unbind(dim=1)
        expected = self._expected(hidden, torch.cat([better_row, worse_row]), torch.cat([better_place, worse_place]))
        better, worse = expected.chunk(2)
        ahead = better - worse
        is_tie = tie.bool()
        # The target is 1, and 1/2 in a tie, which gives the mean of the losses of both orders.
        losses = binary_cross_entropy_with_logits(2 * ahead, 1 - is_tie / 2, reduction="none")
        self._log_ranking(losses.detach(), (ahead > 0) & ~is_tie, ~is_tie)
        # By the mean number of pairs, not by this micro-batch's: there a pair among few would weigh more.
        return losses.sum() / self._pairs_per_batch / self.current_gradient_accumulation_steps

    def _expected(self, hidden: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Return the expected scores that are written at these places of these rows."""
        # The token before a score is the one that predicts it.
        logits = self._head.logits(hidden[rows, places - 1]).float()
        level_logits = [logits[:, list(tokens)].logsumexp(dim=-1) for tokens in self._levels]
        probabilities = torch.stack(level_logits, dim=-1).softmax(dim=-1)
        scores = torch.arange(1.0, 1.0 + len(self._levels), device=logits.device)
        return probabilities @ scores

    def _log_ranking(self, losses: torch.Tensor, is_right: torch.Tensor, is_decided: torch.Tensor) -> None:
        """Log a micro-batch's ranking loss and accuracy over all processes; arguments have a value for each pair."""
        sums = torch.stack([values.float().sum() for values in (losses, is_right, is_decided)])
        total, right, decided = self.accelerator.gather(sums[None]).sum(dim=0)
        metrics = figures(self)
        metrics["ranking_loss"].append((total / self._pairs_per_batch / self.accelerator.num_processes).item())
        # A batch may have ties alone. Logs are means over what is added, so each pair is added by itself.
        if decided:
            metrics["ranking_accuracy"] += int(right) * [1.0] + int(decided - right) * [0.0]


class SupervisedTrainer(RowMeans, JudgmentLoss):
    """The trainer of stages initial and sft; held-out figures are means over tokens, as the training loss is."""

    def weights(self, inputs: Mapping[str, Any]) -> list[float]:
        """Return each example's number of tokens with a label."""
        tokens: list[float] = (inputs["labels"][:, 1:] != -100).sum(dim=1).tolist()
        return tokens
