"""A gate: a run fails where a judge is not better than what it must be better than, by the paired test."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.errors import ConfigError, DataError, JudgetrainError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.registry import Interval
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.evaluate.metrics.statistics import paired_difference
from judgetrain.evaluate.metrics.verdicts import agreement
from judgetrain.judges.base import Prediction
from judgetrain.judges.kinds.baselines import BASELINES
from judgetrain.judges.method import Method

FLOORS, RELEASE = "floors", "release"
FILE = "gate.json"
"""Where an artifact says what its gate found; there is none without a gate."""
BETTER, NOT_WORSE = "beats", "matches"
_RULE = re.compile(rf"\s*(\S+)\s+({BETTER}|{NOT_WORSE})\s+(\S+)\s*")
Verdicts = dict[str, tuple[Any, Any]]
"""The verdicts in both orders by comparison id."""


class GateError(JudgetrainError):
    """A judge does not pass its gate; the evaluation's artifact is there all the same."""


@dataclass(frozen=True)
class Rule:
    """``judge`` beats ``than``, or with ``strict`` False matches it, which is not to be worse.

    Branches None: the number that was chosen, else the most.
    """

    text: str
    judge: str
    branches: int | None
    strict: bool
    than: str
    than_branches: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """A rule such as ``dpo@10 beats floors``.

        Raises:
            ConfigError: it is none.
        """
        found = _RULE.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"evaluate.gate.required: {text!r} is no rule; expected JUDGE {BETTER} METHOD or JUDGE {NOT_WORSE} "
                f"METHOD (not worse), with a method of evaluate.methods, {FLOORS} or {RELEASE}"
            )
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
    difference: float | None
    difference_ci: Interval | None
    p: float | None
    passed: bool
    told: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """A check as ``gate.json`` has it."""
        return cls(**row)


def check_gate(settings: EvaluateConfig) -> None:
    """Check before anything runs that every rule can be tested.

    Raises:
        ConfigError: no rule, a method or benchmark that is not evaluated, no baseline, or no release.
    """
    gate, methods = settings.gate, {m.name: m for m in map(Method.parse, settings.methods)}
    benchmarks = [b.name for b in settings.benchmarks]
    for name in gate.benchmarks:
        if name not in benchmarks:
            raise ConfigError(f"evaluate.gate.benchmarks: {name!r} is none of {', '.join(benchmarks)}")
    for rule in map(Rule.parse, gate.required):
        named = [(rule.judge, rule.branches)]
        if rule.than == FLOORS:
            if not set(methods) & set(BASELINES):
                floors = ", ".join(BASELINES)
                raise ConfigError(f"evaluate.gate.required: {rule.text}: evaluate.methods has no baseline ({floors})")
        elif _released(rule.than) is None:
            named.append((rule.than, rule.than_branches))
        elif not gate.release:
            raise ConfigError(f"evaluate.gate.release is empty, but {rule.text} asks for it: give the directory")
        for name, branches in named:
            if name not in methods:
                raise ConfigError(
                    f"evaluate.gate.required: {rule.text}: {name} is not evaluated; evaluate.methods has "
                    f"{', '.join(methods)}"
                )
            there = methods[name].branches(settings.branches) if methods[name].has_branches else []
            if branches is not None and branches not in there:
                asked = f"with {', '.join(map(str, there))}" if there else "without branches"
                raise ConfigError(f"evaluate.gate.required: {rule.text}: {name} is asked {asked}, not with {branches}")


def gate_checks(
    benchmark: Benchmark,
    results: Sequence[Sequence[Prediction]],
    chosen: Mapping[str, int],
    settings: EvaluateConfig,
    seed: int,
) -> list[Check]:
    """The rules on one benchmark; those about a method that is not evaluated on it (stored verdicts) are left out.

    Args:
        benchmark: what is reported.
        results: the predictions of a method with one number of branches each, in its order.
        chosen: numbers of branches by method.
        settings: of the stage.
        seed: of the resamples.

    Raises:
        DataError: the release's evaluation cannot be read.
    """
    gate = settings.gate
    if gate.benchmarks and benchmark.name not in gate.benchmarks:
        return []
    here: dict[MethodKey, Verdicts] = {
        MethodKey(r[0].method, r[0].branches): {p.comparison_id: p.decided for p in r} for r in results
    }
    found = []
    for rule in map(Rule.parse, gate.required):
        first = _key(here, rule.judge, rule.branches, chosen)
        if first is None:
            continue
        for name, other in _others(rule, here, chosen, gate.release, benchmark.name, first.branches):
            found.append(_checked(rule, benchmark, (str(first), here[first]), (name, other), settings, seed))
    return found


