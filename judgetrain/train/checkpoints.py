"""Watch a trainer while it trains: logs, checkpoints that are whole, finite and few, and stops with a reason.

Training stops at the first figure or weight that is NaN or infinite. What was written is loaded again and compared with
the judge that was trained.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from judgetrain.amounts import amount
from judgetrain.artifacts.files import read_json, write_json_atomic, write_text_atomic
from judgetrain.artifacts.signals import ENDING, error_of
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.answer_tokens import token_ids
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import end_token_ids, load_model, load_tokenizer
from judgetrain.engines.memory import is_out_of_memory
from judgetrain.errors import TrainingError
from judgetrain.train.complete import COMPLETE, complete_checkpoints, sizes
from judgetrain.train.distributed import current, own_part

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase


FIGURES = {"loss": "loss", "grad_norm": "gradient's norm", "eval_loss": "held-out loss"}
"""Figures that must be numbers for training to go on: the trainer's name and the name in messages."""


LOG = "train_log.jsonl"
"""The file of an artifact that holds the trainer's logs, a row each."""
TOKENS = "num_tokens"
"""The column of the tokens that a training has read."""


def forget_logs_after(path: Path, step: int) -> None:
    """Drop the log rows of steps that will be taken again after a resume at ``step``."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        # A last line without its end was cut by what killed the run.
        if line.endswith("\n") and json.loads(line)["step"] <= step:
            kept.append(line)
    write_text_atomic(path, "".join(kept))


def tokens_read(path: Path) -> float:
    """Return the tokens that a log's steps have read; TRL counts those of a resumed run from 0 again."""
    tokens = 0.0
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            tokens = json.loads(line).get(TOKENS, tokens)
    return tokens


class Progress(TrainerCallback):  # type: ignore[misc]
    """Sends the trainer's logs to ``train_log.jsonl`` and the tracker, and its steps to the console's progress."""

    def __init__(self, out: StageRun) -> None:
        self._out = out
        self._bar = ExitStack()
        self._advance: Callable[[int], None] = lambda steps: None
        self._tokens_before = 0.0
        # Where training fails, on_train_end is not called, and the terminal would be left without its cursor.
        atexit.register(self._bar.close)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any) -> None:
        """Write one row of numbers."""
        if not state.is_world_process_zero:
            return
        numbers = _numbers(event)
        for name in (TOKENS, f"eval_{TOKENS}"):
            if name in numbers:
                numbers[name] += self._tokens_before
        # A row at a time, so that the log of a run that is killed ends at its last step.
        with self._out.path(LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, **numbers}) + "\n")
        tracked = {f"{self._out.stage}/{name}": value for name, value in numbers.items()}
        self._out.track.log(tracked, step=state.global_step)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the clock by which the time left is estimated, and count on from the tokens of the steps before."""
        if state.is_world_process_zero:
            self._tokens_before = tokens_read(self._out.path(LOG))
            title = f"{self._out.stage}: training"
            progress = self._out.console.progress(title, state.max_steps, "steps", state.global_step)
            self._advance = self._bar.enter_context(progress)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Advance the bar by one step."""
        self._advance(1)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Close the bar."""
        self._bar.close()


def _numbers(event: Mapping[str, Any]) -> dict[str, float]:
    """Return the logged values that are numbers; tensors and NumPy's scalars are, too."""
    numbers: dict[str, float] = {}
    for name, value in event["logs"].items():
        with suppress(TypeError, ValueError):
            numbers[name] = float(value)
    return numbers


class FiniteFigures(TrainerCallback):  # type: ignore[misc]
    """Stops training at the first logged loss, gradient norm or held-out loss that is NaN or infinite."""

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any) -> None:
        """Raise at a figure that is no number (TrainingError); the step's checkpoint is not written yet."""
        for key, value in _numbers(event).items():
            if key in FIGURES and not math.isfinite(value):
                raise no_number(f"{FIGURES[key]} is {value}", args, state.global_step)


