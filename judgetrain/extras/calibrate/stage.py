"""Run stage ``calibrate``: fit how much each of a judge's criteria counts, on comparisons with labels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.data.labelled import OVERALL
from judgetrain.data.prompt_keys import PromptKey, conversation_starts, normalised, prompt_digest
from judgetrain.engines.answers import spending
from judgetrain.errors import ConfigError
from judgetrain.extras.calibrate.deciding import choose_thresholds, labelled_responses, no_labels, thresholds_card
from judgetrain.extras.calibrate.stages import CalibrateSettings
from judgetrain.judges.factory import Models
from judgetrain.judges.fitting import fit, fit_scores
from judgetrain.judges.kinds.aggregation import FITTED, Fitted, margins_of, shares_of, used
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.kinds.tree_predictions import predict
from judgetrain.judges.kinds.tree_scores import items_of, scores_of
from judgetrain.judges.predictions import Cost, Prediction
from judgetrain.judges.trees.schema import EvaluationTree, cost_of
from judgetrain.judging.items import JudgedRow, read_items
from judgetrain.judging.rows import table
from judgetrain.judging.stage import check_rows, judge_of
from judgetrain.judging.votes import labels_that_count
from judgetrain.schema import Comparison, Verdict

MARGINS = "margins"
"""The name of the shards."""


def run(settings: CalibrateSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``fitted.json`` for ``judge.aggregation=fitted judge.fitted=FILE``; ``margins`` are its shards.

    With ``calibrate.error`` it is ``decided.json`` for ``judge.decided=FILE``, and the shards are ``judged``.
    """
    config = settings.verdicts

    def say(line: str) -> None:
        out.log(f"calibrate: {line}")

    items = read_items(config, settings.world, settings.seed, say)
    if settings.calibrate.error is not None:
        choose_thresholds(items, settings, inputs, out)
        return

    # Labels of single responses come as votes, those of pairs as labels.
    if any(item.votes for item in items):
        if settings.calibrate.length:
            raise ConfigError(
                f"calibrate.length=true: the labels of {config.source.path} are of single responses, and only of two "
                "responses one is the longer; leave calibrate.length out"
            )
        _run_on_responses(items, settings, inputs, out)
        return
    labelled = with_labels(items, labels_that_count(items, say).by_id)
    if not labelled:
        raise no_labels(items)
    branches = settings.method.most or 1
    with spending(settings.asked_engines, config, "verdicts", out) as budget:
        models = Models(settings, inputs, out, budget)
        # Trees are grown whole, for margins; the verdict to compare with is of as much as the judge would have read.
        early_stop = models.asking(settings.method).early_stop
        with judge_of(models, settings) as load_judge:

            def process(index: int, comparisons: Sequence[Comparison]) -> ShardResult:
                judge = load_judge()
                assert isinstance(judge, BranchingJudge)
                return judged(judge, comparisons, settings.seed, branches, early_stop)

            spread = budget is None
            work = Work(process=process, load=load_judge, spread=spread)
            out.sharded(MARGINS, labelled, config.shard_size, work, "comparisons")

    # Read back from the shards, some of which an earlier run may have left.
    rows = list(read_rows(out.directory, MARGINS))

    prompts = _prompts_of(rows)
    margins = [row["margins"] for row in rows]
    labels = [row["label"] for row in rows]
    verdicts = [row["verdict"] for row in rows]
    length_ratios = None
    if settings.calibrate.length:
        length_ratios = [row["length_ratio"] for row in rows]
    fitted = fit(margins, labels, prompts, verdicts, length_ratios)
    _keep(fitted, rows, settings.method.name, out)


def _prompts_of(rows: Sequence[Mapping[str, Any]]) -> list[PromptKey]:
    """Return the prompt that each row counts under [row].

    Turns of one conversation are one prompt, and so are spellings of one text: in two folds, each would tell of the
    other.
    """
    return conversation_starts([tuple(map(normalised, row["asked"])) for row in rows])


