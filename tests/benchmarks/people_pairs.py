"""What people's pairs teach a model with real weights: by the expected score of one response, or by the letter of two.

    python -m tests.benchmarks.people_pairs MODEL DIR KEEP --arms one:70 one:200 one:600 one:all two:all --seeds 1

MODEL is a directory that Transformers reads; DIR holds files as docs/real_text.md has them. Trained on pairs of
PandaLM and LLMBar's collection whose queries are none of those measured on: Eval-P's development half, a third of
PandaLM. A GPU is taken where there is one. Every arm is stage initial: once over its pairs under each
criterion, three times where there are 300 pairs or fewer. ``one``: by the ranking loss alone (``one:200:0``:
supervised by the scores 4 and 2; a share between: both); ``two``: by the verdict in both orders, whose letter is read.
``one:0`` is the model as it is. Baselines are methods of stage evaluate. KEEP holds what arms found, which are not made
again, and the rows measured on. Every further arm is compared with the first one, over rates and seeds together.
"""

from __future__ import annotations

import json
import math
import random
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from judgetrain.data.benchmarks.benchmark import load_benchmark
from judgetrain.data.config import SourceConfig
from judgetrain.data.dialogues import adapted
from judgetrain.data.intervals import Resampling, wilson_interval
from judgetrain.data.prompt_keys import conversation_starts, normalised
from judgetrain.data.sources import Rejects
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.evaluate.metrics.groups import length_balanced, length_balanced_interval
from judgetrain.evaluate.metrics.intervals import resampled_interval
from judgetrain.judges.fitting import FEWEST, fit
from judgetrain.judges.prompting.prompts import judgment_slots, judgment_step, load_prompt_set
from judgetrain.label.examples import sft_row
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Comparison, Order
from judgetrain.train.config import SupervisedConfig, TrainStages
from judgetrain.train.data import Renderer
from tests.benchmarks.common import parser_of
from tests.builders.pipeline import configured
from tests.builders.train import run_initial

CRITERIA = {
    "Helpfulness": "Which answer serves best what was asked for",
    "Correctness": "True and without errors",
    "Instruction following": "Does what the query says, all of it",
}
Leads = Mapping[str, Sequence[Sequence[float]]]
"""Of each benchmark's comparisons, under each criterion."""
HELD = 300
"""Rows of PandaLM that are measured on, with all that have their queries."""
BATCH = 32
"""Pairs, or verdicts, of an optimizer step."""
CUT = 500
"""Tokens of a query or response; the rest is cut off."""


def rows(directory: Path, adapter: str, files: str) -> list[Comparison]:
    source = SourceConfig(name=adapter, path=str(directory / files), adapter=adapter)
    return [
        c
        for row in adapted(source, "DIR", Rejects(strict=False))
        for c in row
        if c.label and c.response_a and c.response_b
    ]


def short(directory: Path) -> set[str]:
    """Return the ids of the 300 comparisons of Eval-P that ``recipe=gemma`` measures on."""
    config = configured("recipe=gemma", f"data_dir={directory}")
    return {c.id for c in load_benchmark(config.evaluate.benchmarks[0], 0, config.seed, None).comparisons}


def split(directory: Path, limit: int) -> tuple[list[Comparison], dict[str, list[Comparison]]]:
    """Return pairs to train on, and those to measure on, of Eval-P the first ``limit``.

    A query with six words in ten of one that might be measured on trains nothing.
    """
    panda = rows(directory, "pandalm", "pandalm/testset-v1.jsonl")
    queries = sorted({c.dialogue.query for c in panda})
    random.Random(7).shuffle(queries)
    held: list[Comparison] = []
    for query in queries:
        held += [c for c in panda if c.dialogue.query == query] if len(held) < HELD else []
    measured = {"eval_p": rows(directory, "eval_p", "eval_p/dev.jsonl"), "pandalm": held}
    measured_words = [
        set(normalised(c.dialogue.query).split()) for comparisons in measured.values() for c in comparisons
    ]
    pool = [*panda, *rows(directory, "llmbar", "processed_pairs/*.jsonl")]
    words = [set(normalised(c.dialogue.query).split()) for c in pool]
    train = [
        c for c, w in zip(pool, words, strict=True) if not any(len(w & v) > 0.6 * len(w | v) for v in measured_words)
    ]
    random.Random(5).shuffle(train)
    return train, measured | {"eval_p": measured["eval_p"][:limit]}


