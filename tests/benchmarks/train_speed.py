"""DPO by TRL as it comes beside DPO by this project: examples/s, tokens/s, peak memory and loss, in one run.

    python -m tests.benchmarks.train_speed                          # 23M parameters, two CPU cores, minutes
    python -m tests.benchmarks.train_speed --count --size tiny      # floating-point operations, the same on any machine
    python -m tests.benchmarks.train_speed --device cuda --size 1b  # bfloat16, with MFU, SFT layouts and Liger too
    python -m tests.benchmarks.train_speed --start SFT/model --label LABEL    # directories of finished stages

Every arm trains the same model on the same pairs, with the same rate and batches of 8, in a process of its own. Pairs
have the lengths of the quickstart's (deciles of 1,838 pairs) and random words, and the model random weights, so that
only the speed means something; with ``--start`` a real judge learns real pairs, and the loss does, too. Seconds are
those of the trainer's loop: on the clock, and of the process, which decides on a shared CPU. The held-out loss is
computed by this script for every arm alike.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils.flop_counter import FlopCounterMode

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.train.config import DpoConfig, TrainConfig
from judgetrain.train.reference import Reference, reference_logps
from judgetrain.train.run import RowsJob, train
from tests.benchmarks.common import parser_of
from tests.benchmarks.train_speed_table import Measured, operations, table

BATCH, RATE, BETA, CONTEXT = 8, 1e-4, 0.1, 512
# Share of the pairs; deciles (0 to 100%) of the tokens of prompt, chosen and rejected side. Quickstart, seed 17.
LENGTHS = (
    (0.43, (131, 142, 146, 150, 153, 155, 158, 160, 163, 167, 184), (40, *[42] * 8, 43, 44), (40, *[42] * 8, 44, 66)),
    (
        0.38,
        (13, 17, 18, 18, 19, 19, 20, 21, 21, 21, 25),
        (81, *[85] * 4, *[87] * 5, 91),
        (81, *[85] * 4, *[87] * 5, 91),
    ),
    (0.19, (22, 25, 26, 27, 27, 28, 28, 29, 29, 30, 33), (*[20] * 5, *[24] * 5, 35), (*[20] * 5, *[25] * 5, 33)),
)
SIZES = {  # hidden, layers, heads, key-value heads, intermediate, vocabulary
    "tiny": (64, 2, 4, 4, 128, 640),
    "23m": (448, 8, 8, 8, 1216, 8192),
    "1b": (2048, 22, 32, 4, 5632, 32000),
}
ARMS = ("trl", "trl_float32", "trl_no_checkpointing", "reference", "judgetrain")
CPU_ARMS = (*ARMS, "judgetrain_bf16")  # TRL's default precision, which is this project's on a GPU
CUDA_ARMS = (*ARMS, "liger", "sft", "sft_padding_free", "sft_liger")


def pairs(count: int, scale: float, seed: int) -> list[dict[str, Any]]:
    """Random words in the lengths of the quickstart's pairs, in the project's rows."""
    rng, words = random.Random(seed), "the cat reads a book for my sister and gives clear example of it".split()

    def text(deciles: Sequence[int]) -> str:
        place = rng.uniform(0, 10)
        low = min(9, int(place))
        tokens = deciles[low] + (deciles[low + 1] - deciles[low]) * (place - low)
        return " ".join(rng.choices(words, k=max(2, round(tokens * scale) - 3)))

    made = []
    for _ in range(count):
        _, *sides = rng.choices(LENGTHS, weights=[share for share, *_ in LENGTHS])[0]
        prompt, chosen, rejected = (text(deciles) for deciles in sides)
        made.append(
            {
                "prompt": [{"role": "user", "content": prompt}],
                "chosen": [{"role": "assistant", "content": f"clear {chosen}"}],
                "rejected": [{"role": "assistant", "content": f"reads {rejected}"}],
            }
        )
    return made


def read_pairs(settings: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The pairs to train on and those to measure the loss on: of a finished stage ``label``, or of random words."""
    if not settings["label"]:
        return pairs(settings["pairs"], settings["scale"], seed=1), pairs(
            settings["heldout"], settings["scale"], seed=2
        )
    train, heldout = (
        [{k: row[k] for k in ("prompt", "chosen", "rejected")} for row in read_rows(Path(settings["label"]), name)]
        for name in ("pairs-train", "pairs-heldout")
    )
    return train, heldout


