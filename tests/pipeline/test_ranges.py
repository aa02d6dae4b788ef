"""Values that no stage can work with are refused when the configuration is read, and only what a stage uses counts."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from judgetrain.errors import ConfigError
from judgetrain.keys import validate
from judgetrain.pipeline.compose import recipe_overrides
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.key_names import every_key
from judgetrain.pipeline.run import Pipeline
from tests.builders.pipeline import check_stage, configured

FREE = {"studies.official"}
"""Numbers that may have any finite value."""


def numbers(node: Any, prefix: str = "") -> list[tuple[str, Any, str, str]]:
    """Key, owner, field and type of every number of a configuration, and of every list and mapping of numbers."""
    found = []
    for field in dataclasses.fields(node):
        value, kind = getattr(node, field.name), str(get_type_hints(type(node))[field.name])
        if dataclasses.is_dataclass(value):
            found += numbers(value, f"{prefix}{field.name}.")
        elif "int" in kind or "float" in kind:
            found.append((f"{prefix}{field.name}", node, field.name, kind))
    return found


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_number_may_be_infinite_or_none(value: float) -> None:
    config = Config()
    every = numbers(config)
    assert len(every) > 100
    for key, owner, name, kind in every:
        before = getattr(owner, name)
        setattr(owner, name, [value] if kind.startswith("list") else {"x": value} if kind.startswith("dict") else value)
        with pytest.raises(ConfigError, match=rf"^{key}.*: must be a finite number"):
            validate(config)
        setattr(owner, name, before)
    validate(config)


def test_every_number_has_a_range_but_those_that_need_none() -> None:
    free = {key.name for key in every_key() if ("int" in key.type or "float" in key.type) and not key.allowed}
    assert free == FREE


@pytest.mark.parametrize(
    ("override", "message"),
    [
        *(
            (f"{stage}.learning_rate={v}", "must be above 0")
            for stage in ("train.initial", "train.sft", "train.dpo", "rl")
            for v in (0, -1)
        ),
        ("train.dpo.beta=0", "must be above 0"),
        ("tree.judgment_sampling.top_p=0", "must be above 0 and at most 1"),
        ("judge.temperature=-1", "at least 0"),
        ("evaluate.branches=[1,0]", "must be at least 1"),
        ("+selfeval.temperatures.math=11", "must be at least 0 and at most 10"),
        ("output_dir=", "must not be empty; leave it out for outputs"),
        ("cluster.encoder=", "must not be empty"),
    ],
)
def test_values_that_train_nothing_or_lead_nowhere_are_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(override)


def test_a_text_that_may_be_empty_may() -> None:
    assert configured("data_dir=").data_dir == ""
    assert configured("teacher=openai", "teacher.engine.api_key_env=").teacher.engine.api_key_env == ""


@pytest.mark.parametrize("stage", ["teacher", "tree", "label", "dpo", "selfeval"])
def test_fewer_criteria_concern_only_who_grows_that_many_branches(stage: str) -> None:
    Pipeline(configured("tree.criteria=2", f"stage={stage}")).check(stage)


def test_branches_concern_only_methods_that_have_some() -> None:
    check_stage("evaluate", configured("tree.criteria=2", "evaluate.methods=[longer]"))
    with pytest.raises(ConfigError, match=r"evaluate\.branches=.*1 to tree\.criteria=2"):
        check_stage("evaluate", configured("tree.criteria=2", "evaluate.methods=[longer,dpo]"))


@pytest.mark.parametrize("override", ["correct.source.path=mine.jsonl", "correct.source={path: mine.jsonl}"])
def test_a_path_alone_is_read_whatever_the_recipe_reads(override: str) -> None:
    config = configured("recipe=quickstart", override)
    assert (config.correct.source.type, config.correct.source.path) == ("jsonl", "mine.jsonl")
    check_stage("correct", config)
    assert configured("evaluate.benchmarks.0.source.path=x.jsonl").evaluate.benchmarks[0].source.type == "jsonl"


def test_a_path_of_the_users_recipe_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("defaults: [quickstart]\ncorrect: {source: {path: mine.jsonl}}\n")
    assert configured(*recipe_overrides([f"recipe={path}"])).correct.source.type == "jsonl"


@pytest.mark.parametrize(
    ("stage", "override", "key"),
    [
        ("correct", "correct.source={type: world, path: mine.jsonl}", "correct.source"),
        ("evaluate", "evaluate.benchmarks.0.source={type: world, path: m}", "evaluate.benchmarks[0].source"),
        ("dialogues", "dialogues.sources=[{name: a, type: world, path: m}]", "dialogues.sources[0]"),
    ],
)
def test_a_path_together_with_the_world_is_refused(stage: str, override: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_stage(stage, configured(override))
    assert str(caught.value).startswith(f"{key}.path=") and f"set {key}.type=jsonl" in str(caught.value)
