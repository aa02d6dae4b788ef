"""Run one training with a TRL trainer: from its rows, over a resume, to the judge's directory."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.files import settle
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.digests import note_weights
from judgetrain.engines.loading import end_token_ids, load_model, load_tokenizer, own_context
from judgetrain.engines.model_check import check_unquantised
from judgetrain.errors import TrainingError
from judgetrain.train import arguments
from judgetrain.train.checkpoints import (
    FOUR_BIT,
    LOG,
    PROBES,
    AtReference,
    CheckpointMarks,
    FiniteFigures,
    Progress,
    StopAfterStep,
    Trained,
    check_loss,
    check_saved,
    finite,
    forget_logs_after,
    last_complete,
    logprobs,
    neutral_generation,
    no_number,
    rounding,
)
from judgetrain.train.config import DpoConfig, TrainConfig, TrainerConfig
from judgetrain.train.data import (
    Examples,
    Renderer,
    Row,
    Slices,
    dataset,
    emptied,
    filled,
    fitting,
    order,
    with_reference,
)
from judgetrain.train.distributed import current, forget_wrapping, whole_model
from judgetrain.train.internals import labelled_tokens_alone
from judgetrain.train.prefix_trees import in_prefix_trees
from judgetrain.train.ranking import order_of_pairs, ranked

if TYPE_CHECKING:
    import torch
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainerCallback

Config = TypeVar("Config", bound=TrainConfig)

TEMPORARY = ".model.tmp"
"""The directory where a model is written and read again before it gets its place."""
TABLES = "tokens"
"""The directory of the tokenised rows, beside the checkpoints: it goes when they do."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training: the model it starts from, and its settings.

    Args:
        start: the model.
        config: the stage's settings.
        key: where they stand, as ``train.sft``.
        probes: token ids of a few texts, to which the judge has to give the same probability when it is loaded again.
    """

    start: ModelConfig
    config: TrainerConfig
    key: str
    probes: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, kw_only=True)
class RowsJob(Job):
    """A training on rows: SFT on examples, or DPO on pairs if the settings are a :class:`DpoConfig`.

    Args:
        train: the rows to train on.
        heldout: the rows that are evaluated and not trained on; may be empty.
        what: the rows are, for messages, as "preference pairs".
        frames: of the prompt set, by which answers are read back before they are trained on.
        reference: the artifact that holds the pairs' reference log-probabilities.
    """

    config: TrainConfig
    train: Collection[Row]
    heldout: Collection[Row]
    what: str
    frames: Mapping[str, str] | None = None
    reference: Path | None = None


def train(job: RowsJob, out: StageRun, finish: Callable[[Path], None]) -> None:
    """Train on rows, or resume from the last complete checkpoint, and write ``model/``.

    Args:
        job: what is trained on what.
        out: the stage's directory.
        finish: adds to the model's directory before it gets its place.

    Raises:
        TrainingError: there is nothing to train on, a loss or a weight is NaN or infinite, or memory ran out; says
            what to change.
    """
    tokenizer = load_tokenizer(job.start)
    # TRL pads on the right. The tokenizer of a judge pads on the left, for generation.
    tokenizer.padding_side = "right"
    # Of positions beyond its context a model knows nothing, and some end in an error.
    most_tokens = min(job.config.max_length, own_context(job.start))
    job = replace(job, config=replace(job.config, max_length=most_tokens))

    # The other processes get the table's file and the lengths.
    examples = current().decide(lambda: _tokenised(job, tokenizer, out))
    for remark in (*examples.remarks, *examples.losses):
        out.log(f"{out.stage}: {remark}")
    rows = examples
    if getattr(job.config, "share_prefixes", False):
        rows = current().decide(lambda: _in_trees(job, examples, out))
    configured_passes = job.config.num_train_epochs
    job = replace(job, config=lasting(job.config, len(rows)), probes=_probes(examples))
    passes = job.config.num_train_epochs
    if passes > configured_passes:
        out.log(f"{out.stage}: {passes:g} passes, for min_steps={job.config.min_steps}")
    out.count(in_=len(job.train), out=len(examples), dropped=examples.dropped)

    def build(checkpoints: Path) -> Trainer:
        return make_trainer(job, rows, tokenizer, checkpoints, out)

    train_and_write(build, job, tokenizer, out, finish)


def _tokenised(job: RowsJob, tokenizer: PreTrainedTokenizerBase, out: StageRun) -> Examples:
    """Return the training rows that fit, with what ranking and DPO read besides."""
    table = emptied(out.path("checkpoints") / TABLES) / "train.arrow"
    ends = end_token_ids(job.start, tokenizer)
    examples = fitting(job.train, Renderer(tokenizer, ends, job.frames), job.config.max_length, job.what, table)
    if getattr(job.config, "ranking_weight", 0.0) and job.frames:
        examples = ranked(examples, tokenizer, job.frames["score"])
        out.log(
            f"{out.stage}: {amount(len(examples.pairs), 'pair')} of responses {agree(len(examples.pairs), 'are')} "
            "ranked"
        )
        if examples.unpaired:
            out.log(
                f"{out.stage}: {amount(examples.unpaired, 'judgment')} of one response "
                f"{agree(examples.unpaired, 'are')} not ranked, since "
                "that of the other "
                f"is missing or too long, or a score cannot be read: {job.key}.ranking_weight acts on the others alone"
            )
    if job.reference:
        examples = with_reference(examples, job.reference, "train")
    return examples


def _in_trees(job: RowsJob, examples: Examples, out: StageRun) -> Examples:
    """Return the examples with those of a comparison in one row, and say what that saves."""
    place = out.path("checkpoints") / TABLES / "trees.arrow"
    trees = in_prefix_trees(examples, job.config.max_length, place)
    apart = sum(examples.lengths)
    together = sum(trees.lengths)
    out.log(
        f"{out.stage}: {len(examples)} {job.what} stand in {amount(len(trees), 'row')} that share beginnings: "
        f"{amount(together, 'token')} a pass in place of {apart:,}"
    )
    return trees


def _probes(examples: Examples) -> list[list[int]]:
    """Return the token ids of the first examples: of a pair, the prompt with the chosen side."""
    probes = []
    for row in Slices(examples.data)[:PROBES]:
        probes.append(row.get("input_ids") or row["prompt_ids"] + row["chosen_ids"])
    return probes


def lasting(config: Config, examples: int) -> Config:
    """Return the settings with as many passes over the examples as ``min_steps`` takes, at least those configured."""
    step = config.per_device_train_batch_size * config.global_accumulation_steps
    least = math.ceil(config.min_steps * step / examples)
    return replace(config, num_train_epochs=max(config.num_train_epochs, least))


def train_and_write(
    build: Callable[[Path], Trainer],
    job: Job,
    tokenizer: PreTrainedTokenizerBase,
    out: StageRun,
    finish: Callable[[Path], None],
) -> None:
    """Train from the last complete checkpoint, if there is one, and write ``model/``.

    Args:
        build: makes the trainer, given the directory of checkpoints.
        job: what is trained.
        tokenizer: of the judge.
        out: the stage's directory.
        finish: adds to the model's directory before it gets its place.

    Raises:
        TrainingError: as :func:`train`.
    """
    checkpoints = out.path("checkpoints")
    group = current()
    # A run that was killed between the last step and the manifest has a model already.
    if group.decide(out.path("model").exists):
        if group.leads:
            shutil.rmtree(checkpoints, ignore_errors=True)
        return

    trained: Trained | None = None
    with arguments.memory_explained(job.key), labelled_tokens_alone():
        trainer = build(checkpoints)
        # Wrapped models run once they are wrapped, which is when the first step is taken.
        if not group.wraps:
            check_loss(trainer.model, job.probes, rounding(trainer.args, trainer.model))
        _train_to_the_end(trainer, job, checkpoints, out)
        # Stage rl evaluates the start too. Where no step was better, the start is what is kept.
        start_is_best = trainer.args.load_best_model_at_end and trainer.state.best_global_step is None
        if not start_is_best:
            # Before weights are gathered and merged: under ZeRO-3 every process has to run the model.
            trained = _probed(trainer, job, tokenizer)

        # Every process enters, and the leader alone gets the weights and writes.
        with whole_model(trainer) as (model, state):
            if state is not None:
                out.note("training", _facts(trainer))
                if start_is_best:
                    state = None
                temporary = out.path(TEMPORARY)
                _save(model, state, tokenizer, job, temporary)
                finish(temporary)
                note_weights(temporary)
                # Last, so that every file is on the disk before the directory gets its name.
                settle(temporary)

    # Before the judge is loaded again to be compared, which the leader does by itself.
    forget_wrapping()
    if group.leads:
        _put_in_place(trained, out)
        # Last: until the model stands in its place, a run goes on from them.
        shutil.rmtree(checkpoints, ignore_errors=True)


def _put_in_place(trained: Trained | None, out: StageRun) -> None:
    """Give the written judge its place, once it was loaded again and compared with the one that was trained.

    Args:
        trained: the judge in memory; None: the written one is a copy of the judge that training started from.
        out: the stage's directory.

    Raises:
        TrainingError: the written judge is another one.
    """
    if trained is not None and trained.rows:
        not_compared = check_saved(out.path(TEMPORARY), trained)
        if not_compared:
            out.log(f"{out.stage}: {not_compared}")
    # A rename is all or nothing: a model that stands there is whole, and was read back.
    out.path(TEMPORARY).replace(out.path("model"))


def _probed(trainer: Trainer, job: Job, tokenizer: PreTrainedTokenizerBase) -> Trained:
    """Return what the trained judge says of the job's probes, for the judge that is written to be compared with."""
    # Adapters of a base in 4 bits are merged into the base as it was, which is another model by so much.
    allowed = FOUR_BIT
    if not job.config.four_bit:
        allowed = rounding(trainer.args, trainer.model)
    if current().wraps:
        # Before the first step, where other models are checked, this one did not run yet.
        check_loss(trainer.model_wrapped, job.probes, allowed)
    probed = logprobs(trainer.model_wrapped, job.probes)
    return Trained(job.start, tokenizer, job.probes, probed, allowed)