def make_model(directory: Path, size: str, scale: float) -> None:
    """A Llama with random weights and the shipped tokenizer; only its shape matters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    hidden, layers, heads, kv_heads, intermediate, vocabulary = SIZES[size]
    torch.manual_seed(0)
    shape = LlamaConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=intermediate,
        vocab_size=vocabulary,
        max_position_embeddings=math.ceil(CONTEXT * max(1.0, scale)),
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(shape).save_pretrained(directory)
    load_tokenizer(ModelConfig(path="world")).save_pretrained(directory)


def heldout_loss(trained: Path, start: Path, rows: Sequence[dict[str, Any]]) -> float:
    """Mean DPO loss of the pairs (branching paper, equation 2), one sequence at a time."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = load_tokenizer(ModelConfig(path=str(start)))
    sums: list[list[float]] = []
    for path in (trained, start):
        model = load_model(ModelConfig(path=str(path), dtype="float32"), device)
        sums.append([_logprob(model, tokenizer, row, side) for row in rows for side in ("chosen", "rejected")])
    ratios = torch.tensor(sums[0]) - torch.tensor(sums[1])
    return float(torch.nn.functional.softplus(-BETA * (ratios[0::2] - ratios[1::2])).mean())


def _logprob(model: Any, tokenizer: Any, row: dict[str, Any], side: str) -> float:
    before = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
    whole = tokenizer.apply_chat_template(row["prompt"] + row[side], tokenize=False)
    start = len(tokenizer.encode(before, add_special_tokens=False))
    ids = torch.tensor([tokenizer.encode(whole, add_special_tokens=False)], device=model.device)
    with torch.inference_mode():
        logprobs = model(ids).logits[0, start - 1 : -1].float().log_softmax(-1)
    return float(logprobs.gather(1, ids[0, start:, None]).sum())


