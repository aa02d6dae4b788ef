"""Branches: how they become a verdict, and that the first k of a larger run stand for a run of k."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import WorldEngine
from judgetrain.errors import ConfigError, DataError
from judgetrain.judges import BranchingJudge, Prediction
from judgetrain.judges.config import Aggregation, JudgeConfig, JudgeOptions, TreeConfig
from judgetrain.judges.kinds import aggregation
from judgetrain.judges.kinds.aggregation import Fitted, Rule, calibration_error, fit, needed, steps, verdict
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judging.stage import PARTS
from judgetrain.schema import Order, Verdict, mirror
from tests.builders.judges import failing
from tests.builders.judging import judge_stage, lines
from tests.builders.label import SCORES, tree_of
from tests.builders.scripted import ScriptedEngine, by_length, comparison, noisy
from tests.judges.test_reads_one import RUBRIC, scored

ORDERS: tuple[Order, ...] = ("AB", "BA")


WORDS = st.sampled_from([a + b for a in "ABt?" for b in "ABt?"])


@settings(max_examples=60)
@given(words=st.lists(WORDS, min_size=1, max_size=6), tie=st.sampled_from([0, Fraction(1, 8), Fraction(1, 2)]))
def test_a_criterion_of_the_judge_s_own_weighs_a_third_of_the_one_before(words: list[str], tie: Fraction) -> None:
    tree = tree_of(*[(word,) for word in words])
    for half, order in enumerate(ORDERS):
        margins = [
            None if None in SCORES[w[half]] else Fraction(SCORES[w[half]][0] - SCORES[w[half]][1]) for w in words
        ]
        weighed = [(margin or 0) * Fraction(1, 3) ** place for place, margin in enumerate(margins)]
        assert steps(tree.criteria, order, Rule(True, 0.0)) == pytest.approx([float(step) for step in weighed])
        assert steps(tree.criteria, order, Rule(False, 0.0)) == [(step > 0) - (step < 0) for step in weighed]
        read = 4 * sum(Fraction(1, 3) ** place for place, margin in enumerate(margins) if margin is not None)
        even = abs(sum(weighed)) <= tie * read
        expected = None if not read else "tie" if even else "A" if sum(weighed) > 0 else "B"
        assert verdict(tree.criteria, order, Rule(True, float(tie))) == expected
        assert steps(tree.criteria[:0], order, Rule(True, 0.0)) == []


PROMPTS = load_prompt_set("compact")
SETTINGS = TreeConfig(criteria=6)
COMPARISONS = [comparison(i) for i in range(30)]


def judge(branches: int, answer=failing) -> BranchingJudge:  # type: ignore[no-untyped-def]
    return BranchingJudge(ScriptedEngine(answer), PROMPTS, JudgeOptions(branches=branches, steps=SETTINGS), "test")


@pytest.mark.parametrize("k", range(1, 7))
def test_a_larger_run_read_at_k_equals_a_run_of_k_with_all_kinds_of_failures(k: int) -> None:
    large = judge(6)
    read = large.predictions(large.sample(COMPARISONS, 3), k)
    alone = judge(k).compare_all(COMPARISONS, 3)
    for one, other in zip(read, alone, strict=True):
        assert one.failures == other.failures
        assert (one.verdict_ab, one.verdict_ba, one.margin, one.judgments) == (
            other.verdict_ab,
            other.verdict_ba,
            other.margin,
            other.judgments,
        )
        assert (one.cost.prompt_tokens, one.cost.calls) == (other.cost.prompt_tokens, other.cost.calls)
        assert abs(one.cost.generated_tokens - other.cost.generated_tokens) <= 1, "a list's tokens are shared out"
    assert {f for p in read for f in p.failures} >= {"guideline:too_long", "guideline:empty", "too_long", "no_scores"}


def test_cost_is_half_of_the_requests_that_both_orders_make() -> None:
    tested = judge(3, noisy)
    for item in COMPARISONS[:5]:
        tested.engine = engine = ScriptedEngine(noisy)
        cost = tested.compare(item).cost
        requests = engine.requests.copy()
        assert Counter(r.step for r in requests) == {"criteria": 1, "guideline": 3, "judgment": 6}
        done = engine.generate(requests, 0)
        assert cost.calls == len(requests) / 2
        assert cost.prompt_tokens == sum(c.prompt_tokens for c in done) / 2
        assert cost.generated_tokens == sum(c.generated_tokens for c in done) / 2


def test_exchanging_the_responses_exchanges_the_two_orders_and_mirrors_them() -> None:
    """For an engine that is a function of what it is shown, the exchanged comparison's AB is this one's BA."""
    straight = judge(5, noisy).compare_all(COMPARISONS, 0)
    swapped = judge(5, noisy).compare_all([c.swapped() for c in COMPARISONS], 0)
    for one, other in zip(straight, swapped, strict=True):
        assert other.verdict_ab == (None if one.verdict_ba is None else mirror(one.verdict_ba))
        assert other.verdict_ba == (None if one.verdict_ab is None else mirror(one.verdict_ab))
        assert other.cost == one.cost
        if one.margin is not None:
            assert other.margin == pytest.approx(-one.margin)


SOME = [comparison(i) for i in range(24)]
LENGTHS = [comparison(i % 9, "x" * (i % 4), "y" * (i % 3)) for i in range(12)]
WORLD = eval_comparisons(WorldConfig(eval_comparisons=24), 0)
K = 9
How = tuple[Aggregation, float]
"""What makes branches a verdict, and how wide a tie is."""
RULES: list[How] = [("vote", 0.0), ("mean", 0.0), ("mean", 0.125)]


def sign(steps: Iterable[float]) -> int:
    total = sum(steps)
    return (total > 0) - (total < 0)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(-4, 4), max_size=4), st.integers(0, 3), st.sampled_from([0.0, 0.1, 0.3]))
def test_what_is_settled_holds_whatever_comes(steps: list[int], left: int, tie: float) -> None:
    """Of branches that each may say anything from -4 to 4, or not be readable."""

    def outcome(said: list[int | None]) -> int:
        read = [step for step in said if step is not None]
        return sign(read) if abs(sum(read)) > tie * 4 * len(read) else 0

    continued = itertools.product((-4, -1, 0, 1, 4, None), repeat=left)
    outcomes = {outcome([*steps, *more]) for more in continued}
    if needed(steps, [4] * left, [4] * len(steps), tie) == 0:
        assert len(outcomes) == 1
    elif not left:
        pytest.fail("nothing is left that could be needed")
    elif tie == 0 and steps:
        assert len(outcomes) > 1


def asked(engine: object, early_stop: bool, rule: How = ("vote", 0.0), branches: int = K) -> BranchingJudge:
    how = {"aggregation": rule[0], "tie": rule[1], "early_stop": early_stop}
    options = JudgeOptions(branches=branches, steps=TreeConfig(criteria=K), **how)  # type: ignore[arg-type]
    return BranchingJudge(engine, PROMPTS, options, "test")  # type: ignore[arg-type]


def engines() -> dict[str, tuple[object, list]]:
    """Scripted with failures of every kind; content alone; and the world's annotator, which draws random numbers."""
    return {
        "failing": (ScriptedEngine(failing), SOME),
        "content": (ScriptedEngine(by_length), LENGTHS),
        "world": (WorldEngine(WorldEngineConfig(error_rate=0.3)), WORLD),
    }


