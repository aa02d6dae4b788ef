"""What is said where a judge was not asked since nothing fitted into its context."""

from __future__ import annotations

from judgetrain.judges.remedies import of_too_long
from judgetrain.serving.summary import Summary


def test_it_names_what_to_lower_for_each_step_and_nothing_else() -> None:
    told = of_too_long({"criteria:too_long": 12, "judgment:no_scores": 3, "judgment:too_long": 2})
    assert told is not None and "12 criteria:too_long, 2 judgment:too_long" in told
    assert told.endswith("lower judge.criteria_tokens and judge.judgment_tokens")
    assert of_too_long({"judgment:no_scores": 3}) is None


def test_stage_judge_says_it_at_its_end() -> None:
    row = {
        "verdict": "unreadable",
        "label": None,
        "failure": "too_long",
        "failures": {"criteria:too_long": 1},
        "branches": 0,
    }
    summary = Summary.of([row], "dpo", 1, {"prompt": 1, "generated": 0}, {})
    assert any("lower judge.criteria_tokens" in str(line) for line in summary.told())
