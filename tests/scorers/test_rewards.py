"""Scores as TRL rewards: alone, and in a real GRPO run on the shipped base."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from judgetrain.data import world
from judgetrain.data.config import WorldConfig
from judgetrain.errors import ConfigError
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
    found = ScorerReward(method, scorer)([CHAT] * 3, [said(t) for t in texts], trainer_state=None)
    scores = score(scorer, [Sample(tuple(CHAT), t) for t in texts], (method,))[method]
    assert found == pytest.approx(scores.oriented)
    plain = ScorerReward(method, scorer)(["the cat"] * 3, texts)
    assert plain == pytest.approx(score(scorer, [Sample("the cat", t) for t in texts], (method,))[method].oriented)


def test_a_completion_without_a_score_never_beats_one_that_has_one(
    scorer: TokenScorer, caplog: pytest.LogCaptureFixture
) -> None:
    completions = ["", "the dog", "mat", " "]
    with caplog.at_level(logging.WARNING):
        found = ScorerReward("sentprob", scorer)(["the cat"] * 4, completions)
    assert found[0] == found[3] == min(found[1:3])
    assert "empty_response" in caplog.text and "2" in caplog.text
    assert ScorerReward("sentprob", scorer, missing=-9.0)(["the cat"], [""]) == [-9.0]
    assert ScorerReward("sentprob", scorer)(["the cat"], [""]) == [0.0]
    calls = [[{"role": "assistant", "content": None, "tool_calls": []}], said("the dog")]
    found = ScorerReward("sentprob", scorer)([CHAT] * 2, calls)
    assert found[0] == found[1], "a call of a tool has no text to score"


def test_references_come_from_a_column(scorer: TokenScorer) -> None:
    reward = ScorerReward("softmax_ent+calibration", scorer, missing=-99.0)
    found = reward(["the cat"] * 2, ["a dog", "a dog"], reference=["the mat", None])
    (expected,) = score(scorer, [Sample("the cat", "a dog", "the mat")], ("softmax_ent+calibration",)).values()
    assert found == [pytest.approx(expected.oriented[0]), -99.0]


def test_a_scorer_of_prompts_is_no_reward(scorer: TokenScorer) -> None:
    with pytest.raises(ConfigError, match="decensem_var"):
        ScorerReward("decensem_var", scorer)


def test_grpo_trains_on_two_scorers_of_the_shipped_base(tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    queries = [d.query for d in world.train_dialogues(WorldConfig(train_dialogues=8), 0)]
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": q}], "kind": i} for i, q in enumerate(queries)])
    seen: list[dict[str, Any]] = []
    fixed = ScorerReward("sentprob_mean", "world")

    def watched(prompts: Any, completions: Any, **columns: Any) -> list[float]:
        rewards = fixed(prompts, completions, **columns)
        seen.append({"rewards": rewards, "columns": columns})
        return rewards

    settings = GRPOConfig(
        output_dir=str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=12,
        learning_rate=1e-3,
        logging_steps=1,
        report_to="none",
        use_cpu=True,
        bf16=False,
        seed=1,
    )
    reward_funcs = [watched, ScorerReward("softmax_combo", fixed.scorer)]
    trainer = GRPOTrainer(model=str(world.BASE), reward_funcs=reward_funcs, args=settings, train_dataset=data)
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.train()
    assert len(seen) == 2 and all(len(call["rewards"]) == 4 and "kind" in call["columns"] for call in seen)
    logs = [entry for entry in trainer.state.log_history if "rewards/watched/mean" in entry]
    for call, entry in zip(seen, logs, strict=True):
        assert entry["rewards/watched/mean"] == pytest.approx(sum(call["rewards"]) / 4, abs=1e-3)
        assert entry["rewards/scorer_softmax_combo/mean"] == pytest.approx(0.0, abs=1e-3)
    assert any((p != before[name]).any() for name, p in trainer.model.named_parameters())
