"""Branches: how they become a verdict, and that the first k of a larger run stand for a run of k."""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.rubric_kinds import RubricByKind, RubricKind
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import WorldEngine
from judgetrain.errors import ConfigError
from judgetrain.judges import BranchingJudge, Prediction
from judgetrain.judges.config import Aggregation, JudgeConfig
from judgetrain.judges.kinds.aggregation import Fitted, Rule, needed, steps, verdict
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import Order, mirror
from tests.builders.judges import failing
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
    alone = judge(k).compare_batch(COMPARISONS, 3)
    assert_same(read, alone)
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
    # For an engine that is a function of what it is shown, the exchanged comparison's AB is this one's BA.
    straight = judge(5, noisy).compare_batch(COMPARISONS, 0)
    swapped = judge(5, noisy).compare_batch([c.swapped() for c in COMPARISONS], 0)
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
    # A branch may say anything from -4 to 4, or not be readable.

    def outcome(margins: list[int | None]) -> int:
        read = [step for step in margins if step is not None]
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
    whole = asked(engine, False, rule, branches).compare_batch(comparisons, 5)
    early = asked(engine, True, rule, branches).compare_batch(comparisons, 5)
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
            assert_same(large.predictions(trees, k), asked(engine, True, rule, k).compare_batch(comparisons, 5))
        assert large.predictions(trees, k) == large.predictions(whole, k)


def assert_same(read: list[Prediction], alone: list[Prediction]) -> None:
    for one, other in zip(read, alone, strict=True):
        tokens = abs(one.cost.generated_tokens - other.cost.generated_tokens)
        assert tokens <= 1, "a list's tokens are shared out"
        assert one == replace(other, cost=replace(other.cost, generated_tokens=one.cost.generated_tokens))


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
    # Of the nine that it names, what it did not need is said.
    judged = {reason.criterion for reason in prediction.reasons}
    assert len(judged) == 5 and len(set(prediction.not_judged)) == 4 and not judged & set(prediction.not_judged)
    lines = [line for line in str(prediction).splitlines() if "not judged" in line]
    assert len(lines) == 4 and lines[0].endswith("(not judged: no score by it could change the verdict)")
    assert Prediction.from_row(prediction_row(prediction)).not_judged == prediction.not_judged


def test_beginnings_are_kept_while_branches_are_judged_one_after_another() -> None:
    """What a wave's prompts begin with is needed by the next wave's alone, and freed behind the last."""
    is_kept_by_step: set[tuple[str, bool]] = set()

    class Engine(ScriptedEngine):
        is_keeping = False

        @contextmanager
        def keeping_beginnings(self) -> Iterator[None]:
            self.is_keeping = True
            yield
            self.is_keeping = False

        def generate(self, requests, seed):  # type: ignore[no-untyped-def]
            is_kept_by_step.add((requests[0].step, self.is_keeping))
            return super().generate(requests, seed)

    engine = Engine(by_length)
    asked(engine, True).compare_batch(LENGTHS)
    assert is_kept_by_step == {("criteria", False), ("guideline", True), ("judgment", True)}
    assert not engine.is_keeping
    # Branches that are judged all at once share within their call.
    is_kept_by_step.clear()
    asked(engine, False).compare_batch(LENGTHS)
    assert is_kept_by_step == {("criteria", False), ("guideline", False), ("judgment", False)}


def prediction_row(prediction: Prediction) -> dict[str, object]:
    """Return a prediction as a file has it."""
    row = json.loads(json.dumps(prediction.to_dict()))
    return {name: value for name, value in row.items() if name not in ("verdict", "consistent")}


def test_a_judge_that_judges_by_all_says_nothing_of_stopping() -> None:
    prediction = asked(ScriptedEngine(by_length), False).compare(SOME[0])
    assert prediction.not_judged == () and "not judged" not in str(prediction)


def test_a_criterion_that_was_not_fitted_counts_as_the_mean_one() -> None:
    weights = Fitted(weights={"a": 3.0, "b": 1.0}, tie=0.0, n=1, ridge=1.0, before={}, after={})
    assert weights.logit({"a": 0.5, "new": -0.25}) == 1.0
    assert weights.logit({"new": -0.25}) is None, "of none of these anything was fitted"