def _train_to_the_end(trainer: Trainer, job: Job, checkpoints: Path, out: StageRun) -> None:
    """Train from the last complete checkpoint to the last step (TrainingError: a weight is NaN or infinite)."""
    group = current()
    if job.config.lora:
        without_adapters = arguments.frozen_experts(trainer.model)
        if without_adapters:
            out.log(f"{out.stage}: adapters leave {without_adapters / 1e6:.3g}M weights of experts as they are")
    resume = group.decide(lambda: last_complete(checkpoints))
    step = 0
    if resume:
        step = int(resume.rsplit("-", 1)[1])
        out.log(f"{out.stage}: resuming at step {step}")
        # The run that was stopped has evaluated the start.
        trainer.args.eval_on_start = False
    if group.leads:
        forget_logs_after(out.path(LOG), step)
    stop = StopAfterStep()
    trainer.add_callback(stop)
    with stop.hearing():
        trainer.train(resume_from_checkpoint=resume)
    # The last steps may have no checkpoint, where weights are looked at.
    if not finite(trainer.model):
        raise no_number("weights hold nan or inf", trainer.args, trainer.state.global_step)


def make_trainer(
    job: RowsJob, examples: Examples, tokenizer: PreTrainedTokenizerBase, checkpoints: Path, out: StageRun
) -> Trainer:
    """Return the trainer of a job on rows, ready to train."""
    from transformers import PrinterCallback
    from transformers.trainer_pt_utils import get_model_param_count

    from judgetrain.train.trainers import PreferenceTrainer, SupervisedTrainer

    config = job.config
    rows = _in_order(config, examples, out.seed)
    heldout = current().decide(lambda: _heldout(job, tokenizer, checkpoints / TABLES, out))
    callbacks = _callbacks(job, heldout, out)
    # Before the model: under ZeRO-3 the arguments have it partitioned as it is loaded.
    args = arguments.training_arguments(
        config, job.key, checkpoints, out.seed, evaluate=heldout is not None, dtype=job.start.dtype
    )
    # Trackers that Transformers knows report by themselves; the others get the rows of the log (Progress).
    args.report_to = out.track.report_to
    args.run_name = f"{out.stage}-{out.directory.name}"
    model = policy_of(job)
    shared: dict[str, Any] = {
        "model": model,
        "args": args,
        "train_dataset": rows,
        "eval_dataset": heldout,
        "processing_class": tokenizer,
        "peft_config": arguments.peft_config(config),
        "callbacks": callbacks,
    }
    with arguments.trainer_explained(config, job.key):
        if isinstance(config, DpoConfig):
            trainer: Trainer = PreferenceTrainer(**shared)
        else:
            trainer = SupervisedTrainer(**shared, ranking=getattr(config, "ranking_weight", 0.0))
    # It prints every row of logs as a dictionary, in the middle of the console's progress.
    trainer.remove_callback(PrinterCallback)
    if config.regional_compilation:
        out.log(f"{out.stage}: {arguments.compiled(trainer.model)}")

    steps = math.ceil(len(rows) / (config.per_device_train_batch_size * config.global_accumulation_steps))
    size = f"{get_model_param_count(model) / 1e6:.1f}M parameters"
    if config.freeze_embeddings:
        trained = get_model_param_count(model, trainable_only=True) / 1e6
        size += f", of which {trained:.1f}M are trained"
    what = job.what
    if getattr(config, "share_prefixes", False):
        what = f"rows of {job.what}"
    out.log(f"{out.stage}: {len(examples)} {what}, {amount(steps, 'step')}, {size}")
    return trainer