class AtReference(TrainerCallback):  # type: ignore[misc]
    """Stops training if its first step, on which no learning rate has acted yet, does not start at the reference.

    There DPO's rewards are 0 and its loss is ln 2, and the KL of RL is 0.

    Args:
        beta: what DPO's rewards are multiplied by.
    """

    def __init__(self, beta: float) -> None:
        self._beta = beta

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any) -> None:
        """Look at the first step's figures.

        Raises:
            TrainingError: the model and its reference differ by more than rounding, in nats a token.
        """
        numbers = _numbers(event)
        if state.global_step != 1 or "loss" not in numbers:
            return
        distance = self._distance(numbers)
        allowed = rounding(args, event["model"])
        if distance > allowed:
            raise TrainingError(
                f"before anything was learned the model is {distance:.3g} nats a token from its reference (at most "
                f"{allowed:g}), and the loss {numbers['loss']:.4g} (DPO's is ln 2 = {math.log(2):.4f} there): it is "
                "another model, precision or chat template than the reference was computed with; remove the reference "
                "and run again"
            )

    def _distance(self, numbers: Mapping[str, float]) -> float:
        """Return how far the model is from its reference, in nats a token, by DPO's rewards or else by RL's KL."""
        distances = []
        for side in ("chosen", "rejected"):
            reward = numbers.get(f"rewards/{side}")
            if reward is not None:
                # A reward is a sum over tokens, and so is its rounding: by the token, one limit fits all lengths.
                tokens = max(1.0, numbers[f"lengths/{side}"])
                distances.append(abs(reward) / self._beta / tokens)
        if not distances:
            return abs(numbers.get("kl", 0.0))
        return max(distances)


FOUR_BIT = 0.5
"""Nats a token by which a base in 4 bits may differ from the base before it was rounded, which gets the adapters."""


def rounding(args: TrainingArguments, model: PreTrainedModel) -> float:
    """Return by how many nats a token two computations with the same weights may differ.

    It is more where any of them is in bfloat16, as adapters of a base in 4 bits are, or on a GPU.
    """
    whole = model.dtype is torch.float32 and not getattr(model, "is_loaded_in_4bit", False)
    if args.use_cpu and not args.bf16 and whole:
        return 1e-3
    return 2e-2


class CheckpointMarks(TrainerCallback):  # type: ignore[misc]
    """Marks a checkpoint once every process has written its part of it and found its weights finite.

    The trainer has removed the oldest by then (``save_total_limit``). The time spent so far is kept with every one.
    """

    def __init__(self, out: StageRun) -> None:
        self._out = out

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any) -> None:
        """Write the mark of the checkpoint that the trainer has just written.

        Raises:
            TrainingError: a weight is NaN or infinite; the checkpoint is removed.
        """
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        group = current()
        # The processes agree here, so none of them goes on before all have written their parts.
        if not finite(event["model"]):
            if group.leads:
                shutil.rmtree(checkpoint, ignore_errors=True)
            raise no_number("weights hold nan or inf", args, state.global_step)
        if group.leads:
            write_json_atomic(checkpoint / COMPLETE, {"layout": group.layout, "bytes": sizes(checkpoint)})
            self._out.keep_seconds()