def test_weights_of_other_criteria_are_refused_or_leave_rows_to_the_mean(tmp_path: Path) -> None:
    fitted = Fitted(weights={"#1": 3.0, "#2": 1.0}, tie=0.0, n=50, ridge=1.0, before={}, after={})
    settings = JudgeConfig(reads="one", score="parsed", aggregation="fitted", fitted=str(tmp_path))
    fitted.save(tmp_path)
    with pytest.raises(ConfigError, match="judge.fitted: its weights are of #1, #2, and none .* criteria .Facts, Tone"):
        JudgeOptions.of(settings, 3, rubric=RUBRIC)
    # Of criteria by kinds of query those of one kind suffice.
    kinds = (RubricKind("talk", ("hello",), Rubric((Criterion(text="x", name="#1"),))),)
    assert JudgeOptions.of(settings, 3, rubric=RubricByKind(RUBRIC.criteria, kinds)).fitted == fitted
    # A rubric that comes with a row is known when it is judged.
    judges = []
    for options in (JudgeOptions.of(settings, 3), JudgeOptions.of(replace(settings, aggregation="mean"), 3)):
        judges.append(BranchingJudge(ScriptedEngine(scored), load_prompt_set("compact"), options))
    by_weights, by_mean = (judge("q", "good", "bad", criteria=RUBRIC) for judge in judges)
    assert by_weights.verdict == by_mean.verdict and by_weights.margin is None
    replace(fitted, single=True, intercept=2.0).save(tmp_path)
    judges[0] = BranchingJudge(ScriptedEngine(scored), load_prompt_set("compact"), JudgeOptions.of(settings, 3))
    values = [judge("q", "good", criteria=RUBRIC).value for judge in judges]
    assert values[0] == values[1] is not None


def test_a_judge_decides_by_its_weights(tmp_path: Path) -> None:
    weights = {"Facts": 0.1, "Tone": 2.0, "Slang": 0.0}
    Fitted(weights=weights, tie=0.0, n=50, ridge=1.0, before={}, after={}).save(tmp_path)
    settings = JudgeConfig(reads="one", score="parsed", aggregation="fitted", fitted=str(tmp_path / "fitted.json"))
    options = JudgeOptions.of(settings, 3)
    judge = BranchingJudge(ScriptedEngine(scored), load_prompt_set("compact"), options)
    prediction = judge("q", "good", "bad", criteria=RUBRIC)
    # Facts 5 against 2, tone 3 against 5, which are 3/5 and 1/5 of the rubric: 0.1 * 3/5 * 3/4 - 2 * 1/5 * 2/4.
    assert prediction.margin == pytest.approx(0.045 - 0.2) and prediction.verdict == "B"
    assert (prediction.score_a or 0) > (prediction.score_b or 0), "scores are the rubric's"
    (tmp_path / "judge.json").write_text('{"criteria": 3}')
    beside = JudgeOptions.of(replace(settings, fitted=None), 3, tmp_path)
    assert beside.fitted == options.fitted, "the weights that lie in the judge's directory"
    with pytest.raises(ConfigError, match="go together"):
        replace(options, fitted=None)
    with pytest.raises(ConfigError, match=r"judge.fitted=none.json: expected the fitted.json"):
        JudgeOptions.of(replace(settings, fitted="none.json"), 3)


@pytest.mark.parametrize(
    ("response_a", "response_b", "head"),
    [
        ("", "a text", "B: the other response has no text"),
        ("a text", " ", "A: the other response has no text"),
        ("", "", "tie: neither response has a text"),
    ],
)
def test_a_printed_verdict_says_that_a_response_is_empty(response_a: str, response_b: str, head: str) -> None:
    one = replace(SOME[0], response_a=response_a, response_b=response_b)
    prediction = asked(ScriptedEngine(by_length), False).compare(one)
    assert str(prediction).splitlines()[0] == head
    assert str(Prediction.from_row(prediction_row(prediction))).splitlines()[0] == head
