"""Stage ``correct``: a judge finds the weak responses, and a model rewrites them (branching paper, section 5.5)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.data import world
from judgetrain.data.sources import read_comparisons
from judgetrain.engines.answers import answers_of, spending
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.errors import DataError
from judgetrain.extras.correct.correction import Corrected, Correction, Corrector, refinement
from judgetrain.extras.correct.stages import CorrectSettings
from judgetrain.judges.factory import Models
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.schema import cost_of
from judgetrain.schema import Comparison

BRANCHES = 3
"""Criteria that a response is judged by (the paper's), or all where the judge names fewer."""
SHARD = 32
"""Comparisons finished together: what a kill costs."""


def _load(settings: CorrectSettings, models: Models) -> Corrector:
    """The judge, and the model that rewrites: its own where ``correct.engine`` names none."""
    config = settings.correct
    judge = models.judge(Method.parse(config.judge), min(BRANCHES, settings.criteria or BRANCHES))
    engine = judge.engine
    if config.engine is not None:
        answers = answers_of(config.engine, models.out.home, settings.seed)
        engine = make_engine(config.engine, answers=answers, budget=models.budget)
    rater = models.judge(Method.parse(config.rater)) if config.rater else None
    prompts = load_prompt_set(config.prompts, "correction", "correct.prompts")
    return Corrector(judge, engine, prompts, config.sampling, rater, config.single)


def run(settings: CorrectSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``corrections`` shards, one row a response, and ``refinement.json`` (also in the manifest's notes).

    External models are asked within ``correct.max_requests`` and ``correct.max_tokens``, and for nothing twice.
    """
    config = settings.correct
    comparisons = _comparisons(settings)
    if not comparisons:
        raise DataError("correct.source holds no comparison: give one with responses to correct")
    engines = settings.teacher, settings.external, config.engine
    with (
        spending(engines, config, "correct", out) as budget,
        loaded_once(lambda: _load(settings, Models(settings, inputs, out, budget))) as models,
    ):

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            return _shard(models().correct(items, out.shard_seed(index)))

        out.sharded("corrections", comparisons, SHARD, process, "comparisons", models, spread=budget is None)
    table = refinement(Correction(**row) for row in read_rows(out.directory, "corrections"))
    out.write_json("refinement", table)
    out.note("refinement", table)
    if table["rewritten"]:
        again, after = (f"{table[name] or math.nan:.2f}" for name in ("before_again", "after"))
        out.log(
            f"correct: {table['rewritten']} of {table['scored']} responses rewritten ({table['refine_rate']:.1%}); "
            f"mean score {again} before, {after} after, judged against each other",
            keep=True,
        )
    if table["rated"] is not None:
        out.log(
            f"correct: rated {table['rated']:.2f} before, {table['rated_after'] or 0:.2f} after, over all responses",
            keep=True,
        )


def _comparisons(settings: CorrectSettings) -> list[Comparison]:
    source = settings.correct.source
    if source.type == "world":
        assert settings.world is not None
        return world.eval_comparisons(settings.world, settings.seed)
    return list(read_comparisons(source, "correct.source", labelled=False))


def _shard(done: Corrected) -> ShardResult:
    dropped: Counter[str] = sum((Counter(t.failures) for t in done.trees), Counter())
    dropped.update(f"correction:{c.failure}" for c in done.corrections if c.failure)
    dropped["unscored"] += sum(c.score is None for c in done.corrections)
    tokens = [(int(cost.prompt_tokens), int(cost.generated_tokens)) for cost in map(cost_of, done.trees)]
    tokens += [(c.prompt_tokens, c.generated_tokens) for c in done.completions]
    return ShardResult(
        [asdict(c) for c in done.corrections],
        len(done.corrections),
        dropped,
        prompt_tokens=sum(prompt for prompt, _ in tokens),
        generated_tokens=sum(generated for _, generated in tokens),
        counts_out=sum(c.corrected is not None for c in done.corrections),
    )