class StopAfterStep(TrainerCallback):  # type: ignore[misc]
    """Has signals that end a run wait for the step under way and its checkpoint, so that no step is taken twice.

    It comes after :class:`CheckpointMarks`. Several processes agree after every step, since a signal may reach one of
    them a step later than another, or one alone: all stop at the same step. Outside the main thread, which alone hears
    signals, they end training at once.
    """

    def __init__(self) -> None:
        # The number of the signal that has come.
        self._stops_by: int | None = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Have a checkpoint written after the step in which a signal came."""
        control.should_save |= self._is_to_stop()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stop once the checkpoint is written (KeyboardInterrupt)."""
        self._raise()

    def _is_to_stop(self) -> bool:
        """Return True if a signal has come to any process; all of them have to ask."""
        return not current().all(self._stops_by is None)

    def _raise(self) -> None:
        """Raise the error of the signal that has come, if one has; all processes have to call this."""
        if self._is_to_stop():
            # A process that has heard none was sent one, or its launcher was: another process tells it.
            raise error_of(self._stops_by or signal.SIGTERM)

    def _note(self, number: int, frame: Any) -> None:
        """Note that a signal has come."""
        self._stops_by = number

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Handle the signals that end a run while the trainer trains.

        Raises:
            KeyboardInterrupt: at the end, if one came during the last step, which has no checkpoint; TerminatedError
                for SIGTERM.
        """
        if threading.current_thread() is not threading.main_thread():
            # Python sets handlers in the main thread alone.
            yield
            return
        handlers = {number: signal.getsignal(number) for number in ENDING}
        # Others' handlers stay, as submitit's, which has SLURM queue the job again.
        heard = [number for number, handler in handlers.items() if handler in ENDING[number]]
        for number in heard:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            for number in heard:
                signal.signal(number, handlers[number])
        self._raise()


class DeafLoaders(Trainer):  # type: ignore[misc]
    """A trainer whose loaders' processes leave it to the trainer to end by a signal.

    Stands before one of TRL's trainers among a class's bases. SLURM and ``timeout`` send a signal to all processes of a
    group. Where a loader's process ended by it, the step under way would have no more batches and be lost.
    """

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the batches to train on."""
        return _with_deaf_workers(super().get_train_dataloader())

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Return the held-out batches."""
        return _with_deaf_workers(super().get_eval_dataloader(eval_dataset))


def _with_deaf_workers(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return a loader the processes of which ignore the signals that end a run."""
    # Accelerate's loaders hold PyTorch's, which starts the processes.
    starts_processes = getattr(loader, "base_dataloader", loader)
    starts_processes.worker_init_fn = _DeafWorker(starts_processes.worker_init_fn)
    return loader


@dataclass(frozen=True)
class _DeafWorker:
    """What a loader's process calls first; it may be sent to another process, as a function within a function cannot.

    Args:
        begins: what it would call without this; None: nothing.
    """

    begins: Callable[[int], None] | None

    def __call__(self, worker: int) -> None:
        """Ignore the signals that end a run, and begin."""
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        if self.begins is not None:
            self.begins(worker)


class KeptBest(TrainerCallback):  # type: ignore[misc]
    """Has the last step evaluated too, and logs which step is kept.

    Args:
        agreement: the name of the held-out figure that the log names.
        held_out: what it is measured on, for the log, as "12 pairs".
        out: the stage's directory.
    """

    def __init__(self, agreement: str, held_out: str, out: StageRun) -> None:
        self._agreement = agreement
        self._held_out = held_out
        self._out = out

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Have the last step evaluated too, or it could not be kept."""
        if state.global_step >= state.max_steps:
            control.should_evaluate = True
            control.should_save = True

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Log which step is kept; step 0 is the start, where it was evaluated and no step is better."""
        # By step; a run that went on from a checkpoint finds the evaluations before it in the trainer's state, too.
        agreements = {row["step"]: row[self._agreement] for row in state.log_history if self._agreement in row}
        kept = state.best_global_step or 0
        if not state.is_world_process_zero or kept not in agreements:
            return
        steps = state.global_step
        facts = {"step": kept, "of": steps, "agreement": agreements[kept]}
        start = ""
        if 0 in agreements:
            facts["start"] = agreements[0]
            start = f" (start {agreements[0]:.3f})"
        self._out.note("kept", facts)
        if kept:
            name = f"step {kept} of {steps}"
        else:
            name = f"the judge it started from, since none of {amount(steps, 'step')} is better"
        agreement = f"held-out agreement {agreements[kept]:.3f}{start} on {self._held_out}"
        self._out.log(f"{self._out.stage}: kept {name}: {agreement}")


def last_complete(directory: Path) -> str | None:
    """Return the newest complete checkpoint, if there is one, and remove all that are not complete.

    Incomplete are those that are written in part, and those whose files were cut after the mark was written.

    Raises:
        TrainingError: its files are of another number of processes than this run can read.
    """
    checkpoints = [checkpoint for _, checkpoint in complete_checkpoints(directory)]
    # Transformers would count them among the checkpoints that it keeps, and remove whole ones in their place.
    for path in {*directory.glob("checkpoint-*")} - {*checkpoints}:
        shutil.rmtree(path, ignore_errors=True)
    if not checkpoints:
        return None

    newest = checkpoints[-1]
    written_under = read_json(newest / COMPLETE)["layout"]
    layout = current().layout
    if written_under != layout:
        raise TrainingError(
            f"{newest} was written under {written_under}, and this run is under {layout}: set train.distributed and "
            "train.processes as then, or remove it to begin again"
        )
    return str(newest)


