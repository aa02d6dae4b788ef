"""Loading the models that methods name: what is part of a stage's settings, and how each judge is asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.fingerprint import ContentHashes, by_key
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.artifacts.stages import at
from judgetrain.data.config import WorldEngineConfig
from judgetrain.engines import lazy_model
from judgetrain.engines.config import (
    EngineConfig,
    ModelConfig,
    OpenAIEngineConfig,
    SamplingConfig,
    TransformersEngineConfig,
)
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.judges.config import JudgeConfig, TreeConfig
from judgetrain.judges.factory import Models
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.settings import ModelSettings, check_model, judges_of
from judgetrain.label.config import TeacherConfig
from judgetrain.pipeline.config import Config
from tests.builders.scripted import ScriptedEngine, noisy

TREE = TreeConfig(criteria=7, guidelines=5, judgment_sampling=SamplingConfig(0.9))
JUDGE = JudgeConfig(score="expected", constrained=True, rubric="first", temperature=0.2, judgment_tokens=99)
ASKED: dict[str, Any] = {"score": "expected", "constrained": True, "rubric": "first"}
Made = list[tuple[EngineConfig, str | None, str]]


@dataclass(frozen=True, kw_only=True)
class Settings(ModelSettings):
    """Settings of a stage whose methods are ``evaluate.methods``."""

    names: list[str] = at("evaluate.methods")

    @property
    def methods(self) -> list[Method]:
        return [Method.parse(text) for text in self.names]


def config_of(*methods: str) -> Config:
    config = Config(prompts="compact", tree=TREE, judge=JUDGE, evaluate=EvaluateConfig(methods=[*methods]))
    config.train.base = ModelConfig(path="the-base")
    config.teacher = TeacherConfig(engine=WorldEngineConfig())
    config.evaluate.external = OpenAIEngineConfig(model="the-external")
    return config


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    made: Made = []

    def make_engine(config: EngineConfig, model_path: str | None = None, name: str = "", **options: Any) -> Any:
        made.append((config, model_path, name))
        return ScriptedEngine(noisy)

    monkeypatch.setattr(lazy_model, "make_engine", make_engine)
    return made


def models(config: Config, tmp_path: Path, *stages: str) -> Models:
    inputs = {name: tmp_path / name / f"{name}0" for name in stages}
    return Models(Settings.of(config), inputs, StageRun(tmp_path / "out", "evaluate", 1, Console(), home=tmp_path))


def trained(directory: Path, criteria: int = 3) -> Path:
    """A trained judge's directory, but for its weights."""
    directory.mkdir(parents=True)
    load_prompt_set("multi_step").save(directory)
    JudgeConfig(reference=False, temperature=0.9).save(directory, criteria)
    return directory


@pytest.mark.parametrize(
    ("methods", "unused"),
    [
        (["random", "scorer:sentprob", "stored:x"], {"teacher", "external", "engine", "prompts", "judge", "criteria"}),
        (["initial", "sft", "dpo+expected", "./mine"], {"base", "teacher", "external", "prompts"}),
        (["base"], {"teacher", "external"}),
        (["pairwise:base"], {"teacher", "external", "prompts", "judge", "criteria"}),
        (["teacher"], {"base", "external", "engine"}),
        (["pairwise:external", "pointwise:teacher"], {"base", "engine", "prompts", "judge", "criteria"}),
        (["external", "dpo"], {"base", "teacher"}),
        (["base", "teacher", "external"], set()),
    ],
)
def test_a_model_that_no_method_names_is_no_part_of_the_settings(methods: list[str], unused: set[str]) -> None:
    config = config_of(*methods)
    names = {"base", "teacher", "external", "engine", "prompts", "judge", "criteria"}
    settings = Settings.of(config)
    assert {name for name in names if getattr(settings, name) is None} == unused
    kinds = {Method.parse(text).kind for text in methods}
    for kind in ("pairwise", "pointwise", "scorer"):
        assert (getattr(settings, kind) is None) == (kind not in kinds)
    assert settings.world is None
    assert settings.judge == (None if "judge" in unused else config.judge)


def test_another_model_that_is_not_named_changes_nothing_that_counts() -> None:
    config, other = config_of("dpo"), config_of("dpo")
    other.train.base, other.teacher.engine = ModelConfig(path="another"), WorldEngineConfig()
    other.evaluate.external, other.prompts = None, "multi_step"
    assert by_key(Settings.of(config)) == by_key(Settings.of(other))
    other.engine = TransformersEngineConfig(model=ModelConfig(dtype="bfloat16"))
    assert by_key(Settings.of(config)) != by_key(Settings.of(other))


