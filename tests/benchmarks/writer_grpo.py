"""Does a judge as a reward make a writer better? GRPO of a small writer of the world, whose true quality is known.

    python -m tests.benchmarks.writer_grpo JUDGE --steps 12 --branches 1

The writer is the shipped base, which was pretrained on dialogues of this world and so answers its queries. TRL's
GRPOTrainer trains it on queries of the training split, once with ``JudgeReward`` of the judge named and once, as a
control, with that of the baseline ``longer``. Before and after it answers the same held-out queries, about other
topics, sampled at temperature 1: the mean of the world's own quality (0 to 6) and of its words, and the mean gain in
quality with its 95% bootstrap interval over queries.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import BASE, train_dialogues
from judgetrain.data.world.language import load_language
from judgetrain.data.world.splits import queries
from judgetrain.extras.judge_reward import JudgeReward
from tests.benchmarks.common import parser_of

GENERATIONS = 8
TOKENS = 48
"""Most of an answer, about what the base writes by itself. Without it writers that are free to ramble show every
property sooner or later, whatever they are rewarded for, and outgrow what the quickstart's judge can read."""


def answers(model: Any, tokenizer: Any, asked: Sequence[str], seed: int = 0) -> list[str]:
    """A sampled answer to each query."""
    import torch

    chats = [[{"role": "user", "content": query}] for query in asked]
    inputs = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, tokenize=True, padding=True, return_tensors="pt", return_dict=True
    )
    torch.manual_seed(seed)
    model.eval()
    with torch.no_grad():
        found = model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            do_sample=True,
            temperature=1.0,
            top_k=0,
            max_new_tokens=TOKENS,
            pad_token_id=tokenizer.pad_token_id,
        )
    texts = found[:, inputs["input_ids"].shape[1] :]
    return [str(tokenizer.decode(ids, skip_special_tokens=True)) for ids in texts]


def quality(asked: Sequence[str], said: Sequence[str]) -> np.ndarray:
    """The true quality of answers, 0 to 6, by the world's hidden rule."""
    language = load_language()
    return np.array([language.quality(query, answer) for query, answer in zip(asked, said, strict=True)], float)


def watched(reward: JudgeReward) -> Any:
    """The reward, which also logs the true quality of what it is given; the trainer does not learn from that."""

    def judged(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        truth = quality([p[-1]["content"] for p in prompts], [c[-1]["content"] for c in completions])
        columns["log_metric"]("truth", float(truth.mean()))
        return reward(prompts, completions, **columns)

    return judged


def base() -> tuple[Any, Any]:
    """The writer to begin with, and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(BASE, dtype="float32")
    return model, AutoTokenizer.from_pretrained(BASE, padding_side="left")


def trained(reward: JudgeReward, options: argparse.Namespace, folder: Path) -> tuple[Any, Any]:
    """The writer after GRPO with a reward, and its tokenizer."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = base()
    chosen = train_dialogues(WorldConfig(train_dialogues=options.steps * options.prompts), options.seed)
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": d.query}]} for d in chosen])
    settings = GRPOConfig(
        output_dir=str(folder),
        max_steps=options.steps,
        per_device_train_batch_size=options.prompts * GENERATIONS,
        num_generations=GENERATIONS,
        max_completion_length=TOKENS,
        learning_rate=options.learning_rate,
        lr_scheduler_type="constant",
        temperature=1.0,
        logging_steps=4,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        seed=options.seed,
    )
    GRPOTrainer(
        model, reward_funcs=watched(reward), args=settings, train_dataset=data, processing_class=tokenizer
    ).train()
    return model, tokenizer


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("judge", help="a judge by its name, as for load_judge")
    parser.add_argument("--mode", default="anchor")
    parser.add_argument("--branches", type=int, default=1)
    parser.add_argument("--aggregation", default="clear")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--prompts", type=int, default=4, help="a step")
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--n", type=int, default=300, help="held-out queries")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    how = {"branches": options.branches, "aggregation": options.aggregation, "temperature": 0.0}
    named = Path(options.judge).exists()
    rewards = {
        Path(options.judge).parts[-3] if named and options.judge.endswith("model") else options.judge: JudgeReward(
            options.judge, options.mode, num_generations=GENERATIONS, **(how if named else {})
        ),
        "longer": JudgeReward("longer", options.mode, num_generations=GENERATIONS),
    }
    asked = random.Random(f"writer {options.seed}").sample(queries("heldout"), options.n)
    print("| reward | true quality before | after | gain | words before | after | steps | queries | s |")
    print("| --- " * 9 + "|")
    first = answers(*base(), asked)
    for name, reward in rewards.items():
        started = time.time()
        with tempfile.TemporaryDirectory() as folder:
            said = first, answers(*trained(reward, options, Path(folder)), asked)
        before, after = (quality(asked, each) for each in said)
        interval = bootstrap((after - before,), np.mean, rng=np.random.default_rng(0)).confidence_interval
        words = [np.mean([len(text.split()) for text in each]) for each in said]
        print(
            f"| {name} | {before.mean():.2f} | {after.mean():.2f} | {(after - before).mean():+.2f} "
            f"({interval.low:+.2f} to {interval.high:+.2f}) | {words[0]:.1f} | {words[1]:.1f} | {options.steps} | "
            f"{len(asked)} | {time.time() - started:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