def finite(model: PreTrainedModel) -> bool:
    """Return True if every trained weight is a number on every process; under ZeRO-3 each looks at its own part."""
    is_finite = True
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        part = own_part(parameter).detach()
        if not part.numel():
            continue
        # One pass reads each weight once and makes no copy; NaN goes through minimum and maximum.
        if not torch.stack(torch.aminmax(part)).isfinite().all():
            is_finite = False
            break
    return current().all(is_finite)


def no_number(what: str, args: TrainingArguments, step: int) -> TrainingError:
    """Return the error of a run that has diverged: what is wrong, what to do, and what is left of the run.

    Args:
        what: is no number, with its verb.
        args: of the run.
        step: after which it was noticed.
    """
    checkpoints = complete_checkpoints(Path(args.output_dir))
    remains = "no checkpoint is kept"
    if checkpoints:
        _, last = checkpoints[-1]
        remains = f"{last.name}, the last with finite weights, is kept"
    return TrainingError(
        f"the {what} at step {step}: lower the learning rate ({args.learning_rate:g} now), or train in float32 or "
        f"bfloat16; {remains}"
    )


PROBES = 2
"""Training rows on which the judge in memory and the one that was written are compared."""
LONGEST = 256
"""Tokens of such a row at most: with a large vocabulary more would take gigabytes."""


def logprobs(model: Any, rows: Sequence[Sequence[int]]) -> list[float]:
    """Return the mean log-probability of each row's tokens after its first, in nats.

    Every process of ZeRO-3 has to call it.

    Args:
        model: left in training mode if it was in it.
        rows: token ids.
    """

    def by_model(ids: torch.Tensor) -> torch.Tensor:
        # In float32, since a sum over a vocabulary in bfloat16 would be off by more than is allowed.
        scores = model(input_ids=ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
        return scores.gather(1, ids[0, 1:, None])

    return _mean_of_each(model, rows, by_model)


def _mean_of_each(
    model: Any, rows: Sequence[Sequence[int]], logprobs_of: Callable[[torch.Tensor], torch.Tensor]
) -> list[float]:
    """Return the mean log-probability of each row's tokens after its first, in nats.

    Args:
        model: left in training mode if it was in it.
        rows: token ids.
        logprobs_of: returns the log-probabilities of the tokens of a row [1, token], in any shape.
    """
    was_training = model.training
    # Without dropout, which would make another model at every call.
    model.eval()
    means = []
    with torch.no_grad():
        for row in rows:
            ids = torch.tensor([row[:LONGEST]], device=next(model.parameters()).device)
            means.append(float(logprobs_of(ids).mean()))
    model.train(was_training)
    return means


def check_loss(model: Any, rows: Sequence[Sequence[int]], allowed: float) -> None:
    """Check that TRL trains on the log-probabilities that the model gives.

    TRL computes them itself from the hidden states of the model's decoder, with the scales and soft caps that it knows
    of. A model that does something else between the two would learn by another model's loss, and every figure of the
    log would be that model's.

    Args:
        model: with TRL's output layer, before it is trained.
        rows: token ids.
        allowed: by how many nats a token two computations may differ, as in :class:`Trained`.

    Raises:
        TrainingError: it does not, or cannot compute them.
    """
    kind = getattr(model.config, "model_type", "")
    try:
        by_trl = _logprobs_by_trl(model, rows)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise TrainingError(
            f"TRL cannot compute the loss of a model of type {kind!r} ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}): take another base"
        ) from error
    for own, other in zip(logprobs(model, rows), by_trl, strict=True):
        most = allowed * max(1.0, min(abs(own), abs(other)))
        # NaN is not within anything; whether figures are numbers is watched while the model is trained.
        if math.isfinite(own) and not abs(own - other) <= most:
            raise TrainingError(
                f"TRL computes another loss than that of a model of type {kind!r}: of a training row {other:.4f} nats "
                f"a token, and the model gives {own:.4f} (at most {most:.3g} apart). It does something with its logits "
                f"that TRL does not know: take another base"
            )


def _logprobs_by_trl(model: Any, rows: Sequence[Sequence[int]]) -> list[float]:
    """Return what :func:`logprobs` does, as TRL's output layer computes it."""

    def by_trl(ids: torch.Tensor) -> torch.Tensor:
        output = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids, fused_lm_head=True)
        log_probs: torch.Tensor = output.log_probs
        return log_probs.float()

    return _mean_of_each(model, rows, by_trl)


