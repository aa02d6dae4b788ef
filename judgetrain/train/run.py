"""One training run with a TRL trainer: data, resume, result."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from judgetrain.artifacts.files import settle
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import end_token_ids, load_model, load_tokenizer, note_weights, own_context
from judgetrain.errors import TrainingError
from judgetrain.train import arguments
from judgetrain.train.checkpoints import (
    FOUR_BIT,
    PROBES,
    AtReference,
    CheckpointMarks,
    FiniteFigures,
    Progress,
    StopAfterStep,
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
from judgetrain.train.data import Examples, Row, Slices, dataset, emptied, filled, fitting, order, with_reference
from judgetrain.train.distributed import current, forget_deepspeed, whole_model
from judgetrain.train.ranking import order_of_pairs, ranked

if TYPE_CHECKING:
    import torch
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainerCallback

Config = TypeVar("Config", bound=TrainConfig)

TEMPORARY = ".model.tmp"
"""Where a model is written and read again before it gets its place."""
TABLES = "tokens"
"""The directory of the tokenised rows, beside the checkpoints: it goes when they do."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is trained: the start, and the settings, which stand at ``key`` (as ``train.sft``)."""

    start: ModelConfig
    config: TrainerConfig
    key: str
    probes: Sequence[Sequence[int]] = ()
    """Token ids of a few texts, of which the judge has to say the same when it is loaded again."""


@dataclass(frozen=True, kw_only=True)
class RowsJob(Job):
    """Training on rows: SFT where they are examples, DPO where they are pairs and the settings a :class:`DpoConfig`."""

    config: TrainConfig
    train: Collection[Row]
    heldout: Collection[Row]
    what: str
    frames: Mapping[str, str] | None = None
    """Of the prompt set, by which answers are read back before they are trained on."""
    reference: Path | None = None
    """The artifact that holds the pairs' reference log-probabilities."""


def train(job: RowsJob, out: StageRun, finish: Callable[[Path], None]) -> None:
    """Train, or resume from the last complete checkpoint, and write ``model/`` (TrainingError: nothing to train on,
    NaN or inf in losses or weights, or too little memory; says what to change).

    ``finish`` adds to the model directory before it gets its place.
    """
    epochs, tokenizer = job.config.num_train_epochs, load_tokenizer(job.start)
    tokenizer.padding_side = "right"
    most = min(job.config.max_length, own_context(job.start))
    job = replace(job, config=replace(job.config, max_length=most))
    tables = out.path("checkpoints") / TABLES

    def tokenised() -> Examples:
        ends, place = end_token_ids(job.start, tokenizer), emptied(tables) / "train.arrow"
        found = fitting(job.train, tokenizer, job.config.max_length, job.what, ends, place, job.frames)
        if getattr(job.config, "ranking_weight", 0.0) and job.frames:
            found = ranked(found, tokenizer, job.frames["score"])
            out.log(f"{out.stage}: {len(found.pairs)} pairs of responses are ranked")
        return with_reference(found, job.reference, "train") if job.reference else found

    examples = current().decide(tokenised)
    ids = [row.get("input_ids") or row["prompt_ids"] + row["chosen_ids"] for row in Slices(examples.data)[:PROBES]]
    job = replace(job, config=lasting(job.config, len(examples)), probes=ids)
    passes = f"{job.config.num_train_epochs:g} passes, for min_steps={job.config.min_steps}"
    for remark in (*examples.remarks, *([passes] if job.config.num_train_epochs > epochs else [])):
        out.log(f"{out.stage}: {remark}")
    out.count(in_=len(job.train), out=len(examples), dropped=examples.dropped)
    complete(lambda checkpoints: _trainer(job, examples, tokenizer, checkpoints, out), job, tokenizer, out, finish)


def lasting(config: Config, examples: int) -> Config:
    """The settings with as many passes over the examples as ``min_steps`` takes, at least their own."""
    step = config.per_device_train_batch_size * config.global_accumulation_steps
    least = math.ceil(config.min_steps * step / examples)
    return replace(config, num_train_epochs=max(config.num_train_epochs, least))


