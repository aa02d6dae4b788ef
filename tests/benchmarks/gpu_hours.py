"""GPU hours that a recipe of the paper is expected to take: calls counted from its keys, tokens and throughput assumed.

    python -m tests.benchmarks.gpu_hours paper_ood paper_id paper_transfer tables/table1

The table in docs/scale.md is its output. ``ASSUMED`` is all that is not a key of the recipe: no GPU was at hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from judgetrain.engines.config import LocalEngineConfig
from judgetrain.extras.correct.stage import BRANCHES
from judgetrain.extras.probdiff_studies.stage import SAMPLES, TIMES
from judgetrain.pipeline.config import Config
from judgetrain.scorers.ensembles import PASSES
from tests.benchmarks.common import parser_of
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
}
"""Of A100s with 80 GB in bfloat16; other sizes by the inverse of their parameters."""
COMPARISONS = {"eval_p": 1_392, "mt_bench": 3_355}
"""Of benchmarks: Eval-P, and MT-Bench's votes."""
PROMPTS = {"mt_bench": 160, "vicuna_bench": 80, "alpaca_eval": 805, "alignbench": 683, "blog_writing": 100}
"""Questions (MT-Bench: turns) of data sets that a recipe takes whole."""


def parameters(name: str) -> float | None:
    """About how many parameters a model has, as its name says: ``7b``, ``8x7b``, ``270m``."""
    if not (
        named := re.search(r"(?<![\w.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(?![a-z])", name.rpartition("/")[2].lower())
    ):
        return None
    experts, size_of_one = int(named[1] or 1), float(named[2]) * {"b": 1e9, "m": 1e6}[named[3]]
    # Experts share attention and embeddings: Mixtral 8x7B has 46.7 billion.
    return size_of_one * (experts if experts == 1 else experts * 0.84)


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


def embedding() -> Part:
    """What ``cluster`` takes of the paper's five million queries."""
    return Part(stage="cluster", calls=5_000_000, tokens=0, hours=5e6 / ASSUMED["queries embedded a second"] / 3600)


def parts(config: Config) -> Iterator[Part]:
    """What the stages of a recipe take on GPUs."""
    billions = (parameters(config.train.base.path or "7b") or 7e9) / 1e9
    queries, tree, example = config.cluster.sample, config.tree, ASSUMED["training tokens of an example"]
    if any(s.dataset for s in config.dialogues.sources):
        yield embedding()
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
    most, comparisons = max(config.evaluate.branches), sum(COMPARISONS[b.name] for b in config.evaluate.benchmarks)
    calls = comparisons * (1 + 3 * most)
    tokens = comparisons * (
        ASSUMED["criteria tokens"] + most * (ASSUMED["guideline tokens"] + 2 * ASSUMED["judgment tokens"])
    )
    hours = sampling(calls, tokens, 7)
    for name in config.evaluate.methods:
        if name in ("initial", "sft", "dpo") or "/" in name:
            yield Part(stage=f"evaluate {name.rpartition('/')[2]}", calls=calls, tokens=tokens, hours=hours)


def self_evaluation(config: Config, billions: float) -> Iterator[Part]:
    """What ``selfeval`` takes of one model: an answer, what its scores write or decode anew, reading it all.

    ProbDiff reads an answer and its revisions, a decoding ensemble decodes as often as it has passes, and a prompt
    ensemble reads as often; other scores are read off the answer.
    """
    methods, passes = " ".join(config.selfeval.methods), PASSES
    prompts = sum(source.sample or PROMPTS[source.dataset or source.name] for source in config.dialogues.sources)
    revised = prompts * config.scorer.revisions if "probdiff" in methods else 0
    written = prompts + revised + (prompts * passes if "decensem" in methods else 0)
    read = prompts + revised + (prompts * passes if "prmensem" in methods else 0)
    tokens = written * ASSUMED["response tokens"]
    hours = sampling(written, tokens, billions) + sampling(read, 0, billions)
    yield Part(stage=f"selfeval of a {billions:g}B model", calls=written + read, tokens=tokens, hours=hours)


def studied(config: Config, billions: float) -> Part:
    """What ``studies`` takes of one model: answers to some prompts a few times, to others many times, read again."""
    settings = config.studies
    written = settings.prompts * TIMES + settings.spread_prompts * SAMPLES
    tokens = written * ASSUMED["response tokens"]
    hours = sampling(written, tokens, billions) + sampling(written, 0, billions)
    return Part(stage=f"studies of a {billions:g}B model", calls=2 * written, tokens=tokens, hours=hours)


def corrected(config: Config, billions: float) -> Part:
    """What ``correct`` takes: responses to MT-Bench, judged by a few branches, and at most all of them written anew."""
    branches, responses = BRANCHES, PROMPTS["mt_bench"]
    calls = responses * (2 + 3 * branches)
    each = ASSUMED["criteria tokens"] + branches * (ASSUMED["guideline tokens"] + 2 * ASSUMED["judgment tokens"])
    tokens = responses * (each + ASSUMED["response tokens"])
    return Part(stage="correct", calls=calls, tokens=tokens, hours=sampling(calls, tokens, billions))


def expected(name: str) -> list[Part]:
    """The parts of a recipe by its name; of a sweep, those of all its jobs."""
    config = configured(f"recipe={name}", "data_dir=DIR")
    if name in SELF_EVALUATED:
        return [part for size in SELF_EVALUATED[name] for part in self_evaluation(config, size)]
    if name in ALONE:
        return ALONE[name](config)
    if name == "tables/table4":
        config.evaluate.methods, config.evaluate.branches = ["initial"], [10]
        found = []
        for taught in (1_000, 2_000, 3_000):
            config.teacher.comparisons = taught
            found += [part for part in parts(config) if part.stage == "initial"]
            found += judging(config)
        return found
    if name == "paper_ood_gpt4":  # all before is paper_ood's own work
        return [part for part in parts(config) if part.stage == "reference, dpo"]
    return [*([] if name.startswith("tables/") else parts(config)), *judging(config)]


ALONE: dict[str, Callable[[Config], list[Part]]] = {
    "paper_dialogues": lambda config: [embedding()],
    "tables/scenarios": lambda config: [embedding()],  # unless paper_ood has made its dialogues
    "tables/table3": lambda config: [corrected(config, 7.0)],
    "tables/probdiff_hypothesis": lambda config: [studied(config, 34.0)],
    "tables/glassbox_stored": lambda config: [],
}
"""Recipes of which one stage is run."""
SELF_EVALUATED = {
    "tables/glassbox": (7.0, 7.0),
    "tables/glassbox_references": (7.0, 7.0),
    "tables/probdiff_align": (14.0, 14.0),
    "tables/probdiff_tuned": (14.0, 14.0),
    "tables/probdiff_leaderboard": (70.0, 34.0, 70.0, 70.0),
}
"""The paper's models, in billions of parameters, that a recipe's runs are of."""


def total(name: str) -> float:
    """GPU hours of a recipe."""
    return sum(part.hours for part in expected(name))


def main() -> None:
    """Print a Markdown table for each recipe."""
    parser = parser_of(__doc__)
    parser.add_argument("recipes", nargs="+")
    for name in parser.parse_args().recipes:
        print(f"\n| `{name}` | calls or examples | million tokens | GPU hours |\n| --- | --- | --- | --- |")
        for part in expected(name):
            print(f"| {part.stage} | {part.calls:,} | {part.tokens / 1e6:.1f} | {part.hours:.1f} |")
        print(f"| all | | | {total(name):.0f} |")


if __name__ == "__main__":
    main()
