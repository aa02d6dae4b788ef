"""Stage ``correct``: a judge finds the weak responses, and a model rewrites them (branching paper, section 5.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.data import world
from judgetrain.data.config import SourceConfig
from judgetrain.data.sources import read_comparisons
from judgetrain.engines.answers import Budget, answers_of, budget_of
from judgetrain.engines.once import loaded_once
from judgetrain.engines.registry import make_engine
from judgetrain.errors import DataError
from judgetrain.evaluate.correct.correction import Corrected, Correction, Writer, correct, refinement
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.methods import external_engine, load_judge
from judgetrain.judges.names import base_method
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.schema import tree_tokens
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.reads import names_model
from judgetrain.schema import Comparison


@dataclass(frozen=True)
class _Models:
    judge: BranchingJudge
    writer: Writer

    @classmethod
    def load(cls, config: Config, inputs: Mapping[str, Path], budget: Budget | None) -> _Models:
        """The judge, and the model that rewrites: its own where ``correct.engine`` names none."""
        settings = config.correct
        judge = load_judge(settings.judge, config, inputs, settings.branches, budget)
        prompts = load_prompt_set(settings.prompts, "correction", "correct.prompts")
        engine = judge.engine
        if names_model(settings.engine):
            answers = answers_of(settings.engine, config.output_dir, config.seed)
            engine = make_engine(settings.engine, answers=answers, budget=budget)
        return cls(judge, Writer(engine, prompts, settings.sampling))

    def close(self) -> None:
        """Free both."""
        self.judge.close()
        if self.writer.engine is not self.judge.engine:
            self.writer.engine.close()


def run(config: Config, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``corrections`` shards, one row a response, and ``refinement.json`` (also in the manifest's notes).

    External models are asked within ``correct.max_requests`` and ``correct.max_tokens``, and for nothing twice.
    """
    settings = config.correct
    comparisons = _comparisons(settings.source, config)[: settings.max_comparisons]
    if not comparisons:
        raise DataError("correct.source holds no comparison: give one with responses to correct")
    engines = external_engine(base_method(settings.judge), config), settings.engine
    budget = budget_of(engines, settings, "correct", out.path(".spent.jsonl"))
    with loaded_once(lambda: _Models.load(config, inputs, budget)) as models:

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            judge, writer = models().judge, models().writer
            return _shard(correct(items, judge, writer, settings.threshold, out.shard_seed(index)))

        try:
            out.sharded("corrections", comparisons, settings.shard_size, process, "comparisons")
        finally:
            if budget:
                out.note("spent", dict(budget.spent))
    table = refinement(Correction(**row) for row in read_rows(out.directory, "corrections"))
    out.write_json("refinement", table)
    out.note("refinement", table)
    if table["rewritten"]:
        before, after = (
            "unknown" if table[name] is None else f"{table[name]:.2f}" for name in ("before_again", "after")
        )
        out.log(
            f"correct: {table['rewritten']} of {table['scored']} responses rewritten ({table['refine_rate']:.1%}); "
            f"mean score {before} before, {after} after, judged against each other"
        )


def _comparisons(source: SourceConfig, config: Config) -> list[Comparison]:
    if source.type == "world":
        return world.eval_comparisons(config.dialogues.world, config.seed)
    return list(read_comparisons(source, {}, "correct.source", labelled=False))


def _shard(done: Corrected) -> ShardResult:
    dropped: Counter[str] = sum((Counter(t.failures) for t in done.trees), Counter())
    dropped.update(f"correction:{c.failure}" for c in done.corrections if c.failure)
    dropped["unscored"] += sum(c.score is None for c in done.corrections)
    tokens = [tree_tokens(t) for t in done.trees]
    tokens += [(c.prompt_tokens, c.generated_tokens) for c in done.completions]
    return ShardResult(
        [c.to_row() for c in done.corrections],
        len(done.corrections),
        dropped,
        prompt_tokens=sum(prompt for prompt, _ in tokens),
        generated_tokens=sum(generated for _, generated in tokens),
        counts_out=sum(c.corrected is not None for c in done.corrections),
    )
