"""GPU hours that a recipe is expected to take: calls counted from its keys, tokens and throughput assumed.

    python -m tests.benchmarks.gpu_hours paper_ood paper_id paper_transfer pairs

Nothing is measured: :data:`ASSUMED` is all that is not a key of the recipe. Only what the branching pipeline does is
counted, from the responses to the evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from judgetrain.engines.config import LocalEngineConfig
from judgetrain.pipeline.config import Config
from tests.benchmarks.common import parser_of
from tests.builders.pipeline import configured

ASSUMED = {
    # A dialogue, two responses of 300 tokens, the template.
    "prompt tokens of a call": 900,
    # Ten lines.
    "criteria tokens": 200,
    "guideline tokens": 120,
    "judgment tokens": 200,
    "response tokens": 350,
    "training tokens of an example": 1_100,
    "queries embedded a second": 3_000,
    "generated tokens a second of 7B": 2_500,
    "prompt tokens a second of 7B": 20_000,
    # Calls about one pair begin alike.
    "share of prompts found in the prefix cache": 0.5,
    # 40% of an A100's 312.
    "training FLOP a second": 125e12,
}
"""Of an A100 with 80 GB in bfloat16; other sizes by the inverse of their parameters."""
QUERIES = 5_000_000
"""Dialogues of a recipe that reads the paper's corpora."""
BENCHMARKS = {"eval_p": 1_392, "mt_bench": 3_355}
"""Comparisons of the benchmarks that the papers' recipes measure on: Eval-P, and MT-Bench's votes."""
DEFAULT_SIZE = 7e9
"""Parameters of a model whose name does not say them."""
LEVELS = 3
"""Levels at which there are pairs: criteria, guideline, judgment."""
MOST_EXAMPLES = 12
"""Examples of a tree where the recipe sets no limit."""
MOST_PAIRS = 4
"""Pairs of a tree and a level where the recipe sets no limit."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A stage's work.

    Args:
        stage: its name.
        calls: calls, or examples in training.
        tokens: that are generated, or trained on.
        hours: of one GPU.
    """

    stage: str
    calls: int
    tokens: float
    hours: float


def parameters(name: str) -> float:
    """Return about how many parameters a model has, as its name says: ``7b``, ``8x7b``, ``270m``."""
    last = name.rpartition("/")[2].lower()
    size = re.search(r"(?<![\w.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(?![a-z])", last)
    if size is None:
        return DEFAULT_SIZE
    of_one = float(size[2]) * {"b": 1e9, "m": 1e6}[size[3]]
    if size[1] is None:
        return of_one
    # Experts share attention and embeddings: Mixtral 8x7B has 46.7 billion.
    return 0.84 * int(size[1]) * of_one


def sampling_hours(calls: int, generated: float, size: float) -> float:
    """Return the GPU hours of calls that generate so many tokens in all, by a model of ``size`` parameters."""
    read = calls * ASSUMED["prompt tokens of a call"] * (1 - ASSUMED["share of prompts found in the prefix cache"])
    seconds = generated / ASSUMED["generated tokens a second of 7B"] + read / ASSUMED["prompt tokens a second of 7B"]
    return seconds / 3600 * size / DEFAULT_SIZE


def training_hours(tokens: float, size: float) -> float:
    """Return the GPU hours of training on tokens: 6 FLOP a parameter and token, 8 with gradient checkpointing."""
    return 8 * size * tokens / ASSUMED["training FLOP a second"] / 3600


def trained(stage: str, examples: int, size: float) -> Part:
    """Return a stage that trains on examples."""
    tokens = examples * ASSUMED["training tokens of an example"]
    return Part(stage=stage, calls=examples, tokens=tokens, hours=training_hours(tokens, size))


