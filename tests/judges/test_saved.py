"""``judge.json`` and ``criteria.yaml``: what they may hold, and where a command asks otherwise than they say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judgetrain.data.rubrics import rubric_of
from judgetrain.errors import ConfigError, DataError
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.saved import criteria_of, overridden, save_criteria, save_settings, saved_settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"constrained": "false"}', "constrained: expected bool, found 'false'"),
        ('{"criteria": "ten"}', "criteria: expected int"),
        ('{"temperature": true}', "temperature: expected float"),
        ("[1]", "expected an object, found list"),
        ("{", "not JSON"),
    ],
)
def test_what_is_written_beside_a_judge_has_its_types(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "judge.json").write_text(text)
    with pytest.raises(ConfigError, match=f"judge.json: {message}"):
        saved_settings(tmp_path)
    (tmp_path / "judge.json").write_text('{"criteria": 7, "temperature": 1, "fitted": null}')
    assert saved_settings(tmp_path).temperature == 1 and criteria_of(tmp_path) == 7


def test_settings_and_prompts_nested_thousands_deep_are_refused_in_a_sentence(tmp_path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    (tmp_path / "judge.json").write_text(deep)
    with pytest.raises(ConfigError, match=r"judge.json: it is nested too deeply"):
        saved_settings(tmp_path)
    (tmp_path / "prompts.yaml").write_text(deep)
    with pytest.raises(ConfigError, match=r"prompts.yaml: it is nested too deeply"):
        load_prompt_set(tmp_path / "prompts.yaml")


def test_where_a_judge_s_own_settings_ask_otherwise_is_told(tmp_path: Path) -> None:
    save_settings(JudgeConfig(aggregation="mean", guideline_tokens=512, early_stop=True), tmp_path, 5)
    here = JudgeConfig(aggregation="mean", guideline_tokens=40, early_stop=True)
    assert overridden(here, tmp_path) == ["judge.guideline_tokens=512"]
    assert overridden(saved_settings(tmp_path), tmp_path) == []


def test_a_judge_goes_by_the_criteria_that_it_was_taught_by_where_no_others_are_given(tmp_path: Path) -> None:
    save_settings(JudgeConfig(), tmp_path, 3)
    assert JudgeOptions.of_directory(tmp_path, {}).rubric is None
    save_criteria("- {name: Tone, text: Is it friendly?}\n- {name: Truth, text: Is it true?, weight: 2}\n", tmp_path)
    taught = JudgeOptions.of_directory(tmp_path, {}).rubric
    assert taught is not None
    assert [(criterion.name, criterion.weight) for criterion in taught.criteria] == [("Tone", 1.0), ("Truth", 2.0)]

    others = rubric_of(["Is it short?"])
    assert JudgeOptions.of_directory(tmp_path, {}, rubric=others).rubric == others
    # None means that the caller gave no criteria, as load_judge passes it on.
    assert JudgeOptions.of_directory(tmp_path, {}, rubric=None).rubric == taught
    (tmp_path / "criteria.yaml").write_text("{nothing: here}")
    with pytest.raises(DataError, match=r"criteria\.yaml"):
        JudgeOptions.of_directory(tmp_path, {})


def refusal(directory: Path | None, **changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        JudgeOptions.of_directory(directory, changes)
    return str(caught.value)


def test_errors_in_python_name_arguments_and_those_of_a_run_name_keys(tmp_path: Path) -> None:
    """``judge.decided=...`` is no argument of load_judge."""
    save_settings(JudgeConfig(), tmp_path, criteria=3)
    assert refusal(tmp_path, decided="nofile").startswith("decided=nofile: expected the decided.json")
    no_weights = f"aggregation=fitted needs the fitted.json of stage calibrate, and {tmp_path} holds none: name it by "
    assert refusal(tmp_path, aggregation="fitted") == f"{no_weights}fitted"
    assert refusal(None, aggregation="fitted").endswith("the judge has no directory that holds one: name it by fitted")
    with pytest.raises(ConfigError) as caught:
        JudgeOptions.of(JudgeConfig(aggregation="fitted"), 3, tmp_path)
    assert str(caught.value) == f"judge.{no_weights}judge.fitted"


def test_a_warning_of_what_a_judge_never_learned_names_what_was_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_settings(JudgeConfig(), tmp_path, criteria=3, learned="two")
    JudgeOptions.of_directory(tmp_path, {"reads": "one"})
    assert "learned to read two, and reads=one asks for" in caplog.text
    JudgeOptions.of(JudgeConfig(reads="one"), 3, tmp_path)
    assert "and judge.reads=one asks for" in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tie": "x"}, "tie='x': expected a number"),
        ({"tie": True}, "tie=True: expected a number"),
        ({"constrained": "foo"}, "constrained='foo': expected True or False"),
        ({"retries": 1.5}, "retries=1.5: expected a whole number"),
        ({"reads": None}, "reads=None: expected a text"),
        ({"decided": 3}, "decided=3: expected a text or None"),
        ({"fitted": "nofile"}, "fitted='nofile': these weights are read with aggregation='fitted' alone; found"),
    ],
)
def test_settings_of_another_type_or_that_nothing_reads_are_refused(changes: dict[str, Any], message: str) -> None:
    assert refusal(None, **changes).startswith(message)


def test_numbers_of_numpy_are_numbers() -> None:
    options = JudgeOptions.of_directory(None, {"tie": np.float64(0.25), "retries": np.int64(2), "aggregation": "mean"})
    assert (options.tie, options.retries) == (0.25, 2)
