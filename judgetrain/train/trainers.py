"""TRL's trainers as they are used here: DPO's with more in its logs, less work on a CPU; and stage reference.

The reference model's log-probabilities of preference pairs (branching paper, equation 2) depend on the pairs and on
that model alone. So they are an artifact, computed once, shard by shard, which every run of a sweep over beta or the
learning rate reads; no reference model is then in memory while training.
"""

import math
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments
from trl import DPOConfig, DPOTrainer, SFTTrainer
from trl.models import prepare_deepspeed
from trl.trainer import utils

from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.engines.loading import end_token_ids, load_model, load_tokenizer, own_context
from judgetrain.errors import TrainingError
from judgetrain.scorers.head import Head
from judgetrain.train.arguments import BEST, device_arguments, peft_config, trainable
from judgetrain.train.checkpoints import KeptBest
from judgetrain.train.config import TrainerConfig
from judgetrain.train.data import PAIR, REFERENCE_COLUMNS, Examples, Row, Slices, emptied, fitting, length
from judgetrain.train.distributed import current, forget_deepspeed
from judgetrain.train.ranking import RANK, levels_of
from judgetrain.train.stages import ReferenceSettings

AGREEMENT = "eval_rewards/accuracies"


def agreement_then_loss(metrics: Row, pairs: int) -> float:
    """Held-out pairs that the implicit reward orders as labelled, plus less than one for a lower loss.

    A larger agreement always counts for more than any loss; a loss that is no number counts as the largest.
    """
    loss = metrics["eval_loss"]
    return round(metrics[AGREEMENT] * pairs) + (1.0 / (2.0 + max(0.0, loss)) if math.isfinite(loss) else 0.0)


