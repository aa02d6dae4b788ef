"""What people's pairs teach a model with real weights: by the expected score of one response, or by the letter of two.

    python -m tests.benchmarks.people_pairs MODEL DIR --arms one:70 one:200 one:600 one:all two:all --seeds 1

MODEL is a directory that Transformers reads; DIR holds files as docs/real_text.md has them. Trained on pairs of
PandaLM and LLMBar's collection whose queries are none of those measured on: Eval-P's development half, a third of
PandaLM. A GPU is taken where there is one. Every arm trains all weights: once over its pairs under each of three
criteria, three times where there are 300 pairs or fewer. ``one``: -log sigmoid(2 (E better - E worse)) of expected
scores; ``two``: the cross-entropy of the letter in both orders. Ties count as half a win for either.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from judgetrain.data.config import SourceConfig
from judgetrain.data.dialogues import adapted
from judgetrain.data.duplicates import normalised
from judgetrain.data.sources import Rejects
from judgetrain.evaluate.metrics.groups import length_balanced, length_balanced_interval
from judgetrain.judges.prompting.prompts import judgment_slots, judgment_step, load_prompt_set
from judgetrain.schema import Comparison, Order
from tests.benchmarks.common import parser_of

CRITERIA = {
    "Helpfulness": "Which answer serves best what was asked for",
    "Correctness": "True and without errors",
    "Instruction following": "Does what the query says, all of it",
}
HELD = 300
"""Rows of PandaLM that are measured on, with all that have their queries."""
BATCH, MICRO = 32, 16
PROMPT = {"one": 900, "two": 1600}
"""Tokens; of longer ones the end is read. A response is cut after 500."""


def rows(directory: Path, adapter: str, files: str) -> list[Comparison]:
    source = SourceConfig(name=adapter, path=str(directory / files), adapter=adapter)
    return [
        c
        for row in adapted(source, "DIR", Rejects(strict=False))
        for c in row
        if c.label and c.response_a and c.response_b
    ]


def split(directory: Path) -> tuple[list[Comparison], dict[str, list[Comparison]]]:
    """Pairs to train on, and those to measure on; a query with six words in ten of a measured one's trains nothing."""
    panda = rows(directory, "pandalm", "pandalm/testset-v1.jsonl")
    queries = sorted({c.dialogue.query for c in panda})
    random.Random(7).shuffle(queries)
    held: list[Comparison] = []
    for query in queries:
        held += [c for c in panda if c.dialogue.query == query] if len(held) < HELD else []
    measured = {"eval_p": rows(directory, "eval_p", "eval_p/dev.jsonl"), "pandalm": held}
    known = [set(normalised(c.dialogue.query).split()) for each in measured.values() for c in each]
    pool = [*panda, *rows(directory, "llmbar", "processed_pairs/*.jsonl")]
    words = [set(normalised(c.dialogue.query).split()) for c in pool]
    train = [c for c, w in zip(pool, words, strict=True) if not any(len(w & v) > 0.6 * len(w | v) for v in known)]
    random.Random(5).shuffle(train)
    return train, measured


