"""Auxiliary rewards: the mean of the branches' vote and of their scores under the judge that wrote them.

A score (ProbDiff, glass-box) counts as its percentile, from 0 to 1, among all texts of its level. A text without a
score counts in no mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.shards import count_rows, read_rows, rows_at
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.judges.predictions import verdict_of
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.examples import Pair, Prompter
from judgetrain.label.labels import Label, by_rating
from judgetrain.label.stages import LabelSettings
from judgetrain.rubrics import EQUAL, without_rounding
from judgetrain.scorers.config import ScorerConfig, load_scorer
from judgetrain.scorers.encode import Sample
from judgetrain.scorers.estimator import Scores, value_of
from judgetrain.scorers.methods import assemble, better, parts, score

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer


def percentiles(scores: Mapping[str, float]) -> dict[str, float]:
    """Return each score's percentile among all: the share of scores below it, equal ones counting half. Mean 0.5."""
    from scipy import stats

    if not scores:
        return {}
    ranks = stats.rankdata(list(scores.values()))
    return {node: float(rank - 0.5) / len(scores) for node, rank in zip(scores, ranks, strict=True)}


@dataclass(frozen=True)
class Rewards:
    """The signals of nodes. Without signals the branches' vote alone counts.

    Args:
        scores: by signal, the percentile of each judgment and guideline by its id.
    """

    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def _means(self, nodes: Iterable[str]) -> dict[str, float]:
        """Return the mean score of some nodes by signal, without the signals that have a score of none."""
        ids = list(nodes)
        means = {}
        for signal, score_of_node in self.scores.items():
            scores = [score_of_node[node] for node in ids if node in score_of_node]
            if scores:
                means[signal] = fmean(scores)
        return means

    def of_pair(self, pair: Pair, tree: EvaluationTree) -> Pair | None:
        """Return a pair with the mean of the branches' margin and the signals' differences as its margin.

        A signal's difference is the percentile of the chosen node minus that of the rejected one, from -1 to 1. A list
        of criteria counts by the judgments under its first criterion.

        Returns:
            The pair, whose ``reward`` keeps all parts of the mean, or None where the signals speak against it.
        """
        if not self.scores:
            return pair
        # A judgment or guideline has a score of its own; a criterion has those of the judgments by it.
        judgments_of = {criterion.id: [judgment.id for judgment in criterion.judgments] for criterion in tree.criteria}
        chosen_node = pair.chosen_nodes[0]
        rejected_node = pair.rejected_nodes[0]
        chosen = self._means(judgments_of.get(chosen_node, [chosen_node]))
        rejected = self._means(judgments_of.get(rejected_node, [rejected_node]))
        # A signal that scored one side alone says nothing of the pair.
        differences = {signal: chosen[signal] - rejected[signal] for signal in chosen if signal in rejected}
        # Shares such as 0.1 are no binary fractions: a mean that is 0 must not come out below it.
        margin = without_rounding(fmean([pair.margin, *differences.values()]))
        if margin < 0:
            return None
        return replace(pair, margin=margin, reward={"branches": pair.margin} | differences)

    def break_tie(self, tree: EvaluationTree, label: Label) -> Label:
        """Return a label; a tie of equally many branches for A and B goes to the side with the larger mean score.

        It stays a tie where the means are equal or unknown.
        """
        # A tie of branches that all say "tie" is no draw between sides.
        is_draw = label.verdict == "tie" and label.votes["A"] == label.votes["B"] > 0
        if not is_draw:
            return label
        scores_of_side: dict[str | None, list[float]] = {"A": [], "B": []}
        for _, _, judgment in tree.judgments():
            means = self._means([judgment.id])
            if judgment.verdict in scores_of_side and means:
                scores_of_side[judgment.verdict].append(fmean(means.values()))
        # A side without a score cannot be compared with the other.
        if not all(scores_of_side.values()):
            return label
        verdict = verdict_of(fmean(scores_of_side["A"]) - fmean(scores_of_side["B"]), EQUAL)
        if verdict == "tie":
            return label
        return replace(label, verdict=verdict, source="reward")


ROWS = "branch-scores"
"""The beginning of the names of shards that hold the scores: ``branch-scores-SIGNAL``."""
SHARD = 8
"""Trees that are scored together; a tree has a hundred texts. A restart goes on after the last such shard."""


Node = tuple[str, str, Sample]
"""The id and level of a text to be scored, and the text with the prompt that the judge wrote it for."""


def nodes_of(tree: EvaluationTree, prompter: Prompter) -> Iterator[Node]:
    """Yield the guidelines of a tree, and its readable judgments."""
    for criterion, guideline in tree.guidelines():
        prompt = prompter.guideline(tree.comparison, criterion.text)
        yield guideline.id, "guideline", Sample(tuple(prompt), guideline.text.strip())
        for judgment in guideline.judgments:
            if judgment.verdict is None:
                continue
            prompt = prompter.judgment(tree.comparison, criterion.text, guideline.text, judgment)
            yield judgment.id, "judgment", Sample(tuple(prompt), judgment.text.strip())