def _in_order(config: TrainConfig, examples: Examples, seed: int) -> Dataset:
    """Return the examples of all epochs in training order."""
    batch = config.per_device_train_batch_size
    # In prefix trees both sides of a pair stand in one row.
    if getattr(config, "ranking_weight", 0.0) and examples.pairs:
        indices = order_of_pairs(examples, batch, config.num_train_epochs, seed)
    else:
        indices = order(examples.lengths, batch, config.num_train_epochs, seed)
    # Micro-batches that are left over could not be shared out so that any number of processes takes the same steps.
    if config.global_accumulation_steps > 1 or current().size > 1 or config.max_steps > 0:
        indices = filled(indices, batch * config.global_accumulation_steps, config.max_steps)
    return dataset(examples, indices)


def _callbacks(job: RowsJob, heldout: Dataset | None, out: StageRun) -> list[TrainerCallback]:
    """Return what watches a training on rows.

    Raises:
        TrainingError: the best checkpoint is to be kept, and no held-out pair is there to choose by.
    """
    from judgetrain.train.trainers import KeptPairs

    callbacks = watchers(out)
    if not isinstance(job.config, DpoConfig):
        return callbacks
    callbacks.append(AtReference(job.config.beta))
    if job.config.keep_best:
        if heldout is None:
            raise TrainingError(f"{job.key}.keep_best=true needs held-out pairs: raise label.holdout, or leave it out")
        callbacks.append(KeptPairs(len(heldout), out))
    return callbacks