class Reader:
    """A model that says how much better the first response is, by the tokens of one position."""

    def __init__(self, model: str, reads: str, criteria: int, micro: int) -> None:
        import torch

        config = ModelConfig(path=model, dtype="float32")
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.criteria = list(CRITERIA)[:criteria]
        self.micro = micro
        self.tokenizer = load_tokenizer(config)
        self.model = load_model(config, self.device).eval()
        self.one = reads == "one"
        self.prompts = load_prompt_set("compact")
        self.prompt = cache(self._prompt)
        self.said = [f"Score: {n}" for n in range(1, 6)] if self.one else ["Comparison: A", "Comparison: B"]
        self.tokens = [self._ids(text)[-1] for text in self.said]
        self.orders: tuple[Order, Order] = ("A", "B") if self.one else ("AB", "BA")

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def messages(self, comparison: Comparison, order: Order, criterion: str) -> list[dict[str, str]]:
        slots = judgment_slots(comparison, order, criterion, CRITERIA[criterion])
        cut = {k: self.tokenizer.decode(self._ids(v)[:CUT]) for k, v in slots.items() if k == "query" or "resp" in k}
        return list(self.prompts.render(judgment_step(order), slots | cut))

    def _prompt(self, comparison: Comparison, order: Order, criterion: str) -> list[int]:
        """Return the token ids up to the one that is read, as stages train it."""
        renderer = Renderer(self.tokenizer, ())
        answer = [{"role": "assistant", "content": self.said[0]}]
        messages = self.messages(comparison, order, criterion)
        before, after = renderer.tokens(renderer.prompt(messages), renderer.answer(messages, answer) or "")
        return [*before, *after[: after.index(self.tokens[0])]]

    def examples(self, pairs: Sequence[Comparison]) -> Iterator[dict[str, Any]]:
        """Yield what the pairs teach under each criterion: both responses' scores, or the letter in both orders."""
        for (n, c), (k, name), order in product(enumerate(pairs), enumerate(self.criteria), self.orders):
            ahead = {"A": 1.0, "B": -1.0}.get(str(c.label), 0.0) * (1 if order == self.orders[0] else -1)
            letter = "both are equal" if not ahead else f"{'A' if ahead > 0 else 'B'} is better"
            answer = f"Score: {3 + ahead:.0f}" if self.one else f"Comparison: {letter}."
            row = sft_row(self.messages(c, order, name), answer, "judgment", c, [f"{n}/c{k}/g0/{order}0"])
            yield row | ({"ahead": ahead} if self.one else {})

    def leads(self, prompts: Sequence[list[int]]) -> Any:
        """Return how far the first of every two prompts is ahead, as the logit of its win, float32 ``[n / 2]``."""
        import torch

        width = max(map(len, prompts))
        ids, mask = (torch.zeros(len(prompts), width, dtype=torch.long) for _ in range(2))
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        ids = ids.to(self.device)
        mask = mask.to(self.device)
        places = (mask.cumsum(1) - 1).clamp(min=0)
        with torch.no_grad(), torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            output = self.model.model(input_ids=ids, attention_mask=mask, position_ids=places, use_cache=False)
        weights = self.model.get_output_embeddings().weight[self.tokens]
        logits = output.last_hidden_state[:, -1].float() @ weights.float().T
        if not self.one:
            return logits[::2, 0] - logits[::2, 1] - logits[1::2, 0] + logits[1::2, 1]
        scores = logits.softmax(-1) @ torch.arange(1.0, 6.0, device=self.device)
        return 2 * (scores[::2] - scores[1::2])

    def margins(self, comparisons: Sequence[Comparison]) -> list[list[float]]:
        """Return the lead of the first response under each criterion, over both orders where there are two."""
        every = product(enumerate(comparisons), enumerate(self.criteria))
        questions = [((i, k), [self.prompt(c, o, name) for o in self.orders]) for (i, c), (k, name) in every]
        questions.sort(key=lambda question: sum(map(len, question[1])))
        margins = [[0.0] * len(self.criteria) for _ in comparisons]
        for part in (questions[i : i + self.micro] for i in range(0, len(questions), self.micro)):
            leads = self.leads([prompt for _, prompts in part for prompt in prompts]).tolist()
            for ((i, k), _), lead in zip(part, leads, strict=True):
                margins[i][k] = lead
        return margins