def branch_rewards(stage: LabelSettings, inputs: Mapping[str, Path], prompter: Prompter, out: StageRun) -> Rewards:
    """Return the rewards of a stage's trees; write the scores of every judgment and guideline as shards.

    The Initial judge, which grew the trees, scores them. It is loaded if a shard is missing, and never without signals.
    Branches have no references, so settings of ``scorer`` for these do not count.

    Args:
        stage: the settings of stage label.
        inputs: the directories of stages initial and tree.
        prompter: makes the prompts that the texts were written for.
        out: the stage's run.
    """
    settings = stage.scorer
    base = stage.base
    if settings is None or base is None:
        return Rewards()

    # How many GPUs a model is trained on says nothing of how many it takes to score.
    judge = replace(base.at(inputs["initial"] / "model"), gpus=settings.gpus)
    trees = inputs["tree"]
    places = range(count_rows(trees, "trees"))
    with loaded_once(lambda: load_scorer(judge)) as scorer:
        for signal in stage.label.signals:
            # The default binds this turn's signal: a shard may be processed after the loop has gone on.
            def process(index: int, places: Sequence[int], signal: str = signal) -> ShardResult:
                nodes: list[Node] = []
                for row in rows_at(trees, "trees", places[0], len(places)):
                    tree = by_rating(EvaluationTree.from_row(row))
                    nodes.extend(nodes_of(tree, prompter))
                return _shard(nodes, parts(signal), scorer(), settings, derive_seed(out.shard_seed(index), ROWS))

            work = Work(process=process, load=scorer, spread=True)
            out.sharded(f"{ROWS}-{signal}", places, SHARD, work, "trees")
    return Rewards(_percentiles(read_scores(out.directory), stage.label.signals))


def read_scores(directory: Path) -> list[dict[str, Any]]:
    """Return the scored nodes of a labelling, with the scores of all signals.

    A row has ``node``, ``level``, and each score or the reason why there is none.
    """
    rows: dict[str, dict[str, Any]] = {}
    # A shard's file is called NAME-I-of-N.jsonl.
    names = {path.name.rsplit("-", 3)[0] for path in directory.glob(f"{ROWS}-*-of-*.jsonl")}
    for name in sorted(names):
        for row in read_rows(directory, name):
            rows.setdefault(row["node"], {}).update(row)
    return list(rows.values())


def _shard(
    nodes: Sequence[Node], names: Sequence[str], scorer: TokenScorer, settings: ScorerConfig, seed: int
) -> ShardResult:
    """Return the scores of nodes as a shard; equal texts after equal prompts are scored once.

    Args:
        nodes: the texts.
        names: of the scores.
        scorer: the judge's probabilities.
        settings: how scores are computed.
        seed: the seed of whatever is sampled.
    """
    # By their texts' repr: messages are mappings, which cannot be looked up.
    samples = {repr(sample): sample for _, _, sample in nodes}
    places = {key: place for place, key in enumerate(samples)}
    before = scorer.usage
    scores = score(scorer, list(samples.values()), names, settings, seed)
    usage = scorer.usage - before

    rows = []
    missing: Counter[str] = Counter()
    for node, level, sample in nodes:
        row: dict[str, Any] = {"node": node, "level": level}
        for name in names:
            row[name] = scores[name].plain(places[repr(sample)])
            if isinstance(row[name], str):
                missing[f"reward:{name}:{row[name]}"] += 1
        rows.append(row)
    return ShardResult(rows, 0, missing, **tokens_of([usage]), counts_out=0)


def _percentiles(rows: Sequence[Mapping[str, Any]], signals: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the percentile of each node among the nodes of its level, by signal.

    Args:
        rows: scored nodes (:func:`read_scores`).
        signals: the scores, which may be combined of others.
    """
    # Level by level: guidelines and judgments are texts of another kind, whose scores lie elsewhere.
    rows_of_level: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        rows_of_level.setdefault(row["level"], []).append(row)
    result: dict[str, dict[str, float]] = {signal: {} for signal in signals}
    for of_level in rows_of_level.values():
        for signal in signals:
            scores = {}
            for name in parts(signal):
                values = [value_of(row[name]) for row in of_level]
                # A signal may be combined of several scores, each of which says whether more of it is better.
                scores[name] = Scores(name, values, better(name))
            oriented = assemble(scores, signal).oriented
            nodes = [row["node"] for row in of_level]
            scored = {node: value for node, value in zip(nodes, oriented, strict=True) if value is not None}
            result[signal] |= percentiles(scored)
    return result
