"""May a judge replace a person? The alternative annotator test.

Calderon, Reichart, Dror: The Alternative Annotator Test for LLM-as-a-Judge (ACL 2025, arXiv 2501.10970): each person in
turn is left out, and whoever agrees more with the others, the judge or the person, represents them better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.judges.base import Prediction

LEAST = 30
"""People with fewer comparisons that somebody else has labelled too are left out: from so many on the paper's test is
Student's."""
EPSILON = 0.15
"""By how much a person may be better and still not be worth the cost: the paper's for skilled annotators."""
FALSE_DISCOVERIES = 0.05
"""The false discovery rate over people."""


@dataclass(frozen=True, kw_only=True)
class Person:
    """A person who is left out.

    ``judge``: on what share of the ``n`` comparisons the judge agrees with the others at least as well as the person
    (its advantage probability); ``person``: the other way round. ``p``: of "the judge is worse by epsilon or more".
    ``wins``: whether that is rejected, false discoveries over people controlled.
    """

    name: str
    n: int
    judge: float
    person: float
    p: float
    wins: bool


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """The test over all people.

    ``winning_rate`` (omega): the share of people against whom the judge wins. ``advantage`` (rho): the mean of the
    advantage probabilities. ``replaces``: omega is at least one half. ``left_out``: people with too few comparisons
    that others labelled too. The first three are None where nobody is left.
    """

    winning_rate: float | None
    advantage: float | None
    epsilon: float
    replaces: bool | None
    people: tuple[Person, ...]
    left_out: int
    told: str


def alternative_annotator(
    judged: Mapping[str, str | None], people: Mapping[str, Mapping[str, str]], epsilon: float = EPSILON
) -> Replacement:
    """The test of a judge's annotations against those of several people.

    Args:
        judged: the judge's annotation by item; None agrees with nobody. Items without one are not looked at.
        people: by person, the annotation by item.
        epsilon: by how much a person may be better.
    """
    shared: dict[str, list[str]] = {}
    for person, own in people.items():
        for item in own:
            shared.setdefault(item, []).append(person)
    kept = {item: who for item, who in shared.items() if len(who) > 1 and item in judged}
    differences: dict[str, NDArray[np.int_]] = {}
    holds: dict[str, tuple[float, float]] = {}
    for person, own in people.items():
        scores = []
        for item in (i for i in own if i in kept):
            others = [people[other][item] for other in kept[item] if other != person]
            scores.append([sum(other == said for other in others) for said in (judged[item], own[item])])
        if len(scores) >= LEAST:
            judge, human = np.array(scores).T
            differences[person] = (human >= judge).astype(int) - (judge >= human).astype(int)
            holds[person] = round(float(np.mean(judge >= human)), 6), round(float(np.mean(human >= judge)), 6)
    ps = [smaller(values, epsilon) for values in differences.values()]
    wins = rejected(ps, FALSE_DISCOVERIES)
    found = tuple(
        Person(name=name, n=len(values), judge=holds[name][0], person=holds[name][1], p=p, wins=won)
        for (name, values), p, won in zip(differences.items(), ps, wins, strict=True)
    )
    left_out = len(people) - len(found)
    if not found:
        told = f"nobody has {LEAST} comparisons that others labelled too"
        nothing: dict[str, None] = {"winning_rate": None, "advantage": None, "replaces": None}
        return Replacement(epsilon=epsilon, people=(), left_out=left_out, told=told, **nothing)
    rate, advantage = (round(float(np.mean(v)), 6) for v in ([p.wins for p in found], [p.judge for p in found]))
    may = rate >= 0.5
    told = (
        f"{'may' if may else 'may not'} replace a person: wins against {sum(p.wins for p in found)} of {len(found)} "
        f"people (omega {rate:.2f}, {'at least' if may else 'below'} 0.5), advantage probability {advantage:.2f}, at "
        f"epsilon {epsilon:g}"
    )
    known: dict[str, Any] = {"winning_rate": rate, "advantage": advantage, "replaces": may}
    return Replacement(epsilon=epsilon, people=found, left_out=left_out, told=told, **known)


def smaller(differences: NDArray[np.int_], epsilon: float) -> float:
    """The p of "their mean is at least epsilon" against "it is smaller": Student's t; 0 or 1 where all are the same."""
    from scipy import stats

    if np.ptp(differences) == 0:
        return 0.0 if differences[0] < epsilon else 1.0
    return float(stats.ttest_1samp(differences, epsilon, alternative="less").pvalue)


def rejected(ps: Sequence[float], rate: float) -> list[bool]:
    """Which hypotheses Benjamini and Yekutieli's procedure rejects at a false discovery rate (any dependence)."""
    from scipy import stats

    return [bool(p <= rate) for p in stats.false_discovery_control(ps, method="by")] if ps else []


def replacement(benchmark: Benchmark, predictions: Sequence[Prediction]) -> Replacement | None:
    """The test on a benchmark whose rows name several people; None where they do not.

    The judge's annotation is what both orders say; where they differ or cannot be read, it agrees with nobody.
    """
    people: dict[str, dict[str, str]] = {}
    for item, names in benchmark.voters.items():
        for name, vote in zip(names, benchmark.votes[item], strict=True):
            people.setdefault(name, {}).setdefault(item, vote)
    ids = {c.id for c in benchmark.comparisons}
    people = {name: {i: vote for i, vote in own.items() if i in ids} for name, own in people.items()}
    if sum(bool(own) for own in people.values()) < 2:
        return None
    said = {p.comparison_id: p.verdict if p.verdict in ("A", "B", "tie") else None for p in predictions}
    return alternative_annotator(said, people)
