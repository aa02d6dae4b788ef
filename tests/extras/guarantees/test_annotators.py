"""The alternative annotator test against a loop over the paper's definitions, and on rows of the published shape."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from judgetrain.data.benchmarks.benchmark import Benchmark, load_benchmark
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.extras.guarantees.annotators import alternative_annotator, rejected, replacement, smaller
from judgetrain.judges.base import Prediction
from tests.builders.evaluate import write_rows

LABELS = ("A", "B", "tie")


def noisy(truth: Mapping[str, str], right: float, rng: random.Random, share: float = 1.0) -> dict[str, str]:
    """Annotations that are the truth with a chance, else anything; of a share of the items."""
    return {i: y if rng.random() < right else rng.choice(LABELS) for i, y in truth.items() if rng.random() < share}


def by_hand(
    judged: Mapping[str, str | None], people: Mapping[str, Mapping[str, str]], epsilon: float, q: float, least: int
) -> tuple[float, float, dict[str, float]]:
    """Omega, rho and the p of each person, item by item as the paper's section 3 has it."""
    ps, advantages = {}, []
    for left_out in people:
        judge_holds, person_holds = [], []
        for item, own in people[left_out].items():
            others = [said[item] for name, said in people.items() if name != left_out and item in said]
            if not others or item not in judged:
                continue
            judge = sum(judged[item] == other for other in others) / len(others)
            human = sum(own == other for other in others) / len(others)
            judge_holds.append(1.0 if judge >= human else 0.0)
            person_holds.append(1.0 if human >= judge else 0.0)
        if len(judge_holds) < least:
            continue
        difference = np.array(person_holds) - np.array(judge_holds)
        t = (difference.mean() - epsilon) / (difference.std(ddof=1) / len(difference) ** 0.5)
        ps[left_out] = float(stats.t.cdf(t, len(difference) - 1))
        advantages.append(np.mean(judge_holds))
    ordered, m = sorted(ps.values()), len(ps)
    harmonic = sum(1 / i for i in range(1, m + 1))
    passing = [i for i, p in enumerate(ordered, 1) if p <= i * q / (m * harmonic)]
    return (max(passing) if passing else 0) / m, float(np.mean(advantages)), ps


@pytest.mark.parametrize("skill", [0.2, 0.6, 0.7, 0.95])
@pytest.mark.parametrize("seed", [1, 2])
def test_rates_and_ps_are_those_of_a_loop(skill: float, seed: int) -> None:
    rng = random.Random(seed)
    truth = {f"i{i}": rng.choice(LABELS) for i in range(150)}
    people = {f"p{n}": noisy(truth, 0.6 + 0.08 * n, rng, 0.7) for n in range(5)} | {"few": noisy(truth, 0.9, rng, 0.05)}
    judged: dict[str, str | None] = {**noisy(truth, skill, rng)}
    judged |= {f"i{i}": None for i in range(5)}
    found = alternative_annotator(judged, people, epsilon=0.1)
    omega, rho, ps = by_hand(judged, people, 0.1, 0.05, 30)
    assert (found.winning_rate, found.advantage) == pytest.approx((omega, rho), abs=1e-6)
    assert {p.name: p.p for p in found.people} == pytest.approx(ps)
    assert found.left_out == 1 and "few" not in ps
    assert found.replaces == (omega >= 0.5)
    assert f"{'may' if omega >= 0.5 else 'may not'} replace a person" in found.told


def test_a_judge_like_the_truth_replaces_people_and_a_coin_does_not() -> None:
    rng = random.Random(0)
    truth = {f"i{i}": rng.choice(LABELS) for i in range(100)}
    people = {f"p{n}": noisy(truth, 0.7, rng) for n in range(3)}
    best = alternative_annotator(truth, people)
    assert best.winning_rate == 1 and best.replaces and best.advantage is not None and best.advantage > 0.8
    coin = alternative_annotator({i: rng.choice(LABELS) for i in truth}, people)
    assert coin.winning_rate == 0 and coin.replaces is False
    unreadable = alternative_annotator(dict.fromkeys(truth), people)
    assert unreadable.replaces is False
    nobody = alternative_annotator(truth, {name: dict([*own.items()][:5]) for name, own in people.items()})
    assert nobody.replaces is None and nobody.left_out == 3 and "nobody has 30" in nobody.told


