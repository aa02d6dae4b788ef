"""GPU hours that a recipe of the paper is expected to take: calls counted from its keys, tokens and throughput assumed.

    python -m tests.benchmarks.gpu_hours paper_ood paper_id paper_transfer tables/table1

The table in docs/scale.md is its output. ``ASSUMED`` is all that is not a key of the recipe: no GPU was at hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from judgetrain.engines.config import LocalEngineConfig
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.fits import parameters
from tests.builders.pipeline import configured

ASSUMED = {
    "prompt tokens of a call": 900,  # a dialogue, two responses of 300, the template
    "criteria tokens": 200,  # ten lines
    "guideline tokens": 120,
    "judgment tokens": 200,
    "response tokens": 350,
    "training tokens of an example": 1_100,
    "queries embedded a second": 3_000,
    "generated tokens/s of 7B a GPU": 2_500,
    "prompt tokens/s of 7B a GPU": 20_000,
    "share of prompts found in the prefix cache": 0.5,  # calls about one pair begin alike
    "training FLOP/s a GPU": 125e12,  # 40% of an A100's 312
    "comparisons of the benchmarks": 1_392 + 3_355,  # Eval-P and MT-Bench's votes
}
"""Of A100s with 80 GB in bfloat16; other sizes by the inverse of their parameters."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A stage's calls (or examples), the tokens that are generated (or trained on), and the GPU hours."""

    stage: str
    calls: int
    tokens: float
    hours: float


def sampling(calls: int, generated: float, billions: float) -> float:
    """GPU hours of so many calls that generate so many tokens in all, by a model of so many billion parameters."""
    read = calls * ASSUMED["prompt tokens of a call"] * (1 - ASSUMED["share of prompts found in the prefix cache"])
    seconds = generated / ASSUMED["generated tokens/s of 7B a GPU"] + read / ASSUMED["prompt tokens/s of 7B a GPU"]
    return seconds / 3600 * billions / 7


def training(tokens: float, billions: float, passes: float = 1.0) -> float:
    """GPU hours of training on tokens: 6 FLOPs a parameter and token, 8 with gradient checkpointing."""
    return 8 * billions * 1e9 * tokens * passes / ASSUMED["training FLOP/s a GPU"] / 3600


def parts(config: Config) -> Iterator[Part]:
    """What the stages of a recipe take on GPUs."""
    billions = (parameters(config.train.base.path or "7b") or 7e9) / 1e9
    queries, tree, example = config.cluster.sample, config.tree, ASSUMED["training tokens of an example"]
    if any(s.dataset for s in config.dialogues.sources):
        yield Part(stage="cluster", calls=5_000_000, tokens=0, hours=5e6 / ASSUMED["queries embedded a second"] / 3600)
    for model in config.responses.models:
        if isinstance(model.engine, LocalEngineConfig):
            size, tokens = (parameters(model.engine.model.path) or 7e9) / 1e9, queries * ASSUMED["response tokens"]
            hours = sampling(queries, tokens, size)
            yield Part(stage=f"responses {model.name}", calls=queries, tokens=tokens, hours=hours)
    if not config.dialogues.sources:
        return
    written = bool(config.teacher.evaluations)  # about other comparisons, so that all of these remain
    taught = config.teacher.comparisons if written else min(config.teacher.comparisons, queries)
    remaining = queries if written else queries - taught or queries
    examples = taught * (1 + 3 * config.teacher.branches)  # a list, and a guideline and two judgments a branch
    yield Part(stage="initial", calls=examples, tokens=examples * example, hours=training(examples * example, billions))
    guidelines = tree.criteria * tree.guidelines
    judgments = guidelines * tree.judgments * 2
    calls = remaining * (1 + guidelines + judgments)
    tokens = remaining * (
        ASSUMED["criteria tokens"] + guidelines * ASSUMED["guideline tokens"] + judgments * ASSUMED["judgment tokens"]
    )
    yield Part(stage="tree", calls=calls, tokens=tokens, hours=sampling(calls, tokens, billions))
    share = config.label.sft_share
    sft = int(remaining * (share or 1) * (config.label.max_sft_per_tree or 12))
    yield Part(stage="sft", calls=sft, tokens=sft * example, hours=training(sft * example, billions))
    pairs = int(remaining * (1 - share if share else 1) * 3 * (config.label.max_pairs_per_level or 4))
    both = 2 * pairs * example
    yield Part(stage="reference, dpo", calls=pairs, tokens=both, hours=training(both, billions, passes=1 + 2 / 8))


def judging(config: Config) -> Iterator[Part]:
    """What evaluate takes: branching judges with their most branches, in both orders."""
    most = max(config.evaluate.branches)
    calls = int(ASSUMED["comparisons of the benchmarks"]) * (1 + 3 * most)
    tokens = ASSUMED["comparisons of the benchmarks"] * (
        ASSUMED["criteria tokens"] + most * (ASSUMED["guideline tokens"] + 2 * ASSUMED["judgment tokens"])
    )
    hours = sampling(calls, tokens, 7)
    for name in config.evaluate.methods:
        if name in ("initial", "sft", "dpo") or "/" in name:
            yield Part(stage=f"evaluate {name.rpartition('/')[2]}", calls=calls, tokens=tokens, hours=hours)


def main() -> None:
    """Print a Markdown table for each recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    for name in parser.parse_args().recipes:
        config = configured(f"recipe={name}", "data_dir=DIR")
        found = [*([] if name.startswith("tables/") else parts(config)), *judging(config)]
        print(f"\n| `{name}` | calls or examples | million tokens | GPU hours |\n| --- | --- | --- | --- |")
        for part in found:
            print(f"| {part.stage} | {part.calls:,} | {part.tokens / 1e6:.1f} | {part.hours:.1f} |")
        print(f"| all | | | {sum(part.hours for part in found):.0f} |")


if __name__ == "__main__":
    main()