def policy_of(job: Job) -> PreTrainedModel:
    """Return the model that is trained, as it starts."""
    check_unquantised(job.start, f"{job.key} starts from {job.start.path}")
    start = job.start
    if getattr(job.config, "share_prefixes", False):
        start = arguments.with_masks(start)
    start = arguments.trainable(start, job.config.bf16, job.config.lora)
    model = load_model(start, four_bit=job.config.four_bit)
    model.train()
    if getattr(job.config, "freeze_embeddings", False):
        arguments.freeze_embeddings(model)
    # DPO and RL compare the model with itself, read without dropout.
    if isinstance(job.config, DpoConfig) or not isinstance(job.config, TrainConfig):
        arguments.without_dropout(model)
    return model


def watchers(out: StageRun) -> list[TrainerCallback]:
    """Return what watches every training: that checkpoints are whole, the log, and that figures are numbers."""
    # A figure that is no number is written to the log before it ends the run.
    return [CheckpointMarks(out), Progress(out), FiniteFigures()]


def _heldout(job: RowsJob, tokenizer: PreTrainedTokenizerBase, tables: Path, out: StageRun) -> Dataset | None:
    """Return the held-out rows that fit; None where there are none, which is logged where rows were held out."""
    if not len(job.heldout):
        return None
    ends = end_token_ids(job.start, tokenizer)
    what = f"held-out {job.what}"
    try:
        examples = fitting(
            job.heldout, Renderer(tokenizer, ends), job.config.max_length, what, tables / "heldout.arrow"
        )
    except TrainingError as error:
        out.log(f"{out.stage}: there is no held-out loss: {error}")
        return None
    for sentence in examples.losses:
        out.log(f"{out.stage}: {sentence}")
    out.note("heldout", {"examples": len(examples), **examples.dropped})
    if job.reference:
        examples = with_reference(examples, job.reference, "heldout")
    return dataset(examples, range(len(examples)))


