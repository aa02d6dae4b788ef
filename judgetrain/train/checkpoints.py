"""What happens while a trainer trains: logs, checkpoints that are whole, finite and few, and stops with a reason.

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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from judgetrain.artifacts.files import read_json, write_json_atomic, write_text_atomic
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import end_token_ids, load_model, load_tokenizer
from judgetrain.engines.prompting import token_ids
from judgetrain.errors import TrainingError
from judgetrain.train.config import COMPLETE, complete
from judgetrain.train.distributed import current, own_part

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase


FIGURES = {"loss": "loss", "grad_norm": "gradient's norm", "eval_loss": "held-out loss"}
"""Logged figures that training cannot go on without, and how they are called."""


def forget_logs_after(path: Path, step: int) -> None:
    """Drop the log rows of steps that will be taken again after a resume at ``step``."""
    if path.exists():
        rows = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
        write_text_atomic(path, "".join(line for line in rows if json.loads(line)["step"] <= step))


class Progress(TrainerCallback):  # type: ignore[misc]
    """Sends the trainer's logs to ``train_log.jsonl`` and the tracker, and its steps to the console's progress."""

    def __init__(self, out: StageRun) -> None:
        self._out, self._bar = out, ExitStack()
        self._advance: Callable[[int], None] = lambda steps: None
        atexit.register(self._bar.close)  # where training fails, the terminal has its cursor back

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any) -> None:
        """Write one row of numbers."""
        if not state.is_world_process_zero:
            return
        numbers = _numbers(event)
        with self._out.path("train_log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, **numbers}) + "\n")
        self._out.track.log({f"{self._out.stage}/{k}": v for k, v in numbers.items()}, step=state.global_step)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the clock by which the time left is told."""
        if state.is_world_process_zero:
            steps = state.max_steps, "steps", state.global_step
            progress = self._out.console.progress(f"{self._out.stage}: training", *steps)
            self._advance = self._bar.enter_context(progress)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """One step on."""
        self._advance(1)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The bar goes."""
        self._bar.close()


def _numbers(event: Mapping[str, Any]) -> dict[str, float]:
    """What the trainer logs, as far as it is numbers; also tensors and NumPy's scalars."""
    found: dict[str, float] = {}
    for name, value in event["logs"].items():
        with suppress(TypeError, ValueError):
            found[name] = float(value)
    return found


class FiniteFigures(TrainerCallback):  # type: ignore[misc]
    """Stops training at the first logged loss, gradient norm or held-out loss that is NaN or infinite."""

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any) -> None:
        """Look at the figures; the step's checkpoint is not written yet."""
        for key, value in _numbers(event).items():
            if key in FIGURES and not math.isfinite(value):
                raise no_number(f"{FIGURES[key]} is {value}", args, state.global_step)


class AtReference(TrainerCallback):  # type: ignore[misc]
    """Stops training whose first step, on which no learning rate has acted yet, is not at its reference.

    There DPO's rewards are 0 and its loss is ln 2, and so is the KL of RL. ``beta``: what rewards are multiplied by.
    """

    def __init__(self, beta: float) -> None:
        self._beta = beta

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any) -> None:
        """Look at the first step's figures (TrainingError: the model and its reference differ by more than rounding,
        nats a token)."""
        numbers = _numbers(event)
        if state.global_step != 1 or "loss" not in numbers:
            return
        sides = {side: numbers[f"lengths/{side}"] for side in ("chosen", "rejected") if f"rewards/{side}" in numbers}
        apart = [abs(numbers[f"rewards/{side}"]) / self._beta / max(1.0, n) for side, n in sides.items()]
        if (worst := max(apart or [abs(numbers.get("kl", 0.0))])) > (allowed := rounding(args, event["model"])):
            told = f"before anything was learned the model is {worst:.3g} nats a token from its reference"
            loss = f"and the loss {numbers['loss']:.4g} (DPO's is ln 2 = {math.log(2):.4f} there)"
            why = "it is another model, precision or chat template than the reference was computed with"
            raise TrainingError(f"{told} (at most {allowed:g}), {loss}: {why}; remove the reference and run again")


FOUR_BIT = 0.5
"""Nats a token by which a base in 4 bits may differ from what it was before, into which adapters are merged."""