def complete(
    build: Callable[[Path], Trainer],
    job: Job,
    tokenizer: PreTrainedTokenizerBase,
    out: StageRun,
    finish: Callable[[Path], None],
) -> None:
    """Train what ``build`` gives for a directory of checkpoints, from the last complete one, and write ``model/``
    (TrainingError: as :func:`train`)."""
    from judgetrain.train.internals import labelled_tokens_alone

    checkpoints = out.path("checkpoints")
    group = current()
    if group.decide(out.path("model").exists):  # killed between the last step and the manifest
        if group.leads:
            shutil.rmtree(checkpoints, ignore_errors=True)
        return
    with arguments.memory_explained(job.key), labelled_tokens_alone():
        trainer = build(checkpoints)
        if job.config.lora and (stacked := arguments.frozen_experts(trainer.model)):
            out.log(f"{out.stage}: adapters leave {stacked / 1e6:.3g}M weights of experts as they are")
        resume = group.decide(lambda: last_complete(checkpoints))
        step = int(resume.rsplit("-", 1)[1]) if resume else 0
        if group.leads:
            forget_logs_after(out.path("train_log.jsonl"), step)
        if resume:
            out.log(f"{out.stage}: resuming at step {step}")
            trainer.args.eval_on_start = False
        trainer.add_callback(stop := StopAfterStep())
        with stop.hearing():
            trainer.train(resume_from_checkpoint=resume)
        if not finite(trainer.model):
            raise no_number("weights hold nan or inf", trainer.args, trainer.state.global_step)
        # Whether the best weights are to be kept, and no step was better than the start (which counts only in rl).
        start_kept = trainer.args.load_best_model_at_end and trainer.state.best_global_step is None
        allowed = FOUR_BIT if job.config.four_bit else rounding(trainer.args, trainer.model)
        said = [] if start_kept else logprobs(trainer.model_wrapped, job.probes)
        with whole_model(trainer) as (model, state):
            if state is not None:
                out.note("training", _facts(trainer))
                _write(model, None if start_kept else state, tokenizer, job, out, finish)
    if group.deepspeed:
        forget_deepspeed()
    if group.leads:
        if said and (left := check_saved(out.path(TEMPORARY), job.start, tokenizer, job.probes, said, allowed)):
            out.log(f"{out.stage}: {left}")
        out.path(TEMPORARY).replace(out.path("model"))
        shutil.rmtree(checkpoints, ignore_errors=True)


def _trainer(
    job: RowsJob, examples: Examples, tokenizer: PreTrainedTokenizerBase, checkpoints: Path, out: StageRun
) -> Trainer:
    from transformers import PrinterCallback
    from transformers.trainer_pt_utils import get_model_param_count

    from judgetrain.train.trainers import KeptPairs, PreferenceTrainer, SupervisedTrainer

    config = job.config
    batch, epochs = config.per_device_train_batch_size, config.num_train_epochs
    step = batch * config.global_accumulation_steps
    indices = order(examples.lengths, batch, epochs, out.seed)
    if ranking := getattr(config, "ranking_weight", 0.0):
        indices = order_of_pairs(examples, batch, epochs, out.seed)
    # Micro-batches that are left over could not be shared out so that any number of processes takes the same steps.
    several = config.global_accumulation_steps > 1 or current().size > 1 or config.max_steps > 0
    rows = dataset(examples, filled(indices, step, config.max_steps) if several else indices)
    heldout = current().decide(lambda: _heldout(job, tokenizer, checkpoints / TABLES, out))
    callbacks = [*watchers(out), *([AtReference(config.beta)] if isinstance(config, DpoConfig) else [])]
    if isinstance(config, DpoConfig) and config.keep_best:
        if heldout is None:
            raise TrainingError(f"{job.key}.keep_best=true needs held-out pairs: raise label.holdout, or leave it out")
        callbacks.append(KeptPairs(len(heldout), out))
    # Before the model: under ZeRO-3 the arguments have it partitioned as it is loaded.
    args = arguments.training_arguments(config, job.key, checkpoints, out.seed, evaluate=heldout is not None)
    args.report_to, args.run_name = out.track.report_to, f"{out.stage}-{out.directory.name}"
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
            trainer = SupervisedTrainer(**shared, ranking=ranking)
    trainer.remove_callback(PrinterCallback)
    if config.regional_compilation:
        out.log(f"{out.stage}: {arguments.compiled(trainer.model)}")
    steps = math.ceil(len(rows) / step)
    size = get_model_param_count(model) / 1e6
    out.log(f"{out.stage}: {len(examples)} {job.what}, {steps} steps, {size:.1f}M parameters")
    return trainer


