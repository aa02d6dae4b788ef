"""SFT's and DPO's step loop beside TRL's own trainers, set as well as they can be on a CPU, at equal loss.

    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.train_speed
    python -m tests.benchmarks.train_speed --base DIRECTORY --comparisons 20

TRL has float32, no gradient checkpointing, batches of like length, its own precomputed reference and no dropout; rates,
batches and data are the same. Examples a second of a processor, in turns; the held-out loss is computed here for both.
"""

import random
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from transformers import Trainer
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import WORLD_BASE, ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.train.config import DpoConfig, TrainConfig
from judgetrain.train.data import Renderer, fitting, order
from judgetrain.train.run import RowsJob, train
from tests.benchmarks.common import Figure, in_turns, one_core, program, versions
from tests.benchmarks.workloads import Row, examples, pairs
from tests.builders.train import config, run_reference

BATCH = 16
RATE = 2e-4
BETA = 0.1
HELD = 32
PEER = "float32, no gradient checkpointing, group_by_length, precompute_ref_log_probs, logging_steps=10"


def loss_of(model: Any, start: Path, rows: Sequence[Row]) -> float:
    """Return the mean over tokens of held-out completions; of pairs the mean DPO loss (branching paper, equation 2)."""
    tokenizer = load_tokenizer(ModelConfig(path=str(start)))
    reference = load_model(ModelConfig(path=str(start)))

    def logprobs(of: Any, prompt: Sequence[int], answer: Sequence[int]) -> torch.Tensor:
        ids = torch.tensor([[*prompt, *answer]])
        scores = of(input_ids=ids).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
        return scores.gather(1, ids[0, len(prompt) :, None])

    losses = []
    model.eval()
    with torch.no_grad():
        for row in fitting(rows, Renderer.of(tokenizer), 4096, "rows").data:
            if "input_ids" in row:
                begins = row["completion_mask"].index(1)
                losses.append(-logprobs(model, row["input_ids"][:begins], row["input_ids"][begins:]))
            else:
                sides = [
                    (
                        logprobs(model, row["prompt_ids"], row[name])
                        - logprobs(reference, row["prompt_ids"], row[name])
                    ).sum()
                    for name in ("chosen_ids", "rejected_ids")
                ]
                losses.append(torch.nn.functional.softplus(-BETA * (sides[0] - sides[1])).reshape(1, 1))
    return float(torch.cat(losses).mean())