def verdicts(predictions: list[Prediction]) -> list[tuple]:
    return [(p.comparison_id, p.verdict_ab, p.verdict_ba) for p in predictions]


@pytest.mark.parametrize("name", ["failing", "content", "world"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("branches", [1, 4, K])
def test_the_same_verdicts_from_fewer_tokens(name: str, rule: How, branches: int) -> None:
    engine, comparisons = engines()[name]
    whole = asked(engine, False, rule, branches).compare_all(comparisons, 5)
    early = asked(engine, True, rule, branches).compare_all(comparisons, 5)
    assert verdicts(early) == verdicts(whole)
    for one, other in zip(early, whole, strict=True):
        assert one.cost.generated_tokens <= other.cost.generated_tokens
        assert one.cost.calls <= other.cost.calls
        assert one.judgments <= other.judgments
    saved = 1 - sum(p.cost.calls for p in early) / sum(p.cost.calls for p in whole)
    if (name, rule[0]) != ("failing", "mean"):  # sums of few readable scores are settled late
        assert (saved > 0) == (branches > 1)


@pytest.mark.parametrize("name", ["content", "world"])
@pytest.mark.parametrize("rule", RULES)
def test_smaller_numbers_of_branches_are_read_off_a_stopped_run(name: str, rule: How) -> None:
    engine, comparisons = engines()[name]
    large = asked(engine, True, rule)
    trees = large.sample(comparisons, 5)
    whole = asked(engine, False, rule).sample(comparisons, 5)
    for k in range(1, K):
        if name == "content":  # an engine whose texts do not depend on their place among the requests
            assert_same(large.predictions(trees, k), asked(engine, True, rule, k).compare_all(comparisons, 5))
        assert large.predictions(trees, k) == large.predictions(whole, k)


def assert_same(read: list[Prediction], alone: list[Prediction]) -> None:
    for one, other in zip(read, alone, strict=True):
        tokens = abs(one.cost.generated_tokens - other.cost.generated_tokens)
        assert tokens <= 1, "a list's tokens are shared out"
        assert one == replace(other, cost=one.cost)


def test_a_unanimous_vote_takes_just_over_half_of_the_branches_in_three_batches() -> None:
    calls: list[int] = []

    class Engine(ScriptedEngine):
        def generate(self, requests, seed):  # type: ignore[no-untyped-def]
            calls.append(len(requests))
            return super().generate(requests, seed)

    one = replace(SOME[0], response_a="longer by far", response_b="no")
    prediction = asked(Engine(by_length), True).compare(one)
    assert calls == [1, 5, 10], "a list, five guidelines, five judgments in each order"
    assert (prediction.verdict_ab, prediction.verdict_ba, prediction.judgments) == ("A", "A", 10)
    assert prediction.cost.calls == (1 + 5 + 10) / 2


TRUTH = {"#1": 6.0, "#2": 1.5, "#3": 0.0}


def drawn(n: int, seed: int = 0) -> tuple[list[dict[str, float]], list[Verdict]]:
    rng = np.random.default_rng(seed)
    margins = [dict(zip(TRUTH, rng.uniform(-1, 1, 3).round(2).tolist(), strict=True)) for _ in range(n)]
    chances = [1 / (1 + np.exp(-sum(TRUTH[k] * m for k, m in each.items()))) for each in margins]
    return margins, ["A" if rng.random() < p else "B" for p in chances]


def test_weights_are_those_of_scikit_learn_where_none_of_them_is_below_0() -> None:
    margins, labels = drawn(400, 4)
    found = fit(margins, labels, [(str(i),) for i in range(400)])
    x = np.array([[m[name] for name in TRUTH] for m in margins])
    # All alike is one direction, with a ridge of 0.01 on the weights' mean: its feature is so many times as large.
    turned, _ = np.linalg.qr(np.column_stack([np.ones(3), [1, -1, 0], [1, 1, -2]]))
    turned[:, 0] *= np.sqrt(3 * found.ridge / 0.01)
    other = LogisticRegression(C=1 / found.ridge, fit_intercept=False, tol=1e-8)
    other.fit(x @ turned, [v == "A" for v in labels])
    assert [found.weights[name] for name in TRUTH] == pytest.approx(turned @ other.coef_[0], abs=5e-3)


def test_few_labels_leave_the_ratios_of_the_mean_and_many_find_others() -> None:
    """Ten places of which the first two matter: of 60 labels the weights are near thirds, of 3,000 the true ones."""
    truth, thirds = np.array([3.0, 6.0, *[0.0] * 8]), (1 / 3) ** np.arange(10)
    rng = np.random.default_rng(3)

    def found(n: int) -> np.ndarray:
        x = rng.uniform(-1, 1, (n, 10))
        labels: list[Verdict] = ["A" if rng.random() < 1 / (1 + np.exp(-row @ truth)) else "B" for row in x]
        margins = [{f"#{i}": float(m) for i, m in enumerate(row * thirds, 1)} for row in x]
        weights = fit(margins, labels, [(str(i),) for i in range(n)]).weights
        return thirds * [weights[f"#{i}"] for i in range(1, 11)]

    few, many = found(60), found(3000)
    assert few[4:].sum() < 0.15 * few.sum(), "late places count little, whatever chance says of them"
    assert many[:2] == pytest.approx(truth[:2], abs=0.8) and many[2:].max() < 0.5


def test_a_hundred_labels_make_probabilities_that_come_true_and_beat_the_plain_mean() -> None:
    errors, gains = [], []
    for seed in range(5):
        margins, labels = drawn(100, seed)
        found = fit(margins, labels, [(str(i),) for i in range(100)])
        assert all(weight >= 0 for weight in found.weights.values()) and found.weights["#1"] > found.weights["#3"]
        fresh, right = drawn(2000, 100 + seed)
        logits = [found.logit(m) or 0.0 for m in fresh]
        targets = np.array([float(v == "A") for v in right])
        errors.append(calibration_error(1 / (1 + np.exp(-np.array(logits))), targets))
        said = np.mean([found.verdict(x) == v for x, v in zip(logits, right, strict=True)])
        mean = np.mean([(sum(m.values()) > 0) == (v == "A") for m, v in zip(fresh, right, strict=True)])
        gains.append(said - mean)
    assert np.mean(errors) < 0.05 and min(gains) > 0.05


def test_calibration_error_by_hand() -> None:
    probabilities, targets = np.array([0.9, 0.9, 0.1, 0.6]), np.array([1.0, 0.0, 0.0, 0.5])
    # Confidence 0.9 three times, right twice: |0.9 - 2/3| * 3/4; 0.6 once, a tie is half right: 0.1 * 1/4.
    assert calibration_error(probabilities, targets) == pytest.approx(0.9 * 0.75 - 0.5 + 0.025)


def test_ties_have_a_width_and_exchanging_the_responses_exchanges_the_verdict() -> None:
    margins = [{"#1": m} for m in np.linspace(-1, 1, 101)]
    labels: list[Verdict] = ["tie" if abs(m["#1"]) < 0.3 else "A" if m["#1"] > 0 else "B" for m in margins]
    found = fit(margins, labels, [(str(i),) for i in range(101)])
    assert found.tie > 0 and found.after["agreement"] > 0.9 > found.before["agreement"]
    for m in (0.05, 0.6, 1.0):
        one, other = (found.verdict(found.logit({"#1": sign * m})) for sign in (1, -1))
        assert (one, other) in (("tie", "tie"), ("A", "B"))
    assert found.verdict(found.logit({})) is None


def test_labels_that_follow_nothing_are_met_no_more_often_than_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance is a third. Were a tie's width chosen on what it is measured on, it would be right in 40% of these."""
    monkeypatch.setattr(aggregation, "FOLDS", 3)
    monkeypatch.setattr(aggregation, "STRENGTHS", (1.0,))
    found = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        margins = [{"#1": m} for m in rng.uniform(-1, 1, 30).round(2).tolist()]
        labels: list[Verdict] = rng.choice(["A", "B", "tie"], 30).tolist()
        found.append(fit(margins, labels, [(str(i),) for i in range(30)]).after["agreement"])
    assert abs(np.mean(found) - 1 / 3) < 0.026, "three standard errors"


def test_a_criterion_that_was_not_fitted_counts_as_the_mean_one() -> None:
    found = Fitted(weights={"a": 3.0, "b": 1.0}, tie=0.0, n=1, ridge=1.0, before={}, after={})
    assert found.logit({"a": 0.5, "new": -0.25}) == 1.0


@pytest.mark.parametrize("n", [3, 19])
def test_too_few_labels_are_refused(n: int) -> None:
    with pytest.raises(DataError, match=f"at least 20 labelled comparisons.*found {n}"):
        fit(*drawn(n), [(str(i),) for i in range(n)])


def test_a_judge_decides_by_its_weights(tmp_path: Path) -> None:
    weights = {"Facts": 0.1, "Tone": 2.0, "Slang": 0.0}
    Fitted(weights=weights, tie=0.0, n=50, ridge=1.0, before={}, after={}).save(tmp_path)
    settings = JudgeConfig(reads="one", score="parsed", aggregation="fitted", fitted=str(tmp_path / "fitted.json"))
    options = JudgeOptions.of(settings, 3)
    judge = BranchingJudge(ScriptedEngine(scored), load_prompt_set("compact"), options)
    said = judge("q", "good", "bad", criteria=RUBRIC)
    # Facts 5 against 2, tone 3 against 5, which are 3/5 and 1/5 of the rubric: 0.1 * 3/5 * 3/4 - 2 * 1/5 * 2/4.
    assert said.margin == pytest.approx(0.045 - 0.2) and said.verdict == "B"
    assert (said.score_a or 0) > (said.score_b or 0), "scores are the rubric's"
    beside = JudgeOptions.of(replace(settings, fitted=None), 3, tmp_path)
    assert beside.fitted == options.fitted, "the weights that lie in the judge's directory"
    with pytest.raises(ConfigError, match="go together"):
        replace(options, fitted=None)
    with pytest.raises(ConfigError, match=r"judge.fitted=none.json: expected the fitted.json"):
        JudgeOptions.of(replace(settings, fitted="none.json"), 3)


def test_stage_calibrate_fits_what_a_judge_says_of_labelled_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from judgetrain.artifacts.console import Console
    from judgetrain.engines import lazy_model
    from judgetrain.pipeline.run import Pipeline
    from tests.builders.pipeline import configured

    monkeypatch.setattr(lazy_model, "make_engine", lambda *args, **kwargs: ScriptedEngine(scored))
    rows = [
        {"query": f"q{i}", "response_a": "a " * (1 + i % 5), "response_b": "b " * (1 + i % 3), "label": label}
        for i in range(60)
        for label in [("A", "B", "tie")[(i % 5 < i % 3) + 2 * (i % 5 == i % 3)]]
    ]
    source = f"verdicts.source.path={lines(tmp_path / 'mine.jsonl', rows)}"
    words = ["recipe=debug", f"output_dir={tmp_path / 'out'}", "track.tracker=none", "verdicts.judge=base@2", source]
    directory = Pipeline(configured(*words), Console()).run("calibrate")
    found = json.loads((directory / "fitted.json").read_text())
    assert found["n"] == 60 and set(found["weights"]) == {"#1", "#2"} and found["after"]["agreement"] > 0.9
    assert "fitted, held out: agreement" in capsys.readouterr().out
    (card,) = (tell(directory, "base") for tell in PARTS.values())
    assert "on 60 labelled comparisons" in card and f"#1 {found['weights']['#1']:.2f}" in card
    assert f"calibration error {found['before']['ece']:.3f}; " in card and f"{found['after']['ece']:.3f}. W" in card
    assert [tell(tmp_path, "base") for tell in PARTS.values()] == [""], "another stage's artifact"
    with pytest.raises(ConfigError, match="branching judges alone"):
        Pipeline(configured(*words[:3], "verdicts.judge=longer", source), Console()).run("calibrate")
    used = judge_stage(
        tmp_path / "out", source, "judge.aggregation=fitted", f"judge.fitted={directory}/fitted.json", judge="base@2"
    )
    told = [json.loads(line) for line in (used / "verdicts.jsonl").read_text().splitlines()]
    assert sum(row["verdict"] == row["label"] for row in told) > 50
