"""``dry_run=true`` says what the teacher would take, makes what it needs, and asks no external model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import DialogueSourceConfig, ResponseModelConfig, WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.errors import ConfigError
from judgetrain.label.config import TeacherConfig
from judgetrain.pipeline import job
from judgetrain.pipeline.commands import show_cost
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline


def configured(tmp_path: Path) -> Config:
    engine = OpenAIEngineConfig(model="gpt-x", base_url="http://127.0.0.1:9/v1")
    teacher = TeacherConfig(engine=engine, comparisons=4, branches=2)
    config = Config(prompts="compact", stage="dpo", dry_run=True, teacher=teacher, output_dir=str(tmp_path / "outputs"))
    config.dialogues.sources = [DialogueSourceConfig(name="world", type="world")]
    config.train.base.path = "world"
    return config


def pretended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, rows: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Every stage is a directory with these rows; gives the names of those that were asked for."""
    made: list[str] = []

    def run(self: Pipeline, stage: str) -> Path:
        made.append(stage)
        out = StageRun(tmp_path / stage, stage, 0, Console())
        out.write_rows(name, rows)
        return out.directory

    monkeypatch.setattr(Pipeline, "run", run)
    return made


def test_the_expected_calls_are_printed_and_the_stage_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (c.to_row() for c in eval_comparisons(WorldConfig(eval_comparisons=10), 0))
    made = pretended(tmp_path, monkeypatch, "comparisons", rows)
    assert job.run(configured(tmp_path)) is None
    assert made == ["responses"]
    printed = capsys.readouterr().out
    assert "dry run for gpt-x: 4 comparisons (6 remain for the tree)" in printed
    lines = {line.split()[1].rstrip(":"): line for line in printed.splitlines() if "calls," in line}
    assert [int(lines[step].split()[2]) for step in ("criteria", "guideline", "judgment", "all")] == [4, 8, 16, 28]


def test_external_response_models_are_not_asked_for_it(tmp_path: Path) -> None:
    config = configured(tmp_path)
    config.responses.models = [ResponseModelConfig(name="api", engine=OpenAIEngineConfig(name="api", model="m"))]
    with pytest.raises(ConfigError, match=r"dry_run=true: stage responses asks the external models api first"):
        show_cost(Pipeline(config))


def test_the_first_paid_model_is_the_one_that_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (c.to_row() for c in eval_comparisons(WorldConfig(eval_comparisons=10), 0))
    made = pretended(tmp_path, monkeypatch, "comparisons", rows)
    config = configured(tmp_path)
    config.label.external.engine, config.label.source = config.teacher.engine, "external"
    show_cost(Pipeline(config))
    assert made == ["responses"] and "teacher: dry run for gpt-x" in capsys.readouterr().out
    config.teacher.engine, config.label.source = WorldEngineConfig(), "ensemble"
    show_cost(Pipeline(config))
    assert "dpo: dry run: 0 calls, since no model that is paid for is asked" in capsys.readouterr().out
