"""Run stage ``rl``: choose the comparisons to train on, and train a judge on branches of them."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.amounts import amount
from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.shards import count_rows, read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data.prompt_keys import is_held_out
from judgetrain.engines.answer_tokens import token_ids
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig, VllmEngineConfig
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.engines.loading import load_tokenizer
from judgetrain.errors import TrainingError
from judgetrain.extras.rl.config import LABEL_BRANCHES, PARTS, TEMPERATURE, RlConfig
from judgetrain.extras.rl.stages import RlSettings
from judgetrain.extras.rl.vllm_policy import VllmPolicy
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import FILE as PROMPTS
from judgetrain.judges.prompting.prompts import check_reads, load_prompt_set
from judgetrain.judges.trees.config import TREE_READS
from judgetrain.schema import Comparison
from judgetrain.train.arguments import Training, arguments_of, kept_best, peft_config, trainer_explained
from judgetrain.train.checkpoints import PROBES, AtReference
from judgetrain.train.data import filled
from judgetrain.train.distributed import current
from judgetrain.train.run import Job, policy_of, train_and_write, watchers
from judgetrain.train.stage import goes_on

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Trainer, TrainerCallback

    from judgetrain.extras.rl.trainer import Labelled, Rollouts
    from judgetrain.judges.trees.config import StepsConfig

DEFAULTS = {"lr_scheduler_type": "constant_with_warmup", "loss_type": "dr_grpo"}
"""Defaults of stage rl that differ from TRL's; ``rl.trainer`` overrides the first.

Dr. GRPO (arXiv 2503.20783) divides by no completion's length, under which long wrong texts would cost less.
"""


NO_LABEL = {
    "no_label": "a judge that knows more labels more of them (rl.labels, label.source), as do more branches "
    "(tree.criteria)"
}
"""The remedy where a large part of the comparisons has no label."""
SHARD = 100
"""Comparisons that the start labels together; the unit of resume."""


def run_rl(settings: RlSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Train a judge on branches that it samples itself, and write ``model/``.

    Labels are those of stage label, or what the start says itself; ``label.holdout`` of the comparisons are held out
    to choose a checkpoint by. Comparisons without a label are left out and counted (``no_label``).

    Raises:
        TrainingError: no comparison is left to train on, or training fails
            (:func:`judgetrain.train.run.train_and_write`).
    """
    from judgetrain.extras.rl.trainer import Rollouts

    config = settings.train
    # The start brings its own prompts, which the policy goes on to answer.
    start = inputs[config.start] / "model"
    prompts = load_prompt_set(start / PROMPTS)
    # Before the start is asked for its own labels, which takes long.
    check_reads(prompts, TREE_READS[settings.reads], "judge.reads=one")
    job = Job(start=settings.base.at(start), config=config, key=settings.key())

    # The leader alone labels, with its executor's workers; the other processes get what it read.
    if config.labels == "start":
        labelled, unlabelled = current().decide(lambda: own_labels(settings, inputs, job.start, out))
    else:
        labelled, unlabelled = labelled_comparisons(inputs)
    train, held_out = split_off_holdout(labelled, settings.holdout or 0.0, settings.seed, untaught(inputs))
    number = unlabelled.total()
    for sentence in unlabelled.sentences(number + len(labelled), NO_LABEL, "comparisons"):
        out.log(f"{out.stage}: {sentence}")
    out.count(in_=number + len(labelled), out=len(train), dropped=unlabelled)
    if not train:
        raise TrainingError(f"there are no labelled comparisons to train on: {number} have no label")
    if config.keep_best and not held_out:
        raise TrainingError("rl.keep_best=true, and no labelled comparison is held out: raise label.holdout")
    with _policy_engine(settings, job, out) as engine:
        rollouts = Rollouts(
            labelled={item.comparison.id: item for item in (*train, *held_out)},
            prompts=prompts,
            asking=settings.asking,
            config=config,
            seed=out.seed,
            engine=engine,
            reads=settings.reads,
        )
        tokenizer = load_tokenizer(job.start)
        # Every process trains next, on GPUs that the leader's workers may hold.
        current().decide(out.executor.close)
        measured_on: Sequence[Labelled] = []
        if config.keep_best:
            measured_on = held_out
        job = replace(job, probes=_probes(train, tokenizer))
        learning = _Learning(
            job=job, tokenizer=tokenizer, train=train, held_out=measured_on, rollouts=rollouts, out=out
        )
        train_and_write(learning.trainer, job, tokenizer, out, goes_on(start, settings, inputs, out))