def trained(base: Reader, options: Any, pairs: Sequence[Comparison], seed: int, place: Path, share: float) -> str:
    """Return the judge that stage initial makes of the model and the pairs; ``share`` is that of the ranking loss."""
    settings = SupervisedConfig(
        learning_rate=options.rate,
        lora=options.lora,
        num_train_epochs=3 if len(pairs) <= HELD else 1,
        per_device_train_batch_size=base.micro * (2 if base.one else 1),
        global_accumulation_steps=BATCH // base.micro,
        bf16=base.device == "cuda",
        ranking_weight=share,
        trainer={"lr_scheduler_type": "linear", "warmup_steps": 0.1, "adam_beta2": 0.95, "save_strategy": "no"},
    )
    config = Config(prompts="compact", train=TrainStages(base=ModelConfig(path=options.model), initial=settings))
    return str(run_initial(place, config, list(base.examples(pairs)), seed=seed).path("model"))


def right_of(comparisons: Sequence[Comparison], leads: Sequence[Sequence[float]]) -> np.ndarray[Any, Any]:
    """Return which verdicts, by the mean lead, are the labels, bool ``[n]``; none is a label that is a tie."""
    means = np.mean(leads, axis=1)
    return np.array([("A" if m > 0 else "B") == c.label for m, c in zip(means, comparisons, strict=True)])


def row(name: str, comparisons: Sequence[Comparison], right: np.ndarray[Any, Any]) -> str:
    """Return a table's row: the share of decided labels that are right, and the mean of both halves by length."""
    labels = [str(c.label) for c in comparisons]
    lengths = [c.longer for c in comparisons]
    queries = [c.dialogue.query for c in comparisons]
    decided = np.array([label != "tie" for label in labels])
    balanced = length_balanced(right, labels, lengths)
    interval = length_balanced_interval(right, labels, lengths, Resampling(2000, 0), queries) or (0.0, 0.0)
    low, high = (100 * end for end in interval)
    balanced_text = "–" if balanced is None else f"{100 * balanced:.1f} ({low:.1f}–{high:.1f})"
    return f"| {name} | {len(labels)} | {decided.sum()} | {100 * right[decided].mean():.1f} | {balanced_text} |"


