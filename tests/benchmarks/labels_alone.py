"""What a base model learns of comparing from labels alone, by how it has to say so: by a letter, or by a score's digit.

    python -m judgetrain recipe=gemma stage=responses data_dir=DIR output_dir=OUT
    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.labels_alone OUT --say letter recipe=gemma data_dir=DIR
    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.labels_alone OUT --say digit recipe=gemma data_dir=DIR

Adapters are trained on one token and nothing else: the logistic loss of the log-odds where a judgment of the recipe's
prompts says who is better, both orders of a pair in one batch, each pair once. Then comparisons of the recipe's first
benchmark are asked in both orders. What stage initial makes of the same labels has form, reasons and criteria to learn
besides; this says what there is to be had from them, and how soon. A row each ``--every`` steps of four pairs.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch.nn.functional import logsigmoid

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.benchmarks.benchmark import load_benchmark
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.evaluate.metrics.bootstrap import bootstrap_interval
from judgetrain.evaluate.metrics.verdicts import agreement, consistency, single_order_accuracy, summed
from judgetrain.judges.base import verdict_of
from judgetrain.judges.prompting.prompts import judgment_slots, load_prompt_set
from judgetrain.label.known import GUIDELINE, suited
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import ORDERS, Comparison
from tests.builders.pipeline import configured

SAID = {"letter": ("Comparison:", " A", " B"), "digit": ("Response A Score: ", "4", "2")}
"""What stands before the token that says who is better, that token for A, and that for B."""


class Comparer:
    """A model, and the log-odds of A over B at the place where it says so."""

    def __init__(self, model: Any, tokenizer: Any, prompts: Any, say: str) -> None:
        self.model, self._tokenizer, self._prompts = model, tokenizer, prompts
        self._before, first, second = SAID[say]
        ids = [tokenizer(f"x{token}", add_special_tokens=False).input_ids[-1] for token in (first, second)]
        head = model.get_base_model().lm_head.weight.detach()
        self._direction = head[ids[0]] - head[ids[1]]

    def margins(self, comparisons: Sequence[Comparison], order: str) -> torch.Tensor:
        """[n] log-odds of the response that is shown first."""
        texts = [self._text(c, order) for c in comparisons]
        tokens = self._tokenizer(texts, padding=True, return_tensors="pt", add_special_tokens=False)
        states = self.model.get_base_model().model(**tokens).last_hidden_state[:, -1]
        margins: torch.Tensor = states @ self._direction
        return margins

    def _text(self, comparison: Comparison, order: Any) -> str:
        slots = judgment_slots(comparison, order, suited(comparison.dialogue.query)[0].line, GUIDELINE)
        asked = [*self._prompts.render("judgment", slots)]
        return self._tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True) + self._before


def measured(comparer: Comparer, comparisons: Sequence[Comparison], seed: int) -> str:
    """The cells of a row: strict agreement, consistency, one order, and the summed margin, on decided items too."""
    comparer.model.eval()
    found = []
    with torch.no_grad():
        for order, sign in zip(ORDERS, (1, -1), strict=True):
            rows = [comparer.margins(comparisons[i : i + 8], order) for i in range(0, len(comparisons), 8)]
            found.append(sign * torch.cat(rows).numpy())
    comparer.model.train()
    labels = [str(c.label) for c in comparisons]
    verdicts = [[verdict_of(float(m)) for m in margins] for margins in found]
    both = [float(m) for m in found[0] + found[1]]
    right = summed(both, labels)
    assert right is not None
    decided = np.array([label != "tie" for label in labels])
    cells = [agreement(*verdicts, labels), consistency(*verdicts), right, right[decided]]
    single = 100 * single_order_accuracy(*verdicts, labels)[decided].mean()
    shown = []
    for values in cells:
        low, high = bootstrap_interval(values, 2000, seed) or (float("nan"), float("nan"))
        shown.append(f"{100 * np.mean(values):.1f} ({100 * low:.0f}–{100 * high:.0f})")
    return " | ".join([*shown, f"{single:.1f}"])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", help="holds the recipe's stage responses")
    parser.add_argument("--say", choices=list(SAID), default="letter")
    parser.add_argument("--pairs", type=int, default=540, help="to learn from")
    parser.add_argument("--n", type=int, default=120, help="comparisons of the benchmark")
    parser.add_argument("--every", type=int, default=80, help="steps between two rows")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    given, overrides = parser.parse_known_args()
    config = configured(*overrides, f"output_dir={given.output}")
    rows = read_rows(Pipeline(config).plan("responses").directory, "comparisons")
    decided = [c for c in map(Comparison.from_row, rows) if c.label in ("A", "B")]
    random.Random(config.seed).shuffle(decided)
    decided, held = decided[: given.pairs], load_benchmark(config.evaluate.benchmarks[0], 0, config.seed, None)
    torch.manual_seed(config.seed)
    tokenizer, model = load_tokenizer(config.train.base), load_model(config.train.base, "cpu")
    adapters = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    comparer = Comparer(get_peft_model(model, adapters), tokenizer, load_prompt_set(config.prompts), given.say)
    weights = [p for p in comparer.model.parameters() if p.requires_grad]
    optimizer, steps = torch.optim.AdamW(weights, lr=given.learning_rate, weight_decay=0.0), len(decided) // 4
    print("| steps | pairs | minutes | agreement % | consistency % | summed % | of decided | one order, of decided |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    spent = 0.0
    for step in range(steps + 1):
        if step % given.every == 0 or step == steps:
            cells = measured(comparer, held.comparisons[: given.n], config.seed)
            print(f"| {step} | {4 * step} | {spent / 60:.1f} | {cells} |", flush=True)
        if step == steps:
            break
        began, batch = time.monotonic(), decided[4 * step : 4 * step + 4]
        side = torch.tensor([1.0 if c.label == "A" else -1.0 for c in batch])
        odds = torch.cat([side * comparer.margins(batch, "AB"), -side * comparer.margins(batch, "BA")])
        (-logsigmoid(odds).mean()).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = given.learning_rate * min(1.0, (step + 1) / 5) * (1 - 0.9 * step / steps)
        optimizer.step()
        optimizer.zero_grad()
        spent += time.monotonic() - began


if __name__ == "__main__":
    main()