@contextmanager
def _policy_engine(settings: RlSettings, job: Job, out: StageRun) -> Iterator[Callable[[Any], Any]]:
    """Yield what gives an engine with the policy's weights, given the trainer: vLLM, or the policy itself."""
    from judgetrain.extras.rl.trainer import own_engine, policy

    if not isinstance(settings.engine, VllmEngineConfig):
        yield own_engine
        return
    # vLLM runs beside the trainer and gets its weights by way of a directory.
    engine = settings.engine.with_model(job.start.path)
    with closing(VllmPolicy(engine, settings.train.max_length, out.path("rollout-weights"), policy)) as vllm:
        yield vllm


def _probes(train: Sequence[Labelled], tokenizer: PreTrainedTokenizerBase) -> list[Sequence[int]]:
    """Return the token ids of a few texts, of which the judge has to say the same when it is loaded again."""
    probes: list[Sequence[int]] = []
    for item in train[:PROBES]:
        text = f"{item.comparison.dialogue.query}\n{item.comparison.response_a}"
        probes.append(token_ids(tokenizer, text))
    return probes


def labelled_comparisons(inputs: Mapping[str, Path]) -> tuple[list[Labelled], Losses]:
    """Return the labelled comparisons of the trees, and those without a label."""
    from judgetrain.extras.rl.trainer import Labelled

    labels = {row["comparison_id"]: row["verdict"] for row in read_rows(inputs["label"], "labels")}
    # From the trees, which hold the comparisons; labels hold their ids alone.
    comparisons = [Comparison.from_row(row["comparison"]) for row in read_rows(inputs["tree"], "trees")]
    labelled = []
    unlabelled = Losses()
    for comparison in comparisons:
        verdict = labels.get(comparison.id)
        if verdict is not None:
            labelled.append(Labelled(comparison, verdict))
        else:
            unlabelled.lose("no_label", comparison.id)
    return labelled, unlabelled


def own_labels(
    settings: RlSettings, inputs: Mapping[str, Path], start: ModelConfig, out: StageRun
) -> tuple[list[Labelled], Losses]:
    """Return the comparisons on which both orders say the same, and those asked about that are left out.

    The start is asked greedily, with :data:`LABEL_BRANCHES`: one branch learns to say what many say. No label of people
    or of an ensemble is read, nor are trees: all comparisons there are may be learned from, or ``max_comparisons`` of
    them drawn by the seed, and besides all those that are held out. The answers are kept in shards.
    """
    from judgetrain.extras.rl.trainer import Labelled, sampled_at
    from judgetrain.judges.kinds.branching import BranchingJudge

    not_taught = untaught(inputs)

    def is_for_holdout(comparison: Comparison) -> bool:
        may_be_held_out = not_taught is None or comparison.id in not_taught
        return may_be_held_out and is_held_out(settings.seed, comparison.dialogue, settings.holdout or 0.0)

    comparisons = drawn_comparisons(inputs, settings.train.max_comparisons, out.seed, is_for_holdout)
    prompts = load_prompt_set(inputs[settings.train.start] / "model" / PROMPTS)
    assert settings.aggregation is not None
    assert settings.tie is not None
    options = JudgeOptions(
        branches=min(LABEL_BRANCHES, settings.asking.criteria),
        steps=sampled_at(settings.asking, 0.0),
        aggregation=settings.aggregation,
        tie=settings.tie,
        early_stop=True,
        reads=settings.reads,
    )
    engine = settings.engine or TransformersEngineConfig(model=start, batch_size=256)

    def load() -> BranchingJudge:
        return BranchingJudge(make_engine(engine, start.path), prompts, options)

    def process(index: int, items: Sequence[Comparison]) -> ShardResult:
        rows = []
        for prediction in judge().compare_batch(items, out.shard_seed(index)):
            verdicts = {"verdict_ab": prediction.verdict_ab, "verdict_ba": prediction.verdict_ba}
            rows.append({"comparison_id": prediction.comparison_id, **verdicts})
        # Counted as nothing read: the stage counts its comparisons once, when they are labelled.
        return ShardResult(rows, 0, counts_out=0)

    with loaded_once(load) as judge:
        work = Work(process=process, load=judge, spread=True)
        out.sharded("own-labels", comparisons, SHARD, work, "comparisons")
    rows = {row["comparison_id"]: row for row in read_rows(out.directory, "own-labels")}
    labelled = []
    unlabelled = Losses()
    for comparison in comparisons:
        row = rows[comparison.id]
        # Where the orders differ the start has no opinion that could be learned.
        if row["verdict_ab"] is not None and row["verdict_ab"] == row["verdict_ba"]:
            labelled.append(Labelled(comparison, row["verdict_ab"]))
        else:
            unlabelled.lose("no_label", comparison.id)
    return labelled, unlabelled


