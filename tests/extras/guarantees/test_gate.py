"""The gate: what it asks for, what it finds, and that a run fails with its artifact kept."""

import json
import sys
from pathlib import Path

import pytest

from judgetrain.artifacts.tracker import Runs
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.intervals import Resampling
from judgetrain.errors import ConfigError
from judgetrain.extras.guarantees.config import GuaranteesConfig
from judgetrain.extras.guarantees.gate import (
    Check,
    GateError,
    GateRule,
    failures,
    gate_checks,
    gate_row,
    require_passed,
)
from judgetrain.judges.method import Method
from judgetrain.judges.predictions import Prediction
from judgetrain.pipeline import cards, cli
from judgetrain.pipeline.config import Config
from tests.builders.evaluate import answers, benchmark, refused, write_rows


def checks(of: Benchmark, results: list[list[Prediction]], *required: str) -> list[Check]:
    methods = [Method.parse(name) for name in {r[0].method: None for r in results}]
    return gate_checks(of, methods, results, GuaranteesConfig(required=[*required]), Resampling(400, 1))


def results(of: Benchmark) -> list[list[Prediction]]:
    """dpo is right on 45 of 60 (on 20 with one branch), sft on 25, random on 18, longer on 30."""
    right = (("sft", 3, 25), ("dpo", 1, 20), ("dpo", 3, 45), ("random", 0, 18), ("longer", 0, 30))
    return [answers(name, k, of, n) for name, k, n in right]


def test_rules_are_tested_in_pairs_on_the_same_items() -> None:
    whole = benchmark(60)
    [better] = checks(whole, results(whole), "dpo beats sft")
    assert (better.first, better.second, better.n, better.passed) == ("dpo@3", "sft@3", 60, True)
    assert better.difference == pytest.approx(20 / 60, abs=1e-6)
    assert better.told.startswith("dpo@3 is better than sft@3 on b: +33.3 (+21.7–+45.0) points")
    [worse] = checks(whole, results(whole), "dpo@1 beats sft")
    assert not worse.passed and worse.told.startswith(
        "dpo@1 is not better than sft@3 on b: -8.3 (-15.0 to -1.7) points"
    )
    assert [c.passed for c in checks(whole, results(whole), "dpo@1 matches sft")] == [False], (
        "worse on every pair that differs"
    )
    assert [c.passed for c in checks(whole, results(whole), "longer matches random")] == [True]
    floors = checks(whole, results(whole), "dpo beats floors", "sft beats floors")
    assert [(c.second, c.passed) for c in floors[:2]] == [("random", True), ("longer", True)]
    assert [(c.second, c.passed) for c in floors[2:]] == [("random", True), ("longer", False)]


def test_as_good_is_shown_and_never_taken_for_granted() -> None:
    """Exact bounds where too few prompts differ: of n without a difference, 1 - 0.025 ** (1 / n) may speak against."""
    nine = benchmark(9)
    [check] = checks(nine, [answers("dpo", 3, nine, 1), answers("sft", 3, nine, 9)], "dpo matches sft")
    assert not check.passed
    assert check.told.startswith("dpo@3 is not shown to be as good as sft@3 on b: -88.9 points")
    for n, passed in ((9, False), (60, False), (100, True), (300, True)):
        same = benchmark(n)
        [check] = checks(same, [answers("dpo", 3, same, 5), answers("sft", 3, same, 5)], "dpo matches sft")
        least = -100 * (1 - 0.025 ** (1 / n))
        if n < 10:
            # There is no interval, so that all may be lost.
            least = -100.0
        assert (check.passed, f"{least:+.1f} at least" in check.told) == (passed, True), n
    few = benchmark(300)
    [check] = checks(few, [answers("dpo", 3, few, 100), answers("sft", 3, few, 103)], "dpo matches sft")
    assert check.passed, "three of 300 are few"
    [check] = checks(few, [answers("dpo", 3, few, 100), answers("sft", 3, few, 120)], "dpo matches sft")
    assert not check.passed, "clearly behind, by the paired interval"


def test_one_prompt_passes_nothing() -> None:
    one = benchmark(60, queries=1)
    [check] = checks(one, [answers("dpo", 3, one, 45), answers("sft", 3, one, 15)], "dpo beats sft")
    assert (check.passed, check.p) == (False, 1.0) and "one prompt shows nothing" in check.told
    several = benchmark(60, queries=30)
    [check] = checks(several, [answers("dpo", 3, several, 45), answers("sft", 3, several, 15)], "dpo beats sft")
    assert check.passed


