"""A writer of the world trained by GRPO with a judge's reward: one response at a time, and pairs, for equal judgments.

    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.writer_grpo JUDGE --steps 56

The writer is the world's base after supervised examples of a hasty writer. A step asks about groups of eight responses
to a query, by the judge's own criteria; of eight responses pairs take seven times the judgments that scores take, so
that they are given a seventh of the steps, and the same number besides. Prints the true quality, by the hidden rule (0
to 6), of what each writer says to queries about held-out topics, with 95% intervals over queries.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from judgetrain.data import world
from judgetrain.data.world import Split, queries
from judgetrain.data.world.language import load_language, write_response
from judgetrain.extras.judge_reward import JudgeReward
from tests.benchmarks.common import parser_of

GROUP, TOKENS = 8, 72
SPLITS: tuple[tuple[Split, int], ...] = (("train", 2000), ("heldout", 300))
PAIRS_FOR_ONE = GROUP * (GROUP - 1) // GROUP
"""Judgments of pairs in both orders (n(n - 1) a criterion) for one of scores (n)."""
COMMON: dict[str, Any] = {"report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("judge")
    parser.add_argument("--steps", type=int, default=56)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--branches", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    train, heldout = (rng.sample(queries(split), number) for split, number in SPLITS)
    start, tokenizer = supervised(train, options.seed)
    asked = heldout[: options.queries]
    print(f"{'reward':24} steps  true quality")
    report("none (supervised)", 0, quality(start, tokenizer, asked, options.seed))
    for mode, steps in (("score", options.steps), ("round_robin", options.steps // PAIRS_FOR_ONE)):
        reward = JudgeReward(options.judge, mode, branches=options.branches)
        model = trained(start, tokenizer, train, reward, steps, options.seed)
        report(mode, steps, quality(model, tokenizer, asked, options.seed))


def report(name: str, steps: int, found: Sequence[float]) -> None:
    drawn = np.random.default_rng(0).choice(found, (2000, len(found))).mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    print(f"{name:24} {steps:5}  {np.mean(found):.2f} ({low:.2f} to {high:.2f}), n = {len(found)}", flush=True)


def supervised(asked: Sequence[str], seed: int) -> tuple[Any, Any]:
    """The world's base after one pass over answers of the hasty writer."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    tokenizer = AutoTokenizer.from_pretrained(world.BASE, padding_side="left")
    language, rng = load_language(), random.Random(seed)
    rows = [{"prompt": _prompt(q), "completion": _said(write_response(language, q, 0.35, rng))} for q in asked]
    with tempfile.TemporaryDirectory() as place:
        trainer = SFTTrainer(
            writer(),
            args=SFTConfig(place, per_device_train_batch_size=16, num_train_epochs=2, learning_rate=1e-3, seed=seed,
                           gradient_checkpointing=False, bf16=False, **COMMON),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
        )  # fmt: skip
        trainer.train()
    return trainer.model, tokenizer


def writer(weights: Any = None) -> Any:
    """The world's base, or with the weights of another writer: a copy of a trainer's model would share its forward."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(world.BASE, dtype="float32")
    if weights is not None:
        model.load_state_dict(weights.state_dict())
    return model


def trained(start: Any, tokenizer: Any, asked: Sequence[str], reward: Callable[..., Any], steps: int, seed: int) -> Any:
    """The writer after so many steps of GRPO, eight groups each."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    with tempfile.TemporaryDirectory() as place:
        trainer = GRPOTrainer(
            writer(start),
            reward_funcs=reward,
            args=GRPOConfig(place, max_steps=steps, num_generations=GROUP, per_device_train_batch_size=8 * GROUP,
                            max_completion_length=TOKENS, learning_rate=1e-3, beta=0.0, seed=seed,
                            gradient_checkpointing=False, bf16=False, **COMMON),
            train_dataset=Dataset.from_list([{"prompt": _prompt(query)} for query in asked]),
            processing_class=tokenizer,
        )  # fmt: skip
        trainer.train()
    return trainer.model


def quality(model: Any, tokenizer: Any, asked: Sequence[str], seed: int) -> list[float]:
    """The true quality of one sampled answer to each query."""
    import torch

    torch.manual_seed(seed)
    language, found = load_language(), []
    for i in range(0, len(asked), 50):
        part = asked[i : i + 50]
        shown = tokenizer.apply_chat_template([_prompt(q) for q in part], add_generation_prompt=True, padding=True,
                                              return_tensors="pt", return_dict=True)  # fmt: skip
        with torch.no_grad():
            said = model.eval().generate(**shown, do_sample=True, top_k=0, max_new_tokens=TOKENS)
        texts = tokenizer.batch_decode(said[:, shown["input_ids"].shape[1] :], skip_special_tokens=True)
        found += [float(language.quality(query, text)) for query, text in zip(part, texts, strict=True)]
    return found


def _prompt(query: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": query}]


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


if __name__ == "__main__":
    main()
