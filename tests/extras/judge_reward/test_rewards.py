"""A judge as a reward: every expected value is worked out by hand, or by an independent fit."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from judgetrain.errors import ConfigError, DataError, EngineError
from judgetrain.extras.judge_reward import Group, JudgeReward, best_of_n, scalars
from judgetrain.extras.judge_reward.groups import hard_share, soft_share
from judgetrain.judges import Judge, LongerJudge, Prediction
from judgetrain.judges.kinds.baselines import FirstJudge
from judgetrain.schema import Comparison, Message, Verdict, mirror

Said = tuple[Verdict | None, Verdict | None, float | None]
EIGHT = ["x" * n for n in (3, 8, 1, 6, 2, 7, 5, 4)]


class Table(Judge):
    """Says of two responses what ``say`` does, whichever of them is A; keeps what it was asked."""

    name = "table"

    def __init__(self, say: Callable[[str, str], Said]) -> None:
        self.say = say
        self.calls = list[list[Comparison]]()
        self.seeds = list[int]()

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        self.calls.append([*comparisons])
        self.seeds.append(seed)
        return [self._one(c) for c in comparisons]

    def _one(self, c: Comparison) -> Prediction:
        first, second = sorted((c.response_a, c.response_b))
        ab, ba, margin = self.say(first, second)
        if first != c.response_a:
            ab, ba = (None if v is None else mirror(v) for v in (ba, ab))
            margin = None if margin is None else -margin
        return Prediction(comparison_id=c.id, method="table", verdict_ab=ab, verdict_ba=ba, margin=margin)


def hand(a: str, b: str) -> Said:
    """x beats y; of x and z the one shown first is better; y and z cannot be read in one order."""
    return {"xy": ("A", "A", 2.0), "xz": ("A", "B", 0.0), "yz": ("B", None, -1.0)}[a + b]  # type: ignore[return-value]


def longer(a: str, b: str) -> Said:
    return ("A", "A", 1.0) if len(a) > len(b) else ("B", "B", -1.0)


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def of(judge: Judge, responses: list[str], mode: str = "round_robin", **options: Any) -> list[float | None]:
    return JudgeReward(judge, mode, **options)(["q"] * len(responses), responses)


def test_equal_completions_share_their_verdicts_and_are_judged_once() -> None:
    assert of(Table(hand), ["x", "y", "z"]) == [0.75, 0.0, 0.5], "the mean share of the pairs that can be read"
    judge = Table(longer)
    assert of(judge, ["a", "bb", "a"]) == [0.25, 1.0, 0.25]
    assert [len(call) for call in judge.calls] == [1]
    assert of(judge, ["a", "a", "a"]) == [0.5] * 3
    assert of(judge, ["a"]) == [None], "one completion is compared with nothing"
    assert len(judge.calls) == 1
    assert of(judge, []) == []


def test_a_completion_without_a_text_loses_without_being_read() -> None:
    judge = Table(longer)
    assert of(judge, ["a", " ", "bb"]) == [0.5, 0.0, 1.0]
    (comparisons,) = judge.calls
    assert [{one.response_a, one.response_b} for one in comparisons] == [{"a", "bb"}]


@pytest.mark.parametrize("group", [["one", "three", "four"], EIGHT, [*EIGHT, "x", "x"]])
def test_a_judge_that_prefers_what_it_sees_first_rewards_all_alike(group: list[str]) -> None:
    assert len(set(of(FirstJudge(), group))) == 1
    assert len(set(of(Table(lambda a, b: ("A", "B", 0.0)), group))) == 1


def test_what_cannot_be_read_has_no_reward() -> None:
    judge = Table(lambda a, b: (None, "A", 1.0) if "?" in (a, b) else longer(a, b))
    rewards = of(judge, ["?", *EIGHT])
    assert rewards[0] is None and None not in rewards[1:]
    assert of(Table(lambda a, b: ("A", None, None)), EIGHT) == [None] * 8


def test_hard_shares_follow_the_strict_rule_and_soft_ones_the_margin() -> None:
    cases: list[tuple[Said, float | None, float | None]] = [
        (("A", "A", 1.0), 1.0, 1 / (1 + math.exp(-1))),
        (("B", "B", None), 0.0, 0.0),
        (("A", "tie", None), 0.5, 0.75),
        (("A", "B", None), 0.5, 0.5),
        (("tie", "B", float("nan")), 0.5, 0.25),
        (("A", None, 3.0), None, None),
        (("B", "B", -2000.0), 0.0, 0.0),  # as a scorer's perplexities can lie apart
    ]
    for (ab, ba, margin), hard, soft in cases:
        prediction = Prediction(comparison_id="", method="", verdict_ab=ab, verdict_ba=ba, margin=margin)
        assert hard_share(prediction) == hard
        assert soft_share(prediction) == (None if soft is None else pytest.approx(soft))


def test_all_groups_of_a_call_are_asked_about_at_once() -> None:
    judge = Table(longer)
    rewards = JudgeReward(judge)(["p", "q"] * 8, [text for text in EIGHT for _ in "pq"])
    assert [len(call) for call in judge.calls] == [2 * 28]
    assert rewards[::2] == rewards[1::2] == of(Table(longer), EIGHT)
    with pytest.raises(DataError, match="mode anchor compares responses with a reference answer, and a prompt has"):
        scalars([Group("p", ["a", "bb"], "r"), Group("q", ["a"])], judge.compare_batch, "anchor")
    with pytest.raises(ConfigError, match="mode='none'"):
        scalars([Group("p", ["a", "bb"]), Group("r", [])], judge.compare_batch, "none")


def test_only_completions_of_the_same_prompt_are_compared() -> None:
    judge = Table(longer)
    assert JudgeReward(judge)(["p", "q", "q", "p"], ["a", "bb", "ccc", "dddd"]) == [0.0, 0.0, 1.0, 1.0]
    assert {c.dialogue.query + c.response_a + c.response_b for c in judge.calls[0]} <= {
        "padddd", "pdddda", "qbbccc", "qcccbb"
    }  # fmt: skip


def test_conversations_and_strings_are_rewarded_alike() -> None:
    judge = Table(longer)
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"}]
    parts = [*said("b"), {"role": "tool", "content": "b"}]
    assert JudgeReward(judge)([chat] * 3, [said("a"), parts, said("ccc")]) == [0.0, 1.0, 0.5], (
        "what a tool answered is named"
    )
    dialogue = judge.calls[0][0].dialogue
    assert (dialogue.query, dialogue.context) == ("q", "System: Be brief.")
    begun = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "Well, "}]
    JudgeReward(judge)([begun] * 2, [said("a"), said("bb")])
    last = judge.calls[-1][0]
    assert {last.response_a, last.response_b} == {"Well, a", "Well, bb"} and last.dialogue.query == "q"
    begun[-1] = {"role": "assistant", "content": [{"type": "text", "text": "Well, "}]}
    in_parts = [{"role": "assistant", "content": [{"type": "text", "text": "ccc"}]}]
    JudgeReward(judge)([begun] * 2, [said("a"), in_parts])  # type: ignore[list-item]
    last = judge.calls[-1][0]
    assert {last.response_a, last.response_b} == {"Well, a", "Well, ccc"}
    with pytest.raises(DataError, match="last message"):
        JudgeReward(judge)([[]], ["a"])  # type: ignore[list-item]


@pytest.mark.parametrize("mode", ["round_robin", "score"])
def test_what_is_no_text_is_refused_by_its_row(mode: str) -> None:
    reward = JudgeReward(Table(longer), mode)
    with pytest.raises(DataError, match="row 1: expected a completion, a text or messages; found None"):
        reward(["q", "q"], ["a", None])  # type: ignore[list-item]
    with pytest.raises(DataError, match="row 0: expected a prompt, a text or messages; found 3"):
        reward([3], ["a"])  # type: ignore[list-item]


def test_references_stand_in_a_column() -> None:
    judge = Table(longer)
    reward = JudgeReward(judge, "anchor", reference="chosen")
    rewards = reward(["q"] * 4, ["a", "ccc", "bb", "dd"], chosen=["bb", said("bb"), "bb", None])
    assert rewards == [pytest.approx(0.269, abs=1e-3), pytest.approx(0.731, abs=1e-3), 0.5, None]
    assert [len(call) for call in judge.calls] == [2], "what equals its reference is as good as that, unasked"
    with pytest.raises(DataError, match="'chosen': no such column in the data, only kind"):
        reward(["q"], ["a"], kind=[1])
    for mode, column in (("round_robin", "chosen"), ("anchor", None)):
        with pytest.raises(ConfigError, match=f"mode='{mode}', reference={column!r}: anchor compares with it"):
            JudgeReward(judge, mode, reference=column)


def test_equal_calls_have_equal_seeds_whatever_their_order() -> None:
    judge = Table(longer)
    for texts in (["a", "bb", "ccc"], ["ccc", "a", "bb"], ["a", "bb"]):
        of(judge, texts)
    first, second, third = judge.seeds
    assert first == second != third
    of(judge, ["a", "bb", "ccc"], seed=1)
    assert judge.seeds[-1] != first
    assert [c.id for c in judge.calls[0]] == [c.id for c in judge.calls[1]]


def test_the_trainer_is_told_how_much_was_asked_and_could_not_be_used() -> None:
    logged_means: dict[str, float] = {}
    JudgeReward(Table(hand))(["q"] * 3, ["x", "y", "z"], log_metric=logged_means.__setitem__)
    assert logged_means == {"judge/comparisons": 3, "judge/unreadable": 1 / 3, "judge/inconsistent": 1 / 3}
    of_one_response: dict[str, float] = {}
    JudgeReward(Table(hand))(["q"], ["x"], log_metric=of_one_response.__setitem__)
    assert of_one_response == {"judge/comparisons": 0}


def test_a_judge_is_loaded_by_its_name_when_it_is_needed() -> None:
    reward = JudgeReward("longer")
    assert reward.__name__ == "judge_round_robin"
    low, high = reward(["q"] * 2, ["a", "bb"])
    assert low is not None and high is not None and low < high
    assert reward.judge is reward.judge
    with pytest.raises(EngineError, match="./nowhere: there is no such directory"):
        JudgeReward("./nowhere")(["q"] * 2, ["a", "bb"])
    with pytest.raises(ConfigError, match="mode='best': expected one of round_robin, anchor, score"):
        JudgeReward("longer", "best")
    with pytest.raises(ConfigError, match="branches: only for a judge that is given by its name"):
        JudgeReward(LongerJudge(), branches=3)


def test_best_of_n_is_the_first_of_the_best() -> None:
    assert best_of_n(LongerJudge(), "q", EIGHT).index == 1
    assert best_of_n(LongerJudge(), "q", ["a"]).index == 0 == best_of_n("longer", "q", ["a", "a"]).index
    assert best_of_n(LongerJudge(), [Message("user", "q")], EIGHT).index == 1
    best = best_of_n("longer", "q", ["a", "cc", "bb"])
    assert (best.index, best.scores) == (1, (0.0, 0.75, 0.75))
    assert best_of_n(Table(lambda a, b: (None, None, None)), "q", ["a", "b"]).index is None
    with pytest.raises(DataError, match="at least one response"):
        best_of_n("longer", "q", [])


def test_what_holds_no_text_loses_without_being_asked_about() -> None:
    judge = Table(lambda a, b: ("tie", "tie", 0.0))
    best = best_of_n(judge, "q", ["", "a", " \n", "b"])
    assert best.index in (1, 3)
    texts = [(c.response_a, c.response_b) for call in judge.calls for c in call]
    assert all(a.strip() and b.strip() for a, b in texts)
    (empty, some) = JudgeReward(judge)(["q", "q"], ["", "a"])
    assert empty is not None and some is not None and empty < some
    assert len({*JudgeReward(judge)(["q", "q"], ["", " "])}) == 1, "two of them are equally bad"


def test_a_long_prompt_is_hashed_once_for_all_pairs_of_its_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of 64 has 2,016 pairs, each of which hashed the prompt anew."""
    written: list[int] = []
    dumps = json.dumps

    def counted(value: Any, **options: Any) -> str:
        text = dumps(value, **options)
        written.append(len(text))
        return text

    monkeypatch.setattr("judgetrain.schema.json.dumps", counted)
    prompt = "caf\u00e9 " * 20_000
    comparisons = [Comparison.of(prompt, f'"a" {i}', f"b\ud83d {i}") for i in range(100)]
    numbers = [comparison.number for comparison in comparisons]
    assert sum(written) < 3 * 10 * 20_000, "the prompt once, in ASCII, and short responses"
    for i, (comparison, number) in enumerate(zip(comparisons, numbers, strict=True)):
        turns = [{"role": "user", "content": prompt}]
        whole = hashlib.sha256(dumps([turns, f'"a" {i}', f"b\ud83d {i}"]).encode()).hexdigest()
        assert (comparison.id, number) == (whole[:16], int(whole[:10], 16)), "kept artifacts have these ids"
        assert comparison.dialogue.id == hashlib.sha256(dumps(turns).encode()).hexdigest()[:16]