def _others(
    rule: Rule,
    here: Mapping[MethodKey, Verdicts],
    chosen: Mapping[str, int],
    release: str,
    benchmark: str,
    branches: int,
) -> Iterable[tuple[str, Verdicts]]:
    """What a rule's judge is set against: names and verdicts."""
    if rule.than == FLOORS:
        return [(key.method, verdicts) for key, verdicts in here.items() if key.method in BASELINES]
    released = _released(rule.than)
    if released is not None:
        then = read_verdicts(Path(release), benchmark)
        key = _key(then, released or rule.judge, rule.than_branches or (None if released else branches), {})
        if rule.than_branches is None:  # else no other number stands in for the one that was asked for
            key = key or _key(then, released or rule.judge, None, {})
        wanted = released or rule.judge
        if rule.than_branches is not None:
            wanted += f"@{rule.than_branches}"
        return [(f"{RELEASE}:{key or wanted}", then[key] if key else {})]
    second = _key(here, rule.than, rule.than_branches, chosen)
    return [(str(second), here[second])] if second else []


def _checked(
    rule: Rule,
    benchmark: Benchmark,
    first: tuple[str, Verdicts],
    second: tuple[str, Verdicts],
    settings: EvaluateConfig,
    seed: int,
) -> Check:
    items = [c for c in benchmark.comparisons if c.label is not None and c.id in first[1] and c.id in second[1]]
    sides = [
        agreement([said[c.id][0] for c in items], [said[c.id][1] for c in items], [str(c.label) for c in items])
        for _, said in (first, second)
    ]
    prompts = [benchmark.prompt_of(c) for c in items]
    differ = paired_difference(sides[0], sides[1], settings.bootstrap, seed, prompts)
    names: dict[str, Any] = {"benchmark": benchmark.name, "rule": rule.text, "first": first[0], "second": second[0]}
    if differ is None:
        told = f"{second[0]} has no verdict on the comparisons of {benchmark.name}"
        return Check(**names, difference=None, difference_ci=None, p=None, n=0, passed=False, told=told)
    p = differ.p_value if differ.bootstrap_p is None else differ.bootstrap_p
    counts = p <= settings.gate.p
    passed = counts and differ.mean > 0 if rule.strict else not (counts and differ.mean < 0)
    relation = ("is " if passed else "is not ") + ("better than" if rule.strict else "as good as")
    ends = differ.interval
    interval = "" if ends is None else f" [{100 * ends[0]:+.1f}, {100 * ends[1]:+.1f}]"
    told = (
        f"{first[0]} {relation} {second[0]} on {benchmark.name} ({100 * differ.mean:+.1f} points{interval}, p {p:.3f})"
    )
    return Check(
        **names,
        n=len(items),
        difference=round(differ.mean, 6),
        difference_ci=ends,
        p=p,
        passed=passed,
        told=told,
    )


def read_verdicts(directory: Path, benchmark: str) -> dict[MethodKey, Verdicts]:
    """The verdicts of a finished evaluation on a benchmark.

    Raises:
        DataError: there is none in the directory.
    """
    import pyarrow.parquet

    path = directory.expanduser() / "predictions.parquet"
    if not path.is_file():
        raise DataError(f"evaluate.gate.release={str(directory)!r}: no finished evaluation ({path} is missing)")
    found: dict[MethodKey, Verdicts] = {}
    wanted = ("benchmark", "comparison_id", "method", "branches", "verdict_ab", "verdict_ba", "summed")
    columns = [name for name in pyarrow.parquet.read_schema(path).names if name in wanted]  # older ones sum nothing
    for row in pyarrow.parquet.read_table(path, columns=columns).to_pylist():
        if row["benchmark"] == benchmark:
            key, one = MethodKey(row["method"], row["branches"]), row.get("summed")
            said = (one, one) if one else (row["verdict_ab"], row["verdict_ba"])
            found.setdefault(key, {})[row["comparison_id"]] = said
    return found


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
    """Read what an evaluation's gate found.

    Raises:
        GateError: it did not pass; says why, and where the artifact is.
    """
    path = directory / FILE
    if path.is_file() and (told := failures(json.loads(path.read_text(encoding="utf-8")))):
        raise GateError(f"evaluate.gate: {told}. The evaluation is finished all the same: {directory}")


def _numbered(name: str) -> tuple[str, int | None]:
    method, at, branches = name.rpartition("@")
    return (method, int(branches)) if at and branches.isdigit() else (name, None)


def _released(than: str) -> str | None:
    """The method of the release that is meant, empty for the judge's own name; None: no release is."""
    if than == RELEASE:
        return ""
    return than.removeprefix(f"{RELEASE}:") if than.startswith(f"{RELEASE}:") else None


def _key(keys: Iterable[MethodKey], method: str, branches: int | None, chosen: Mapping[str, int]) -> MethodKey | None:
    """A method's key: with the branches asked for, else those chosen, else the most; None: it is not there."""
    mine = [key for key in keys if key.method == method]
    wanted = chosen.get(method) if branches is None else branches
    if wanted is not None:
        return next((key for key in mine if key.branches == wanted), None)
    return max(mine, key=lambda key: key.branches, default=None)