def drawn_comparisons(
    inputs: Mapping[str, Path], most: int | None, seed: int, always: Callable[[Comparison], bool]
) -> list[Comparison]:
    """Return comparisons drawn by the seed, in the order of stage responses.

    Args:
        inputs: of the stage.
        most: how many are drawn; None: all.
        seed: of the run.
        always: says of a comparison if it is taken in any case.
    """
    count = count_rows(inputs["responses"], "comparisons")
    rng = random.Random(derive_seed(seed, "own labels"))
    # By place and not by row, so that nothing but the drawn comparisons has to be in memory.
    drawn = set(rng.sample(range(count), min(count, most or count)))
    comparisons = []
    for place, row in enumerate(read_rows(inputs["responses"], "comparisons")):
        comparison = Comparison.from_row(row)
        if place in drawn or always(comparison):
            comparisons.append(comparison)
    return comparisons


def untaught(inputs: Mapping[str, Path]) -> set[str] | None:
    """Return the ids of the comparisons that the teacher left; None where it took none.

    Held-out comparisons must be among them, since the others were trained on already.
    """
    if "teacher" not in inputs:
        return None
    return {row["id"] for row in read_rows(inputs["teacher"], "remaining")}


def split_off_holdout(
    labelled: Iterable[Labelled], holdout: float, seed: int, among: Collection[str] | None
) -> tuple[list[Labelled], list[Labelled]]:
    """Return the comparisons to train on and those held out.

    As far as ``label.holdout`` goes, these are what stage label held out of ``sft`` and ``dpo`` too.

    Args:
        labelled: all of them.
        holdout: share that is held out.
        seed: of the run.
        among: ids of those that may be held out, since the Initial judge was not trained on them; None: all may.
    """
    train = []
    held_out = []
    for item in labelled:
        may_be_held_out = among is None or item.comparison.id in among
        if may_be_held_out and is_held_out(seed, item.comparison.dialogue, holdout):
            held_out.append(item)
        else:
            train.append(item)
    return train, held_out


def in_order(count: int, config: RlConfig, seed: int) -> list[int]:
    """Return indices of the comparisons in training order: all epochs, each shuffled anew, up to whole steps."""
    order: list[int] = []
    whole_epochs, part = divmod(config.num_train_epochs, 1)
    for epoch in range(math.ceil(config.num_train_epochs)):
        indices = list(range(count))
        random.Random(derive_seed(seed, "order", epoch)).shuffle(indices)
        if epoch >= whole_epochs:
            # The last epoch may be a part of one.
            indices = indices[: max(1, round(count * part))]
        order += indices
    return filled(order, config.comparisons_per_step, config.max_steps)