def _trl(name: str, work: Path, rows: list[dict[str, Any]]) -> Path:
    """DPO by TRL: its defaults, or float32 in place of bfloat16, or also without gradient checkpointing."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    changes: dict[str, Any] = {} if name == "trl" else {"bf16": False}
    if name == "trl_no_checkpointing":
        changes["gradient_checkpointing"] = False
    args = DPOConfig(
        output_dir=str(work / name),
        learning_rate=RATE,
        beta=BETA,
        per_device_train_batch_size=BATCH,
        num_train_epochs=1,
        lr_scheduler_type="constant",
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=1,
        **changes,
    )
    model = load_model(ModelConfig(path=str(work / "start"), dtype="float32"))
    tokenizer = load_tokenizer(ModelConfig(path=str(work / "start")))
    trainer = DPOTrainer(model=model, args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    trainer.train()
    trainer.save_model(str(work / name / "model"))
    return work / name / "model"


def _ours(name: str, work: Path, rows: list[dict[str, Any]]) -> Path | None:
    """DPO or SFT by this project, at its defaults but for what the arm is named after."""
    start = ModelConfig(path=str(work / "start"))
    out = StageRun(work / name, "dpo", 0, Console(), home=work)
    common: dict[str, Any] = {
        "learning_rate": RATE,
        "per_device_train_batch_size": BATCH,
        "max_length": 1 << 20,
        "save_steps": 1 << 20,
    }
    trainer = {"lr_scheduler_type": "constant", "warmup_steps": 0.0, "use_liger_kernel": "liger" in name}
    if name.endswith("_bf16"):
        common["bf16"] = True
    if name == "reference":
        float32 = ModelConfig(path=start.path, dtype="float32")
        reference = Reference(model=float32, policy=start, max_length=1 << 20, bf16=None, batch_size=BATCH)
        reference_logps(reference, {"train": rows}, out)
        return None
    if name.startswith("sft"):
        examples = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in rows]
        trainer["padding_free"] = name == "sft_padding_free"
        config = TrainConfig(**common, trainer=trainer)
        job = RowsJob(start=start, config=config, key="train.sft", train=examples, heldout=[], what="examples")
        train(job, out, lambda directory: None)
        return None
    pairs = RowsJob(
        start=start,
        config=DpoConfig(**common, beta=BETA, trainer=trainer),
        key="train.dpo",
        train=rows,
        heldout=[],
        what="pairs",
        reference=work / "reference",
    )
    train(pairs, out, lambda directory: None)
    return work / name / "model"


def run_arm(name: str, work: Path) -> Measured:
    """Run one arm in this process; only the trainer's loop (or the reference stage) is timed."""
    import transformers

    settings = json.loads((work / "settings.json").read_text())
    rows, heldout = read_pairs(settings)
    spent: list[tuple[float, float]] = []

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            begun = time.perf_counter(), time.process_time()
            result = function(*arguments, **named)
            spent.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
            return result

        return call

    arm = _trl if name.startswith("trl") else _ours
    counter = FlopCounterMode(display=False) if settings["count"] else None
    with patch.object(transformers.Trainer, "train", timed(transformers.Trainer.train)), counter or nullcontext():
        trained = (timed(arm) if name == "reference" else arm)(name, work, rows)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if torch.cuda.is_available():
        megabytes = torch.cuda.max_memory_allocated() / 2**20
    loss = None
    if trained is not None:
        loss = heldout_loss(trained, work / "start", heldout)
    sides = ("chosen",) if name.startswith("sft") else ("chosen", "rejected")
    tokenizer = load_tokenizer(ModelConfig(path=str(work / "start")))
    texts = [tokenizer.apply_chat_template(row["prompt"] + row[s], tokenize=False) for row in rows for s in sides]
    tokens = sum(len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"])
    gigaflops = counter.get_total_flops() / 1e9 if counter else None
    return Measured(name, len(rows), tokens, *spent[0], megabytes, loss, gigaflops)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the arms, each in a process of its own, and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", choices=tuple(SIZES), default="23m")
    parser.add_argument("--pairs", type=int, default=96)
    parser.add_argument("--heldout", type=int, default=24)
    parser.add_argument("--start", type=Path, help="directory of the judge to train, in place of random weights")
    parser.add_argument("--label", help="directory of a finished stage label, whose pairs it learns")
    parser.add_argument("--scale", type=float, default=1.0, help="lengths, as a multiple of the quickstart's")
    parser.add_argument(
        "--arms",
        nargs="+",
        choices=dict.fromkeys((*CPU_ARMS, *CUDA_ARMS)),
        help="judgetrain and liger need reference before them",
    )
    parser.add_argument("--count", action="store_true", help="count floating-point operations in place of seconds")
    parser.add_argument("--peak-tflops", type=float, default=989.0, help="of the GPU in bfloat16 (H100, H200: 989)")
    parser.add_argument("--child", nargs=2, metavar=("ARM", "DIR"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(vars(run_arm(options.child[0], Path(options.child[1])))))
        return
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda, and PyTorch sees no GPU")
    if bool(options.start) != bool(options.label):
        parser.error("--start and --label go together")
    arms = options.arms or (CUDA_ARMS if options.device == "cuda" else CPU_ARMS)
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        if options.start:
            shutil.copytree(options.start, work / "start")
        else:
            make_model(work / "start", options.size, options.scale)
        keys = ("pairs", "heldout", "scale", "count", "label")
        (work / "settings.json").write_text(json.dumps({k: getattr(options, k) for k in keys}))
        measured = []
        for arm in arms:
            command = [sys.executable, "-m", "tests.benchmarks.train_speed", "--child", arm, str(work)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            measured.append(Measured(**json.loads(output.splitlines()[-1])))
            print(measured[-1], flush=True)
        parameters = sum(p.numel() for p in load_model(ModelConfig(path=str(work / "start"))).parameters())
    print(f"\n{parameters / 1e6:.1f}M parameters, {measured[0].examples} pairs, batches of {BATCH}, {options.device}\n")
    if options.count:
        print("\n".join(operations(measured)))
        return
    print("\n".join(table(measured, parameters, options.peak_tflops * 1e12 if options.device == "cuda" else None)))


if __name__ == "__main__":
    main()
