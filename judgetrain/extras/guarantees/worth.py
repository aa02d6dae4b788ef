"""Tell whether training paid: compare the trained judge with the best that one could do without it."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from judgetrain.artifacts.console import duration
from judgetrain.artifacts.files import read_json
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.intervals import Interval
from judgetrain.evaluate.hooks import Measured, Predicted
from judgetrain.evaluate.metrics.paired import part_of
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.evaluate.objective import parse_objective
from judgetrain.evaluate.report.report import lineage
from judgetrain.extras.guarantees import gate
from judgetrain.extras.guarantees.config import GuaranteesConfig
from judgetrain.judges.method import JUDGE_STAGES, Method
from judgetrain.judges.predictions import Prediction

FILE = "worth.json"
DATA = ("dialogues", "cluster", "responses")
"""Stages that a user without training needs, too."""


@dataclass(frozen=True, kw_only=True)
class TrainingGain:
    """The last trained judge against the best method without training, on a benchmark.

    Args:
        benchmark: its name.
        judge: with its number of branches.
        than: the best method without training, likewise.
        n: comparisons that both judged.
        difference: the judge's agreement less the other's.
        difference_ci: its 95% paired interval.
        pays: whether the judge is better.
        seconds: of all stages that training needed; None where their manifests are gone.
        tokens: of a verdict of the judge for each of the other's; None where that takes none.
        told: all of it in a sentence.
    """

    benchmark: str
    judge: str
    than: str
    n: int
    difference: float
    difference_ci: Interval | None
    pays: bool
    seconds: float | None
    tokens: float | None
    told: str


def worth(predicted: Predicted, results: Sequence[Sequence[Prediction]]) -> TrainingGain | None:
    """Return whether training paid, on the test split.

    The judge is the last one trained, in its plain form where that is evaluated. It is asked with the branches that a
    rule of ``guarantees.required`` or the ``objective`` names, else the most.

    Args:
        predicted: an evaluation's settings, inputs and benchmark.
        results: predictions on the test split, a sequence for each method and number of branches.

    Returns:
        None without a trained judge, or with nothing to compare it with.
    """
    benchmark = predicted.test
    settings = predicted.settings
    by_method = {MethodKey(predictions[0].method, predictions[0].branches): predictions for predictions in results}
    names = {key.method for key in by_method}
    brought = gate.brings_criteria(benchmark)
    trained = _last_trained([method for method in settings.evaluated if method.name in names], brought)
    if trained is None:
        return None
    judge = gate.key_of(by_method, trained.name, _named_branches(predicted, trained.name))
    verdicts = gate.verdicts_of(results)
    untrained = gate.best_untrained(settings.evaluated, verdicts, benchmark)
    if judge is None or not untrained:
        return None
    best = untrained[0]
    # The gate's own test, so that both sentences on one report cannot contradict each other.
    rule = gate.GateRule.parse(f"{judge} beats {gate.UNTRAINED}")
    test = gate.PairedTest(benchmark, verdicts, settings.guarantees.margin, settings.resampling)
    check = test.of(rule, judge, best)
    if check is None:
        return None
    seconds = _training_seconds(predicted, trained)
    tokens = _tokens_a_verdict(by_method[judge])
    tokens_of_best = _tokens_a_verdict(by_method[best])
    share = _share(tokens, tokens_of_best)
    rounded_share = None
    if share is not None:
        rounded_share = round(share, 6)
    return TrainingGain(
        benchmark=benchmark.name,
        judge=str(judge),
        than=str(best),
        n=check.n,
        difference=check.difference,
        difference_ci=check.difference_ci,
        pays=check.passed,
        seconds=seconds,
        tokens=rounded_share,
        told=_sentence(check, len(untrained), _cost(seconds, tokens, tokens_of_best)),
    )


def _last_trained(methods: Sequence[Method], brought: bool) -> Method | None:
    """Return the last judge that was trained, in its plain form, else in the first one listed; None without one.

    Args:
        methods: that were evaluated.
        brought: comparisons bring criteria.
    """
    trained = []
    for method in methods:
        # Criteria that come with the comparisons are nothing that training gave the judge.
        if gate.by_criteria_brought(method, brought):
            continue
        if method.goes_by_criteria and method.target in JUDGE_STAGES:
            trained.append(method)

    # The latest stage first, and of one stage the method without options; min takes the first of equal ones.
    return min(trained, key=lambda m: (-JUDGE_STAGES.index(m.target), len(m.options) > 0), default=None)


def _named_branches(predicted: Predicted, name: str) -> int | None:
    """Return the branches with which a rule, or the objective, names a judge; None where neither does."""
    settings = predicted.settings
    # Rules first: the number of branches that a run must pass with is the one that its user cares about.
    for rule in map(gate.GateRule.parse, settings.guarantees.required):
        if rule.judge == name and rule.branches:
            return rule.branches
    if settings.objective:
        _, judge, branches, _ = parse_objective(settings.objective)
        if judge == name and branches:
            return branches
    return None


def _training_seconds(predicted: Predicted, trained: Method) -> float | None:
    """Return the seconds of all stages that training needed; None where a manifest is gone."""
    if trained.target not in predicted.inputs:
        return None
    # All stages that led to the judge, each once.
    stages = lineage([predicted.inputs[trained.target]])
    seconds = [row["seconds"] for row in stages if row["stage"] not in DATA]
    # Without one stage's time the sum would be too small without a word.
    if not seconds or None in seconds:
        return None
    return float(sum(seconds))


def _tokens_a_verdict(predictions: Sequence[Prediction]) -> float:
    """Return the tokens that a verdict over both orders takes, which is what the agreement is about."""
    costs = [prediction.whole_cost for prediction in predictions]
    return sum(cost.prompt_tokens + cost.generated_tokens for cost in costs) / len(predictions)


def _share(tokens: float, others_tokens: float) -> float | None:
    """Return the judge's tokens for each of the other method's; None where that takes none."""
    # Baselines take no tokens, and of published verdicts the cost is not known (NaN).
    if not others_tokens or not math.isfinite(tokens / others_tokens):
        return None
    return tokens / others_tokens


def _cost(seconds: float | None, tokens: float, others_tokens: float) -> str:
    """Return what the judge costs: its training, if that is known, and a verdict's tokens beside the other's."""
    # Both numbers: a share of them says nothing beside a method that takes few tokens, and there is none beside 0.
    others = "a number that is not known"
    # Of published verdicts the cost is not known (NaN).
    if math.isfinite(others_tokens):
        others = f"{others_tokens:,.0f}"
    cost = f"{tokens:,.0f} tokens a verdict against {others} (read and written, in both orders)"
    if seconds is not None:
        cost = f"{duration(seconds)} and {cost}"
    return cost


def _sentence(check: gate.Check, untrained: int, cost: str) -> str:
    """Return in a sentence whether training paid.

    Args:
        check: the judge against the best method without training.
        untrained: how many such methods there are.
        cost: of the judge, in words.
    """
    is_ahead = check.difference >= 0
    points = f"{100 * abs(check.difference):.1f} points"
    interval = "too few prompts for an interval"
    surely_behind = False
    if check.difference_ci:
        # The sentence gives the distance without its sign, so the interval is turned with it.
        sign = 1 if is_ahead else -1
        low, high = sorted(sign * 100 * end for end in check.difference_ci)

        # Rounding may leave a sign on zero.
        interval = f"{low:.1f} to {high:.1f}".replace("-0.0", "0.0")
        surely_behind = not is_ahead and low > 0
    other = check.second
    if untrained > 1:
        other += f", best of {untrained} here"
    if check.passed:
        return (
            f"{check.first}: training gains {points} ({interval}) over the best you could do without it ({other}), "
            f"for {cost}"
        )
    # Not to be shown to pay is no evidence against it; only an interval below 0 is.
    finding = "nothing shows that training pays here"
    if surely_behind:
        finding = "training does not pay here"
    direction = "behind"
    if is_ahead:
        direction = "ahead"
    return f"{finding}: use {other} ({check.first} is {points} {direction}, {interval})"


def measure(predicted: Predicted) -> Measured:
    """Return the gate's checks, and whether training paid, out of an evaluation's predictions."""
    settings = predicted.settings
    # What is reported is over the test split; methods may have learned on the other.
    on_test = [part_of(predicted.test, predictions) for predictions in predicted.results]
    records: list[gate.Check | TrainingGain] = []
    records += gate.gate_checks(predicted.test, settings.evaluated, on_test, settings.guarantees, settings.resampling)
    training_paid = worth(predicted, on_test)
    if training_paid is not None:
        records.append(training_paid)
    return Measured(records=records)


def write(records: Sequence[gate.Check | TrainingGain], config: GuaranteesConfig, out: StageRun) -> None:
    """Write the gate's checks, and whether training paid."""
    gate.write_gate([record for record in records if isinstance(record, gate.Check)], config, out)
    worths = [record for record in records if isinstance(record, TrainingGain)]
    if worths:
        out.write_json(FILE.removesuffix(".json"), [asdict(record) for record in worths])
    for record in worths:
        out.track.summary({f"{record.benchmark}/training_gains": record.difference})
        out.log(f"evaluate: {record.benchmark}: {record.told}", keep=True)


def _card_section(directory: Path, judge: str) -> str:
    """Return whether training a judge paid, a line a benchmark, by a finished evaluation.

    Args:
        directory: of the evaluation.
        judge: the stage that trained the judge, or its directory.
    """
    lines = []
    # The judge was trained once and may have been evaluated with several numbers of branches.
    for row in read_json(directory / FILE) or ():
        if Method.parse(row["judge"]).target == judge:
            lines.append(f"- {row['benchmark']} (n = {row['n']}): {row['told']}")
    return "\n".join(lines)


PARTS = {"Worth training": _card_section}
"""Sections of a judge's card by title: functions of a finished artifact that return the text, or an empty one."""