def _keep(fitted: Fitted, rows: Sequence[Mapping[str, Any]], judge: str, out: StageRun) -> None:
    """Write fitted weights, and print what they are worth.

    Args:
        fitted: the weights.
        rows: all rows with a label that were judged.
        judge: the judge's name.
        out: the stage's run.
    """
    # Of these prompts nothing can be promised for a judge with these weights.
    prompts = sorted({prompt_digest(tuple(row["asked"])) for row in rows})
    replace(fitted, prompts=prompts).save(out.directory)
    out.tell(summary(fitted, judge))
    labelled = len(rows)
    if fitted.n < labelled:
        # Fewer than the rows that were judged; agreement is over all of them, so that the reader must know of the
        # difference.
        of_what = "responses" if fitted.single else "comparisons"
        empty = "are empty" if fitted.single else "hold an empty response"
        out.log(
            f"calibrate: weights are fitted to {fitted.n} of {labelled} labelled {of_what}; the others could not be "
            f"read, or {empty}. Agreement is over all of them."
        )
    out.log(f"calibrate: judge.aggregation=fitted judge.fitted={out.directory / FITTED}")


def with_labels(items: Sequence[JudgedRow], labels: Mapping[str, Verdict | None]) -> list[Comparison]:
    """Return the comparisons of rows that can be judged and have a label.

    Args:
        items: all rows.
        labels: those that count instead of the rows' own, by id; None: the row counts for nothing.
    """
    labelled = []
    for item in items:
        comparison = item.comparison
        label = labels.get(comparison.id, comparison.label)
        if item.failure is None and label:
            labelled.append(replace(comparison, label=label))
    return labelled


def _run_on_responses(
    items: Sequence[JudgedRow], settings: CalibrateSettings, inputs: Mapping[str, Path], out: StageRun
) -> None:
    """Fit weights to the labels of single responses; arguments as of :func:`run`, and the rows."""
    config = settings.verdicts
    check_rows(items, settings)
    labelled = labelled_responses(items, lambda line: out.log(f"calibrate: {line}"))
    if not labelled:
        raise no_labels(items)
    branches = settings.method.most or 1
    with spending(settings.asked_engines, config, "verdicts", out) as budget:
        models = Models(settings, inputs, out, budget)
        with judge_of(models, settings) as load_judge:

            def process(index: int, rows: Sequence[JudgedRow]) -> ShardResult:
                judge = load_judge()
                assert isinstance(judge, BranchingJudge)
                return scored(judge, rows, settings.seed, branches)

            spread = budget is None
            work = Work(process=process, load=load_judge, spread=spread)
            out.sharded(MARGINS, labelled, config.shard_size, work, "responses")
    rows = list(read_rows(out.directory, MARGINS))
    fitted = fit_scores(
        [row["shares"] for row in rows],
        [row["label"] for row in rows],
        labelled[0].scales[OVERALL],
        _prompts_of(rows),
        [row["score"] for row in rows],
    )
    _keep(fitted, rows, settings.method.name, out)


def scored(judge: BranchingJudge, items: Sequence[JudgedRow], seed: int, branches: int) -> ShardResult:
    """Return a finished shard: for each single response its label, its criteria's shares, and the score by ``mean``.

    One without a text is worth 0 without being read, as in stage judge, and leaves no shares.
    """
    # Weights and thresholds of an earlier calibration would otherwise be part of what the new ones are fitted to.
    by_mean = replace(
        judge.options, aggregation="mean", fitted=None, thresholds=None, early_stop=False, branches=branches
    )
    groups = [item.group for item in items if item.group is not None]

    # Each alone in a group of its own, so that its tree's list of criteria is written for it.
    responses = [response for group in groups for response in items_of(group)]
    trees = iter(judge.grow_alone(responses, seed, by_mean))
    rows = []
    costs = []
    for item, group in zip(items, groups, strict=True):
        of_group = [next(trees) for _ in items_of(group)]
        (score,) = scores_of(group, of_group, by_mean)
        shares = shares_of(used(of_group[0], branches)) if of_group else {}
        costs.append(score.cost)
        rows.append(
            {
                "id": group.id,
                "asked": list(group.dialogue.user_texts),
                "label": item.labels[OVERALL],
                "shares": shares,
                "score": score.value,
            }
        )
    return ShardResult(rows, len(rows), **sum(costs, Cost()).tokens)


