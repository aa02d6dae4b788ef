"""Stage ``rl``: which comparisons are trained on, and the trainer over them."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, is_held_out
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.engines.loading import load_tokenizer
from judgetrain.errors import TrainingError
from judgetrain.judges.prompting.prompts import FILE as PROMPTS
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.schema import Comparison
from judgetrain.train.adapters import peft_config
from judgetrain.train.arguments import training_arguments
from judgetrain.train.config import RlConfig
from judgetrain.train.distributed import current
from judgetrain.train.order import filled
from judgetrain.train.rl.labels import own_labels, untaught
from judgetrain.train.run import Job, complete, policy_of, watchers
from judgetrain.train.stages import RlSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Trainer

    from judgetrain.train.rl.rollouts import Labelled, Rollouts
    from judgetrain.train.rl.trainer import HeldOut

FEW = 30
"""Held-out comparisons, of which fewer are said to be too few to choose by."""
SHARD = 32
"""Comparisons whose pass rates are found together; the unit of resume."""


def train_policy(
    settings: RlSettings, inputs: Mapping[str, Path], out: StageRun, finish: Callable[[Path], None]
) -> None:
    """Train on branches of the judge as it is at each step, and write ``model/``.

    Labels are those of stage label, or what the start says itself; ``train.rl.holdout`` of the comparisons are held
    out. Comparisons whose rows are left out are counted:
    ``no_label``, ``low_label_share``, ``too_hard`` and ``too_easy`` (``train.rl.pass_rate``).

    Raises:
        TrainingError: no comparison is left to train on, or training fails (:func:`judgetrain.train.run.complete`).
    """
    from judgetrain.train.rl.rollouts import Rollouts
    from judgetrain.train.rl.trainer import HeldOut, policy

    config, start = settings.train, inputs[settings.train.start] / "model"
    model = settings.base.at(start)
    if config.labels == "start":
        everyone, dropped = current().decide(lambda: own_labels(settings, inputs, model, out))
    else:
        everyone, dropped = _labelled(inputs, config)
    train, held_out = _split(everyone, settings.held_out, settings.seed, untaught(inputs))
    rollouts = Rollouts(
        labelled={each.comparison.id: each for each in (*train, *held_out)},
        prompts=load_prompt_set(start / PROMPTS),
        asking=replace(settings.asking, tie=settings.tie),
        config=config,
        seed=out.seed,
        lend=policy,
    )
    if config.pass_rate:
        rates = current().decide(lambda: _pass_rates(train, rollouts, model, out))
        train, dropped = _of_use(train, rates, config, dropped)
    out.count(in_=sum(dropped.values()) + len(train) + len(held_out), out=len(train), dropped=dropped)
    if not train:
        raise TrainingError(f"there are no labelled comparisons to train on: {dict(dropped)} were left out")
    if config.keep_best and not held_out:
        raise TrainingError(
            "train.rl.keep_best=true, and none of the labelled comparisons is held out: raise train.rl.holdout"
        )
    if config.keep_best and len(held_out) < FEW:
        out.log(
            f"{out.stage}: {len(held_out)} held-out comparisons hardly tell one checkpoint from another: raise "
            "train.rl.holdout, or set train.rl.keep_best=false"
        )
    job = Job(start=model, config=config, train=[], heldout=[], what="labelled comparisons")
    tokenizer = load_tokenizer(model)
    current().decide(out.executor.close)  # every process trains next, on GPUs that the leader's workers may hold
    watch = HeldOut(held_out, rollouts, settings.aggregation or "vote") if config.keep_best else None
    complete(lambda place: _trainer(job, tokenizer, train, rollouts, watch, place, out), job, tokenizer, out, finish)


def _labelled(inputs: Mapping[str, Path], config: RlConfig) -> tuple[list[Labelled], Counter[str]]:
    """The labelled comparisons of the trees, and how many are left out, by reason."""
    from judgetrain.train.rl.rollouts import Labelled

    labels = {row["comparison_id"]: row for row in read_rows(inputs["label"], "labels")}
    kept, dropped = [], Counter[str]()
    for row in read_rows(inputs["tree"], "trees"):
        comparison = Comparison.from_row(row["comparison"])
        label = labels.get(comparison.id)
        if label is None or label["verdict"] is None:
            dropped["no_label"] += 1
        elif label["verdict"] != "tie" and label["share"] < config.min_label_share:
            dropped["low_label_share"] += 1
        else:
            kept.append(Labelled(comparison, label["verdict"]))
    return kept, dropped


def _split(
    labelled: Iterable[Labelled], holdout: float, seed: int, among: Collection[str] | None
) -> tuple[list[Labelled], list[Labelled]]:
    """Those to train on and those held out: as far as ``label.holdout`` goes, what stage label held out of ``sft`` and
    ``dpo`` too.

    ``among``: ids of those that may be held out, since the Initial judge was not trained on them; None: all may.
    """
    parts: tuple[list[Labelled], list[Labelled]] = ([], [])
    for each in labelled:
        known = among is None or each.comparison.id in among
        parts[known and is_held_out(seed, each.comparison.id, holdout)].append(each)
    return parts


def _pass_rates(
    labelled: Sequence[Labelled], rollouts: Rollouts, start: ModelConfig, out: StageRun
) -> dict[str, float]:
    """The share of sampled branches of the start that are right in both orders, by comparison; kept in shards."""
    from judgetrain.engines.local.transformers_engine import TransformersEngine
    from judgetrain.train.rl.rewards import both_orders
    from judgetrain.train.rl.rollouts import outcome_of

    one = replace(rollouts, labelled={}, config=replace(rollouts.config, branches=1))  # a shard's come with it
    times = rollouts.config.num_generations

    def process(index: int, items: Sequence[Labelled]) -> ShardResult:
        comparisons = [each.comparison for each in items for _ in range(times)]
        trees = one.grow(comparisons, engine(), out.shard_seed(index))
        rows = []
        for number, each in enumerate(items):
            grown = trees[number * times : (number + 1) * times]
            right = [
                both_orders(outcome_of(next(iter(tree.criteria), None), each.verdict, one.asking.tie)) for tree in grown
            ]
            rows.append({"comparison_id": each.comparison.id, "label": each.verdict, "pass_rate": fmean(right)})
        return ShardResult(rows, 0, counts_out=0)

    with loaded_once(lambda: TransformersEngine(TransformersEngineConfig(model=start, batch_size=256))) as engine:
        out.sharded("pass-rates", labelled, SHARD, process, "comparisons", engine, spread=True)
    return {row["comparison_id"]: row["pass_rate"] for row in read_rows(out.directory, "pass-rates")}


def _of_use(
    labelled: Sequence[Labelled], rates: Mapping[str, float], config: RlConfig, dropped: Counter[str]
) -> tuple[list[Labelled], Counter[str]]:
    """Those whose pass rate lies within ``pass_rate`` (Xu et al., arXiv 2504.03380), and all that are left out."""
    low, high = config.pass_rate
    kept, left_out = [], Counter(dropped)
    for each in labelled:
        rate = rates[each.comparison.id]
        if low <= rate <= high:
            kept.append(each)
        else:
            left_out["too_hard" if rate < low else "too_easy"] += 1
    return kept, left_out


def in_order(count: int, config: RlConfig, seed: int) -> list[int]:
    """Indices of the comparisons in training order: all epochs, each shuffled anew, filled up to whole steps."""
    order: list[int] = []
    whole, part = divmod(config.num_train_epochs, 1)
    for epoch in range(int(whole) + bool(part)):
        indices = list(range(count))
        random.Random(derive_seed(seed, "order", epoch)).shuffle(indices)
        order += indices if epoch < whole else indices[: max(1, round(count * part))]
    return filled(order, config.comparisons_per_step)


def _trainer(
    job: Job,
    tokenizer: PreTrainedTokenizerBase,
    train: Sequence[Labelled],
    rollouts: Rollouts,
    watch: HeldOut | None,
    checkpoints: Path,
    out: StageRun,
) -> Trainer:
    from datasets import Dataset
    from transformers import EarlyStoppingCallback, PrinterCallback

    from judgetrain.train.rl.rollouts import reward_functions
    from judgetrain.train.rl.trainer import BranchTrainer, Kept

    config = rollouts.config
    chosen = [train[i] for i in in_order(len(train), config, out.seed)]
    rows = [_row(each) for each in chosen for _ in range(config.parts)]
    held_out = watch.labelled if watch else ()
    callbacks = watchers(job, None, out)
    if config.patience:
        callbacks.append(EarlyStoppingCallback(early_stopping_patience=config.patience))
    if watch:
        callbacks.append(Kept(len(held_out), out))
        out.note("heldout", {"comparisons": len(held_out)})
        if current().leads:
            out.write_rows("heldout", ({"comparison_id": e.comparison.id, "verdict": e.verdict} for e in held_out))
    functions, weights = reward_functions(config)
    args: Any = training_arguments(config, checkpoints, out.seed, evaluate=watch is not None)
    args.reward_weights = weights
    asking = rollouts.asking
    limits = (asking.criteria_sampling, asking.guideline_sampling, asking.judgment_sampling)
    args.max_completion_length = max(sampling.max_new_tokens for sampling in limits)
    model = policy_of(job, tokenizer)
    with warnings.catch_warnings():  # pyproject.toml names the versions of TRL whose rollout_func this is
        warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
        trainer = BranchTrainer(
            model=model,
            reward_funcs=functions,
            args=args,
            train_dataset=Dataset.from_list(rows),
            eval_dataset=Dataset.from_list([_row(each) for each in held_out]) if watch else None,
            processing_class=tokenizer,
            peft_config=peft_config(config.lora, model, out.stage),
            callbacks=callbacks,
            rollout_func=rollouts,
            held_out=watch,
        )
    trainer.remove_callback(PrinterCallback)
    steps = config.max_steps
    if steps < 0:
        steps = len(chosen) // config.comparisons_per_step * config.num_iterations
    out.log(
        f"{out.stage}: {len(train)} labelled comparisons, {steps} steps of {config.comparisons_per_step} x "
        f"{config.num_generations} branches, from the {config.start} judge"
    )
    return trainer


def _row(each: Labelled) -> dict[str, Any]:
    """A row of TRL's data set: its prompt is the comparison's id, which the rollouts know."""
    return {"prompt": [{"role": "user", "content": each.comparison.id}]}
