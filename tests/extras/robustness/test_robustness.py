"""What attacks did to judges whose every verdict is known; intervals against SciPy's and a simulation."""

import dataclasses
import json
import random
import re
from pathlib import Path

import pytest
from scipy.stats import binomtest

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.intervals import Resampling, wilson_interval
from judgetrain.engines import lazy_model
from judgetrain.engines.base import Request
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.rows import MetricRow, metric_row
from judgetrain.evaluate.report.report import Report, markdown
from judgetrain.extras.robustness.attack_suite import AttackSuite, attack_suite
from judgetrain.extras.robustness.config import RobustnessConfig
from judgetrain.extras.robustness.measure import robustness
from judgetrain.judges.predictions import Prediction
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.pipeline.config import Config
from judgetrain.schema import Verdict, mirror
from tests.builders.evaluate import benchmark, judge, refused, run, write_rows
from tests.builders.scripted import ScriptedEngine, criteria, judged

WHOLE = RobustnessConfig(sample=12)


@pytest.mark.parametrize(("hits", "n"), [(0, 11), (3, 10), (20, 20), (41, 97)])
def test_wilson_s_interval_is_scipy_s(hits: int, n: int) -> None:
    values = [True] * hits + [False] * (n - hits)
    expected = binomtest(hits, n).proportion_ci(method="wilson")
    assert wilson_interval(values) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert wilson_interval(values, range(n)) == pytest.approx((expected.low, expected.high), abs=0.03)
    assert wilson_interval([]) is None
    # As of every other interval, below ten prompts.
    assert wilson_interval([True] * 9) is None


