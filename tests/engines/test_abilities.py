"""Engines that cannot do what they are asked for are refused before anything runs."""

from __future__ import annotations

from typing import get_args

import pytest
from judgetrain.engines.abilities import HEURISTIC_STEPS
from judgetrain.pipeline.checks import check_stage

from judgetrain.data.config import BenchmarkConfig, ResponseModelConfig, SourceConfig
from judgetrain.engines.base import Request, Sampling, Step
from judgetrain.engines.config import EngineConfig
from judgetrain.errors import ConfigError
from judgetrain.judges.heuristic.engine import HeuristicEngine
from judgetrain.pipeline.config import Config


@pytest.mark.parametrize("step", get_args(Step))
def test_what_the_heuristic_annotator_cannot_do_is_known(step: Step) -> None:
    slots = dict.fromkeys(("query", "criterion", "guideline", "response_a", "response_b"), "x") | {"count": "2"}
    request = Request(messages=({"role": "user", "content": "x"},), sampling=Sampling(), step=step, slots=slots)
    done = HeuristicEngine(EngineConfig(type="heuristic")).generate([request], 1)[0]
    assert (done.finish_reason == "stop") == (step in HEURISTIC_STEPS)


def evaluation(*methods: str, kind: str) -> Config:
    config = Config(stage="evaluate")
    config.evaluate.benchmarks = [BenchmarkConfig(name="world", source=SourceConfig(type="world"))]
    config.evaluate.methods = list(methods)
    config.evaluate.external = config.teacher.engine = EngineConfig(type=kind)
    return config


@pytest.mark.parametrize(
    ("kind", "method", "message"),
    [
        ("heuristic", "one_step:external", r"evaluate\.external\.type=heuristic: cannot do step one_step"),
        ("heuristic", "rating:teacher", r"teacher\.engine\.type=heuristic: cannot do step rating"),
        ("heuristic", "external", None),
        ("world", "one_step:external", None),
        ("world", "rating:external", None),
        ("world", "teacher+expected", r"teacher\.engine\.type=world: gives no probabilities.*'teacher\+expected'"),
        ("heuristic", "external+expected+constrained", r"evaluate\.external\.type=heuristic: gives no probabilities"),
        ("world", "teacher+parsed", None),
    ],
)
def test_methods(kind: str, method: str, message: str | None) -> None:
    config = evaluation(method, kind=kind)
    if message is None:
        check_stage(config, "evaluate")
        return
    with pytest.raises(ConfigError, match=message):
        check_stage(config, "evaluate")


@pytest.mark.parametrize(("prompts", "step"), [("one_step", "one_step"), ("preference", "preference")])
def test_labels(prompts: str, step: str) -> None:
    config = Config(stage="label")
    config.label.source, config.label.external.prompts = "external", prompts
    config.label.external.engine = EngineConfig(type="heuristic")
    with pytest.raises(ConfigError, match=rf"label\.external\.engine\.type=heuristic: cannot do step {step}"):
        check_stage(config, "label")


def test_responses() -> None:
    config = Config(stage="responses")
    config.responses.models = [ResponseModelConfig(name="h", type="heuristic")]
    with pytest.raises(ConfigError, match=r"responses\.models\[0\]\.type=heuristic: cannot do step response"):
        check_stage(config, "responses")
