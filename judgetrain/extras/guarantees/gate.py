"""A gate: a run fails where a judge is not better than what it must be better than, by the paired test."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from judgetrain.artifacts.files import read_json
from judgetrain.artifacts.integrity import MANIFEST
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.hub import hub_id
from judgetrain.errors import ConfigError, JudgetrainError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.intervals import Interval, paired_difference
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.evaluate.metrics.verdicts import agreement
from judgetrain.evaluate.report.table import signed, within
from judgetrain.extras.guarantees.config import GuaranteesConfig
from judgetrain.judges.base import Prediction
from judgetrain.judges.config import SETTINGS
from judgetrain.judges.kinds.baselines import BASELINES
from judgetrain.judges.kinds.kind import kind_of
from judgetrain.judges.method import JUDGE_STAGES, Method

FLOORS, UNTRAINED = "floors", "untrained"
FILE = "gate.json"
"""Where an artifact says what its gate found; there is none without a gate."""
BETTER, NOT_WORSE = "beats", "matches"
_RULE = re.compile(rf"\s*(\S+)\s+({BETTER}|{NOT_WORSE})\s+(\S+)\s*")
P = 0.05
"""The p of the paired bootstrap up to which a difference counts."""
Verdicts = dict[MethodKey, dict[str, tuple[Any, Any]]]
"""By method the verdicts in both orders by comparison id."""


class GateError(JudgetrainError):
    """A judge does not pass its gate; the evaluation's artifact is there all the same."""


@dataclass(frozen=True)
class Rule:
    """``judge`` beats ``than``, or with ``strict`` False matches it, which is not to be worse.

    Branches None: the most.
    """

    text: str
    judge: str
    branches: int | None
    strict: bool
    than: str
    than_branches: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """A rule such as ``dpo@10 beats floors``."""
        found = _RULE.fullmatch(text)
        if found is None:
            rules = f"JUDGE {BETTER} METHOD or JUDGE {NOT_WORSE} METHOD (not worse)"
            methods = f"a method of evaluate.methods, {FLOORS} or {UNTRAINED}"
            raise ConfigError(f"guarantees.required: {text!r} is no rule; expected {rules}, with {methods}")
        return cls(text, *_numbered(found[1]), found[2] == BETTER, *_numbered(found[3]))


@dataclass(frozen=True, kw_only=True)
class Check:
    """A rule on a benchmark: agreement of ``first`` less that of ``second`` on the same ``n`` items, its 95% paired
    interval and p."""

    benchmark: str
    rule: str
    first: str
    second: str
    n: int
    difference: float
    difference_ci: Interval | None
    p: float
    passed: bool
    told: str


def check_gate(config: GuaranteesConfig, evaluate: EvaluateConfig) -> None:
    """Check before anything runs that every rule can be tested."""
    methods = {m.name: m for m in map(Method.parse, evaluate.methods)}
    if evaluate.partial and config.required:
        raise ConfigError("evaluate.partial=true: leaves out judges that guarantees.required asks for; set it to false")
    for rule in map(Rule.parse, config.required):
        named, here = [(rule.judge, rule.branches)], f"guarantees.required: {rule.text}:"
        if rule.than == FLOORS and not set(methods) & set(BASELINES):
            raise ConfigError(f"{here} evaluate.methods has no baseline ({', '.join(BASELINES)})")
        if rule.than == UNTRAINED and not any(map(untrained, methods.values())):
            raise ConfigError(f"{here} evaluate.methods has nothing that needs no training, such as rubric:70")
        named += [] if rule.than in (FLOORS, UNTRAINED) else [(rule.than, rule.than_branches)]
        for name, branches in named:
            if name not in methods:
                raise ConfigError(f"{here} {name} is not evaluated; evaluate.methods has {', '.join(methods)}")
            there = methods[name].branches(evaluate.branches)
            if branches is not None and branches not in there:
                asked = f"with {', '.join(map(str, there))}" if there else "without branches"
                raise ConfigError(f"{here} {name} is asked {asked}, not with {branches}")


def gate_checks(
    benchmark: Benchmark,
    methods: Sequence[Method],
    results: Sequence[Sequence[Prediction]],
    required: Sequence[str],
    resamples: int,
    seed: int,
) -> list[Check]:
    """The rules on one benchmark; those about a method that is not evaluated on it (stored verdicts) are left out.

    ``results``: the predictions of a method with one number of branches each, in the benchmark's order.
    """
    here, found = verdicts_of(results), list[Check]()
    for rule in map(Rule.parse, required):
        first = key_of(here, rule.judge, rule.branches)
        if first is None:
            continue
        for other in _others(rule, methods, here, benchmark):
            check = checked(rule, benchmark, here, first, other, resamples, seed)
            found += [check] if check else []
    return found


def verdicts_of(results: Iterable[Sequence[Prediction]]) -> Verdicts:
    return {MethodKey(r[0].method, r[0].branches): {p.comparison_id: p.decided for p in r} for r in results}


def _others(rule: Rule, methods: Sequence[Method], here: Verdicts, benchmark: Benchmark) -> Iterable[MethodKey]:
    """What a rule's judge is set against."""
    if rule.than == FLOORS:
        return [key for key in here if key.method in BASELINES]
    if rule.than == UNTRAINED:
        return best_untrained(methods, here, benchmark)[:1]
    second = key_of(here, rule.than, rule.than_branches)
    return [second] if second else []