def rounding(args: TrainingArguments, model: PreTrainedModel) -> float:
    """Nats a token by which the same weights may differ between two computations: more where any is in bfloat16."""
    whole = model.dtype is torch.float32 and not getattr(model, "is_loaded_in_4bit", False)  # adapters: bfloat16
    return 1e-3 if args.use_cpu and not args.bf16 and whole else 2e-2


class CheckpointMarks(TrainerCallback):  # type: ignore[misc]
    """Marks a checkpoint once every process has written its part of it and found its weights finite.

    The trainer has removed the oldest by then (``save_total_limit``). The time spent so far is kept with every one.
    """

    def __init__(self, out: StageRun) -> None:
        self._out = out

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **event: Any) -> None:
        """Write the mark; called by the trainer after a checkpoint (TrainingError: a weight is NaN or infinite; the
        checkpoint is removed)."""
        written = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        group = current()
        if not finite(event["model"]):  # which no process knows before all have written their parts
            if group.leads:
                shutil.rmtree(written, ignore_errors=True)
            raise no_number("weights hold nan or inf", args, state.global_step)
        if group.leads:
            write_json_atomic(written / COMPLETE, {"layout": group.layout, "bytes": _sizes(written)})
            self._out.keep_seconds()


class StopAfterStep(TrainerCallback):  # type: ignore[misc]
    """Has Ctrl-C wait for the step under way and its checkpoint, so that no step is taken twice.

    It comes after :class:`CheckpointMarks`. Of several processes each would stop at a step of its own: there, and
    outside the main thread, Ctrl-C ends training at once.
    """

    def __init__(self) -> None:
        self._asked = False

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Have a checkpoint written."""
        control.should_save |= self._asked

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stop (KeyboardInterrupt)."""
        if self._asked:
            raise KeyboardInterrupt

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Hear Ctrl-C for the trainer."""
        mine = current().size == 1 and threading.current_thread() is threading.main_thread()
        if not mine or (before := signal.getsignal(signal.SIGINT)) is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, lambda *_: setattr(self, "_asked", True))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        if self._asked:  # after the last step
            raise KeyboardInterrupt


class KeptBest(TrainerCallback):  # type: ignore[misc]
    """Has the last step evaluated too, and says which step is kept; ``held_out``: what the agreement is on."""

    def __init__(self, agreement: str, held_out: str, out: StageRun) -> None:
        self._agreement, self._held_out, self._out = agreement, held_out, out

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Evaluate the last step too."""
        if state.global_step >= state.max_steps:
            control.should_evaluate = control.should_save = True

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Say which step is kept; 0 is the start, where it was evaluated and no step is better."""
        found = {row["step"]: row[self._agreement] for row in state.log_history if self._agreement in row}
        kept, steps = state.best_global_step or 0, state.global_step
        if not state.is_world_process_zero or kept not in found:
            return
        facts, start = {"step": kept, "of": steps, "agreement": found[kept]}, ""
        if 0 in found:
            facts, start = facts | {"start": found[0]}, f" (start {found[0]:.3f})"
        self._out.note("kept", facts)
        first = f"the judge it started from, since none of {steps} steps is better"
        what = f"{f'step {kept} of {steps}' if kept else first}: held-out agreement {found[kept]:.3f}{start}"
        self._out.log(f"{self._out.stage}: kept {what} on {self._held_out}")


def _sizes(checkpoint: Path) -> dict[str, int]:
    files = (path for path in sorted(checkpoint.rglob("*")) if path.is_file() and path.name != COMPLETE)
    return {str(path.relative_to(checkpoint)): path.stat().st_size for path in files}


def last_complete(directory: Path) -> str | None:
    """The newest complete checkpoint, if any; those that are written in part, or are cut since, are removed
    (TrainingError: its files are of another number of processes than this run can read)."""
    found = {path: read_json(path / COMPLETE) for _, path in complete(directory)}  # None: it cannot be read
    marked = {p: m for p, m in found.items() if isinstance(m, dict) and m.get("bytes") == _sizes(p)}
    for path in {*directory.glob("checkpoint-*")} - {*marked}:
        shutil.rmtree(path, ignore_errors=True)
    if not marked:
        return None
    newest, mark = [*marked.items()][-1]
    if (written := mark["layout"]) != (layout := current().layout):
        told = f"{newest} was written under {written}, and this run is under {layout}"
        raise TrainingError(f"{told}: set train.distributed and train.processes as then, or remove it to begin again")
    return str(newest)


def finite(model: PreTrainedModel) -> bool:
    """Whether every trained weight is a number, on every process; under ZeRO-3 each looks at its own part.

    One pass that reads each weight once and makes no copy; NaN goes through minimum and maximum.
    """
    parts = (own_part(p).detach() for p in model.parameters() if p.requires_grad)
    return current().all(all(torch.stack(torch.aminmax(part)).isfinite().all() for part in parts if part.numel()))


def no_number(what: str, args: TrainingArguments, step: int) -> TrainingError:
    """The error of a run that has diverged: ``what`` is wrong at a step, what to do, and what is left of the run."""
    marked = complete(Path(args.output_dir))
    left = f"{marked[-1][1].name}, the last with finite weights, is kept" if marked else "no checkpoint is kept"
    remedy = f"lower the learning rate ({args.learning_rate:g} now), or train in float32 or bfloat16"
    return TrainingError(f"the {what} at step {step}: {remedy}; {left}")


PROBES = 2
"""Training rows that both are read on."""
LONGEST = 256
"""Tokens of a row: with a large vocabulary more would take gigabytes."""


def logprobs(model: Any, rows: Sequence[Sequence[int]]) -> list[float]:
    """The mean log-probability of each row's tokens after its first, nats; every process of ZeRO-3 has to call it."""
    training, found = model.training, []
    model.eval()
    with torch.no_grad():
        for row in rows:
            ids = torch.tensor([row[:LONGEST]], device=next(model.parameters()).device)
            scores = model(input_ids=ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
            found.append(float(scores.gather(1, ids[0, 1:, None]).mean()))
    model.train(training)
    return found


def check_saved(
    directory: Path,
    start: ModelConfig,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Sequence[int]],
    said: Sequence[float],
    allowed: float,
) -> str:
    """Load the judge of a directory again and compare it with what the one in memory ``said`` of ``rows``.

    On the CPU and in float32, since training still holds the GPUs.

    Returns:
        Why its weights were not compared, where the memory has no room for them a second time; else nothing.

    Raises:
        TrainingError: they are more than ``allowed`` nats a token apart, or more than that share of what both say (of
            unlikely rows rounding takes more), or it is prompted or ended otherwise.
    """
    attention = None if "flash" in str(start.attn_implementation) else start.attn_implementation
    config = replace(start.at(directory), dtype="float32", attn_implementation=attention)
    again = load_tokenizer(config)
    text = tokenizer.decode(list(rows[0]))
    same = token_ids(again, text) == token_ids(tokenizer, text) and again.chat_template == tokenizer.chat_template
    if not same or end_token_ids(config, again) != end_token_ids(start, tokenizer):
        told = "the tokenizer that was written reads texts, or ends answers, otherwise than the one trained with"
        raise TrainingError(f"{directory}: {told}; the checkpoints are kept")
    size = sum(file.stat().st_size for file in directory.glob("*.safetensors"))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 4 * size > memory:  # float32 may take twice what is written, and training still holds its own
        return f"weights of {size / 1e9:.3g} GB are not loaded again to be compared, in {memory / 1e9:.3g} GB of memory"
    for there, here in zip(logprobs(load_model(config, "cpu"), rows), said, strict=True):
        most = allowed * max(1.0, min(abs(here), abs(there)))
        if not abs(there - here) <= most:
            told = f"{directory}: the judge that was written is not the one that was trained: it gives a training row"
            apart = f"{there:.4f} nats a token, and the one in memory {here:.4f} (at most {most:.3g} apart)"
            raise TrainingError(f"{told} {apart}; the checkpoints are kept")
    return ""


def neutral_generation(start: ModelConfig, tokenizer: PreTrainedTokenizerBase) -> GenerationConfig:
    """A generation_config with nothing in it but where answers end: servers would take penalties and top_k from it."""
    from transformers import GenerationConfig

    ends = sorted(end_token_ids(start, tokenizer)) or None
    return GenerationConfig(bos_token_id=tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id)