def test_what_was_tested_nowhere_has_not_passed(tmp_path: Path) -> None:
    whole = benchmark(60)
    row = gate_row(checks(whole, results(whole), "dpo beats sft"), ["dpo beats sft", "stored:x beats sft"])
    assert not row["passed"] and failures(row) == "stored:x beats sft was tested on no benchmark"
    (tmp_path / "gate.json").write_text(json.dumps(row))
    with pytest.raises(GateError, match="stored:x beats sft was tested on no benchmark"):
        require_passed(tmp_path)
    fine = gate_row(checks(whole, results(whole), "dpo beats sft"), ["dpo beats sft"])
    (tmp_path / "gate.json").write_text(json.dumps(fine))
    require_passed(tmp_path)
    assert fine["passed"] and fine["checks"][0]["passed"]
    require_passed(tmp_path / "no gate")


@pytest.mark.parametrize(
    ("required", "message"),
    [
        ("longer", "'longer' is no rule; expected JUDGE beats METHOD"),
        ("dpo beats random", "dpo is not evaluated; evaluate.methods has longer, random, base"),
        ("longer@3 beats random", "longer is asked without branches, not with 3"),
        ("base@7 beats random", "base is asked with 1, 3, 5, 10, not with 7"),
    ],
)
def test_rules_that_cannot_be_tested_are_refused_before_anything_runs(required: str, message: str) -> None:
    config = Config()
    config.evaluate.benchmarks = [BenchmarkConfig("world", SourceConfig(name="world", type="world"))]
    config.evaluate.methods = ["longer", "random", "base"]
    config.guarantees.required = [required]
    assert message in refused(config, "evaluate")
    rule = "dpo@10 matches sft@3"
    assert GateRule.parse(rule) == GateRule(rule, "dpo", 10, False, "sft", 3)
    with pytest.raises(ConfigError, match="is no rule"):
        GateRule.parse(">dpo")


def test_a_run_that_does_not_pass_fails_and_keeps_its_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"id": i, "query": f"q{i}", "response_a": "long answer", "response_b": "short", "label": "AAB"[i % 3]}
        for i in range(60)
    ]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    alerts: list[tuple[str, str]] = []
    monkeypatch.setattr(Runs, "alert", lambda self, title, text: alerts.append((title, text)))
    pushes: list[str] = []
    monkeypatch.setattr(cards, "push_last", lambda pipeline, judges: pushes.append(pipeline.config.stage))

    def run(rule: str) -> int:
        benchmarks = f"evaluate.benchmarks=[{{name: mine, source: {{path: {path}, format: comparison}}}}]"
        arguments = ["stage=evaluate", benchmarks, "evaluate.methods=[longer,first,random]", "evaluate.bootstrap=200"]
        arguments += [f"guarantees.required=[{rule}]", f"output_dir={tmp_path / 'out'}", "track.tracker=none"]
        monkeypatch.setattr(sys, "argv", ["judgetrain", *arguments])
        return cli.main()

    assert run("longer beats first") == 0 and not alerts and pushes == ["evaluate"]
    assert run("random beats longer") == 2 and pushes == ["evaluate"], "what does not pass goes to no hub"
    errors = capsys.readouterr().err
    assert (
        "guarantees.required: random is not better than longer on mine: " in errors
        and "is finished all the same" in errors
    )
    [(title, text)] = alerts
    assert "did not pass its gate" in title and text.startswith("random is not better than longer")
    [failed] = [p for p in (tmp_path / "out").rglob("gate.json") if not json.loads(p.read_text())["passed"]]
    assert {"manifest.json", "metrics.json", "report.html"} <= {p.name for p in failed.parent.iterdir()}
    page = (failed.parent / "report.html").read_text()
    assert page.index("random beats longer") < page.index("<h3>Judges</h3>")
    assert run("random beats longer") == 2, "the finished evaluation still has not passed"
    assert len(alerts) == 1 and len(pushes) == 1


@pytest.mark.parametrize(("n", "passes"), [(10, False), (12, False), (20, False), (150, True)])
def test_as_good_is_shown_by_enough_prompts_alone(n: int, passes: bool) -> None:
    """A judge that is right wherever the other is, and once more: of twelve prompts that is little evidence."""
    whole = benchmark(n)
    [check] = checks(whole, [answers("dpo", 3, whole, n // 2 + 1), answers("sft", 3, whole, n // 2)], "dpo matches sft")
    assert check.difference == pytest.approx(1 / n, abs=1e-6)
    assert check.passed is passes, check.told
