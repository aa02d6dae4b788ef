"""TRL's own trainers, run with a judge as their reward."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.data import world
from judgetrain.data.config import WorldConfig
from judgetrain.engines.config import WORLD_BASE
from judgetrain.extras.judge_reward import JudgeReward
from judgetrain.judges import LongerJudge, Prediction
from judgetrain.schema import Comparison
from tests.judges.test_reads_one import RUBRIC, asked, judge

QUERIES = [d.query for d in world.train_dialogues(WorldConfig(train_dialogues=8), 0)]
SIZES = {"per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 12, "learning_rate": 1e-3}
QUIET = {"logging_steps": 1, "save_strategy": "no", "report_to": "none", "disable_tqdm": True}
COMMON: dict[str, Any] = {**SIZES, **QUIET, "use_cpu": True, "bf16": False}


class Recording(LongerJudge):
    """The baseline ``longer``, or a judge that cannot be read, which keeps what it is asked."""

    def __init__(self, readable: bool = True) -> None:
        self.asked: list[list[Comparison]] = []
        self._readable = readable

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        self.asked.append([*comparisons])
        predictions = super().compare_batch(comparisons, seed)
        return predictions if self._readable else [replace(p, verdict_ab=None, verdict_ba=None) for p in predictions]


def writer() -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return (
        AutoModelForCausalLM.from_pretrained(WORLD_BASE, dtype="float32"),
        AutoTokenizer.from_pretrained(WORLD_BASE, padding_side="left"),
    )


def data() -> Any:
    from datasets import Dataset

    prompts = [[{"role": "user", "content": query}] for query in QUERIES]
    return Dataset.from_list([{"prompt": prompt, "reference": "yes ."} for prompt in prompts])


def logged(trainer: Any, name: str) -> list[float]:
    return [float(row[name]) for row in trainer.state.log_history if name in row]


def test_grpo_runs_two_steps(tmp_path: Path) -> None:
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = writer()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    longer = Recording()
    trainer = GRPOTrainer(
        model,
        reward_funcs=JudgeReward(longer),
        args=GRPOConfig(output_dir=str(tmp_path), max_steps=2, **COMMON),
        train_dataset=data(),
        processing_class=tokenizer,
    )
    trainer.train()
    assert len(longer.asked) == 2, "one call a step"
    assert all(c.dialogue.query in QUERIES for c in longer.asked[0])
    assert logged(trainer, "rewards/judge_round_robin/mean") == pytest.approx([0.5, 0.5])
    assert logged(trainer, "judge/comparisons") == [len(call) for call in longer.asked]
    assert logged(trainer, "judge/unreadable") == [0, 0]
    assert any(not value.equal(before[name]) for name, value in model.state_dict().items())


def test_grpo_runs_a_step_with_what_each_response_is_worth_by_itself(tmp_path: Path) -> None:
    from trl import GRPOConfig, GRPOTrainer

    (model, tokenizer) = writer()
    reads_one = judge()
    trainer = GRPOTrainer(
        model,
        reward_funcs=JudgeReward(reads_one, "score", criteria=RUBRIC),
        args=GRPOConfig(output_dir=str(tmp_path), max_steps=1, **COMMON),
        train_dataset=data(),
        processing_class=tokenizer,
    )
    trainer.train()
    judged = asked(reads_one).count("score")
    assert 0 < judged <= 8 * len(RUBRIC.criteria), "a judgment a criterion for each of eight, equal ones once"
    assert logged(trainer, "judge/judgments") == [judged]
    assert 0 <= logged(trainer, "rewards/judge_score/mean")[0] <= 1


def test_rloo_runs_a_step_against_references_and_learns_nothing_from_what_cannot_be_read(tmp_path: Path) -> None:
    from trl import RLOOConfig, RLOOTrainer

    model, tokenizer = writer()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    longer = Recording(readable=False)
    trainer = RLOOTrainer(
        model,
        reward_funcs=JudgeReward(longer, "anchor", reference="reference"),
        args=RLOOConfig(output_dir=str(tmp_path), max_steps=1, **COMMON),
        train_dataset=data(),
        processing_class=tokenizer,
    )
    trainer.train()
    assert [c.response_b for c in longer.asked[0]] == ["yes ."] * len(longer.asked[0])
    assert logged(trainer, "judge/unreadable") == [1]
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