def judged(
    judge: BranchingJudge, comparisons: Sequence[Comparison], seed: int, branches: int, early_stop: bool
) -> ShardResult:
    """Return a finished shard: for each comparison its label, its margins, and the verdict by ``mean``.

    An empty response loses without being read, as in stage judge, and leaves no margins.
    """
    # The verdict to compare with is the judge's as it is asked, but for what is being fitted here.
    by_mean = replace(judge.options, aggregation="mean", fitted=None, thresholds=None, early_stop=early_stop)
    read = [comparison for comparison in comparisons if comparison.forfeit is None]
    trees: list[EvaluationTree] = []
    others: list[EvaluationTree] = []
    if read:
        trees, others = judge.ask(read, seed, numbers=[comparison.number for comparison in read])

    # With independent plans there is a tree for each order, and margins are of both.
    margins: dict[str, dict[str, float]] = {}
    predictions: dict[str, Prediction] = {}
    for tree, other in zip(trees, others or repeat(None, len(trees)), strict=True):
        lists = [used(tree, branches)]
        if other is not None:
            lists.append(used(other, branches))
        margins[tree.comparison.id] = margins_of(*lists)
        predictions[tree.comparison.id] = predict(tree, branches, by_mean, judge.name, other)
    rows = []
    for comparison in comparisons:
        prediction = predictions.get(comparison.id) or Prediction.of(comparison, judge.name)
        rows.append(
            {
                "id": comparison.id,
                "asked": list(comparison.dialogue.user_texts),
                "label": comparison.label,
                "margins": margins.get(comparison.id, {}),
                "length_ratio": comparison.length_ratio,
                "verdict": prediction.verdict,
            }
        )

    # Of whole trees: fitting needs every margin, also those that an early stop would have saved.
    cost = sum(map(cost_of, (*trees, *others)), Cost())
    return ShardResult(rows, len(rows), **cost.tokens)


def summary(fitted: Fitted, judge: str) -> Iterator[Any]:
    """Yield the table and the lines at the stage's end."""
    yield table(f"Criteria of {judge}, n = {fitted.n}", ("criterion", "weight"), _weights(fitted))
    yield f"mean: {_measured(fitted.before)}"
    yield f"fitted, held out: {_measured(fitted.after)}"
    if fitted.by_length is not None:
        yield f"length alone, held out: {_measured(fitted.by_length)}"


def _weights(fitted: Fitted) -> list[tuple[str, str]]:
    """Return the criteria with their weights, the heaviest first, and behind them that of length, if it has one."""
    rows = [(name, f"{weight:.2f}") for name, weight in sorted(fitted.weights.items(), key=lambda item: -item[1])]
    if fitted.length is not None:
        rows.append(("length (logarithm of the ratio)", f"{fitted.length:.2f}"))
    return rows


def _measured(figures: Mapping[str, float]) -> str:
    """Return agreement and calibration error, or the mean error over more than two levels, in words."""
    agreement = f"agreement {100 * figures['agreement']:.1f}%"
    if "error" in figures:
        return f"{agreement}, mean error {100 * figures['error']:.1f}% of the scale"
    return f"{agreement}, calibration error {figures['ece']:.3f}"


def _card(directory: Path, judge: str) -> str:
    """Return the section of a judge's card on the weights fitted for it; empty for another stage's artifact."""
    if not (directory / FITTED).is_file():
        return ""
    fitted = Fitted.load(directory, "fitted weights")
    of_what = "single responses" if fitted.single else "comparisons"
    of_length = ""
    if fitted.by_length is not None:
        of_length = f"; length alone: {_measured(fitted.by_length)}, so that longer answers gain"
    return (
        f"Rule `judge.aggregation=fitted`, on {fitted.n} labelled {of_what}. Plain mean: "
        f"{_measured(fitted.before)}; fitted weights, on prompts that they were not fitted on: "
        f"{_measured(fitted.after)}{of_length}. Weights: {', '.join(map(' '.join, _weights(fitted)))}."
    )


PARTS = {"Fitted weights": _card, "Decided or undecided": thresholds_card}
"""Sections of a judge's card by title: functions of a finished artifact that return the text, or an empty one."""