def test_items_of_one_cluster_that_say_the_same_count_once() -> None:
    values = [True] * 15 + [False] * 45
    clusters = [i // 5 for i in range(60)]
    few = binomtest(3, 12).proportion_ci(method="wilson")
    low, high = wilson_interval(values, clusters)  # type: ignore[misc]
    assert (low, high) == pytest.approx((few.low, few.high), abs=0.03)
    assert wilson_interval([False] * 60, clusters)[1] == binomtest(0, 12).proportion_ci(method="wilson").high  # type: ignore[index]
    with pytest.raises(ValueError, match="60 values and 2 clusters"):
        wilson_interval(values, [1, 2])


def found(settings: RobustnessConfig = WHOLE, n: int = 18) -> AttackSuite:
    whole = attack_suite(benchmark(n), settings, 5)
    assert whole is not None
    return whole


def test_the_suite_attacks_the_worse_response_of_decided_comparisons() -> None:
    labels = {c.id: c.label for c in benchmark(18).comparisons}
    tried = found()
    assert len({case.plain.id for case in tried.cases}) == 12
    assert {labels[case.plain.id] for case in tried.cases} == {"A", "B"}
    for case in tried.cases:
        assert case.plain.label == "B"
        assert case.swapped == (labels[case.plain.id] == "A")
    attacked = tried.benchmark
    assert attacked.name == "b-attacks"
    assert len({c.id for c in attacked.comparisons}) == len(attacked.comparisons)
    assert sum(c.id.endswith("+rerun") for c in attacked.comparisons) == 12
    assert not any("+position" in c.id for c in attacked.comparisons), "the two orders are known without asking"
    assert attack_suite(benchmark(18), dataclasses.replace(WHOLE, sample=0), 5) is None


def test_the_sample_is_the_same_for_a_seed_and_grows_in_no_other_way() -> None:
    assert found() == found()
    assert {c.plain.id for c in found(RobustnessConfig(sample=3)).cases} < {c.plain.id for c in found().cases}


def said(name: str, tried: AttackSuite, seed: int) -> tuple[list[Prediction], list[Prediction]]:
    """Verdicts drawn at random on a benchmark and on its attacked comparisons."""
    rng = random.Random(seed)

    def drawn(ids: list[str]) -> list[Prediction]:
        pairs = [(i, rng.choice(("A", "B", "tie", None)), rng.choice(("A", "B", "tie"))) for i in ids]
        return [Prediction(comparison_id=i, method=name, verdict_ab=a, verdict_ba=b) for i, a, b in pairs]

    return drawn([c.id for c in tried.of.comparisons]), drawn([c.id for c in tried.benchmark.comparisons])


def test_shares_equal_a_recount() -> None:
    tried = found(RobustnessConfig(sample=24), 36)
    plain, attacked = said("m", tried, 1)
    rows = {(r.attack, r.kind): r for r in robustness(tried, plain, attacked)}
    base = {p.comparison_id: p for p in plain}
    labels = {c.id: c.label for c in tried.of.comparisons}
    robust = 0
    loses = 0
    unread = 0

    def seen(name: str) -> tuple[Verdict | None, Verdict | None]:
        p = base[name]
        both = (p.verdict_ab, p.verdict_ba)
        if labels[name] == "A":  # the worse one is B: exchanged, what was shown first as A is now shown second
            both = tuple(None if v is None else mirror(v) for v in both[::-1])  # type: ignore[assignment]
        return both

    for p in attacked:
        name, attack = p.comparison_id.split("+")
        before = seen(name)
        if attack == "bandwagon" and None in before:
            unread += 1
        elif attack == "bandwagon":
            robust += before == (p.verdict_ab, p.verdict_ba)
        if attack == "colon":
            loses += p.verdict_ab == p.verdict_ba == "B"
    row = rows["bandwagon", "edit"]
    assert (row.n, row.unreadable) == (24, unread) and 0 < unread < 14
    read = 24 - unread
    assert row.robustness == robust / read
    assert row.loses is None
    ends = binomtest(robust, read).proportion_ci(method="wilson")
    assert row.robustness_ci == pytest.approx((ends.low, ends.high), abs=0.03)
    assert rows["colon", "empty"].loses == loses / 24
    assert rows["colon", "empty"].robustness is None
    names = {case.plain.id for case in tried.cases}
    position = rows["position", "edit"]
    both_known = [seen(name) for name in names if None not in seen(name)]
    assert position.robustness == sum(before[0] == before[1] for before in both_known) / len(both_known)
    all_edits = [r for (name, kind), r in rows.items() if kind == "edit" and name]
    whole = rows["", "edit"]
    assert whole.n == sum(r.n for r in all_edits) and whole.unreadable == sum(r.unreadable or 0 for r in all_edits)
    parts = [(r.n - (r.unreadable or 0), r.robustness or 0.0) for r in all_edits]
    assert whole.robustness == pytest.approx(sum(n * share for n, share in parts) / sum(n for n, _ in parts))
    assert ("", "rerun") not in rows


def test_a_judge_that_reads_nothing_is_not_robust() -> None:
    tried = found()
    silent = [
        [Prediction(comparison_id=c.id, method="m", verdict_ab=None, verdict_ba=None) for c in of.comparisons]
        for of in (tried.of, tried.benchmark)
    ]
    rows = {(r.attack, r.kind): r for r in robustness(tried, *silent)}
    edits = rows["", "edit"]
    dot = rows["colon", "empty"]
    assert edits.unreadable == edits.n and edits.robustness is None is edits.robustness_ci is edits.flips
    assert dot.loses == 0, "what has no content lost nowhere"
    shown = metric_row(tried.of, silent[0], 0.1, Resampling(50, 1))
    shown = dataclasses.replace(shown, extras={"robustness": tuple(rows.values())})
    page = markdown(Report(recipe="r", seed=1, rows=[shown]))
    assert re.search(r"\| m \| 0.0 \(.*\| – \| .* \| 12 \|", page), "no flips are told of what was not read"
    lost = [dataclasses.replace(p, verdict_ab="B", verdict_ba="B") for p in silent[0]]
    assert {r.robustness for r in robustness(tried, lost, silent[1]) if r.attack == "markdown"} == {0.0}


def praised(request: Request, occurrence: int) -> str:
    """Prefers the response with the larger number, but believes one that praises itself."""
    if request.step == "criteria":
        return criteria(2)
    if request.step == "guideline":
        return "a guideline"
    shown = [request.slots["response_a"], request.slots["response_b"]]
    scores = [5 if "no better one" in text else 1 + len(text) % 4 if text[:1].isdigit() else 1 for text in shown]
    return judged(*scores)


def evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> Path:
    rows = [
        {"id": i, "query": f"q{i}", "response_1": "1", "response_2": "22" if i % 2 else "333", "label": "B"}
        for i in range(10)
    ]
    source = SourceConfig(name="p", type="jsonl", path=write_rows(tmp_path / "p.jsonl", rows), format="comparison")
    settings = EvaluateConfig([BenchmarkConfig("p", source)], ["sft", "random", "longer"], [1, 2], bootstrap=100)
    monkeypatch.setattr(lazy_model, "make_engine", lambda *a, **k: ScriptedEngine(praised))
    attacks = RobustnessConfig(**changes)  # type: ignore[arg-type]
    config = Config(evaluate=settings, robustness=attacks, tree=TreeConfig(criteria=2, shard_size=4))
    return run("evaluate", config, {"sft": judge(tmp_path / "sft")}, tmp_path / "out").directory


def test_a_judge_that_believes_praise_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = evaluated(tmp_path, monkeypatch, sample=5, methods=["sft", "longer"])
    rows = {(r["method"], r["branches"]): r for r in json.loads((out / "metrics.json").read_text())}
    assert "robustness" not in rows["random", 0]
    for key in (("sft", 1), ("sft", 2)):
        attacks = {r["attack"]: r for r in rows[key]["robustness"]}
        assert attacks["self_praise"]["robustness"] == 0.0
        assert attacks["rerun"]["robustness"] == attacks["position"]["robustness"] == 1.0
        assert attacks["nothing"]["loses"] == 1.0
        assert attacks["nothing"]["n"] == 5
    assert rows["longer", 0]["robustness"]
    read = MetricRow.from_row(rows["sft", 2])
    assert read == MetricRow.from_row(json.loads(json.dumps(read.to_row()))) and read.extras["robustness"]
    page = (out / "report.html").read_text()
    text = (out / "report.md").read_text()
    assert "Under attack" in page
    assert "self praise 100.0" in text
    assert "<details" in page[page.index("Answers without content") - 200 :]
    assert len(list(read_rows(out, "trees-p-attacks-sft"))) == 5 * 17  # each is one sentence, which has no first one
    assert [r["n"] for r in rows.values()] == [10] * 4, "attacked comparisons are in no other number"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sample": 0}, {}),
        ({"methods": ["longer"], "attacks": ["forgery", "rerun"]}, {"longer": {"forgery", "rerun"}}),
        ({"methods": ["dpo"], "attacks": ["rerun"]}, {"sft": {"rerun"}}),  # dpo is not evaluated, sft the last that is
    ],
)
def test_the_methods_named_are_attacked_or_else_the_last_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], expected: dict[str, set[str]]
) -> None:
    out = evaluated(tmp_path, monkeypatch, **{"sample": 2, **changes})
    rows = json.loads((out / "metrics.json").read_text())
    assert {r["method"]: {a["kind"] for a in r["robustness"]} for r in rows if "robustness" in r} == expected
    assert bool([*out.glob("*attacks-sft*")]) == ("sft" in expected)
    assert ("Under attack" in (out / "report.html").read_text()) == bool(expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attacks": ["flattery"]}, "robustness.attacks: 'flattery' is no attack"),
        ({"methods": ["random"]}, "robustness.methods: 'random' cannot be attacked.*these can: sft, longer"),
    ],
)
def test_what_cannot_be_attacked_is_refused(changes: dict[str, object], message: str) -> None:
    source = SourceConfig(name="w", type="world")
    settings = EvaluateConfig([BenchmarkConfig("w", source)], ["sft", "random", "longer"], [1])
    attacks = RobustnessConfig(**changes)  # type: ignore[arg-type]
    assert re.search(message, refused(Config(evaluate=settings, robustness=attacks), "evaluate"))
