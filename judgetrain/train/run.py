"""One training run with a TRL trainer: data, resume, result."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts import StageRun
from judgetrain.config import DpoConfig, ModelConfig, TrainConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import TrainingError
from judgetrain.train.arguments import common_arguments, dpo_arguments, peft_config
from judgetrain.train.data import Examples, Row, dataset, fitting, order

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Trainer


@dataclass(frozen=True)
class Job:
    """What to train: the start, the settings and the rows."""

    start: ModelConfig
    config: TrainConfig
    train: Sequence[Row]
    heldout: Sequence[Row]
    what: str


def train(job: Job, out: StageRun, finish: Callable[[Path], None]) -> None:
    """Train, or resume from the last complete checkpoint, and write ``model/``.

    ``finish`` adds to the model directory before it gets its place. SFT when ``job.config`` is a plain
    :class:`TrainConfig`, DPO when it is a :class:`DpoConfig`.

    Raises:
        TrainingError: nothing to train on, a loss that is no number, or too little memory; says what to change.
    """
    import torch

    from judgetrain.train.callbacks import forget_logs_after, last_complete

    checkpoints = out.path("checkpoints")
    tokenizer = load_tokenizer(job.start)
    tokenizer.padding_side = "right"
    examples = fitting(job.train, tokenizer, job.config.max_length, job.what)
    trainer = _trainer(job, examples, tokenizer, checkpoints, out)
    resume = last_complete(checkpoints)
    step = int(resume.rsplit("-", 1)[1]) if resume else 0
    forget_logs_after(out.path("train_log.jsonl"), step)
    if resume:
        out.log(f"{out.stage}: resuming at step {step}")
    try:
        result = trainer.train(resume_from_checkpoint=resume)
    except (torch.OutOfMemoryError, RuntimeError) as error:
        if "out of memory" not in str(error).lower() and "can't allocate memory" not in str(error).lower():
            raise
        raise TrainingError(
            f"out of memory in stage {out.stage}: lower train.{out.stage}.batch_size (raise accumulation as much), "
            "set gradient_checkpointing=true or lora.enabled=true"
        ) from error
    _save(trainer, tokenizer, out, finish)
    out.count(in_=len(job.train), out=len(examples.rows), dropped={"too_long": examples.too_long})
    out.note("training", _facts(trainer, result.metrics))
    shutil.rmtree(checkpoints, ignore_errors=True)


def _trainer(
    job: Job, examples: Examples, tokenizer: PreTrainedTokenizerBase, checkpoints: Path, out: StageRun
) -> Trainer:
    import os

    from transformers import PrinterCallback
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    from judgetrain.train.callbacks import CheckpointMarks, FiniteLoss, Progress

    processes = int(os.environ.get("WORLD_SIZE", "1"))
    indices = order(examples.lengths, job.config, out.seed, processes)
    heldout = None
    if job.heldout:
        held = fitting(job.heldout, tokenizer, job.config.max_length, f"held-out {job.what}")
        heldout = dataset(held, range(len(held.rows)))
    arguments = common_arguments(job.config, checkpoints, out.seed, evaluate=heldout is not None)
    model = load_model(job.start)
    model.train()
    steps = job.config.max_steps
    if steps < 0:
        steps = -(-len(indices) // (job.config.batch_size * processes * job.config.accumulation))
    shared: dict[str, Any] = {
        "model": model,
        "train_dataset": dataset(examples, indices),
        "eval_dataset": heldout,
        "processing_class": tokenizer,
        "peft_config": peft_config(job.config.lora),
        "callbacks": [CheckpointMarks(), Progress(out, steps), FiniteLoss()],
    }
    out.log(f"{out.stage}: {len(examples.rows)} {job.what}, {steps} steps, {_millions(model)} parameters")
    trainer: Trainer
    if isinstance(job.config, DpoConfig):
        trainer = DPOTrainer(args=DPOConfig(**arguments, **dpo_arguments(job.config)), **shared)
    else:
        trainer = SFTTrainer(args=SFTConfig(**arguments, completion_only_loss=True), **shared)
    trainer.remove_callback(PrinterCallback)
    return trainer


def _save(trainer: Trainer, tokenizer: PreTrainedTokenizerBase, out: StageRun, finish: Callable[[Path], None]) -> None:
    """Write the model beside its place and move it there whole."""
    temporary, final = out.path(".model.tmp"), out.path("model")
    for path in (temporary, final):
        shutil.rmtree(path, ignore_errors=True)
    model = trainer.accelerator.unwrap_model(trainer.model)
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    model.save_pretrained(temporary, state_dict=_plain_state(model), safe_serialization=True)
    tokenizer.padding_side = "left"
    tokenizer.save_pretrained(temporary)
    finish(temporary)
    temporary.replace(final)


def _plain_state(model: Any) -> dict[str, Any]:
    return {k: v.contiguous() for k, v in model.state_dict().items()}


def _facts(trainer: Trainer, metrics: dict[str, Any]) -> dict[str, Any]:
    last: dict[str, Any] = next((row for row in reversed(trainer.state.log_history) if "loss" in row), {})
    evaluation: dict[str, Any] = next((row for row in reversed(trainer.state.log_history) if "eval_loss" in row), {})
    facts = {"steps": trainer.state.global_step, "train_loss": metrics.get("train_loss"), "last_loss": last.get("loss")}
    return facts | {
        k: v for k, v in evaluation.items() if k.startswith("eval_") and "runtime" not in k and "per_second" not in k
    }


def _millions(model: Any) -> str:
    return f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M"
