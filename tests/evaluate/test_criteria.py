"""By whose criteria a judge judges a benchmark: its own, those given, or those of another query."""

from dataclasses import replace

import pytest

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons, true_rubric
from judgetrain.data.world.engine import WorldEngine
from judgetrain.data.world.rule import load_world
from judgetrain.errors import ConfigError
from judgetrain.evaluate.runners.judges import by_criteria
from judgetrain.judges import BranchingJudge
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.method import Method
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import Comparison

ROWS = [
    Comparison.of(f"q{i}", "a", "b", id=str(i), rubric=Rubric((Criterion(text=text),)))
    for i, text in enumerate(["x", "x", "y", "y"])
]


def texts(rows: list[Comparison]) -> list[str | None]:
    return [row.rubric.criteria[0].text if row.rubric else None for row in rows]


def test_own_given_and_shuffled() -> None:
    assert texts(by_criteria(ROWS, "own", "dpo")) == [None] * 4
    assert texts(by_criteria(ROWS, "given", "dpo")) == ["x", "x", "y", "y"]
    assert texts(by_criteria(ROWS, "shuffled", "dpo")) == ["y", "y", "x", "x"]
    assert [Method.parse(f"dpo+{o}").criteria for o in ("given", "shuffled", "one")] == ["given", "shuffled", "own"]


@pytest.mark.parametrize(
    ("rows", "criteria", "message"),
    [
        ([*ROWS, Comparison.of("q", "a", "b")], "given", "1 of 5 rows brings no column criteria"),
        (ROWS[:2], "shuffled", "all comparisons have the same criteria"),
    ],
)
def test_what_is_not_there_is_told(rows: list[Comparison], criteria: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        by_criteria(rows, criteria, "dpo: bench")


@pytest.mark.parametrize("reads", ["one", "two"])
def test_the_worlds_true_criteria_are_right_and_another_querys_are_not(reads: str) -> None:
    # An annotator who never errs, under the true weights, gives the hidden rule's verdict every time.
    decided = [c for c in eval_comparisons(WorldConfig(eval_comparisons=300), 3) if c.label != "tie"]
    world = load_world(3)  # the configuration names no rule, so that the seed draws it
    rows = [replace(c, rubric=true_rubric(world, c.dialogue.query)) for c in decided]
    engine = WorldEngine(WorldEngineConfig(error_rate=0.0))
    settings = JudgeConfig(reads=reads, score="parsed", aggregation="mean")
    judge = BranchingJudge(engine, load_prompt_set("compact"), JudgeOptions.of(settings, 10))
    agreed = {
        criteria: sum(p.verdict == c.label for p, c in zip(judge.compare_batch(shown), decided, strict=True))
        / len(decided)
        for criteria in ("given", "shuffled")
        for shown in [by_criteria(rows, criteria, "teacher")]
    }
    # What does not count follows the writers' care a little, so that another query's criteria do better than chance.
    assert agreed["given"] == 1.0 and agreed["shuffled"] < 0.7