def gain(comparisons: Sequence[Comparison], first: Sequence[Any], other: Sequence[Any]) -> str:
    """Return by how many points the second judges' length-balanced agreement is higher; 95% over queries."""
    more = np.mean(other, axis=0) - np.mean(first, axis=0)
    sides = [(c.label, c.longer) for c in comparisons]
    queries = [c.dialogue.query for c in comparisons]
    long, short = np.array([[y == z != "tie", {y, z} == {"A", "B"}] for y, z in sides], float).T

    def balanced(totals: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return 50 * (totals[0] / totals[1] + totals[2] / totals[3])

    columns = np.column_stack([more * long, long, more * short, short])
    low, high = resampled_interval(columns, balanced, queries, Resampling(2000, 0), lowest=-100.0) or (0.0, 0.0)
    return f"{balanced(columns.sum(axis=0)):+.1f} ({low:+.1f} to {high:+.1f})"


def fitted(comparisons: Sequence[Comparison], leads: Sequence[np.ndarray[Any, Any]], length: bool) -> str:
    """Return the strict agreement, ties too, of weights that stage calibrate's fit gives the criteria.

    With ``length`` the logarithm of the lengths' ratio has a weight, too. It is measured on folds of queries that had
    no part in fitting. Leads are parts of 1, as there.
    """
    sides = [{f"{k}": lead / len(of_criteria) for k, lead in enumerate(of_criteria)} for of_criteria in leads]
    for side, c in zip(sides, comparisons, strict=True):
        side |= {"length": math.log((len(c.response_a) + 1) / (len(c.response_b) + 1))} if length else {}
    n = len(sides)
    labels = [c.label or "tie" for c in comparisons]
    agreement = fit(sides, labels, conversation_starts([c.dialogue.user_texts for c in comparisons])).after["agreement"]
    low, high = (100 * end for end in wilson_interval(np.arange(n) < round(agreement * n)) or (0.0, 0.0))
    return f"{100 * agreement:.1f} ({low:.1f}–{high:.1f})"


def found(options: Any, arm: str, seed: int, train: Sequence[Comparison], measured: Any) -> dict[str, Any]:
    """Return the margins of an arm's judge on each benchmark, by criterion."""
    reads, number, *share = arm.split(":")
    pairs = list(train)
    judge = Reader(options.model, reads, options.criteria, options.micro)
    random.Random(100 + seed).shuffle(pairs)
    pairs = pairs if number == "all" else pairs[: int(number)]
    with TemporaryDirectory() as place:
        weight = float(share[0]) if share else float(judge.one)
        if pairs:
            directory = trained(judge, options, pairs, seed, Path(place), weight)
            judge = Reader(directory, reads, options.criteria, options.micro)
        return {name: judge.margins(comparisons) for name, comparisons in measured.items()}


def baselines(options: Any) -> Iterator[tuple[str, dict[str, bool]]]:
    """Yield each method of stage evaluate, and by comparison whether its verdict in both orders is the label."""
    place = options.keep / "measured.jsonl"
    words = {
        "data_dir": options.directory,
        "output_dir": options.keep / "evaluate",
        "train.base.path": options.model,
        "scorer.model.path": options.model,
        "prompts": "examples",
        "judge": "{reads: one, judgment_tokens: 16, write_guidelines: false}",
        "evaluate.pairwise.sampling.max_new_tokens": 8,
        "evaluate.methods": json.dumps(options.baselines),
        "evaluate.benchmarks": f"[{{name: both, source: {{name: both, path: {place}, format: comparison}}}}]",
        "dialogues.sources": "[{name: pandalm, path: '${data_dir}/pandalm/testset-v1.jsonl', adapter: pandalm}, "
        "{name: pairs, path: '${data_dir}/processed_pairs/*.jsonl', adapter: llmbar}]",
        "responses.contrast": "[]",
    }
    config = configured("recipe=gemma", *(f"{key}={word}" for key, word in words.items()), *options.override)
    artifact = Pipeline(config).run("evaluate")
    predictions = pd.read_parquet(artifact / "predictions.parquet")
    predictions["right"] = (predictions.verdict_ab == predictions.label) & (predictions.verdict_ba == predictions.label)
    for method, of_method in predictions.groupby("method", sort=False):
        ids = of_method.comparison_id.str.removeprefix("both:")
        yield str(method), dict(zip(ids, of_method.right, strict=True))


def table(options: Any) -> Iterator[str]:
    train, measured = split(options.directory, options.limit)
    if options.longest:
        base = Reader(options.model, "one", 1, 1)
        train = [
            c for c in train if max(len(base.prompt(c, o, base.criteria[0])) for o in base.orders) <= options.longest
        ]
    everything = [c for each in measured.values() for c in each]
    options.keep.mkdir(parents=True, exist_ok=True)
    with (options.keep / "measured.jsonl").open("w", encoding="utf-8") as file:
        for c in everything:
            shown = {"query": c.dialogue.query, "response_a": c.response_a, "response_b": c.response_b}
            file.write(json.dumps({"id": c.id, **shown, "label": c.label}) + "\n")
    yield f"{len(train)} pairs to train on\n"
    yield "| judge | n | decided | right % | length-balanced % |\n| --- | --- | --- | --- | --- |"
    yield row("longer", everything, np.array([c.longer == c.label for c in everything]))
    for method, by_id in baselines(options) if options.baselines else ():
        for where, each in [*measured.items(), ("both", everything)]:
            yield row(f"{method}, {where}", each, np.array([by_id[c.id] for c in each]))
    of: dict[str, list[Leads]] = {}
    recipes = short(options.directory)

    def right(leads: Leads) -> np.ndarray[Any, Any]:
        return np.concatenate([right_of(each, leads[where]) for where, each in measured.items()])

    def told(name: str, one: bool, leads: Leads) -> Iterator[str]:
        for where, each in measured.items():
            yield row(f"{name}, {where}", each, right_of(each, leads[where]))
        yield row(f"{name}, both", everything, right(leads))
        some = [(c, each) for c, each in zip(measured["eval_p"], leads["eval_p"], strict=True) if c.id in recipes]
        if len(some) >= FEWEST:
            # As parts of 1, which the fit expects: twice a difference of scores from 1 to 5, or two orders' log-odds.
            parts = [np.asarray(each) / 8 if one else np.tanh(np.asarray(each) / 4) for _, each in some]
            plain, length = (fitted([c for c, _ in some], parts, with_length) for with_length in (False, True))
            yield f"| {name}, recipe=gemma's, fitted: strict {plain}, with length {length} | {len(some)} | | | |"

    for arm, rate, seed in product(options.arms, options.rate, options.seeds):
        if arm in of and arm.split(":")[1] == "0":  # no seed or rate makes another
            continue
        name = f"{arm}, {'LoRA ' * options.lora}rate {rate:g}, seed {seed}"
        kept = options.keep / f"{name}, {options.criteria}, {options.longest}, {options.limit}.json".replace(":", "-")
        if not kept.exists():
            kept.write_text(json.dumps(found(Namespace(**vars(options) | {"rate": rate}), arm, seed, train, measured)))
        of.setdefault(arm, []).append(json.loads(kept.read_text()))
        yield from told(name, arm.startswith("one"), of[arm][-1])
    for arm, several in ((arm, several) for arm, several in of.items() if len(several) > 1):
        mean = {where: np.mean([each[where] for each in several], axis=0).tolist() for where in measured}
        yield from told(f"{arm}, the mean of {len(several)} judges", arm.startswith("one"), mean)
    for arm in options.arms[1:]:
        first, other = ([right(leads) for leads in of[name]] for name in (options.arms[0], arm))
        yield f"| {arm} less {options.arms[0]}, on average | | | | {gain(everything, first, other)} |"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("model")
    parser.add_argument("directory", type=Path)
    parser.add_argument("keep", type=Path)
    parser.add_argument("--arms", nargs="+", default=["one:all", "two:all"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--baselines", nargs="*", default=[], help="of evaluate.methods")
    parser.add_argument("--override", nargs="*", default=[], help="of the recipe, for the baselines")
    parser.add_argument("--rate", nargs="+", type=float, default=[3e-5])
    parser.add_argument("--criteria", type=int, default=3, help="of the three, so many")
    parser.add_argument("--lora", action="store_true", help="adapters in place of all weights")
    parser.add_argument("--micro", type=int, default=16, help="pairs, or verdicts, that are computed together")
    parser.add_argument("--longest", type=int, default=0, help="tokens of a response's prompt, in training; 0: any")
    parser.add_argument("--limit", type=int, default=700, help="of Eval-P's comparisons at most so many")
    for line in table(parser.parse_args()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
