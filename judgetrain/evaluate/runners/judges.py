"""Judges on benchmarks: those that branch, and those that are asked once."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from judgetrain.artifacts.stage_run import ShardResult, StageRun, tokens_of
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.rubrics import read_rubric
from judgetrain.errors import ConfigError
from judgetrain.evaluate.runners.base import Evaluation, Process, Result
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges.base import Prediction
from judgetrain.judges.kinds.branching import predict
from judgetrain.judges.kinds.prompted import prediction_of
from judgetrain.judges.method import TARGETS, Method
from judgetrain.judges.prompting.prompts import Dialect, load_prompt_set, prompt_path
from judgetrain.judges.prompting.replies import Reply, errors_told
from judgetrain.judges.settings import check_criteria, check_model, too_long_hint
from judgetrain.judges.trees.schema import OTHER, EvaluationTree, shard_of, trees_of
from judgetrain.judges.views.tree_page import DIRECTORY, View, write_views
from judgetrain.schema import Comparison

VIEW = 20
"""Pages of disagreements to look at, per benchmark and judge."""


class BranchingRunner:
    """Keeps the trees as ``trees-BENCHMARK-METHOD`` shards, grown once with the most branches."""

    forms = f"{', '.join(TARGETS)}, a judge's directory (./NAME)"

    def check(self, method: Method, settings: EvaluateSettings) -> None:
        """The model that it names, that it gives the probabilities which expected scores need, and the branches."""
        check_model(settings, method, "evaluate.methods")
        if method.most == 0:
            raise ConfigError(f"evaluate.methods: {method.text!r}: a judge has at least 1 branch")
        most = max(method.branches(settings.evaluate.branches))
        check_criteria(settings.criteria or 0, method, most, "evaluate.branches")

    def run(self, method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
        """Sample every benchmark with one model, then read off the results for every number of branches."""
        models, settings, name = evaluation.models, evaluation.settings, method.name
        branches = max(method.branches(settings.evaluate.branches))

        def process(judge: Any, items: Sequence[Comparison], seed: int) -> ShardResult:
            trees, others = judge.ask(items, seed, branches)
            found = shard_of([*trees, *others])
            rows = [*found.rows[: len(trees)]]
            for row, other in zip(rows, found.rows[len(trees) :], strict=bool(others)):
                row[OTHER] = other
            return replace(found, rows=rows, counts_in=len(rows))

        def shown(benchmark: Benchmark) -> list[Comparison]:
            return by_criteria(
                benchmark.comparisons, method.criteria, f"{method.text}: {benchmark.name}", settings.rubric
            )

        how, trained = models.asking(method), method.target in evaluation.inputs or method.is_directory
        depends = {
            "method": "+".join(method.options) if method.is_directory else name,
            "judge": models.identity(method, evaluation.hashes),
            "branches": branches,
            "shard_size": evaluation.shard_size,
            # Aggregation and tie decide what is asked only where branches stop early.
            "asking": how if how.early_stop else how.changed(aggregation="vote", tie=0.0),
            "criteria": settings.criteria,
            "engine": models.own_engine(method),
            # A trained judge brings its own prompts.
            "prompts": None if trained else evaluation.hashes.of(prompt_path(settings.prompts or "")),
        }
        told, gpus = f", both orders, up to {branches} branches", models.gpus(method)
        found = evaluation.kept(
            "trees", name, lambda: models.judge(method, branches), process, shown, depends=depends, told=told, gpus=gpus
        )
        for benchmark, rows, seconds in found:
            yield benchmark, list(self._read_off(method, benchmark, evaluation, rows, seconds))

    def _read_off(
        self, method: Method, benchmark: Benchmark, evaluation: Evaluation, rows: Sequence[Any], seconds: float
    ) -> Iterator[Result]:
        """The results for each number of branches, from one sampled run.

        Seconds are measured for the largest number; for a smaller one they are that time's share by generated tokens.
        """
        out, options = evaluation.out, evaluation.models.options(method)
        trees = [trees_on(row, comparison) for row, comparison in zip(rows, benchmark.comparisons, strict=True)]
        read = {
            k: [predict(tree, k, options, method.name, other) for tree, other in trees]
            for k in method.branches(evaluation.settings.evaluate.branches)
        }
        lost: Counter[str] = Counter()
        for prediction in read[max(read)]:
            lost.update(prediction.failures)
        if told := too_long_hint(lost):
            out.log(f"evaluate: {benchmark.name}: {method.name}: {told}", keep=True)
        write_disagreements(method.name, benchmark, trees, read[max(read)], out)
        tokens = {k: sum(p.cost.generated_tokens for p in predictions) for k, predictions in read.items()}
        full = tokens[max(tokens)]
        for branches, predictions in read.items():
            share = tokens[branches] / full if full else 1.0
            yield predictions, round(seconds / len(trees) / 2 * share, 6)


def by_criteria(
    comparisons: Sequence[Comparison], criteria: str, what: str, file: str | None = None
) -> list[Comparison]:
    """The comparisons with the criteria that a judge is to go by (:attr:`~judgetrain.judges.method.Method.criteria`)
    (ConfigError: criteria are wanted, and none are given, or none differ; names ``what`` wants them).

    ``file``: whose criteria are given with those that bring none. Shuffled ones are those of the comparison half a
    benchmark further on, or of the next one whose criteria differ.
    """
    if criteria == "own":
        return [replace(c, rubric=None) for c in comparisons]
    if file is not None:
        rubric = read_rubric(file)
        comparisons = [c if c.rubric else replace(c, rubric=rubric) for c in comparisons]
    if missing := sum(c.rubric is None for c in comparisons):
        raise ConfigError(f"evaluate.methods: {what}: {missing} of {len(comparisons)} rows bring no column criteria")
    if criteria == "given":
        return list(comparisons)
    found, n = [], len(comparisons)
    for i, own in enumerate(comparisons):
        others = (comparisons[(i + n // 2 + step) % n].rubric for step in range(n))
        other = next((rubric for rubric in others if rubric != own.rubric), None)
        if other is None:
            raise ConfigError(f"evaluate.methods: {what}: all comparisons have the same criteria: none to swap")
        found.append(replace(own, rubric=other))
    return found


def trees_on(row: Mapping[str, Any], comparison: Comparison) -> tuple[EvaluationTree, EvaluationTree | None]:
    """The tree of both orders and None, or that of order AB and that of order BA.

    Both are about the benchmark's ``comparison``: trees of an earlier evaluation may carry a label that has been
    corrected since.
    """
    first, *others = (replace(tree, comparison=comparison) for tree in trees_of(row))
    return first, others[0] if others else None


def write_disagreements(
    name: str,
    benchmark: Benchmark,
    trees: Sequence[tuple[EvaluationTree, EvaluationTree | None]],
    predictions: Sequence[Prediction],
    out: StageRun,
) -> None:
    """Write pages of up to :data:`VIEW` comparisons on which the judge does not give the label in both orders.

    Those with the largest margin for the wrong side come first. ``trees``: of each comparison the tree and None, or
    with independent plans those of both orders, a page each. ``predictions`` are with the most branches.
    """
    wrong = [
        (p, both)
        for p, both in zip(predictions, trees, strict=True)
        if both[0].comparison.label is not None and p.verdict != both[0].comparison.label
    ]
    wrong.sort(key=lambda pair: -_wrongness(pair[0], pair[1][0].comparison.label))
    views = [View(tree, facts=_facts(p)) for p, both in wrong[:VIEW] for tree in both if tree is not None]
    shown = min(VIEW, len(wrong))
    title = f"{benchmark.name}, {name}: {shown} of {len(wrong)} comparisons without the right verdict"
    write_views(views, out.path(DIRECTORY) / f"{benchmark.name}-{name}", title)


def _wrongness(prediction: Prediction, label: str | None) -> float:
    """How far the mean margin is from what the label says; -1 where nothing could be read."""
    if prediction.margin is None:
        return -1.0
    return {"A": -prediction.margin, "B": prediction.margin}.get(str(label), abs(prediction.margin))


def _facts(prediction: Prediction) -> dict[str, str]:
    words = {"A": "A", "B": "B", "tie": "tie", None: "none could be read"}
    margin = "–" if prediction.margin is None else f"{prediction.margin:+.2f}"
    return {
        "verdict, A shown first": words[prediction.verdict_ab],
        "verdict, B shown first": words[prediction.verdict_ba],
        "mean score of A minus B": margin,
    }


class AskedOnceRunner:
    """Keeps the replies, with every text, as ``replies-BENCHMARK-METHOD`` shards."""

    forms = "a model or directory after pairwise: or pointwise:"

    def check(self, method: Method, settings: EvaluateSettings) -> None:
        """The model that it names, that it can be asked so, and the prompt set."""
        check_model(settings, method, "evaluate.methods")
        key = f"evaluate.{method.kind}.prompts"
        load_prompt_set(getattr(settings, method.kind).prompts, cast(Dialect, method.kind), key)

    def run(self, method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
        """Ask about every benchmark with one model, then read the replies."""
        return self.asked(method, method, evaluation, replied, {})

    def asked(
        self, method: Method, by: Method, evaluation: Evaluation, process: Process, more: Mapping[str, Any]
    ) -> Iterator[tuple[Benchmark, list[Result]]]:
        """The results of a method that is asked as another, ``by``; ``more``: what replies depend on besides."""
        models, once = evaluation.models, getattr(evaluation.settings, by.kind)
        depends = {
            "kind": by.kind,
            "name": None if method.is_directory else method.text,
            "judge": models.identity(by, evaluation.hashes),
            "shard_size": evaluation.shard_size,
            "asked": once,
            "engine": models.own_engine(by),
            **more,
        }
        how: dict[str, Any] = {"depends": depends, "gpus": models.gpus(by)}
        found = evaluation.kept("replies", method.name, lambda: models.judge(by), process, **how)
        for benchmark, rows, seconds in found:
            replies = [[Reply(**r) for r in row["replies"]] for row in rows]
            if told := errors_told(r for each in replies for r in each):
                evaluation.out.log(f"evaluate: {benchmark.name}: {method.name}: {told}")
            predictions = [
                prediction_of(by.kind, method.name, c, each, once.sampling)
                for c, each in zip(benchmark.comparisons, replies, strict=True)
            ]
            verdicts = 1 if by.kind == "pointwise" else 2  # seconds are of a verdict in one order
            yield benchmark, [(predictions, round(seconds / len(replies) / verdicts, 6))]


def replied(judge: Any, items: Sequence[Comparison], seed: int) -> ShardResult:
    """The replies on comparisons as a finished shard."""
    return replies_shard(items, judge.ask(items, seed))


def replies_shard(items: Sequence[Comparison], asked: Sequence[Sequence[Reply]]) -> ShardResult:
    """A finished shard of the replies on each comparison."""
    rows = [
        {"comparison_id": c.id, "replies": [reply.to_row() for reply in replies]}
        for c, replies in zip(items, asked, strict=True)
    ]
    every = [reply for replies in asked for reply in replies]
    failures = Counter(f"reply:{reply.failure}" for reply in every if reply.failure)
    return ShardResult(rows, len(rows), failures, **tokens_of(every))
