"""Auxiliary rewards: the mean of the branches' vote and of their scores under the judge that wrote them.

A score (ProbDiff, glass-box) counts as its percentile, from 0 to 1, among all texts of its level. What has no score
counts in no mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from judgetrain.artifacts.shards import count_rows, read_rows, rows_at
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.examples import Pair, Prompter
from judgetrain.label.labels import Label, by_rating
from judgetrain.label.stages import LabelSettings
from judgetrain.scorers.config import ScorerConfig, load_scorer
from judgetrain.scorers.encode import Sample
from judgetrain.scorers.estimator import Scores, value_of
from judgetrain.scorers.methods import assemble, better, parts, score

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer


def percentiles(scores: Mapping[str, float]) -> dict[str, float]:
    """Each score's percentile among all: the share of scores below it, equal ones counting half. Mean 0.5."""
    from scipy import stats

    ranks = stats.rankdata(list(scores.values())) if scores else np.zeros(0)
    return {node: float(rank - 0.5) / len(scores) for node, rank in zip(scores, ranks, strict=True)}


@dataclass(frozen=True)
class Rewards:
    """The signals of nodes.

    ``scores``: by signal, the percentile of each judgment and guideline by its id. Without signals the vote alone
    counts.
    """

    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def _means(self, nodes: Iterable[str]) -> dict[str, float]:
        ids = list(nodes)
        known = {signal: [found[i] for i in ids if i in found] for signal, found in self.scores.items()}
        return {signal: fmean(scores) for signal, scores in known.items() if scores}

    def of_pair(self, pair: Pair, tree: EvaluationTree) -> Pair | None:
        """The pair with its margin: the mean of the branches' margin and of each signal's difference.

        That is the percentile of the chosen node minus that of the rejected one, from -1 to 1; of criteria lists, of
        the judgments under their first criteria. ``reward`` keeps all parts. None where the signals speak against it.
        """
        if not self.scores:
            return pair
        below = {c.id: [j.id for j in c.judgments] for c in tree.criteria}
        heads = (nodes[0] for nodes in (pair.chosen_nodes, pair.rejected_nodes))
        chosen, rejected = (self._means(below.get(node, [node])) for node in heads)
        apart = {signal: value - rejected[signal] for signal, value in chosen.items() if signal in rejected}
        margin = fmean([pair.margin, *apart.values()])
        return None if margin < 0 else replace(pair, margin=margin, reward={"branches": pair.margin} | apart)

    def break_tie(self, tree: EvaluationTree, label: Label) -> Label:
        """The label; where as many branches say A as B, that of the side with the larger mean score of its branches.

        A tie stays one where the means are equal or unknown.
        """
        sides: dict[str | None, list[float]] = {"A": [], "B": []}
        if label.verdict == "tie" and label.votes["A"] == label.votes["B"] > 0:
            for _, _, judgment in tree.judgments():
                if judgment.verdict in sides and (scores := self._means([judgment.id])):
                    sides[judgment.verdict].append(fmean(scores.values()))
        if not all(sides.values()) or (first := fmean(sides["A"])) == (second := fmean(sides["B"])):
            return label
        return replace(label, verdict="A" if first > second else "B", source="reward")


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
    judge, trees = replace(base.at(inputs["initial"] / "model"), gpus=settings.gpus), inputs["tree"]
    with loaded_once(lambda: load_scorer(judge)) as scorer:
        for signal in signals:

            def process(index: int, places: Sequence[int], signal: str = signal) -> ShardResult:
                found = map(EvaluationTree.from_row, rows_at(trees, "trees", places[0], len(places)))
                nodes = [node for tree in found for node in nodes_of(by_rating(tree), prompter)]
                return _shard(nodes, parts(signal), scorer(), settings, derive_seed(out.shard_seed(index), ROWS))

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
        {"node": node, "level": level, **{name: found[name].plain(places[repr(sample)]) for name in names}}
        for node, level, sample in nodes
    ]
    gone = Counter(f"reward:{name}:{row[name]}" for row in rows for name in names if isinstance(row[name], str))
    return ShardResult(rows, 0, gone, **tokens_of([usage]), counts_out=0)


def _percentiles(scored: Sequence[Mapping[str, Any]], signals: Sequence[str]) -> dict[str, dict[str, float]]:
    """By signal, the percentile of each node among the nodes of its level."""
    levels: dict[str, list[Mapping[str, Any]]] = {}
    for row in scored:
        levels.setdefault(row["level"], []).append(row)
    result: dict[str, dict[str, float]] = {signal: {} for signal in signals}
    for rows in levels.values():
        for signal in signals:
            kept = {name: [value_of(row[name]) for row in rows] for name in parts(signal)}
            scores = {name: Scores(name, values, better(name)) for name, values in kept.items()}
            oriented = assemble(scores, signal).oriented
            result[signal] |= percentiles({r["node"]: v for r, v in zip(rows, oriented, strict=True) if v is not None})
    return result