class Arms:
    """Both trainers on the same rows: each gives its loop's seconds, and keeps its reference's and held-out loss."""

    def __init__(self, start: Path, rows: Sequence[Row], held: Sequence[Row]) -> None:
        self.start = start
        self.rows = [*rows]
        self.held = held
        self.dpo = "chosen" in rows[0]
        self.losses: dict[str, float] = {}
        self.reference: dict[str, list[float]] = {"ours": [], "trl": []}
        self._turn = 0

    def ours(self) -> float:
        """Return the seconds of this project's stage; the reference's are those of its whole stage."""
        with TemporaryDirectory() as name:
            place = Path(name)
            shared: dict[str, Any] = {"learning_rate": RATE, "per_device_train_batch_size": BATCH, "save_steps": 10**6}
            reference = None
            if self.dpo:
                began = time.process_time()
                settings = config(**shared, beta=BETA, max_length=4096)
                reference = run_reference(place, settings, self.start.parent, self.rows).directory
                self.reference["ours"].append(time.process_time() - began)
            job = RowsJob(
                start=ModelConfig(path=str(self.start)),
                config=DpoConfig(**shared, beta=BETA) if self.dpo else TrainConfig(**shared),
                key="train",
                train=self.rows,
                heldout=[],
                what="rows",
                reference=reference,
            )
            (seconds,) = timed(Trainer, "train", lambda: train(job, StageRun(place / "a", "sft", 0, Console()), print))
            trained = load_model(ModelConfig(path=str(place / "a" / "model")))
        self.losses["ours"] = loss_of(trained, self.start, self.held)
        return seconds

    def bare(self) -> float:
        """Return the seconds without a trainer: the products that SFT needs, on the same batches, and AdamW's steps."""
        start = ModelConfig(path=str(self.start))
        tokenizer = load_tokenizer(start)
        tokenised = fitting(self.rows, Renderer.of(tokenizer), 4096, "rows")
        batches = []
        places = order(tokenised.lengths, BATCH, 1, 0)
        for at in range(0, len(places), BATCH):
            rows = [tokenised.data[i] for i in places[at : at + BATCH]]
            ids = pad_sequence([torch.tensor(row["input_ids"]) for row in rows], True, tokenizer.pad_token_id)
            answers = pad_sequence([torch.tensor(row["completion_mask"]) for row in rows], True).bool()
            lengths = torch.tensor([len(row["input_ids"]) for row in rows])
            batches.append((ids, torch.arange(ids.shape[1]) < lengths[:, None], answers))
        model = load_model(start).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
        began = time.process_time()
        for ids, mask, answers in batches:
            hidden = model.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
            logits = model.lm_head(hidden[:, :-1][answers[:, 1:]])
            torch.nn.functional.cross_entropy(logits, ids[:, 1:][answers[:, 1:]]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return time.process_time() - began

    def trl(self) -> float:
        """Return the seconds of TRL's trainer; its reference's are those of precomputing alone."""
        self._turn += 1  # another order, or it would find its reference's log-probabilities cached
        rows = random.Random(self._turn).sample(self.rows, len(self.rows))
        keep = ("prompt", "chosen", "rejected", "completion")
        data = Dataset.from_list([{k: v for k, v in row.items() if k in keep} for row in rows])
        options: dict[str, Any] = {"completion_only_loss": True}
        if self.dpo:
            options = {"precompute_ref_log_probs": True, "precompute_ref_batch_size": BATCH, "beta": BETA}
            options["remove_unused_columns"] = False  # or pairs have no lengths to be grouped by
            data = data.add_column("length", [len(str(row)) for row in rows])
        with TemporaryDirectory() as place:
            args = (DPOConfig if self.dpo else SFTConfig)(
                output_dir=place,
                learning_rate=RATE,
                per_device_train_batch_size=BATCH,
                num_train_epochs=1,
                lr_scheduler_type="cosine",
                warmup_steps=0.05,
                bf16=False,
                gradient_checkpointing=False,
                max_length=None,
                train_sampling_strategy="group_by_length",
                logging_steps=10,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
                dataloader_pin_memory=False,
                seed=1,
                **options,
            )
            start = ModelConfig(path=str(self.start))
            parts = {"model": load_model(start), "args": args, "train_dataset": data}
            trainer: list[Any] = []

            def make() -> None:
                trainer.append(
                    (DPOTrainer if self.dpo else SFTTrainer)(**parts, processing_class=load_tokenizer(start))
                )

            if self.dpo:
                self.reference["trl"] += timed(DPOTrainer, "_precompute_ref_logps", make)
            else:
                make()
            (seconds,) = timed(Trainer, "train", lambda: trainer[0].train())
        self.losses["trl"] = loss_of(trainer[0].model, self.start, self.held)
        return seconds


def timed(owner: type, name: str, run: Callable[[], object]) -> list[float]:
    """Return the processor seconds of each call of a method, while ``run`` runs."""
    whole = getattr(owner, name)
    seconds = list[float]()

    def call(*args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        result = whole(*args, **kwargs)
        seconds.append(time.process_time() - began)
        return result

    with patch.object(owner, name, call):
        run()
    return seconds


def figures(base: str = "world", comparisons: int = 80, repeats: int = 3) -> list[Figure]:
    """Return the figures of the training loops, and of DPO with its reference."""
    one_core()
    measured = []
    peer = f"{versions('trl', 'transformers', 'torch')}; {PEER}"
    with TemporaryDirectory() as place, ExitStack() as quiet:
        quiet.enter_context(redirect_stdout(StringIO()))
        quiet.enter_context(redirect_stderr(StringIO()))
        start = Path(place) / "start" / "model"
        shutil.copytree(WORLD_BASE if base == "world" else base, start)
        for what, rows in (("SFT", [*examples(comparisons)]), ("DPO", pairs(comparisons))):
            held = rows[: min(HELD, len(rows) // 4)]
            arms = Arms(start, rows[len(held) :], held)
            bare = {} if arms.dpo else {"bare": arms.bare}
            seconds = in_turns({"ours": arms.ours, "trl": arms.trl, **bare}, repeats)
            count = len(arms.rows)
            losses = f"held-out loss {arms.losses['ours']:.3f}, TRL's {arms.losses['trl']:.3f}"
            losses += "".join(f"; without a trainer {count / statistics.median(seconds[name]):.3g}" for name in bare)

            def speeds(name: str, seconds: dict[str, list[float]] = seconds, count: int = count) -> list[float]:
                return [count / each for each in seconds[name]]

            name = f"{what}, {base}, {count} rows"
            unit = "rows/s"
            measured.append(Figure(name, unit, speeds("ours"), speeds("trl"), peer, losses))
            if what == "DPO":
                both = {k: [a + b for a, b in zip(seconds[k], arms.reference[k], strict=True)] for k in seconds}
                name += ", with its reference"
                measured.append(Figure(name, unit, speeds("ours", both), speeds("trl", both), peer))
    return measured


def main() -> None:
    program(__doc__, figures)


if __name__ == "__main__":
    main()