@dataclass(frozen=True)
class Trained:
    """A judge in memory, with which the one that was written has to agree.

    Args:
        start: the model that training started from.
        tokenizer: of the judge.
        rows: token ids of a few training rows.
        logprobs: what :func:`logprobs` gives of them, in nats a token.
        allowed: by how many nats a token another computation may differ; of unlikely rows, where rounding takes more,
            by this share of both.
    """

    start: ModelConfig
    tokenizer: PreTrainedTokenizerBase
    rows: Sequence[Sequence[int]]
    logprobs: Sequence[float]
    allowed: float


def check_saved(directory: Path, trained: Trained) -> str:
    """Load the judge of a directory again and compare it with the one in memory.

    It is loaded on the CPU and in float32, since training still holds the GPUs.

    Returns:
        Why its weights were not compared, where the memory has no room for them a second time; else nothing.

    Raises:
        TrainingError: they are further apart than is allowed, or it is prompted or ended otherwise.
    """
    attention = trained.start.attn_implementation
    if "flash" in str(attention):
        # Flash attention computes in half precision alone.
        attention = None
    config = replace(trained.start.at(directory), dtype="float32", attn_implementation=attention)
    _check_tokenizer(directory, config, trained)

    size = sum(file.stat().st_size for file in directory.glob("*.safetensors"))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Float32 may take twice what is written, and training still holds its own.
    if 4 * size > memory:
        return f"weights of {size / 1e9:.3g} GB are not loaded again to be compared, in {memory / 1e9:.3g} GB of memory"
    written = logprobs(load_model(config, "cpu"), trained.rows)
    for on_disk, in_memory in zip(written, trained.logprobs, strict=True):
        most = trained.allowed * max(1.0, min(abs(in_memory), abs(on_disk)))
        # NaN is not within anything.
        if not abs(on_disk - in_memory) <= most:
            raise TrainingError(
                f"{directory}: the judge that was written is not the one that was trained: it gives a training row "
                f"{on_disk:.4f} nats a token, and the one in memory {in_memory:.4f} (at most {most:.3g} apart); the "
                "checkpoints are kept"
            )
    return ""


def _check_tokenizer(directory: Path, config: ModelConfig, trained: Trained) -> None:
    """Check that the written tokenizer reads texts, renders chats and ends answers as the one trained with.

    Raises:
        TrainingError: it does not.
    """
    tokenizer = load_tokenizer(config)
    text = trained.tokenizer.decode(list(trained.rows[0]))
    same_ids = token_ids(tokenizer, text) == token_ids(trained.tokenizer, text)
    same_template = tokenizer.chat_template == trained.tokenizer.chat_template
    same_ends = end_token_ids(config, tokenizer) == end_token_ids(trained.start, trained.tokenizer)
    if not (same_ids and same_template and same_ends):
        raise TrainingError(
            f"{directory}: the tokenizer that was written reads texts, or ends answers, otherwise than the one trained "
            "with; the checkpoints are kept"
        )


def neutral_generation(start: ModelConfig, tokenizer: PreTrainedTokenizerBase) -> GenerationConfig:
    """Return a generation_config that holds only where answers end: servers would take penalties and top_k from it."""
    from transformers import GenerationConfig

    ends = sorted(end_token_ids(start, tokenizer)) or None
    return GenerationConfig(bos_token_id=tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id)
