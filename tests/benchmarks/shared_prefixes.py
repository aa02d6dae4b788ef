"""How much sooner a pass over the data ends where the examples of a comparison are read in one row (share_prefixes).

    python -m tests.benchmarks.shared_prefixes TEACHER MODEL --comparisons 8 --steps 4

TEACHER is an artifact of stage teacher whose judgments are of one response, MODEL a causal language model
(``package:NAME``, a directory or a Hub id). Both ways take the same steps over the same comparisons, in turns and in
one process: in one way a step's comparisons are rows, in the other every example is, with ``ranking_weight=0.5``.
Seconds are those of the steps behind the first one.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_tokenizer
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.train.config import SupervisedConfig
from judgetrain.train.data import Examples, Renderer, fitting
from judgetrain.train.internals import labelled_tokens_alone
from judgetrain.train.prefix_trees import in_prefix_trees
from judgetrain.train.ranking import ranked
from judgetrain.train.run import RowsJob, make_trainer
from tests.benchmarks.common import parser_of

RANKING = 0.5


class Clock(TrainerCallback):  # type: ignore[misc]
    """Notes when each optimizer step ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Note the time."""
        self.ends.append(time.monotonic())


def seconds_of(base: ModelConfig, examples: Examples, shared: bool, options: Any) -> tuple[float, int]:
    """Return the seconds of the steps behind the first one, and the tokens that the model computed in all steps."""
    tokenizer = load_tokenizer(base)
    tokenizer.padding_side = "right"
    batch = options.comparisons
    rows = examples
    if shared:
        rows = in_prefix_trees(examples, options.max_length)
    else:
        batch = options.comparisons * len(examples) // len({*examples.comparisons})
    config = SupervisedConfig(
        learning_rate=1e-6,
        ranking_weight=RANKING,
        share_prefixes=shared,
        per_device_train_batch_size=batch // options.micro,
        global_accumulation_steps=options.micro,
        max_steps=options.steps,
        max_length=options.max_length,
        save_steps=10_000,
    )
    with tempfile.TemporaryDirectory() as place, labelled_tokens_alone():
        # A stage's directory stands three below that of its run.
        out = StageRun(Path(place) / "artifacts" / "initial" / "measured", "initial", 0, Console())
        job = RowsJob(start=base, config=config, key="train.initial", train=[], heldout=[], what="examples")
        trainer = make_trainer(job, rows, tokenizer, Path(place) / "checkpoints", out)
        clock = Clock()
        trainer.add_callback(clock)
        trainer.train()
        tokens = int(trainer._total_train_tokens)
    return clock.ends[-1] - clock.ends[0], tokens


def whole_comparisons(examples: Examples, comparisons: int) -> Examples:
    """Return the examples of the first comparisons of which every judgment is there."""
    of_comparison = dict[int, list[int]]()
    for example, comparison in enumerate(examples.comparisons):
        of_comparison.setdefault(comparison, []).append(example)
    most = max(map(len, of_comparison.values()))
    kept = [members for members in of_comparison.values() if len(members) == most][:comparisons]
    places = {example: place for place, example in enumerate(itertools.chain.from_iterable(kept))}
    pairs = [
        (places[better], places[worse], tie)
        for better, worse, tie in examples.pairs
        if {better, worse} <= places.keys()
    ]
    return replace(
        examples,
        data=examples.data.select([*places]),
        lengths=[examples.lengths[example] for example in places],
        comparisons=[examples.comparisons[example] for example in places],
        pairs=pairs,
    )


def main() -> None:
    """Measure both ways in turns, and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("model")
    parser.add_argument("--comparisons", type=int, default=8, help="in a step")
    parser.add_argument("--micro", type=int, default=2, help="micro-batches of a step")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--max-length", type=int, default=1024)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prompts", default="compact")
    options = parser.parse_args()
    base = ModelConfig(path=options.model, dtype=options.dtype)
    tokenizer = load_tokenizer(base)
    frames = load_prompt_set(options.prompts).frames
    rows = [*read_rows(options.teacher, "examples")]
    examples = fitting(rows, Renderer.of(tokenizer), options.max_length, "examples")
    examples = ranked(examples, tokenizer, frames["score"])
    examples = whole_comparisons(examples, options.comparisons * options.steps)
    print("| beginnings | turn | tokens | seconds |")
    print("| --- | --- | --- | --- |")
    for turn in range(options.turns):
        for name, shared in (("read for each example", False), ("read once", True)):
            seconds, tokens = seconds_of(base, examples, shared, options)
            print(f"| {name} | {turn + 1} | {tokens} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