def parts(config: Config) -> Iterator[Part]:
    """Yield the stages of a recipe that take GPUs."""
    if any(source.dataset for source in config.dialogues.sources):
        hours = QUERIES / ASSUMED["queries embedded a second"] / 3600
        yield Part(stage="cluster", calls=QUERIES, tokens=0, hours=hours)
    yield from _responses(config)
    size = parameters(config.train.base.path or "")
    remaining = config.cluster.sample
    taught = config.teacher.comparisons
    if not config.teacher.evaluations:
        # Those that the teacher gets are not left for trees, unless none would be.
        taught = min(taught, remaining)
        remaining = (remaining - taught) or remaining
    # A list, and of each branch a guideline and two judgments.
    yield trained("initial", taught * (1 + 3 * config.teacher.branches), size)
    yield _trees(config, remaining, size)
    share = config.label.sft_share
    for_sft = remaining
    for_dpo = remaining
    if share:
        for_sft = int(remaining * share)
        for_dpo = remaining - for_sft
    yield trained("sft", for_sft * (config.label.max_sft_per_tree or MOST_EXAMPLES), size)
    pairs = for_dpo * LEVELS * (config.label.max_pairs_per_level or MOST_PAIRS)
    tokens = 2 * pairs * ASSUMED["training tokens of an example"]
    # The reference reads each side once, forward alone: two of the eight.
    hours = training_hours(tokens * (1 + 2 / 8), size)
    yield Part(stage="reference, dpo", calls=pairs, tokens=tokens, hours=hours)
    yield from _evaluation(config, size)


def _responses(config: Config) -> Iterator[Part]:
    """Yield the response models that run on GPUs of one's own."""
    prompts = config.cluster.sample
    for model in config.responses.models:
        if isinstance(model.engine, LocalEngineConfig):
            tokens = prompts * ASSUMED["response tokens"]
            hours = sampling_hours(prompts, tokens, parameters(model.engine.model.path))
            yield Part(stage=f"responses of {model.name}", calls=prompts, tokens=tokens, hours=hours)


def _trees(config: Config, number: int, size: float) -> Part:
    """Return the growing of so many trees."""
    guidelines = config.tree.criteria * config.tree.guidelines
    judgments = guidelines * config.tree.judgments * 2
    calls = number * (1 + guidelines + judgments)
    of_a_tree = (
        ASSUMED["criteria tokens"] + guidelines * ASSUMED["guideline tokens"] + judgments * ASSUMED["judgment tokens"]
    )
    tokens = number * of_a_tree
    return Part(stage="tree", calls=calls, tokens=tokens, hours=sampling_hours(calls, tokens, size))


def _evaluation(config: Config, size: float) -> Iterator[Part]:
    """Yield the judges that are measured with their most branches, in both orders."""
    most = max(config.evaluate.branches)
    comparisons = 0
    for benchmark in config.evaluate.benchmarks:
        comparisons += benchmark.limit or BENCHMARKS.get(benchmark.name, 0)
    calls = comparisons * (1 + 3 * most)
    of_a_branch = ASSUMED["guideline tokens"] + 2 * ASSUMED["judgment tokens"]
    tokens = comparisons * (ASSUMED["criteria tokens"] + most * of_a_branch)
    for name in config.evaluate.methods:
        if name in ("initial", "sft", "dpo"):
            yield Part(stage=f"evaluate {name}", calls=calls, tokens=tokens, hours=sampling_hours(calls, tokens, size))


def main() -> None:
    """Print a Markdown table for each recipe."""
    parser = parser_of(__doc__)
    parser.add_argument("recipes", nargs="+")
    for name in parser.parse_args().recipes:
        config = configured(f"recipe={name}", "data_dir=DIR")
        print(f"\n| `{name}` | calls or examples | million tokens | GPU hours |\n| --- | --- | --- | --- |")
        total = 0.0
        for part in parts(config):
            print(f"| {part.stage} | {part.calls:,} | {part.tokens / 1e6:.1f} | {part.hours:.1f} |")
            total += part.hours
        print(f"| all | | | {total:.0f} |")


if __name__ == "__main__":
    main()