def test_ps_of_all_alike_and_the_false_discovery_rate() -> None:
    assert smaller(np.zeros(40, dtype=int), 0.1) == 0.0 and smaller(np.ones(40, dtype=int), 0.1) == 1.0
    # Thresholds i/4 * 0.05 / (25/12): 0.006, 0.012, 0.018, 0.024.
    assert rejected([0.017, 0.005, 0.5, 0.01], 0.05) == [True, True, False, True]
    assert rejected([0.02, 0.02, 0.02, 0.5], 0.05) == [False] * 4 and rejected([], 0.05) == []


def said(benchmark: Benchmark, verdicts: Mapping[str, str | None]) -> list[Prediction]:
    return [
        Prediction(comparison_id=c.id, method="m", verdict_ab=v, verdict_ba=v)  # type: ignore[arg-type]
        for c in benchmark.comparisons
        for v in [verdicts[c.id]]
    ]


def test_pandalms_three_annotators_are_three_people(tmp_path: Path) -> None:
    rng = random.Random(4)
    rows = []
    for i in range(60):
        truth = rng.choice([0, 1, 2])
        votes = [truth if rng.random() < 0.75 else rng.choice([0, 1, 2]) for _ in range(3)]
        row = {
            "idx": i,
            "motivation_app": "x",
            "instruction": f"do {i}",
            "input": "",
            "response1": "a",
            "response2": "b",
        }
        rows.append(row | {f"annotator{n + 1}": v for n, v in enumerate(votes)} | {"truth": truth})
    path = write_rows(tmp_path / "testset-v1.jsonl", rows)
    config = BenchmarkConfig(name="pandalm", source=SourceConfig(path=path, adapter="pandalm"))
    benchmark = load_benchmark(config, 0, 1, None)
    assert benchmark.voters["pandalm:0"] == ("annotator1", "annotator2", "annotator3")
    names = {0: "tie", 1: "A", 2: "B"}
    judged = {f"pandalm:{r['idx']}": names[r["truth"]] for r in rows}
    found = replacement(benchmark, said(benchmark, judged))
    people = {f"annotator{n}": {f"pandalm:{r['idx']}": names[r[f"annotator{n}"]] for r in rows} for n in (1, 2, 3)}
    omega, rho, ps = by_hand(judged, people, 0.15, 0.05, 30)
    assert found is not None and (found.winning_rate, found.advantage) == pytest.approx((omega, rho), abs=1e-6)
    assert {p.name: p.p for p in found.people} == pytest.approx(ps)


def test_mt_benchs_voters_are_told_apart_whichever_model_their_votes_name_first(tmp_path: Path) -> None:
    rng, rows, people = random.Random(7), [], {}
    said_by = {"model_a": "A", "model_b": "B", "tie": "tie"}
    for question in range(81, 121):
        for voter in ("expert_1", "expert_2", "author_3"):
            models, winner = ["x", "y"], rng.choice(["model_a", "model_b", "tie"])
            people.setdefault(voter, {})[f"mt:{question}:1:x:y"] = said_by[winner]
            if rng.random() < 0.5:  # the same vote, written the other way round
                models, winner = ["y", "x"], {"model_a": "model_b", "model_b": "model_a"}.get(winner, winner)
            row = {"question_id": question, "turn": 1, "model_a": models[0], "model_b": models[1], "winner": winner}
            talks = {m: [{"role": "user", "content": "q"}, {"role": "assistant", "content": m}] for m in models}
            rows.append(
                row | {"judge": voter} | {f"conversation_{s}": talks[m] for s, m in zip("ab", models, strict=True)}
            )
    path = write_rows(tmp_path / "votes.jsonl", rows)
    config = BenchmarkConfig(name="mt", source=SourceConfig(path=path, adapter="mt_bench_human"))
    benchmark = load_benchmark(config, 0, 1, None)
    judged = {c.id: rng.choice(LABELS) for c in benchmark.comparisons}
    found = replacement(benchmark, said(benchmark, judged))
    omega, rho, ps = by_hand(judged, people, 0.15, 0.05, 30)
    assert found is not None and {p.name: p.p for p in found.people} == pytest.approx(ps)
    assert (found.winning_rate, found.advantage) == pytest.approx((omega, rho), abs=1e-6)
    assert replacement(benchmark.part(benchmark.comparisons[:0], "test"), []) is None
