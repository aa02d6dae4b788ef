"""The verdict of the summed margin: a preference for a position cancels in it, and what each order says stays known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines.base import Request
from judgetrain.evaluate.metrics.predictions import parquet, prediction_rows
from judgetrain.evaluate.metrics.rows import MethodKey, metric_row
from judgetrain.extras.guarantees.release import release_verdicts
from judgetrain.judges import BranchingJudge
from judgetrain.judges.base import Prediction
from judgetrain.judges.config import JudgeConfig, JudgeOptions
from judgetrain.judges.kinds.branching import summed
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judging.rows import row_of
from judgetrain.judging.summary import Summary
from judgetrain.schema import ORDERS, Verdict, mirror
from tests.builders.scripted import Answer, ScriptedEngine, by_length, comparison, judged, noisy

PROMPTS = load_prompt_set("compact")
VERDICTS = st.sampled_from(["A", "B", "tie", None])


def leaning(request: Request, occurrence: int) -> str:
    """Prefers what is shown first by a point, and by two where it is the longer one: so the longer one is ahead."""
    if request.step != "judgment":
        return by_length(request, occurrence)
    longer_first = len(request.slots["response_a"]) > len(request.slots["response_b"])
    return judged(4, 2) if longer_first else judged(4, 3)


def judge(answer: Answer = leaning, rule: str = "summed", branches: int = 1) -> BranchingJudge:
    asking = JudgeConfig().asking(3)
    return BranchingJudge(
        ScriptedEngine(answer), PROMPTS, JudgeOptions(branches=branches, steps=asking, verdict=rule), "test"
    )


def prediction(ab: Verdict | None, ba: Verdict | None, margin: float | None) -> Prediction:
    return Prediction(comparison_id="q0", method="m", branches=1, verdict_ab=ab, verdict_ba=ba, margin=margin)


def test_a_preference_for_a_position_cancels_by_hand() -> None:
    for a, b, better in (("one two", "one", "A"), ("one", "one two", "B")):
        strict = judge(rule="strict").compare(comparison(0, a, b))
        assert (strict.verdict_ab, strict.verdict_ba, strict.verdict) == ("A", "B", "inconsistent")
        found = judge().compare(comparison(0, a, b))
        # The longer one is ahead by 2 where it is first and behind by 1 where it is second: (2 - 1) / 2.
        assert abs(found.margin or 0) == 0.5 and found.verdict == better
        assert (found.verdict_ab, found.verdict_ba, found.consistent) == ("A", "B", False), "orders say what they said"
        assert found.decided == (better, better)
        assert found.asked == "greedy, summed" and strict.asked == "greedy"


def test_a_margin_of_0_is_a_tie() -> None:
    assert judge().compare(comparison(0, "one", "two")).verdict == "tie", "equally long: a point for either place"


@pytest.mark.parametrize("branches", [1, 3])
def test_it_is_the_sign_of_the_margin_and_mirrors_when_responses_are_exchanged(branches: int) -> None:
    rows = [comparison(i, "x" * (i % 4 + 1), "y" * (i % 3 + 1)) for i in range(40)]
    seen = set()
    for one, other in zip(
        judge(branches=branches).compare_all(rows),
        judge(branches=branches).compare_all([c.swapped() for c in rows]),
        strict=True,
    ):
        margins = [r.score_a - r.score_b for r in one.reasons if r.score_a is not None and r.score_b is not None]
        total = sum(margins)
        assert len(margins) == branches * len(ORDERS)
        assert one.verdict == ("A" if total > 0 else "B" if total < 0 else "tie")
        assert one.summed is not None and other.verdict == mirror(one.summed)
        seen.add(one.verdict)
    assert seen == {"A", "B", "tie"}


def test_one_order_alone_decides_nothing() -> None:
    def broken(request: Request, occurrence: int) -> str:
        first = request.slots.get("response_a") == "one two 0"
        return "nothing to read" if request.step == "judgment" and first else leaning(request, occurrence)

    found = judge(broken).compare(comparison(0, "one two", "one"))
    assert found.verdict_ab is None and found.verdict_ba is not None and found.margin is not None
    assert found.verdict == "unreadable" and found.summed is None and found.consistent is None


@given(VERDICTS, VERDICTS, st.floats(-4, 4, allow_nan=False))
def test_the_strict_rule_is_untouched(ab: Verdict | None, ba: Verdict | None, margin: float) -> None:
    strict = prediction(ab, ba, margin)
    assert strict.decided == (ab, ba)
    assert strict.verdict == ("unreadable" if None in (ab, ba) else ab if ab == ba else "inconsistent")
    other = summed(strict)
    assert other.consistent == strict.consistent and (other.verdict == "unreadable") == (strict.verdict == "unreadable")
    assert other.verdict != "inconsistent"


def test_it_is_an_option_of_a_method_that_asks_nothing_else() -> None:
    method = Method.parse("./mine+sampled+summed@3")
    assert method.options == ("sampled", "summed") and method.name == "mine+sampled+summed"
    assert (method.asking, method.ways) == ({"temperature": 1.0}, {"verdict": "summed"})
    assert method.asked.name == "mine+sampled" and method.asked.most == 3
    assert Method.parse("dpo").asked == Method.parse("dpo")


def benchmark(rows: int = 24) -> Benchmark:
    labels = ("A", "B", "tie")
    made = [comparison(i, "x" * (1 + i % 5), "y" * (1 + i % 4), label=labels[i % 3]) for i in range(rows)]
    return Benchmark(name="b", split="test", comparisons=made)


def test_metrics_are_of_the_sum_but_consistency_and_single_orders_of_what_each_order_says() -> None:
    whole = benchmark()
    strict = judge(rule="strict").compare_all(whole.comparisons)
    both = judge().compare_all(whole.comparisons)
    before, after = (metric_row(whole, p, 1.0, 50, 0) for p in (strict, both))
    signs = ["A" if (p.margin or 0) > 0 else "B" if (p.margin or 0) < 0 else "tie" for p in strict]
    right = [sign == c.label for sign, c in zip(signs, whole.comparisons, strict=True)]
    assert after.agreement == pytest.approx(sum(right) / len(right)) == before.summed_agreement
    assert after.agreement != before.agreement
    for name in ("consistency", "single_order_accuracy", "accuracy_ab", "accuracy_ba", "position_bias"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.conflict_as_tie == after.agreement and before.unreadable_verdicts == after.unreadable_verdicts == 0


def test_a_release_s_sums_are_read_again(tmp_path: Path) -> None:
    whole = benchmark(6)
    both = judge().compare_all(whole.comparisons)
    path = tmp_path / "predictions.parquet"
    path.write_bytes(parquet(prediction_rows(whole, both)))
    assert release_verdicts(str(tmp_path), whole)[MethodKey("test", 1)] == {p.comparison_id: p.decided for p in both}


def test_rows_of_stage_judge_say_both() -> None:
    one = comparison(0, "one two", "one", label="A")
    row = row_of(one, judge().compare(one), "test")
    assert (row["verdict"], row["verdict_ab"], row["verdict_ba"]) == ("A", "A", "B")
    strict = row_of(one, judge(rule="strict").compare(one), "test")
    told = [Summary.of([each], "test", 1, {"prompt": 1, "generated": 1}, {}) for each in (row, strict)]
    assert [(s.agreed, s.consistency, s.verdicts["inconsistent"]) for s in told] == [(1, 0.0, 0), (0, 0.0, 1)]


def test_noise_is_read_as_its_margins_say() -> None:
    rows = [comparison(i) for i in range(30)]
    for one, other in zip(judge(noisy).compare_all(rows), judge(noisy, "strict").compare_all(rows), strict=True):
        assert replace(one, summed=None, asked=other.asked) == other