@dataclass(frozen=True, kw_only=True)
class _Learning:
    """The data that a judge learns from and is measured by.

    Args:
        job: what is trained.
        tokenizer: of the judge.
        train: labelled comparisons to train on.
        held_out: those to measure the judge on; empty: it is not measured.
        rollouts: samples branches.
        out: the stage's directory.
    """

    job: Job
    tokenizer: PreTrainedTokenizerBase
    train: Sequence[Labelled]
    held_out: Sequence[Labelled]
    rollouts: Rollouts
    out: StageRun

    def trainer(self, checkpoints: Path) -> Trainer:
        """Return the trainer over the labelled comparisons, ready to train."""
        from datasets import Dataset
        from transformers import PrinterCallback
        from trl import GRPOConfig

        from judgetrain.extras.rl.trainer import BranchTrainer, both_orders, unreadable

        job = self.job
        out = self.out
        config = self.rollouts.config
        # TRL passes over the rows once, in their order, so that a resume needs no state of a sampler.
        chosen = [self.train[index] for index in in_order(len(self.train), config, out.seed)]
        rows = []
        for item in chosen:
            # TRL's sampler repeats a row for each branch; the parts of a branch are rows of their own.
            rows += [_row(item)] * PARTS
        held_out_rows = None
        if self.held_out:
            held_out_rows = Dataset.from_list([_row(item) for item in self.held_out])
        training = Training(
            config=config,
            key=job.key,
            checkpoints=checkpoints,
            seed=out.seed,
            evaluate=bool(self.held_out),
            dtype=job.start.dtype,
        )
        args = arguments_of(GRPOConfig, training, branch_arguments(config, self.rollouts.asking), **DEFAULTS)
        args.report_to = out.track.report_to
        args.run_name = f"{out.stage}-{out.directory.name}"
        model = policy_of(job)
        # From there TRL loads the reference, where beta is above 0.
        model.config.name_or_path = job.start.path
        with warnings.catch_warnings(), trainer_explained(config, job.key):
            # TRL calls rollout_func experimental; pyproject.toml names the versions that this one was tried with.
            warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
            trainer = BranchTrainer(
                model=model,
                reward_funcs=[both_orders, unreadable],
                args=args,
                train_dataset=Dataset.from_list(rows),
                eval_dataset=held_out_rows,
                processing_class=self.tokenizer,
                peft_config=peft_config(config),
                callbacks=self._callbacks(),
                rollout_func=self.rollouts,
                held_out=self.held_out,
            )
        trainer.remove_callback(PrinterCallback)
        steps = len(chosen) // config.comparisons_per_step
        size = f"{config.comparisons_per_step} x {amount(config.num_generations, 'branch')}"
        out.log(
            f"{out.stage}: {len(self.train)} labelled comparisons, {amount(steps, 'step')} of {size}, from the "
            f"{config.start} "
            "judge"
        )
        return trainer

    def _callbacks(self) -> list[TrainerCallback]:
        """Return what watches the training, and note what it is measured on."""
        from judgetrain.extras.rl.trainer import KeptLabels

        callbacks = [*watchers(self.out), AtReference(self.rollouts.config.beta)]
        if not self.held_out:
            return callbacks
        callbacks.append(KeptLabels(len(self.held_out), self.out))
        self.out.note("heldout", {"comparisons": len(self.held_out)})
        if current().leads:
            facts = [{"comparison_id": item.comparison.id, "verdict": item.verdict} for item in self.held_out]
            self.out.write_rows("heldout", facts)
        return callbacks


def _row(item: Labelled) -> dict[str, Any]:
    """Return a row of TRL's data set: its prompt is the comparison's id, by which the rollouts find it."""
    return {"prompt": [{"role": "user", "content": item.comparison.id}]}


def branch_arguments(config: RlConfig, asking: StepsConfig) -> dict[str, Any]:
    """Return the arguments of TRL that stage rl decides: all branches of an optimizer step are sampled at once."""
    from judgetrain.extras.rl.trainer import AGREEMENT

    limits = (asking.criteria_sampling, asking.guideline_sampling, asking.judgment_sampling)
    decided: dict[str, Any] = {
        "gradient_accumulation_steps": config.rows_per_step // config.per_device_train_batch_size // current().size,
        # in_order has shuffled the comparisons, and the rows of one have to stay together.
        "shuffle_dataset": False,
        # Rewards read columns that the model's signature does not name.
        "remove_unused_columns": False,
        # Held-out comparisons are asked greedily, so that further answers would be the same.
        "num_generations_eval": 1,
        "max_completion_length": max(sampling.max_new_tokens for sampling in limits),
        "temperature": TEMPERATURE,
        # The start is the first of those to choose from.
        "eval_on_start": config.keep_best,
        # The model that learns is the model that sampled, which had no dropout.
        "disable_dropout": True,
    }
    if config.keep_best:
        decided |= kept_best(AGREEMENT, config.eval_steps)
    return decided