def test_a_trained_judge_is_asked_as_the_run_says_for_its_own_number_of_criteria(made: Made, tmp_path: Path) -> None:
    config = config_of("dpo", "dpo+parsed")
    config.judge.aggregation, config.judge.early_stop = "mean", True
    directory = trained(tmp_path / "dpo" / "dpo0" / "model")
    found = models(config, tmp_path, "dpo")
    judge = found.judge(Method.parse("dpo"), 2)
    asked = judge.options.steps
    assert {name: getattr(asked, name) for name in ASKED} == ASKED
    assert (asked.criteria, asked.judgment_sampling) == (3, SamplingConfig(0.2, 1.0, 99))
    assert judge.prompts.source == load_prompt_set("multi_step").source, "its own, not the run's"
    options = judge.options
    assert (judge.name, options.branches, options.aggregation, options.early_stop) == ("dpo", 2, "mean", True)
    assert made == [(config.engine, str(directory), "dpo")]
    sampled = found.judge(Method.parse("dpo+sampled")).options.steps
    assert (sampled.criteria_sampling.temperature, sampled.guideline_sampling.temperature) == (1.0, 1.0)
    assert sampled.judgment_sampling == SamplingConfig(1.0, 1.0, 99)
    parsed = found.judge(Method.parse("dpo+parsed"))
    assert (parsed.options.steps.score, parsed.options.steps.constrained, parsed.name) == ("parsed", True, "dpo+parsed")


def test_a_judge_by_its_directory_is_asked_like_one_of_the_run(made: Made, tmp_path: Path) -> None:
    directory = trained(tmp_path / "mine", criteria=4)
    method = f"{directory}+constrained"
    judge = models(config_of(method), tmp_path).judge(Method.parse(method))
    assert (judge.options.steps.criteria, judge.options.steps.score, judge.name) == (4, "expected", "mine+constrained")
    assert made[0][1:] == (str(directory), "mine+constrained")


def test_the_base_is_asked_with_the_runs_prompts_and_number_of_criteria(made: Made, tmp_path: Path) -> None:
    judge = models(config_of("base"), tmp_path).judge(Method.parse("base"))
    assert (judge.options.steps.criteria, judge.prompts.name) == (7, load_prompt_set("compact").name)
    assert {name: getattr(judge.options.steps, name) for name in ASKED} == ASKED
    [(engine, path, name)] = made
    assert isinstance(engine, TransformersEngineConfig)
    assert (engine.model, path, name) == (ModelConfig(path="the-base"), None, "base")


@pytest.mark.parametrize(
    ("target", "score", "constrained"), [("teacher", "parsed", False), ("external", "expected", True)]
)
def test_engines_that_compute_scores_are_asked_for_parsed_ones(
    target: str, score: str, constrained: bool, made: Made, tmp_path: Path
) -> None:
    config = config_of(target)
    judge = models(config, tmp_path).judge(Method.parse(target))
    assert (judge.options.steps.score, judge.options.steps.constrained) == (score, constrained)
    assert (judge.options.steps.criteria, judge.options.steps.rubric) == (7, "first")
    assert made[0][0] == {"teacher": config.teacher.engine, "external": config.evaluate.external}[target]


def test_any_directory_may_be_asked_once_and_only_a_judges_grows_branches(made: Made, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    method = Method.parse(f"pointwise:{tmp_path}/plain")
    found = models(config_of(method.text, f"{tmp_path}/plain"), tmp_path)
    judge = found.judge(method)
    assert (judge.name, judge.dialect) == ("pointwise:plain", "pointwise")
    with pytest.raises(ConfigError, match=r"plain/judge\.json: there is none .* so that it is no trained judge"):
        found.judge(Method.parse(f"{tmp_path}/plain"))
    with pytest.raises(ConfigError, match="nowhere is no directory"):
        found.engine(Method.parse(f"pairwise:{tmp_path}/nowhere"))


def test_the_stages_of_named_judges_are_the_inputs_in_the_pipelines_order() -> None:
    methods = map(Method.parse, ["dpo", "random", "pairwise:initial", "base", "./sft", "dpo+expected"])
    assert judges_of(methods) == ["initial", "dpo"]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("pairwise:nobody", r"evaluate\.methods='pairwise:nobody': allowed are base, teacher"),
        ("base", r"train\.base\.path is empty"),
        ("external", r"evaluate\.external\.model is empty"),
        ("teacher+expected", r"teacher\.engine\.type=world: gives no probabilities"),
    ],
)
def test_a_method_that_cannot_be_is_refused(method: str, expected: str) -> None:
    config = config_of(method)
    check_model(Settings.of(config_of("teacher")), Method.parse("teacher"), "evaluate.methods")
    config.train.base, config.evaluate.external = ModelConfig(), OpenAIEngineConfig()
    with pytest.raises(ConfigError, match=expected):
        check_model(Settings.of(config), Method.parse(method), "evaluate.methods")


def test_a_judge_on_the_hub_is_loaded_from_its_cache_and_known_by_its_commit(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    place = trained(tmp_path / "hub" / "models--me--judge" / "snapshots" / ("a" * 40))
    (place.parents[1] / "refs").mkdir()
    (place.parents[1] / "refs" / "main").write_text("a" * 40)
    method, found = Method.parse("me/judge"), models(config_of("me/judge"), tmp_path)
    assert method.on_hub and not Method.parse("./me/judge").on_hub and not Method.parse("pairwise:base").on_hub
    assert found.judge(method, 2).options.steps.criteria == 3
    assert made[0][1] == str(place)
    assert found.identity(method, ContentHashes(None)) == ["me/judge", "a" * 40]
