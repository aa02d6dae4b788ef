"""Stage ``rl``: which comparisons are trained on, and the trainer over them."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.shards import count_rows, read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, is_held_out
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig, VllmEngineConfig
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.engines.loading import load_tokenizer
from judgetrain.engines.prompting import token_ids
from judgetrain.errors import TrainingError
from judgetrain.extras.rl.config import LABEL_BRANCHES, PARTS, TEMPERATURE, RlConfig
from judgetrain.extras.rl.stages import RlSettings
from judgetrain.extras.rl.vllm_policy import VllmPolicy
from judgetrain.judges.config import TREE_READS, JudgeOptions
from judgetrain.judges.prompting.prompts import FILE as PROMPTS
from judgetrain.judges.prompting.prompts import check_reads, load_prompt_set
from judgetrain.schema import Comparison
from judgetrain.train.arguments import Training, arguments_of, kept_best, peft_config, trainer_explained
from judgetrain.train.checkpoints import PROBES, AtReference
from judgetrain.train.data import filled
from judgetrain.train.distributed import current
from judgetrain.train.run import Job, complete, policy_of, watchers
from judgetrain.train.stage import goes_on

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Trainer

    from judgetrain.extras.rl.trainer import Labelled, Rollouts
    from judgetrain.judges.config import StepsConfig

DEFAULTS = {"lr_scheduler_type": "constant_with_warmup", "loss_type": "dr_grpo"}
"""Where rl's are other than TRL's; ``rl.trainer`` may say otherwise."""


SHARD = 100
"""Comparisons that the start labels together; the unit of resume."""


def run_rl(settings: RlSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Train a judge on branches that it samples itself, and write ``model/``.

    Labels are those of stage label, or what the start says itself; ``label.holdout`` of the comparisons are held out
    to choose a checkpoint by. Comparisons without a label are left out and counted (``no_label``).

    Raises:
        TrainingError: no comparison is left to train on, or training fails (:func:`judgetrain.train.run.complete`).
    """
    from judgetrain.extras.rl.trainer import Rollouts, own_engine, policy

    config, start = settings.train, inputs[settings.train.start] / "model"
    prompts = load_prompt_set(start / PROMPTS)
    check_reads(prompts, TREE_READS[settings.reads], "judge.reads=one")
    job = Job(start=settings.base.at(start), config=config, key=settings.key())
    if config.labels == "start":
        everyone, unlabelled = current().decide(lambda: own_labels(settings, inputs, job.start, out))
    else:
        everyone, unlabelled = _labelled(inputs)
    train, held_out = _split(everyone, settings.holdout or 0.0, settings.seed, untaught(inputs))
    out.count(in_=unlabelled + len(everyone), out=len(train), dropped={"no_label": unlabelled} if unlabelled else {})
    if not train:
        raise TrainingError(f"there are no labelled comparisons to train on: {unlabelled} have no label")
    if config.keep_best and not held_out:
        raise TrainingError("rl.keep_best=true, and no labelled comparison is held out: raise label.holdout")
    vllm = None
    if isinstance(settings.engine, VllmEngineConfig):
        engine = settings.engine.with_model(job.start.path)
        vllm = VllmPolicy(engine, config.max_length, out.path("rollout-weights"), policy)
    rollouts = Rollouts(
        labelled={each.comparison.id: each for each in (*train, *held_out)},
        prompts=prompts,
        asking=settings.asking,
        config=config,
        seed=out.seed,
        engine=vllm or own_engine,
        reads=settings.reads,
    )
    tokenizer = load_tokenizer(job.start)
    current().decide(out.executor.close)  # every process trains next, on GPUs that the leader's workers may hold
    watch = held_out if config.keep_best else []
    finish = goes_on(start, settings, inputs, out)
    texts = (f"{c.dialogue.query}\n{c.response_a}" for c in (each.comparison for each in train[:PROBES]))
    job = replace(job, probes=[token_ids(tokenizer, text) for text in texts])
    with closing(vllm) if vllm else nullcontext():
        complete(
            lambda place: _trainer(job, tokenizer, train, rollouts, watch, place, out), job, tokenizer, out, finish
        )