def _save(
    model: Any, state: Mapping[str, torch.Tensor] | None, tokenizer: PreTrainedTokenizerBase, job: Job, directory: Path
) -> None:
    """Write weights, configuration and tokenizer into a directory, in place of what is there.

    Args:
        model: the trained model, with its adapters if there are any.
        state: its trained weights; None writes the model that training started from.
        tokenizer: of the judge.
        job: what was trained.
        directory: where they are written.
    """
    shutil.rmtree(directory, ignore_errors=True)
    if state is None:
        # No step was better than the judge it started from, so that judge is what is kept, to the byte.
        shutil.copytree(job.start.path, directory)
    else:
        if current().fsdp:
            # Of the trained one every process has a part.
            model = arguments.in_one_piece(state, job.start, job.config.lora)
            # Weights that are tied are one in it, and are written once.
            state = model.state_dict()
        if job.config.lora:
            model = _merged(model, job)
            state = model.state_dict()
        model.generation_config = neutral_generation(job.start, tokenizer)
        # TRL has experts say how they are chosen, for a loss that balances them. A judge that is sampled from would
        # compute that loss, over a mask of another length.
        text_config = model.config.get_text_config()
        if hasattr(text_config, "output_router_logits"):
            text_config.output_router_logits = False
        # Safetensors writes no others, such as transposed views of weights.
        contiguous = {name: weight.contiguous() for name, weight in state.items()}
        model.save_pretrained(directory, state_dict=contiguous)
        # Judges are asked in batches, whose prompts have to end together.
        tokenizer.padding_side = "left"
        tokenizer.save_pretrained(directory)


def _merged(model: Any, job: Job) -> Any:
    """Return the model with its adapters merged into the weights."""
    if job.config.four_bit:
        model = arguments.onto_whole(model, job.start)
    elif not any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        # Most of what was learned is smaller than bfloat16 can add to a weight. ZeRO-3's weights stay where they are.
        model = model.cpu().float()
    return model.merge_and_unload()


def _facts(trainer: Trainer) -> dict[str, Any]:
    """Return steps, mean and last loss over all runs that a resume joined, and the kept weights' held-out figures."""
    log = trainer.state.log_history
    facts: dict[str, Any] = {"steps": trainer.state.global_step}
    losses = [row["loss"] for row in log if "loss" in row]
    if losses:
        facts["train_loss"] = sum(losses) / len(losses)
        facts["last_loss"] = losses[-1]
    for name, value in _kept_evaluation(trainer).items():
        # Transformers adds how long the evaluation took.
        if name.startswith("eval_") and not name.endswith(("_runtime", "_per_second")):
            facts[name] = value
    return facts


def _kept_evaluation(trainer: Trainer) -> dict[str, Any]:
    """Return the log's row of the last evaluation, or of the best step's if that is kept; empty if there is none."""
    evaluations = [row for row in trainer.state.log_history if "eval_loss" in row]
    if trainer.args.load_best_model_at_end:
        # Step 0 is the start, which stage rl evaluates.
        kept = trainer.state.best_global_step or 0
        evaluations = [row for row in evaluations if row["step"] == kept]
    if not evaluations:
        return {}
    return evaluations[-1]