def policy_of(job: Job) -> PreTrainedModel:
    """The model that is trained, as it starts."""
    start = arguments.trainable(job.start, job.config.bf16, job.config.lora)
    model = load_model(start, four_bit=job.config.four_bit)
    model.train()
    if isinstance(job.config, DpoConfig) or not isinstance(job.config, TrainConfig):
        arguments.without_dropout(model)  # what is learned from is compared with what the same model says without any
    return model


def watchers(out: StageRun) -> list[TrainerCallback]:
    """What watches every training: whole checkpoints, the log, and figures that are numbers."""
    return [CheckpointMarks(out), Progress(out), FiniteFigures()]


def _heldout(job: RowsJob, tokenizer: PreTrainedTokenizerBase, tables: Path, out: StageRun) -> Dataset | None:
    """The held-out rows that fit, or None, which is said; tokenised by the leader."""
    if not len(job.heldout):
        return None
    try:
        ends, file = end_token_ids(job.start, tokenizer), tables / "heldout.arrow"
        held = fitting(job.heldout, tokenizer, job.config.max_length, f"held-out {job.what}", ends, file)
    except TrainingError as error:
        out.log(f"{out.stage}: there is no held-out loss: {error}")
        return None
    out.note("heldout", {"examples": len(held), **held.dropped})
    if job.reference:
        held = with_reference(held, job.reference, "heldout")
    return dataset(held, range(len(held)))


def _write(
    model: Any,
    state: Mapping[str, torch.Tensor] | None,
    tokenizer: PreTrainedTokenizerBase,
    job: Job,
    out: StageRun,
    finish: Callable[[Path], None],
) -> None:
    """Write the model beside its place, whole.

    ``state``: the trained weights; None writes the model that training started from.
    """
    temporary = out.path(TEMPORARY)
    shutil.rmtree(temporary, ignore_errors=True)
    if state is None:
        shutil.copytree(job.start.path, temporary)
    else:
        if job.config.lora:
            if job.config.four_bit:
                model = arguments.onto_whole(model, job.start)
            elif not any(hasattr(p, "ds_id") for p in model.parameters()):
                model = model.cpu().float()  # most of what was learned is smaller than bfloat16 adds to a weight
            model = model.merge_and_unload()
            state = model.state_dict()
        model.generation_config = neutral_generation(job.start, tokenizer)
        model.save_pretrained(temporary, state_dict={k: v.contiguous() for k, v in state.items()})
        tokenizer.padding_side = "left"
        tokenizer.save_pretrained(temporary)
    finish(temporary)
    note_weights(temporary)
    settle(temporary)


def _facts(trainer: Trainer) -> dict[str, Any]:
    """Steps, mean and last logged loss over all runs that a resume joined, and the kept weights' held-out figures."""
    log = trainer.state.log_history
    losses = [row["loss"] for row in log if "loss" in row]
    evaluated = [row for row in log if "eval_loss" in row]
    kept = (trainer.state.best_global_step or 0) if trainer.args.load_best_model_at_end else None
    evaluation: dict[str, Any] = next((row for row in reversed(evaluated) if kept in (None, row["step"])), {})
    trained = {"train_loss": sum(losses) / len(losses), "last_loss": losses[-1]} if losses else {}
    speed = ("_runtime", "_per_second")
    held = {k: v for k, v in evaluation.items() if k.startswith("eval_") and not k.endswith(speed)}
    return {"steps": trainer.state.global_step, **trained, **held}