def _labelled(inputs: Mapping[str, Path]) -> tuple[list[Labelled], int]:
    """The labelled comparisons of the trees, and how many have no label."""
    from judgetrain.extras.rl.trainer import Labelled

    labels = {row["comparison_id"]: row["verdict"] for row in read_rows(inputs["label"], "labels")}
    trees = [Comparison.from_row(row["comparison"]) for row in read_rows(inputs["tree"], "trees")]
    kept = [Labelled(each, labels[each.id]) for each in trees if labels.get(each.id) is not None]
    return kept, len(trees) - len(kept)


def own_labels(
    settings: RlSettings, inputs: Mapping[str, Path], start: ModelConfig, out: StageRun
) -> tuple[list[Labelled], int]:
    """The comparisons on which both orders say the same, and how many of those asked about are left out.

    The start is asked greedily, with :data:`LABEL_BRANCHES`; what many branches say, one learns to say. No label
    of people or of an ensemble is read, nor are trees: all comparisons there are may be learned from, or
    ``max_comparisons`` of them drawn by the seed, and besides all those that are held out. Kept in shards.
    """
    from judgetrain.extras.rl.trainer import Labelled, sampled_at
    from judgetrain.judges.kinds.branching import BranchingJudge

    left = untaught(inputs)

    def always(identifier: str) -> bool:
        return (left is None or identifier in left) and is_held_out(settings.seed, identifier, settings.holdout or 0.0)

    comparisons = _comparisons(inputs, settings.train.max_comparisons, out.seed, always)
    asking = sampled_at(settings.asking, 0.0)
    prompts = load_prompt_set(inputs[settings.train.start] / "model" / PROMPTS)
    assert settings.aggregation is not None and settings.tie is not None
    branches, how = min(LABEL_BRANCHES, settings.asking.criteria), settings.aggregation
    options = JudgeOptions(
        branches=branches, steps=asking, aggregation=how, tie=settings.tie, early_stop=True, reads=settings.reads
    )
    engine = settings.engine or TransformersEngineConfig(model=start, batch_size=256)

    def load() -> BranchingJudge:
        return BranchingJudge(make_engine(engine, start.path), prompts, options)

    def process(index: int, items: Sequence[Comparison]) -> ShardResult:
        said = judge().compare_all(items, out.shard_seed(index))
        rows = [
            {"comparison_id": p.comparison_id, "verdict_ab": p.verdict_ab, "verdict_ba": p.verdict_ba} for p in said
        ]
        return ShardResult(rows, 0, counts_out=0)

    with loaded_once(load) as judge:
        out.sharded("own-labels", comparisons, SHARD, process, "comparisons", judge, spread=True)
    found = {row["comparison_id"]: row for row in read_rows(out.directory, "own-labels")}
    kept = [
        Labelled(comparison, row["verdict_ab"])
        for comparison in comparisons
        if (row := found[comparison.id])["verdict_ab"] is not None and row["verdict_ab"] == row["verdict_ba"]
    ]
    return kept, len(comparisons) - len(kept)


def _comparisons(
    inputs: Mapping[str, Path], most: int | None, seed: int, always: Callable[[str], bool]
) -> list[Comparison]:
    place = inputs["responses"], "comparisons"
    number, rng = count_rows(*place), random.Random(derive_seed(seed, "own labels"))
    drawn, rows = {*rng.sample(range(number), min(number, most or number))}, enumerate(read_rows(*place))
    return [Comparison.from_row(row) for i, row in rows if i in drawn or always(row["id"])]


def untaught(inputs: Mapping[str, Path]) -> set[str] | None:
    """The ids of the comparisons that the teacher left: what is chosen by must be among them; None: all may be."""
    if "teacher" not in inputs:
        return None
    return {row["id"] for row in read_rows(inputs["teacher"], "remaining")}


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


