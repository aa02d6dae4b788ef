"""Scores as TRL rewards, called as its trainers call them (a real GRPO run: tests/extras/judge_reward)."""

import logging

import pytest

from judgetrain.errors import ConfigError, DataError
from judgetrain.scorers.encode import Sample
from judgetrain.scorers.methods import score
from judgetrain.scorers.rewards import ScorerReward
from judgetrain.scorers.statistics import TokenScorer

CHAT = [{"role": "user", "content": "the cat"}]


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


@pytest.mark.parametrize("method", ["sentprob_mean", "softmax_ent", "softmax_combo"])
def test_rewards_are_the_scores_turned_so_that_higher_is_better(scorer: TokenScorer, method: str) -> None:
    texts = ["the dog sat", "fast", "a mat and a cat"]
    reward = ScorerReward(method, scorer)
    assert reward.__name__ == f"scorer_{method}", "the name of its column in TRL's log"
    rewards = reward(prompts=[CHAT] * 3, completions=[said(t) for t in texts], completion_ids=[[1]] * 3, kind=[0] * 3)
    scores = score(scorer, [Sample(tuple(CHAT), t) for t in texts], (method,))[method]
    assert rewards == pytest.approx(scores.oriented)
    assert ScorerReward(method, scorer)(["the cat"] * 3, texts) == rewards, "a text is the user's"


def test_a_completion_without_a_score_never_beats_one_that_has_one(
    scorer: TokenScorer, caplog: pytest.LogCaptureFixture
) -> None:
    completions = ["", "the dog", "mat", " "]
    with caplog.at_level(logging.WARNING):
        rewards = ScorerReward("sentprob", scorer)(["the cat"] * 4, completions)
    assert rewards[0] == rewards[3] == min(rewards[1:3])
    assert "empty_response" in caplog.text and "2" in caplog.text
    assert ScorerReward("sentprob", scorer)(["the cat"], [""]) == [0.0]
    calls = [[{"role": "assistant", "content": None, "tool_calls": []}], said("the dog")]
    rewards = ScorerReward("sentprob", scorer)([CHAT] * 2, calls)
    assert rewards[0] == rewards[1], "a call of a tool has no text to score"


@pytest.mark.parametrize("opened", ["the cat<think>\n", [*CHAT, *said("<think>\n")]], ids=["text", "messages"])
def test_a_completion_that_was_cut_in_its_thoughts_has_nothing_to_score(
    scorer: TokenScorer, opened: str | list[dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    reward = ScorerReward("sentprob", scorer)
    thought = "on a mat and a cat"
    with caplog.at_level(logging.WARNING):
        cut, *rewards = reward([opened] * 3, [thought, f"{thought}</think>the dog", "</think>fast"])
    assert "empty_response" in caplog.text and cut == min(rewards)
    assert rewards == reward([opened] * 2, [said("</think>the dog"), said("</think>fast")])


def test_references_come_from_a_column(scorer: TokenScorer) -> None:
    reward = ScorerReward("softmax_ent+calibration", scorer)
    rewards = reward(["the cat"] * 2, ["a dog", "a dog"], reference=["the mat", None])
    (expected,) = score(scorer, [Sample(tuple(CHAT), "a dog", "the mat")], ("softmax_ent+calibration",)).values()
    assert rewards == [pytest.approx(expected.oriented[0])] * 2, "the one without a reference has the least of the call"


def test_a_scorer_of_prompts_is_no_reward(scorer: TokenScorer) -> None:
    with pytest.raises(ConfigError, match="decensem_var"):
        ScorerReward("decensem_var", scorer)


def in_parts(role: str, *texts: str) -> list[dict[str, object]]:
    return [{"role": role, "content": [{"type": "text", "text": text} for text in texts]}]


def test_parts_of_text_are_scored_as_the_text_they_make(scorer: TokenScorer) -> None:
    reward = ScorerReward("sentprob_mean", scorer)
    (plain,) = reward([CHAT], [said("the dog sat")])
    assert reward([CHAT], [in_parts("assistant", "the dog sat")]) == [plain]
    assert reward([in_parts("user", "the cat")], [said("the dog sat")]) == [plain]
    joined = reward([[{"role": "user", "content": "the cat\nfast"}]], [said("the dog\nsat")])
    assert reward([in_parts("user", "the cat", "fast")], [in_parts("assistant", "the dog", "sat")]) == joined


def test_a_prompt_with_a_call_of_a_tool_is_read_as_dialogues_are(scorer: TokenScorer) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    result = {"role": "tool", "name": "f", "content": "the mat"}
    read = {"role": "assistant", "content": "Call of f: {}\n\nResult of f: the mat"}
    reward = ScorerReward("sentprob_mean", scorer)
    assert reward([[*CHAT, call, result]], [said("the dog")]) == reward([[*CHAT, read]], [said("the dog")])


def test_a_picture_is_no_text_to_score(scorer: TokenScorer) -> None:
    picture = [{"role": "user", "content": [{"type": "image", "image": "cat.png"}]}]
    with pytest.raises(DataError, match="found parts of type image"):
        ScorerReward("sentprob_mean", scorer)([picture], [said("the dog")])
    with pytest.raises(DataError, match="found parts of type image"):
        ScorerReward("sentprob_mean", scorer)([CHAT], [picture])
