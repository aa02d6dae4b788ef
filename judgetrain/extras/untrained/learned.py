"""What labelled pairs give without training: a rubric drawn from them (``rubric:N``), or examples in the prompt
(``fewshot:N``)."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, cast

import numpy as np

from judgetrain.artifacts.shards import markers_of, read_rows
from judgetrain.artifacts.stage_run import ShardResult, derive_seed, tokens_of
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.clustering import Encoder
from judgetrain.data.config import ClusterConfig
from judgetrain.data.duplicates import BenchmarkQueries, asked
from judgetrain.engines.base import UNANSWERED, Completion, Request, Sampling
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import ConfigError
from judgetrain.evaluate.metrics.rows import Learned
from judgetrain.evaluate.runners.base import Evaluation, Result
from judgetrain.evaluate.runners.judges import ask_judge
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.extras.untrained.prompted import depends_on, judge_by
from judgetrain.judges.base import Prediction
from judgetrain.judges.config import JudgeOptions
from judgetrain.judges.kinds.branching import predict
from judgetrain.judges.kinds.kind import Use, kind_of
from judgetrain.judges.kinds.prompted import replies_shard
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.parsing import parse_criteria
from judgetrain.judges.prompting.prompts import PromptSet, has_step, load_prompt_set, prompt_file, slots_of
from judgetrain.judges.settings import check_model
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.judges.trees.schema import shard_of
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import RESPONSES, Comparison

Near = Callable[[Sequence[Comparison]], Sequence[Sequence[Comparison]]]
FEWEST = {"rubric": 6, "fewshot": 1}
"""Pairs that a method needs; of a rubric's a third is held out."""
CRITERIA = 4
"""Of a rubric: each costs a judgment of every response."""
ROUNDS = 4
"""Rubrics asked for at most."""
SHOWN = 60_000
"""Characters of pairs in one prompt, some 15,000 tokens."""
SHOTS = 4
"""Examples before a question."""
ONCE = Shape(count=1, criteria=1, orders=RESPONSES)
"""One judgment of each response by each criterion."""


def labelled_pairs(method: Method, evaluation: Evaluation) -> list[Comparison]:
    """So many training comparisons with a label of A or B, drawn at random, as a method learns from (ConfigError: there
    are too few; where there are fewer than asked for, these are taken).

    None is one whose better side is known by how it was made, and none has a query of a benchmark, nor nearly one. A
    dry run, for which no stage upstream is made, takes the benchmarks' own, which cost as much.
    """
    seed, directory = evaluation.settings.seed, evaluation.inputs.get("responses")
    tested = [c for b in evaluation.benchmarks for c in b.comparisons]
    if directory is None:
        return (tested * method.labels)[: method.labels]
    rows = [Comparison.from_row(row) for row in read_rows(directory, "comparisons")]
    people = [c for c in rows if c.label in ("A", "B") and not c.alone and not c.made]
    known = sorted(people, key=lambda c: derive_seed(seed, c.id))
    queries, found = BenchmarkQueries([("", text) for c in tested for text in asked(c.dialogue)]), list[Comparison]()
    for comparison in known:
        if len(found) < method.labels and not any(queries.matches(comparison.dialogue)):
            found.append(comparison)
    told = f"{len(known)} of {len(rows)} training rows are labelled A or B, {len(found)} have no benchmark's query"
    if len(found) < FEWEST[method.kind]:
        raise ConfigError(f"evaluate.methods: {method.text!r}: {told}: give labelled rows in dialogues.sources")
    if len(found) < method.labels:
        evaluation.out.log(f"evaluate: {method.name}: {told}: it learns from these", keep=True)
    return found


def check_learned(method: Method, settings: EvaluateSettings) -> None:
    """The model, and that there are pairs enough (ConfigError: names the method and what is allowed)."""
    if method.labels < (fewest := FEWEST[method.kind]):
        form = f"{method.kind}:N or {method.kind}:N:MODEL"
        raise ConfigError(f"evaluate.methods: {method.text!r}: expected {form}, N at least {fewest} labelled pairs")
    check_model(settings, method.asked_as, "evaluate.methods")


def check_rubric(settings: EvaluateSettings, method: Method, use: Use) -> None:
    """Refuse a model that cannot be asked, too few pairs, and a prompt set that cannot be read."""
    check_learned(method, settings)
    rubric_prompts(settings)