def in_order(count: int, config: RlConfig, seed: int) -> list[int]:
    """Indices of the comparisons in training order: all epochs, each shuffled anew, filled up to whole steps."""
    order: list[int] = []
    whole, part = divmod(config.num_train_epochs, 1)
    for epoch in range(int(whole) + bool(part)):
        indices = list(range(count))
        random.Random(derive_seed(seed, "order", epoch)).shuffle(indices)
        order += indices if epoch < whole else indices[: max(1, round(count * part))]
    return filled(order, config.comparisons_per_step, config.max_steps)


def _trainer(
    job: Job,
    tokenizer: PreTrainedTokenizerBase,
    train: Sequence[Labelled],
    rollouts: Rollouts,
    held_out: Sequence[Labelled],
    checkpoints: Path,
    out: StageRun,
) -> Trainer:
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig

    from judgetrain.extras.rl.trainer import BranchTrainer, KeptLabels, both_orders, unreadable

    config = rollouts.config
    chosen = [train[i] for i in in_order(len(train), config, out.seed)]
    rows = [_row(each) for each in chosen for _ in range(PARTS)]
    callbacks = [*watchers(out), AtReference(config.beta)]
    if held_out:
        callbacks.append(KeptLabels(len(held_out), out))
        out.note("heldout", {"comparisons": len(held_out)})
        if current().leads:
            out.write_rows("heldout", ({"comparison_id": e.comparison.id, "verdict": e.verdict} for e in held_out))
    training = Training(config=config, key=job.key, checkpoints=checkpoints, seed=out.seed, evaluate=bool(held_out))
    args = arguments_of(GRPOConfig, training, branch_arguments(config, rollouts.asking), **DEFAULTS)
    args.report_to = out.track.report_to
    args.run_name = f"{out.stage}-{out.directory.name}"
    model = policy_of(job)
    model.config.name_or_path = job.start.path  # which TRL loads the reference from, where beta is above 0
    with warnings.catch_warnings(), trainer_explained(config, job.key):
        # pyproject.toml names the versions of TRL whose rollout_func this is
        warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
        trainer = BranchTrainer(
            model=model,
            reward_funcs=[both_orders, unreadable],
            args=args,
            train_dataset=Dataset.from_list(rows),
            eval_dataset=Dataset.from_list([_row(each) for each in held_out]) if held_out else None,
            processing_class=tokenizer,
            peft_config=peft_config(config),
            callbacks=callbacks,
            rollout_func=rollouts,
            held_out=held_out,
        )
    trainer.remove_callback(PrinterCallback)
    steps = len(chosen) // config.comparisons_per_step
    size = f"{config.comparisons_per_step} x {config.num_generations} branches"
    out.log(f"{out.stage}: {len(train)} labelled comparisons, {steps} steps of {size}, from the {config.start} judge")
    return trainer


def _row(each: Labelled) -> dict[str, Any]:
    """A row of TRL's data set: its prompt is the comparison's id, which the rollouts know."""
    return {"prompt": [{"role": "user", "content": each.comparison.id}]}


def branch_arguments(config: RlConfig, asking: StepsConfig) -> dict[str, Any]:
    """TRL's arguments that are rl's own: all branches of an optimizer step are sampled at once."""
    from judgetrain.extras.rl.trainer import AGREEMENT

    limits = (asking.criteria_sampling, asking.guideline_sampling, asking.judgment_sampling)
    own: dict[str, Any] = {
        "gradient_accumulation_steps": config.rows_per_step // config.per_device_train_batch_size // current().size,
        "shuffle_dataset": False,
        "remove_unused_columns": False,
        "num_generations_eval": 1,
        "max_completion_length": max(sampling.max_new_tokens for sampling in limits),
        "temperature": TEMPERATURE,
        "eval_on_start": config.keep_best,
        "disable_dropout": True,  # what is learned from is what sampled
    }
    return own | (kept_best(AGREEMENT, config.eval_steps) if config.keep_best else {})