def untrained(method: Method) -> bool:
    """Whether a method is something that one could do without training: it asks no trained judge, has no criteria that
    come with the comparisons, and is nobody's published verdicts."""
    trained = method.target in JUDGE_STAGES or (method.is_directory and _holds_judge(method))
    return not trained and method.criteria == "own" and not kind_of(method).published


def _holds_judge(method: Method) -> bool:
    """Whether a method's directory, or what is here of its id on the Hub, is a trained judge's: it has the settings of
    one, or lies in the artifact of a stage that trains. Branching judges of directories all are."""
    if kind_of(method).trained:
        return True
    if method.on_hub:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        try:
            name, revision = hub_id(method.target)
            return isinstance(try_to_load_from_cache(name, SETTINGS, revision=revision), str)
        except HFValidationError:  # no id: refused where the model is looked at
            return False
    directory = Path(method.target).expanduser().resolve()
    made = read_json(directory.parent / MANIFEST)  # it may be somebody else's, of any form
    return (directory / SETTINGS).is_file() or (isinstance(made, dict) and made.get("stage") in JUDGE_STAGES)


def best_untrained(methods: Sequence[Method], here: Verdicts, benchmark: Benchmark) -> list[MethodKey]:
    """All that needs no training, what agrees most with the labels first."""
    names = {method.name for method in methods if untrained(method)}
    labels = {c.id: c.label for c in benchmark.comparisons if c.label is not None}

    def right(key: MethodKey) -> int:
        return sum(here[key][name] == (label, label) for name, label in labels.items())

    return sorted((key for key in here if key.method in names), key=right, reverse=True)


def checked(
    rule: Rule, benchmark: Benchmark, here: Verdicts, first: MethodKey, second: MethodKey, resamples: int, seed: int
) -> Check | None:
    """A rule on the labelled comparisons of a benchmark; None without any."""
    items = [c for c in benchmark.comparisons if c.label is not None]
    labels, prompts = [str(c.label) for c in items], [benchmark.prompt_of(c) for c in items]
    right = []
    for key in (first, second):
        ab, ba = ([here[key][c.id][order] for c in items] for order in (0, 1))
        right.append(agreement(ab, ba, labels))
    differ = paired_difference(right[0], right[1], resamples, seed, prompts)
    if differ is None:
        return None
    p = 1.0 if differ.p is None else differ.p  # one prompt shows nothing
    counts = p <= P
    passed = counts and differ.mean > 0 if rule.strict else not (counts and differ.mean < 0)
    relation = ("is " if passed else "is not ") + ("better than" if rule.strict else "as good as")
    ends = differ.interval
    figures = f"{signed(differ.mean)}{within(*map(signed, ends)) if ends else ''} points"
    remarks = [f"{figures}, p {p:.3f}", *(["one prompt shows nothing"] if len(set(prompts)) == 1 else [])]
    return Check(
        benchmark=benchmark.name,
        rule=rule.text,
        first=str(first),
        second=str(second),
        n=len(items),
        difference=round(differ.mean, 6),
        difference_ci=ends,
        p=p,
        passed=passed,
        told=f"{first} {relation} {second} on {benchmark.name}: {'; '.join(remarks)}",
    )


def write_gate(checks: Sequence[Check], config: GuaranteesConfig, out: StageRun) -> None:
    """Write what the gate found, and raise an alert where it did not pass; the run fails once the artifact is there."""
    if not config.required:
        return
    found = gate_row(checks, config.required)
    out.write_json(FILE.removesuffix(".json"), found)
    out.track.summary({"gate/passed": found["passed"]})
    for check in checks:
        out.log(f"evaluate: gate: {check.told}: {'passed' if check.passed else 'FAILED'}")
    if told := failures(found):
        out.track.alert(f"{out.recipe}: the judge did not pass its gate", told)


def gate_row(checks: Sequence[Check], required: Sequence[str]) -> dict[str, Any]:
    """What ``gate.json`` holds: whether every rule was tested and passed, and the checks."""
    tested = {check.rule for check in checks}
    untested = [rule for rule in required if rule not in tested]
    passed = not untested and all(check.passed for check in checks)
    return {"passed": passed, "untested": untested, "checks": [asdict(check) for check in checks]}


def failures(found: Mapping[str, Any]) -> str:
    """What did not pass, in a sentence; empty where everything did."""
    told = [check["told"] for check in found["checks"] if not check["passed"]]
    return "; ".join([*told, *(f"{rule} was tested on no benchmark" for rule in found["untested"])])


def require_passed(directory: Path) -> None:
    """Read what an evaluation's gate found."""
    path = directory / FILE
    if path.is_file() and (told := failures(json.loads(path.read_bytes()))):
        raise GateError(f"guarantees.required: {told}. The evaluation is finished all the same: {directory}")


def _numbered(name: str) -> tuple[str, int | None]:
    method, at, branches = name.rpartition("@")
    return (method, int(branches)) if at and branches.isdigit() else (name, None)


def key_of(keys: Iterable[MethodKey], method: str, branches: int | None) -> MethodKey | None:
    """A method's key: with the branches asked for, else the most; None: it is not there."""
    mine = [key for key in keys if key.method == method]
    if branches is not None:
        return next((key for key in mine if key.branches == branches), None)
    return max(mine, key=lambda key: key.branches, default=None)
