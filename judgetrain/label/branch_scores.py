"""Scores of a tree's judgments and guidelines under the judge that wrote them: ProbDiff and glass-box."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.shards import count_rows, read_rows, rows_at
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.examples import Prompter
from judgetrain.label.grow import grower
from judgetrain.label.rewards import Rewards, percentiles
from judgetrain.label.stages import LabelSettings
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import Sample, Unscored
from judgetrain.scorers.estimator import Scores, Value
from judgetrain.scorers.lazy import load_scorer
from judgetrain.scorers.methods import assemble, better, groups, score

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer

ROWS = "branch-scores"
"""The shards that hold the scores: ``branch-scores-SIGNAL``."""
SHARD = 8
"""Trees scored together: a tree has a hundred texts; the unit of resume."""


Node = tuple[str, str, Sample]
"""The id and level of a text to be scored, and the text with the prompt that the judge wrote it for."""


def nodes_of(tree: EvaluationTree, prompter: Prompter) -> Iterator[Node]:
    """The guidelines of a tree, and its readable judgments."""
    for criterion, guideline in tree.guidelines():
        prompt = prompter.guideline(tree.comparison, criterion.text)
        yield guideline.id, "guideline", Sample(tuple(prompt), guideline.text.strip())
        for judgment in guideline.judgments:
            if judgment.verdict is not None:
                shown = prompter.judgment(tree.comparison, criterion.text, guideline.text, judgment)
                yield judgment.id, "judgment", Sample(tuple(shown), judgment.text.strip())


def branch_rewards(stage: LabelSettings, inputs: Mapping[str, Path], prompter: Prompter, out: StageRun) -> Rewards:
    """The rewards of a stage's trees; writes the scores of every judgment and guideline as ``branch-scores`` shards.

    The Initial judge, which grew the trees, is loaded if a shard is missing; without signals it is never. How scores
    are computed is ``scorer``'s, but for references, which branches have none of.
    """
    settings, base, signals = stage.scorer, stage.base, stage.label.signals
    if settings is None or base is None:
        return Rewards()
    judge = ModelConfig(
        path=str(grower(stage.grower, inputs)),
        dtype=base.dtype,
        attn_implementation=base.attn_implementation,
        trust_remote_code=base.trust_remote_code,
        gpus=settings.gpus,
    )
    trees = inputs["tree"]
    with loaded_once(lambda: load_scorer(settings, judge)) as scorer:
        for signal in signals:

            def process(index: int, places: Sequence[int], signal: str = signal) -> ShardResult:
                found = map(EvaluationTree.from_row, rows_at(trees, "trees", places[0], len(places)))
                nodes = [node for tree in found for node in nodes_of(tree, prompter)]
                return _shard(nodes, _names(signal), scorer(), settings, derive_seed(out.shard_seed(index), ROWS))

            places = range(count_rows(trees, "trees"))
            out.sharded(f"{ROWS}-{signal}", places, SHARD, process, "trees", scorer, spread=True)
    return Rewards(_percentiles(read_scores(out.directory), signals))


def read_scores(directory: Path) -> list[dict[str, Any]]:
    """The scored nodes of a labelling (``node``, ``level``, and each score or why there is none), of all signals."""
    merged: dict[str, dict[str, Any]] = {}
    for shards in sorted({path.name.rsplit("-", 3)[0] for path in directory.glob(f"{ROWS}-*-of-*.jsonl")}):
        for row in read_rows(directory, shards):
            merged.setdefault(row["node"], {}).update(row)
    return list(merged.values())


def _names(method: str) -> list[str]:
    """The scores that a signal is computed from."""
    return [name for members in groups([method]).values() for name in members]


def _shard(
    nodes: Sequence[Node], names: Sequence[str], scorer: TokenScorer, settings: ScorerConfig, seed: int
) -> ShardResult:
    """The scores of nodes; equal texts after equal prompts are scored once."""
    samples = {repr(sample): sample for _, _, sample in nodes}
    places = {key: place for place, key in enumerate(samples)}
    before = scorer.usage
    found = score(scorer, list(samples.values()), names, settings, seed)
    usage = scorer.usage - before
    rows = [
        {"node": node, "level": level, **{name: _plain(found[name].values[places[repr(sample)]]) for name in names}}
        for node, level, sample in nodes
    ]
    gone = Counter(f"reward:{name}:{row[name]}" for row in rows for name in names if isinstance(row[name], str))
    return ShardResult(rows, 0, gone, **tokens_of([usage]), counts_out=0)


def _plain(value: Value) -> float | str:
    return value.reason if isinstance(value, Unscored) else value


def _percentiles(scored: Sequence[Mapping[str, Any]], signals: Sequence[str]) -> dict[str, dict[str, float]]:
    """By signal, the percentile of each node among the nodes of its level."""
    levels: dict[str, list[Mapping[str, Any]]] = {}
    for row in scored:
        levels.setdefault(row["level"], []).append(row)
    result: dict[str, dict[str, float]] = {signal: {} for signal in signals}
    for rows in levels.values():
        for signal in signals:
            parts = {}
            for name in _names(signal):
                values: list[Value] = [Unscored(v) if isinstance(v := row[name], str) else v for row in rows]
                parts[name] = Scores(name, values, better(name))
            oriented = assemble(parts, signal).oriented
            result[signal] |= percentiles({r["node"]: v for r, v in zip(rows, oriented, strict=True) if v is not None})
    return result
