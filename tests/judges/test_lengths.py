"""A judge that could never be asked is refused before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from judgetrain.errors import ConfigError
from judgetrain.judges.checks import check_lengths, too_long_hint
from judgetrain.judges.config import JudgeConfig
from judgetrain.judging.summary import Summary


def test_answers_as_long_as_the_context_are_refused_with_what_to_set() -> None:
    message = (
        "judge.criteria_tokens=512 judge.judgment_tokens=600: the model of dpo has a context of 512 tokens, which "
        "leaves none for a prompt: lower them, for example judge.criteria_tokens=128 judge.judgment_tokens=128"
    )
    with pytest.raises(ConfigError) as error:
        check_lengths(JudgeConfig(guideline_tokens=511, judgment_tokens=600), "world", "dpo")
    assert str(error.value) == message
    check_lengths(JudgeConfig(criteria_tokens=128, guideline_tokens=128, judgment_tokens=128), "world", "dpo")


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        ({"max_position_embeddings": 512}, True),
        ({"text_config": {"max_position_embeddings": 512}, "max_position_embeddings": 4096}, True),
        ({"n_positions": 256}, True),
        ({"max_position_embeddings": 513}, False),
        ({"vocab_size": 3}, False),
        (None, False),
    ],
)
def test_the_models_own_configuration_says_its_context(tmp_path: Path, content: object, refused: bool) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(json.dumps(content))
    if refused:
        with pytest.raises(ConfigError, match=r"judge\.criteria_tokens=512 judge\.guideline_tokens=512"):
            check_lengths(JudgeConfig(), str(tmp_path), "./mine")
    else:
        check_lengths(JudgeConfig(), str(tmp_path), "./mine")


def test_a_hint_names_what_to_lower_for_each_step_and_nothing_else() -> None:
    told = too_long_hint({"criteria:too_long": 12, "judgment:no_scores": 3, "judgment:too_long": 2})
    assert told is not None and "12 criteria:too_long, 2 judgment:too_long" in told
    assert told.endswith("lower judge.criteria_tokens and judge.judgment_tokens")
    assert too_long_hint({"judgment:no_scores": 3}) is None
    row = {"verdict": "unreadable", "label": None, "failure": "too_long", "branches": 0}
    summary = Summary.of([row | {"failures": {"criteria:too_long": 1}}], "dpo", 1, {"prompt": 1, "generated": 0}, {})
    assert any("lower judge.criteria_tokens" in str(line) for line in summary.told()), "stage judge says it at its end"
