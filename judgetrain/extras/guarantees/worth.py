"""Whether training paid: the trained judge beside the best that one could do without it, in a sentence."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from judgetrain.artifacts.console import duration
from judgetrain.artifacts.files import read_json
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.evaluate.hooks import Measured, Predicted
from judgetrain.evaluate.metrics.intervals import Interval
from judgetrain.evaluate.metrics.paired import part_of
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.evaluate.objective import parse_objective
from judgetrain.evaluate.report.report import lineage
from judgetrain.extras.guarantees import gate
from judgetrain.extras.guarantees.config import GuaranteesConfig
from judgetrain.judges.base import Prediction
from judgetrain.judges.method import JUDGE_STAGES, Method

FILE = "worth.json"
DATA = ("dialogues", "cluster", "responses")
"""Stages that a user needs without training, too."""


@dataclass(frozen=True, kw_only=True)
class Worth:
    """The last trained judge less the best method without training, on the same ``n`` items of a benchmark.

    ``seconds``: of all stages that training needed; None where their manifests are gone. ``tokens``: of a verdict of
    the judge for each of the other's; None where that takes none. ``told`` says all of it.
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


def worth(found: Predicted, results: Sequence[Sequence[Prediction]]) -> Worth | None:
    """Whether training paid, by the ``results`` on the test split; None without a trained judge, or with nothing beside
    it.

    The judge is the last one trained, in its plain form where that is evaluated. It is asked with the branches that a
    rule of ``guarantees.required`` or the ``objective`` names, else the most.
    """
    benchmark, settings, inputs = found.test, found.settings, found.inputs
    here = {MethodKey(r[0].method, r[0].branches): r for r in results}
    trained = _last_trained([m for m in settings.evaluated if any(key.method == m.name for key in here)])
    if trained is None:
        return None
    name = trained.name
    told = [(rule.judge, rule.branches) for rule in map(gate.Rule.parse, settings.guarantees.required)]
    told += [parse_objective(settings.objective)[1:3]] if settings.objective else []
    named = next((branches for judge, branches in told if judge == name and branches), None)
    verdicts = gate.verdicts_of(results)
    judge, others = gate.key_of(here, name, named), gate.best_untrained(settings.evaluated, verdicts, benchmark)
    if judge is None or not others:
        return None
    than = others[0]
    rule = gate.Rule.parse(f"{judge} beats {gate.UNTRAINED}")
    check = gate.checked(rule, benchmark, verdicts, judge, than, settings.evaluate.bootstrap, settings.seed)
    if check is None:
        return None
    upstream = lineage([inputs[trained.target]]) if trained.target in inputs else []
    made = [row["seconds"] for row in upstream if row["stage"] not in DATA]
    seconds = float(sum(made)) if made and None not in made else None
    ours, theirs = (_tokens(here[key]) for key in (judge, than))
    share = ours / theirs if theirs and math.isfinite(ours / theirs) else None
    return Worth(
        benchmark=benchmark.name,
        judge=str(judge),
        than=str(than),
        n=check.n,
        difference=check.difference,
        difference_ci=check.difference_ci,
        pays=check.passed,
        seconds=seconds,
        tokens=None if share is None else round(share, 6),
        told=_told(check, len(others), seconds, ours, share),
    )


def _last_trained(methods: Sequence[Method]) -> Method | None:
    """The last judge that was trained, in its plain form, else in the first one listed."""
    mine = [m for m in methods if m.goes_by_criteria and m.target in JUDGE_STAGES and m.criteria == "own"]
    return min(mine, key=lambda m: (-JUDGE_STAGES.index(m.target), len(m.options) > 0), default=None)


def _tokens(found: Sequence[Prediction]) -> float:
    """What a verdict over both orders takes, which is what the agreement is about."""
    costs = [p.whole_cost for p in found]
    return sum(cost.prompt_tokens + cost.generated_tokens for cost in costs) / len(found)


def _told(check: gate.Check, among: int, seconds: float | None, tokens: float, share: float | None) -> str:
    ahead = check.difference >= 0
    low, high = sorted((1 if ahead else -1) * 100 * end for end in check.difference_ci or (math.nan, math.nan))
    best = f", best of {among} here" if among > 1 else ""
    interval = f"{low:.1f} to {high:.1f}".replace("-0.0", "0.0")
    interval = interval if check.difference_ci else "too few prompts for an interval"
    points = f"{100 * abs(check.difference):.1f} points"
    if check.passed:
        spent = f"{share:.0%} of its tokens a verdict" if share is not None else f"{tokens:.0f} tokens a verdict"
        spent = f"{duration(seconds)} and {spent}" if seconds is not None else spent
        without = f"over the best you could do without it ({check.second}{best})"
        return f"{check.first}: training gains {points} ({interval}) {without}, for {spent}"
    shown = "training does not pay here" if not ahead and low > 0 else "nothing shows that training pays here"
    return f"{shown}: use {check.second}{best} ({check.first} is {points} {'ahead' if ahead else 'behind'}, {interval})"


def measure(found: Predicted) -> Measured:
    """The gate's checks, and whether training paid, out of the predictions."""
    settings, tested = found.settings, [part_of(found.test, p) for p in found.results]
    required, resamples = settings.guarantees.required, settings.evaluate.bootstrap
    checks = gate.gate_checks(found.test, settings.evaluated, tested, required, resamples, settings.seed)
    paid = worth(found, tested)
    return Measured(records=[*checks, *([paid] if paid else [])])


def write(records: Sequence[gate.Check | Worth], config: GuaranteesConfig, out: StageRun) -> None:
    """Write what the gate found, and whether training paid."""
    gate.write_gate([r for r in records if isinstance(r, gate.Check)], config, out)
    found = [r for r in records if isinstance(r, Worth)]
    if found:
        out.write_json(FILE.removesuffix(".json"), [asdict(each) for each in found])
    for each in found:
        out.track.summary({f"{each.benchmark}/training_gains": each.difference})
        out.log(f"evaluate: {each.benchmark}: {each.told}", keep=True)


def _told_of(directory: Path, judge: str) -> str:
    """Whether training a judge paid, a line a benchmark."""
    found = [w for w in read_json(directory / FILE) or () if Method.parse(w["judge"]).target == judge]
    return "\n".join(f"- {w['benchmark']} (n = {w['n']}): {w['told']}" for w in found)


PARTS = {"Worth training": _told_of}
"""By its title a section of a judge's card: its text of what a finished artifact holds, empty for nothing."""