def run_rubric(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Draw a rubric from labelled pairs, then yield every benchmark judged by it, one response at a time.

    The model is shown pairs and names criteria. It judges all pairs by these, and is shown those that they got wrong,
    until the agreement on a third of the pairs, which it is never shown, stops rising. The rounds are kept as the shard
    ``rubric-METHOD``, the judgments as ``trees-BENCHMARK-METHOD``.
    """
    models, by = evaluation.models, method.asked_as
    pairs, prompts = labelled_pairs(method, evaluation), rubric_prompts(evaluation.settings)
    options = replace(models.options(by), aggregation="mean", fitted=None, early_stop=False)
    options = replace(options, steps=replace(options.steps, write_guidelines=False))
    shards, dry = f"rubric-{method.file_name}", "responses" not in evaluation.inputs
    depends = depends_on(method, evaluation, options) | {"labels": [c.label for c in pairs], "drawn by": prompts.source}
    with loaded_once(lambda: models.judge(by)) as judge:

        def draw(seed: int, items: Sequence[Comparison]) -> ShardResult:
            return drawn(judge(), items, prompts, options, seed, every=dry)

        evaluation.fill(shards, pairs, draw, judge, method.name, depends, size=len(pairs), gpus=models.gpus(by))
        found = _best(method, by, evaluation, shards, len(pairs))
        if found is not None:
            yield from judge_by(found, method, evaluation, options, ONCE, judge)
            return
    for benchmark in evaluation.benchmarks:
        said: dict[str, Any] = {"failures": {"rubric:none": 1}}
        yield benchmark, [([Prediction.of(c, method.name, **said) for c in benchmark.comparisons], 0.0)]


def _best(method: Method, by: Method, evaluation: Evaluation, shards: str, labels: int) -> Rubric | None:
    """The best of the rubrics that were drawn; what they took is noted."""
    out, engine = evaluation.out, evaluation.models.external(by.target)
    rounds, (marker,) = list(read_rows(out.directory, shards)), markers_of(out.directory, shards)
    spent = {f"{kind}_tokens": marker["tokens"][kind] for kind in ("prompt", "generated")}
    told = {"calls": marker["facts"]["calls"], "seconds": marker["seconds"], **spent}
    told["money"] = engine.money(**spent) if engine else None
    evaluation.learned[method.name] = Learned(labels=labels, **told)
    best = max(rounds, key=lambda found: found["agreement"], default=None)  # of equals the first
    if best is None:
        out.log(f"evaluate: {method.name}: the model named no criteria, so that it has no verdicts")
        return None
    heard = "; ".join(best["criteria"])
    out.log(f"evaluate: {method.name}: {best['agreement']:.0%} of the held-out pairs by: {heard}")
    return Rubric(tuple(Criterion(text=text) for text in best["criteria"]))


def rubric_prompts(settings: EvaluateSettings) -> PromptSet:
    """The run's own prompt set where it has the steps, else the packaged one."""
    own = prompt_file(settings.prompts or "")
    return load_prompt_set(own if has_step(own, "rubric") else "rubric", "rubric")


def drawn(
    judge: Any, pairs: Sequence[Comparison], prompts: PromptSet, options: JudgeOptions, seed: int, every: bool = False
) -> ShardResult:
    """The rounds of drawing a rubric as a finished shard: criteria, and the agreement on the held-out pairs.

    Every third query is held out with all of its pairs; where there are too few queries for that, every third pair.
    ``every``: all rounds are made, as in a dry run, which cannot know when the agreement stops rising.
    """
    parts: list[Any] = [c.dialogue.query for c in pairs]
    parts = parts if len(set(parts)) >= 3 else [*range(len(pairs))]
    out = set([*dict.fromkeys(parts)][::3])
    held = [part in out for part in parts]
    shown = [c for c, hidden in zip(pairs, held, strict=True) if not hidden]
    rounds, spent = list[dict[str, Any]](), list[Any]()
    failures, calls = Counter[str](), 0
    while len(rounds) < ROUNDS and shown:
        best = rounds[-1]["criteria"] if rounds else []
        told, completions = named(judge.engine, shown, best, prompts, options, derive_seed(seed, len(rounds)))
        spent, calls = [*spent, *completions], calls + len(completions)
        if not told:
            reason = completions[-1].finish_reason if completions else "none"
            failures[f"rubric:{reason if reason in UNANSWERED else 'none'}"] += 1
            break
        rubric = Rubric(tuple(Criterion(text=text) for text in told))
        given = [replace(c, rubric=rubric) for c in pairs]
        trees = grow(given, judge.engine, judge.prompts, ONCE, options.steps, derive_seed(seed, "judged", len(rounds)))
        shard = shard_of(trees)
        failures.update(shard.dropped)
        spent, calls = [*spent, shard], calls + 2 * len(told) * len(pairs)
        right = [predict(tree, 1, options, "").verdict == c.label for tree, c in zip(trees, pairs, strict=True)]
        agreed = [r for r, hidden in zip(right, held, strict=True) if hidden]
        rounds.append({"criteria": told, "agreement": round(sum(agreed) / len(agreed), 6)})
        if not every and len(rounds) > 1 and rounds[-1]["agreement"] <= rounds[-2]["agreement"]:
            break
        shown = [c for r, hidden, c in zip(right, held, pairs, strict=True) if not r and not hidden]
    return ShardResult(rounds, len(rounds), failures, **tokens_of(spent), facts={"calls": calls})


def named(
    engine: Any, pairs: Sequence[Comparison], known: Sequence[str], prompts: PromptSet, options: JudgeOptions, seed: int
) -> tuple[list[str], list[Completion]]:
    """The criteria that a model names for pairs, and what it took; of pairs as many as fit are shown."""
    better = [c if c.label == "A" else c.swapped() for c in pairs]
    texts = [
        prompts.render("pair", slots_of(c) | {"response_a": c.response_a, "response_b": c.response_b})[-1]["content"]
        for c in better
    ]
    texts = texts[: sum(length <= SHOWN for length in accumulate(map(len, texts))) or 1]
    done, limits = list[Completion](), Sampling.of(options.steps.criteria_sampling)
    while texts:
        seen = [(c.response_a, c.response_b) for c in better[: len(texts)]]
        lines = "\n".join(f"{i}. {text}" for i, text in enumerate(known, 1))
        slots = {"pairs": "\n\n".join(texts), "criteria": lines or "none", "count": str(CRITERIA)}
        messages = prompts.render("rubric", slots)
        request = Request(messages=messages, sampling=limits, step="rubric", slots=slots | {"shown": json.dumps(seen)})
        done += engine.generate([request], seed)
        if done[-1].finish_reason != "too_long":
            return parse_criteria(done[-1].text, CRITERIA, slots["pairs"]), done
        texts = texts[: len(texts) // 2]
    return [], done


@dataclass
class Nearest:
    """The labelled pairs whose queries are most like a comparison's, the nearest last; the encoder is loaded once."""

    pairs: Sequence[Comparison]
    config: ClusterConfig

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.config)

    @cached_property
    def _known(self) -> Any:
        return self._encoder([c.dialogue.query for c in self.pairs]).astype(np.float32)

    def __call__(self, items: Sequence[Comparison]) -> list[list[Comparison]]:
        """Of each item at most :data:`SHOTS` pairs."""
        close = self._encoder([c.dialogue.query for c in items]).astype(np.float32) @ self._known.T
        return [[self.pairs[i] for i in np.argsort(row, kind="stable")[-SHOTS:]] for row in close]


def replied(judge: Any, items: Sequence[Comparison], seed: int, near: Near) -> ShardResult:
    """The replies on comparisons as a finished shard, each asked after the examples that ``near`` finds.

    Where a prompt is too long for the context, it is asked after the nearer half of its examples.
    """
    examples = list(near(items))
    asked = judge.ask(items, seed, examples=examples)
    while long := [i for i, each in enumerate(examples) if each and any(r.failure == "too_long" for r in asked[i])]:
        for i in long:
            examples[i] = examples[i][(len(examples[i]) + 1) // 2 :]
        again = judge.ask([items[i] for i in long], seed, examples=[examples[i] for i in long])
        for i, replies in zip(long, again, strict=True):
            asked[i] = replies
    return replies_shard(items, asked)


def check_fewshot(settings: EvaluateSettings, method: Method, use: Use) -> None:
    """Refuse what the pairwise judge refuses, too few pairs, and a prompt set whose verdicts are no marks."""
    check_learned(method, settings)
    by = method.asked_as
    kind_of(by).check(settings, by, use)
    assert settings.pairwise is not None
    # The examples end in marks, so the verdicts must.
    if load_prompt_set(settings.pairwise.prompts, "pairwise").reads:
        told = f"evaluate.pairwise.prompts={settings.pairwise.prompts}: its verdicts have a form of its own"
        raise ConfigError(f"{told}, and the examples of {method.text!r} end in [[A]] or [[B]]; choose another set")


def run_fewshot(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield every benchmark as the pairwise judge sees it after the labelled pairs that are most like a comparison."""
    pairs = labelled_pairs(method, evaluation)
    settings = cast(Any, evaluation.settings)
    config: ClusterConfig = settings.untrained
    evaluation.learned[method.name] = Learned(labels=len(pairs))
    depends = {
        "name": None if method.is_directory else method.text,
        "pairs": [c.to_row() for c in pairs],
        "encoder": config,
    }
    return ask_judge(method, evaluation, partial(replied, near=Nearest(pairs, config)), depends)