class Reader:
    """A model that says how much better the first response is, by the tokens of one position."""

    def __init__(self, model: str, reads: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).to(self.device)
        self.reads, self.prompts = reads, load_prompt_set("compact")
        said = [f"Score: {n}" for n in range(1, 6)] if reads == "one" else ["Comparison: A", "Comparison: B"]
        self.lead, self.tokens = self._ids(said[0])[:-1], [self._ids(text)[-1] for text in said]
        self.prompt = cache(self._prompt)

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _prompt(self, comparison: Comparison, order: Order, criterion: str) -> list[int]:
        slots = judgment_slots(comparison, order, criterion, CRITERIA[criterion])
        cut = {k: self.tokenizer.decode(self._ids(v)[:500]) for k, v in slots.items() if k == "query" or "resp" in k}
        text = self.prompts.render(judgment_step(order), slots | cut)[-1]["content"]
        start = [self.tokenizer.bos_token_id] if self.tokenizer.bos_token_id is not None else []
        return (start + self._ids(text + "\n\n"))[-PROMPT[self.reads] :] + self.lead

    def both(self, comparison: Comparison, criterion: str) -> list[list[int]]:
        """The prompts of a comparison: its two responses, or its two orders."""
        orders: tuple[Order, Order] = ("A", "B") if self.reads == "one" else ("AB", "BA")
        return [self.prompt(comparison, order, criterion) for order in orders]

    def leads(self, prompts: Sequence[list[int]]) -> Any:
        """How far the first of every two prompts is ahead, as the logit of its win, float32 [n / 2]; of orders, each
        by itself [n]."""
        import torch

        width = max(map(len, prompts))
        ids, mask = (torch.zeros(len(prompts), width, dtype=torch.long) for _ in range(2))
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :], mask[row, width - len(prompt) :] = torch.tensor(prompt), 1
        ids, mask = ids.to(self.device), mask.to(self.device)
        places = (mask.cumsum(1) - 1).clamp(min=0)
        with torch.autocast(self.device, dtype=torch.bfloat16):
            found = self.model.model(input_ids=ids, attention_mask=mask, position_ids=places, use_cache=False)
        weights = self.model.get_output_embeddings().weight[self.tokens]
        logits = found.last_hidden_state[:, -1].float() @ weights.float().T
        if self.reads == "two":
            return logits[:, 0] - logits[:, 1]
        scores = logits.softmax(-1) @ torch.arange(1.0, 6.0, device=self.device)
        return 2 * (scores[::2] - scores[1::2])

    def train(self, pairs: Sequence[Comparison], rate: float, seed: int) -> float:
        """Train on the pairs under each criterion; the last step's loss."""
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits as loss_of

        rng, due, loss = random.Random(seed), {"A": 1.0, "B": 0.0, "tie": 0.5}, 0.0
        items = [(self.both(c, name), due[str(c.label)]) for c in pairs for name in CRITERIA]
        if self.reads == "two":
            items = [item for (ab, ba), y in items for item in (([ab], y), ([ba], 1 - y))]
        passes = 3 if len(pairs) <= HELD else 1
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate, weight_decay=0.0, betas=(0.9, 0.95))
        total, step = math.ceil(len(items) / BATCH) * passes, 0
        self.model.train()
        for _ in range(passes):
            rng.shuffle(items)
            for batch in (items[i : i + BATCH] for i in range(0, len(items), BATCH)):
                rising, falling = (step + 1) / max(1, total // 10), max(0.05, 1 - step / total)
                optimizer.param_groups[0]["lr"] = rate * min(1, rising) * falling
                loss, step = 0.0, step + 1
                for part in (batch[i : i + MICRO] for i in range(0, len(batch), MICRO)):
                    leads = self.leads([prompt for prompts, _ in part for prompt in prompts])
                    found: Any = loss_of(leads, torch.tensor([y for _, y in part], device=self.device)) * len(part)
                    (found / len(batch)).backward()
                    loss += found.item() / len(batch)
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        return loss

    def margins(self, comparisons: Sequence[Comparison]) -> list[float]:
        """The mean lead of the first response over the criteria, of two orders over both."""
        import torch

        self.model.eval()
        asked = [(i, self.both(c, name)) for i, c in enumerate(comparisons) for name in CRITERIA]
        asked.sort(key=lambda each: sum(map(len, each[1])))
        found = [0.0] * len(comparisons)
        with torch.no_grad():
            for part in (asked[i : i + BATCH] for i in range(0, len(asked), BATCH)):
                leads = self.leads([prompt for _, prompts in part for prompt in prompts]).tolist()
                two = self.reads == "two"
                for at, (i, _) in enumerate(part):
                    found[i] += (leads[2 * at] - leads[2 * at + 1] if two else leads[at]) / len(CRITERIA)
        return found


def longer(comparison: Comparison) -> str:
    ahead = len(comparison.response_a) - len(comparison.response_b)
    return "A" if ahead > 0 else "B" if ahead < 0 else "tie"


def row(name: str, comparisons: Sequence[Comparison], margins: Sequence[float]) -> str:
    """Of decided labels: how many are right, and the mean of both halves, where longer and where shorter is better."""
    labels, lengths = [str(c.label) for c in comparisons], [longer(c) for c in comparisons]
    right = np.array([("A" if m > 0 else "B") == label for m, label in zip(margins, labels, strict=True)])
    decided = np.array([label != "tie" for label in labels])
    balanced = length_balanced(right, labels, lengths)
    low, high = (100 * end for end in length_balanced_interval(right, labels, lengths, 2000, 0) or (0.0, 0.0))
    said = "–" if balanced is None else f"{100 * balanced:.1f} ({low:.1f}–{high:.1f})"
    return f"| {name} | {len(labels)} | {decided.sum()} | {100 * right[decided].mean():.1f} | {said} |"


def table(model: str, directory: Path, arms: Sequence[str], seeds: Sequence[int], rate: float) -> Iterator[str]:
    train, measured = split(directory)
    yield "| judge | n | decided | right % | length-balanced % |\n| --- | --- | --- | --- | --- |"
    everything = [c for each in measured.values() for c in each]
    yield row("longer", everything, [len(c.response_a) - len(c.response_b) for c in everything])
    for arm, seed in ((arm, seed) for arm in arms for seed in seeds):
        reads, _, number = arm.partition(":")
        pairs, judge = list(train), Reader(model, reads)
        random.Random(100 + seed).shuffle(pairs)
        pairs = pairs if number == "all" else pairs[: int(number)]
        if pairs:
            judge.train(pairs, rate, seed)
        found = {name: judge.margins(each) for name, each in measured.items()}
        for name, each in measured.items():
            yield row(f"{reads}, {len(pairs)} pairs, seed {seed}, {name}", each, found[name])
        yield row(f"{reads}, {len(pairs)} pairs, seed {seed}, both", everything, [m for f in found.values() for m in f])


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("model")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--arms", nargs="+", default=["one:all", "two:all"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--rate", type=float, default=3e-5)
    options = parser.parse_args()
    for line in table(options.model, options.directory, options.arms, options.seeds, options.rate):
        print(line, flush=True)


if __name__ == "__main__":
    main()