class RowMeans(Trainer):  # type: ignore[misc]
    """A trainer whose held-out figures are means over rows, each of them once, however they are batched or shared out.

    The model reads a batch at once. From what it said TRL then computes its figures of each row by itself.
    """

    def weights(self, inputs: Mapping[str, Any]) -> list[float]:
        """What each row of a batch counts in a mean."""
        raise NotImplementedError

    def prediction_step(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        """Add up the figures of a batch; there is nothing else to return."""
        inputs, metrics, answers, figures = self._prepare_inputs(inputs), self._metrics["eval"], list[Any](), []

        def reading(**asked: Any) -> Any:
            answers.append(model(**asked))
            return answers[-1]

        weights = self.weights(inputs)
        with torch.no_grad(), self.compute_loss_context_manager(), _ungathered(self.accelerator):
            self.compute_loss(reading, inputs)
            for row, weight in enumerate(weights):
                metrics.clear()
                known, own = iter(answers), slice(row, None, len(weights))  # pairs: the rejected sides stand below
                loss = self.compute_loss(lambda own=own, known=known, **_: _part(next(known), own), _part(inputs, own))
                found = {"loss": float(loss)} | {name: values[-1] for name, values in sorted(metrics.items())}
                figures.append([weight, *(weight * value for value in found.values())])
        metrics.clear()
        sums = torch.tensor(figures, dtype=torch.float64, device=self.args.device)
        self._sums.append(self.accelerator.gather_for_metrics(sums).sum(dim=0).cpu())
        self._names = [*found]
        return None, None, None

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Transformers' loop, with the means."""
        self._sums = list[torch.Tensor]()
        found = super().evaluation_loop(*args, **kwargs)
        total = torch.stack(self._sums).sum(dim=0)
        means = dict(zip(self._names, (total[1:] / total[0]).tolist(), strict=True))
        found.metrics["eval_loss"] = means.pop("loss")
        self._metrics["eval"].update({name: [mean] for name, mean in means.items()})  # TRL logs them
        return found


def _part(of: Mapping[str, Any], rows: slice) -> Any:
    """Some rows of a batch, or of a model's answer to it."""
    parts = {k: v[rows] if isinstance(v, torch.Tensor) and v.ndim else v for k, v in of.items()}
    return parts if type(of) is dict else type(of)(**parts)


@contextmanager
def _ungathered(accelerator: Any) -> Iterator[None]:
    """Have each process keep its own figures, which are gathered together later."""
    accelerator.gather = accelerator.gather_for_metrics = lambda tensor: tensor
    try:
        yield
    finally:
        del accelerator.gather, accelerator.gather_for_metrics


class PreferenceTrainer(RowMeans, DPOTrainer):  # type: ignore[misc]
    """TRL's trainer; the loss is TRL's.

    It also logs ``lengths/chosen`` and ``lengths/rejected`` (completion tokens) and ``kl``: the mean of
    log pi_ref - log pi over both sides, nats per sequence, an estimate of KL(reference || policy) as far as the
    reference could have written the sides. The supervised term is a mean over the chosen tokens of an optimizer step,
    where TRL's is a mean of the means of its micro-batches; held out, it is a mean over pairs, as all figures are.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._weights, self._tokens = [*self.loss_weights], 1.0  # type: ignore[has-type]

    def get_batch_samples(self, *args: Any) -> Any:
        """Transformers' micro-batches of a step, of which the chosen tokens are counted."""
        samples, items = super().get_batch_samples(*args)
        tokens = torch.tensor([float(_chosen_tokens(each)) for each in samples] or [1.0], device=self.args.device)
        self._tokens = float(self.accelerator.reduce(tokens.mean(), "mean"))
        return samples, items

    def weights(self, inputs: Mapping[str, Any]) -> list[float]:
        """Every pair counts the same."""
        return [1.0] * (len(inputs["input_ids"]) // 2)

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
        loss = super()._compute_loss(model, inputs, return_outputs)
        unequal = self.accelerator.gather(torch.ne(*inputs["input_ids"].chunk(2)).any(dim=1)).tolist()
        for name in ("rewards/accuracies", "rewards/margins") if self.model.training else ():
            *before, mean = metrics.pop(name)
            if each := before + sum(unequal) * [mean * len(unequal) / max(1, sum(unequal))]:
                metrics[name] = each  # of which TRL logs the mean: every pair of unequal sides counts once
        lengths = inputs["completion_mask"].sum(dim=1).float().chunk(2)
        for side, tokens in zip(("chosen", "rejected"), lengths, strict=True):
            metrics[f"lengths/{side}"].append(self.accelerator.gather(tokens).mean().item())
        if self.beta:
            rewards = metrics["rewards/chosen"][-1] + metrics["rewards/rejected"][-1]
            metrics["kl"].append(-rewards / 2 / self.beta)
        return loss


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


class SupervisedTrainer(RowMeans, SFTTrainer):  # type: ignore[misc]
    """TRL's SFT trainer; held-out figures are means over tokens, as the training loss is.

    ``ranking`` is another loss's share: of a pair of responses, -log sigmoid(2 (E_better - E_worse)), where E is the
    expected score; a tie has the mean of both orders. Every pair weighs the same, a micro-batch on average their mean.
    """

    def __init__(self, *args: Any, ranking: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ranking = ranking
        if ranking:
            collate: Any = self.data_collator  # type: ignore[has-type]
            marks = self.train_dataset[RANK]
            self.data_collator = lambda rows: collate(rows) | {RANK: torch.tensor([row.get(RANK, 0) for row in rows])}
            self._pairs = self.args.per_device_train_batch_size * sum(map(bool, marks)) / len(marks) / 2
            self._levels = levels_of(self.processing_class)
            self._head = Head(self.model.eval())  # TRL's fused head makes no logits
            self._head.decoder.register_forward_hook(lambda _, __, out: setattr(self, "_hidden", out[0]))
            self._signature_columns = ["input_ids", "labels", RANK]

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """TRL's loss, and in training the ranking loss."""
        marks = inputs.pop(RANK, None)
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        if marks is None or not self.model.training:
            return loss
        rows = marks.nonzero().flatten()
        logits = self._head.logits(self.__dict__.pop("_hidden")[rows, marks[rows].abs() - 1]).float()
        levels = torch.stack([logits[:, list(tokens)].logsumexp(dim=-1) for tokens in self._levels], dim=-1)
        expected = levels.softmax(dim=-1) @ torch.arange(1.0, 1.0 + len(self._levels), device=levels.device)
        apart, tie = expected[::2] - expected[1::2], marks[rows[::2]] < 0
        losses = binary_cross_entropy_with_logits(2 * apart, 1 - tie / 2, reduction="none")
        counts = [losses.detach(), (apart > 0) & ~tie, ~tie]
        total, right, of = self.accelerator.gather(torch.stack([c.float().sum() for c in counts])[None]).sum(dim=0)
        self._metrics["train"]["ranking_loss"].append((total / self._pairs / self.accelerator.num_processes).item())
        if of:  # a batch may have ties alone; logs are means over what is added, so that each pair counts once
            self._metrics["train"]["ranking_accuracy"] += int(right) * [1.0] + int(of - right) * [0.0]
        ranking = losses.sum() / self._pairs / self.current_gradient_accumulation_steps
        return (1 - self._ranking) * loss + self._ranking * ranking

    def weights(self, inputs: Mapping[str, Any]) -> list[float]:
        """An example counts as many times as it has tokens with a label."""
        tokens: list[float] = (inputs["labels"][:, 1:] != -100).sum(dim=1).tolist()
        return tokens


@contextmanager
def labelled_tokens_alone() -> Iterator[None]:
    """Have TRL's fused output layer project, on a CPU, only the positions whose next token has a label.

    TRL 1.16 does so where Triton runs its kernels, and elsewhere projects every position, lest accelerators compile
    for each number of them; a CPU compiles nothing. Of a judgment nine tokens in ten are prompt: with a vocabulary of
    262,144 most of a step's time goes there. Losses and gradients are the same.
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


BATCH = 8
"""Pairs that the reference model reads together: what training has room for, which keeps more than log-probabilities,
is enough; more are no faster."""
SHARD = 512
"""Pairs finished together; the unit of resume, and what a worker gets at once."""
TABLES = ".tokens"
"""The directory of the tokenised pairs while the stage runs."""
_ANY = [{"prompt_ids": [0], "chosen_ids": [0], "rejected_ids": [0], **dict.fromkeys(REFERENCE_COLUMNS, 0.0)}]
"""TRL's trainer looks at a row when it is made; the pairs come later, shard by shard."""


def reference_logps(
    settings: ReferenceSettings, policy: ModelConfig, pairs: Mapping[str, Collection[Row]], out: StageRun
) -> None:
    """Write ``<split>-*.jsonl``: each pair's digest and its reference log-probabilities (sums over tokens, nats).

    ``policy`` is the reference, by whose chat template pairs are rendered. Pairs longer than ``max_length`` are left
    out and counted, as in training. Shards that an earlier run finished are kept. A process that is alone has the run's
    executor process them, whose workers hold a copy of the reference each. Of several that train together every one
    computes its share of each shard: how they hold weights, and in which precision, is part of the result. The leader
    then says which shard comes, and writes.
    """
    group, place = current(), out.path(TABLES)
    splits = group.decide(lambda: _that_fit(policy, settings.train.max_length, pairs, place))
    with loaded_once(lambda: _Forward(settings, policy)) as forward:
        if group.leads:
            out.log(f"{out.stage}: {', '.join(f'{len(e)} {split}' for split, e in splits.items())} pairs")
            for split, examples in splits.items():
                _fill(split, examples, forward, out)
                out.count(in_=sum(examples.dropped.values()), dropped=examples.dropped)
            group.decide(lambda: None)
        else:
            while (task := group.decide(lambda: None)) is not None:
                split, index = task
                forward()(Slices(splits[split].data)[index * SHARD : (index + 1) * SHARD])
    if group.deepspeed:
        forget_deepspeed()
    if group.leads:
        shutil.rmtree(place, ignore_errors=True)


def _that_fit(
    policy: ModelConfig, max_length: int, pairs: Mapping[str, Collection[Row]], place: Path
) -> dict[str, Examples]:
    """The pairs of each split that are trained on, or watched, tokenised in ``place``."""
    emptied(place)
    tokenizer, splits = load_tokenizer(policy), dict[str, Examples]()
    ends, most = end_token_ids(policy, tokenizer), min(max_length, own_context(policy))
    for split, rows in pairs.items():
        try:
            splits[split] = fitting(rows, tokenizer, most, f"{split} pairs", ends, place / f"{split}.arrow")
        except TrainingError:
            if split == "train":  # of held-out pairs training says what it means that none fits
                raise
    return splits


def _fill(split: str, examples: Examples, forward: "Callable[[], _Forward]", out: StageRun) -> None:
    """The shards of a split, by the executor or together with the other processes."""
    group = current()

    def process(index: int, items: Sequence[Row]) -> ShardResult:
        if group.group is not None:  # before the model is loaded, which takes all of them under ZeRO-3
            group.decide(lambda: (split, index))
        return ShardResult(forward()(items), len(items))

    alone = group.group is None
    out.sharded(split, Slices(examples.data), SHARD, process, "pairs", forward if alone else None, spread=alone)


class _Forward:
    """The reference model in this process, and TRL's trainer around it; a call gives the rows of pairs."""

    def __init__(self, settings: ReferenceSettings, policy: ModelConfig) -> None:
        self._place = TemporaryDirectory(prefix="judgetrain-reference-")  # TRL's trainer wants one; it stays empty
        self._batch, bf16 = min(BATCH, settings.batch_size), settings.train.bf16
        args = DPOConfig(
            output_dir=self._place.name,
            precompute_ref_log_probs=True,
            per_device_train_batch_size=self._batch,
            max_length=None,
            **device_arguments(bf16),
        )
        tokenizer = load_tokenizer(policy)
        tokenizer.padding_side = "right"
        model = load_model(trainable(policy, bf16, settings.adapters), four_bit=bool(settings.four_bit))
        # A trainer takes weights in 4 bits with adapters alone; new ones change nothing.
        trainer = PreferenceTrainer(
            model=model,
            args=args,
            train_dataset=Dataset.from_list(_ANY),
            processing_class=tokenizer,
            peft_config=peft_config(TrainerConfig(lora=bool(settings.four_bit))),
        )
        if trainer.is_deepspeed_enabled:
            self._model: Any = prepare_deepspeed(trainer.model, trainer.accelerator)
        else:
            self._model = trainer.accelerator.prepare_model(trainer.model, evaluation_mode=True)
        self._trainer: Any = trainer

    def __call__(self, pairs: Sequence[Row]) -> list[Row]:
        """A row for each pair of token ids, in their order."""
        by_length = sorted(range(len(pairs)), key=lambda i: length(pairs[i]))
        data = Dataset.from_list([pairs[i] for i in by_length]).remove_columns(PAIR)
        trainer, parts = self._trainer, []
        loader = DataLoader(data, batch_size=self._batch, collate_fn=trainer.data_collator)
        with labelled_tokens_alone():
            for batch in trainer.accelerator.prepare(loader):
                sides = torch.stack(trainer.compute_ref_log_probs(self._model, batch), dim=1)
                parts.append(trainer.accelerator.gather_for_metrics(sides).float().cpu())
        logps = dict(zip(by_length, torch.cat(parts).tolist(), strict=True))
        return [
            {"pair": row[PAIR], **dict(zip(REFERENCE_COLUMNS, logps[i], strict=True))} for i, row in enumerate(pairs)
        ]

    def close(self) -> None:
        """Free the model."""
        self._trainer = self._model = None
        self._place.cleanup()
