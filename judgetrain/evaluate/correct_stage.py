"""Stage ``correct``: a judge finds the weak responses, and a model rewrites them (branching paper, section 5.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from judgetrain.artifacts import ShardResult, StageRun
from judgetrain.config import Config, SourceConfig
from judgetrain.dialogues import world
from judgetrain.dialogues.schema import Comparison
from judgetrain.dialogues.sources import read_comparisons
from judgetrain.engines.registry import make_engine
from judgetrain.errors import DataError
from judgetrain.evaluate.methods import load_judge
from judgetrain.judges.branching import BranchingJudge
from judgetrain.judges.correction import Corrected, Correction, Writer, correct, refinement
from judgetrain.once import loaded_once
from judgetrain.reads import names_model
from judgetrain.shards import read_rows
from judgetrain.tree.prompts import load_prompt_set
from judgetrain.tree.schema import tree_tokens


@dataclass(frozen=True)
class _Models:
    judge: BranchingJudge
    writer: Writer

    @classmethod
    def load(cls, config: Config, inputs: Mapping[str, Path]) -> _Models:
        """The judge, and the model that rewrites: its own where ``correct.engine`` names none."""
        settings = config.correct
        judge = load_judge(settings.judge, config, inputs, settings.branches)
        prompts = load_prompt_set(settings.prompts, "correction", "correct.prompts")
        engine = make_engine(settings.engine) if names_model(settings.engine) else judge.engine
        return cls(judge, Writer(engine, prompts, settings.sampling))

    def close(self) -> None:
        """Free both."""
        self.judge.close()
        if self.writer.engine is not self.judge.engine:
            self.writer.engine.close()


def run(config: Config, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``corrections`` shards, one row a response, and ``refinement.json`` (also in the manifest's notes)."""
    settings = config.correct
    comparisons = _comparisons(settings.source, config)[: settings.max_comparisons]
    if not comparisons:
        raise DataError("correct.source holds no comparison: give one with responses to correct")
    with loaded_once(lambda: _Models.load(config, inputs)) as models:

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            judge, writer = models().judge, models().writer
            return _shard(correct(items, judge, writer, settings.threshold, out.shard_seed(index)))

        out.sharded("corrections", comparisons, settings.shard_size, process, "comparisons")
    table = refinement(Correction(**row) for row in read_rows(out.directory, "corrections"))
    out.write_json("refinement", table)
    out.note("refinement", table)
    if table["rewritten"]:
        out.log(
            f"correct: {table['rewritten']} of {table['scored']} responses rewritten ({table['refine_rate']:.1%}); "
            f"mean score {table['before_again']} before, {table['after']} after, judged against each other"
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
        dict(dropped),
        sum(prompt for prompt, _ in tokens),
        sum(generated for _, generated in tokens),
        counts_out=sum(c.corrected is not None for c in done.corrections),
    )
