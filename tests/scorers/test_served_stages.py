"""``scorer.engine`` wherever ``scorer:NAME`` is a method: asked within the stage's limits, and for nothing twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.engines.config import ModelConfig, OpenAIEngineConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import EngineError
from judgetrain.evaluate.estimate import rehearsed
from judgetrain.evaluate.settings import EvaluateSettings
from judgetrain.judges import load_judge
from judgetrain.pipeline.run import Pipeline
from judgetrain.scorers.encode import Sample
from judgetrain.scorers.methods import score
from judgetrain.scorers.statistics import TokenScorer
from tests.builders.judging import lines
from tests.builders.pipeline import configured
from tests.builders.served_model import ServedModel, serving_model

METHOD = "scorer:sentprob_mean"
ROWS = [
    {"query": f"which door {i} ?", "response_a": "the first .", "response_b": "a cat 🦊", "label": "A"} for i in (1, 2)
]
"""Four texts, all different."""


@pytest.fixture
def server() -> Iterator[ServedModel]:
    world = ModelConfig(path="world")
    with serving_model(load_tokenizer(world), load_model(world, "cpu")) as served:
        yield served


def overrides(server: ServedModel, home: Path, stage: str) -> list[str]:
    path = lines(home / "mine.jsonl", ROWS)
    engine = f"{{type: openai, model: m, base_url: '{server.url}', api_key_env: '', concurrency: 1}}"
    common = ["recipe=debug", "track.tracker=none", f"output_dir={home / 'out'}", f"scorer.engine={engine}"]
    return (
        common
        + {
            "evaluate": [
                f"evaluate.benchmarks=[{{name: b, source: {{name: b, format: comparison, path: {path}}}}}]",
                *(f"evaluate.methods=[{METHOD},longer]", "robustness.sample=0", "evaluate.bootstrap=20"),
            ],
            "verdicts": [f"verdicts.judge={METHOD}", f"verdicts.source.path={path}"],
            "stress": [
                *(f"stress.methods=[{METHOD}]", "stress.source={type: world, name: world}"),
                *("stress.prompts=2", "stress.samples=2", "stress.writer={type: world, skill: 0.5}"),
            ],
        }[stage]
    )


@pytest.mark.parametrize(("stage", "key"), [("evaluate", "evaluate"), ("judge", "verdicts"), ("stress", "stress")])
def test_a_stage_keeps_to_its_limits_and_pays_for_nothing_twice(
    stage: str, key: str, server: ServedModel, tmp_path: Path
) -> None:
    asked = overrides(server, tmp_path, key)
    with pytest.raises(EngineError, match=rf"{key}\.max_requests=2 requests are sent; every answer is kept"):
        Pipeline(configured(*asked, f"{key}.max_requests=2"), Console()).run(stage)
    assert len(server.answered) == len(server.bodies) == 2
    directory = Pipeline(configured(*asked), Console()).run(stage)
    assert len(server.answered) == len(server.bodies) == len(set(server.answered)) == 4
    spent = json.loads((directory / "manifest.json").read_text())["notes"]["spent"]
    assert spent == {"requests": 4, "prompt_tokens": sum(map(len, server.answered)), "generated_tokens": 4}


def test_scores_are_the_models_and_the_estimate_is_what_is_sent(server: ServedModel, tmp_path: Path) -> None:
    config = configured(*overrides(server, tmp_path, "evaluate"))
    ((name, costs),) = rehearsed(EvaluateSettings.of(config))
    assert name == f"{METHOD} (m)" and not server.bodies
    directory = Pipeline(config, Console()).run("evaluate")
    assert costs["reading"].calls == len(server.bodies) == 4
    assert costs["reading"].prompt == sum(map(len, server.answered))
    texts = [
        Sample(({"role": "user", "content": str(row["query"])},), str(row[name]))
        for row in ROWS
        for name in ("response_a", "response_b")
    ]
    expected = score(TokenScorer.from_pretrained("world"), texts, ["sentprob_mean"])["sentprob_mean"].values
    kept = [value for row in read_rows(directory, "scores-b-single_pass") for value in row["sentprob_mean"]]
    assert kept == pytest.approx(expected, abs=1e-4)


def test_a_judge_in_python_asks_the_server(server: ServedModel) -> None:
    engine = OpenAIEngineConfig(model="m", base_url=server.url, api_key_env="")
    shown = "which door ?", "the first .", "a cat ."
    found = load_judge(METHOD, engine=engine, model="world")(*shown)
    assert len(server.answered) == 2
    assert found.margin == pytest.approx(load_judge(METHOD, model="world")(*shown).margin, abs=1e-4)
