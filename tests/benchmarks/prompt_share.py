"""The share of prompt tokens that a recipe's stages compute; others were read as the beginning of another prompt.

    python -m tests.benchmarks.prompt_share recipe=quickstart output_dir=OUT

Stages are made one after another in this process, by the project's own decoder (``engine.type=transformers``). *Asked*
are the tokens of all prompts that a stage sent, *computed* those that passed through the model, padding among them.
*CPU s* are this process's seconds of a processor within the decoder, which also writes the answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch

from judgetrain.engines.base import Completion, Request
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.pipeline.compose import composed_of
from judgetrain.pipeline.run import Pipeline
from tests.benchmarks.common import parser_of, versions, with_overrides


@dataclass
class Counted:
    """The prompt tokens of what was asked so far.

    Args:
        requests: how many prompts were sent.
        asked: their tokens.
        computed: the tokens that the model was given more than one at a time, as prompts are.
        seconds: of a processor, that the decoder took.
    """

    requests: int = 0
    asked: int = 0
    computed: int = 0
    seconds: float = 0.0

    def count_computed(self, module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Count what a forward pass reads; passes over one column write the next token."""
        ids = kwargs["input_ids"]
        if ids.shape[1] > 1:
            self.computed += ids.numel()

    def count_asked(self, completions: Sequence[Completion]) -> None:
        """Count the prompts of some completions."""
        self.requests += len(completions)
        self.asked += sum(each.prompt_tokens for each in completions)


@contextmanager
def counting() -> Iterator[Counted]:
    """Yield the numbers of all that the project's own decoder is asked meanwhile."""
    counted = Counted()
    generate = TransformersEngine.generate

    def generate_counted(engine: TransformersEngine, requests: Sequence[Request], seed: int) -> list[Completion]:
        hook = engine.model.register_forward_pre_hook(counted.count_computed, with_kwargs=True)
        began = time.process_time()
        try:
            completions = generate(engine, requests, seed)
        finally:
            hook.remove()
        counted.seconds += time.process_time() - began
        counted.count_asked(completions)
        return completions

    with patch.object(TransformersEngine, "generate", generate_counted):
        yield counted


def share_of(counted: Counted) -> str:
    """Return a row's cells for what was counted."""
    share = "–"
    if counted.asked:
        share = f"{counted.computed / counted.asked:.0%}"
    return f"{counted.requests:,} | {counted.asked:,} | {counted.computed:,} | {share} | {counted.seconds:.1f}"


def main() -> None:
    """Run the command line."""
    _, overrides = with_overrides(parser_of(__doc__))
    # In this process, where the model can be watched.
    config = composed_of([*overrides, "executor.workers=1"])
    pipeline = Pipeline(config)
    total = Counted()
    print("| stage | prompts | tokens asked | computed | share | CPU s |\n| --- | --- | --- | --- | --- | --- |")
    for stage in pipeline.needed(config.stage):
        with counting() as counted:
            pipeline.run(stage)
        if counted.asked:
            print(f"| `{stage}` | {share_of(counted)} |", flush=True)
        total.requests += counted.requests
        total.asked += counted.asked
        total.computed += counted.computed
        total.seconds += counted.seconds
    print(f"| together | {share_of(total)} |")
    print(versions("torch", "transformers"))


if __name__ == "__main__":
    main()
