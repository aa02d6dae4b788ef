"""``teacher.dry_run=true`` says what the teacher would take, makes what it needs, and asks no external model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judgetrain import __main__, dry_run
from judgetrain.artifacts import StageRun
from judgetrain.config import Config, EngineConfig, ModelConfig, TeacherConfig, WorldConfig
from judgetrain.dialogues.world import eval_comparisons
from judgetrain.errors import ConfigError
from judgetrain.pipeline import Pipeline
from judgetrain.track import Console


def configured(tmp_path: Path) -> Config:
    engine = EngineConfig(type="openai", model=ModelConfig(path="gpt-x"), base_url="http://127.0.0.1:9/v1")
    teacher = TeacherConfig(engine=engine, comparisons=4, branches=2, dry_run=True)
    return Config(prompts="compact", stage="dpo", teacher=teacher, output_dir=str(tmp_path / "outputs"))


def test_the_expected_calls_are_printed_and_the_stage_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[str] = []

    def run(self: Pipeline, name: str) -> Path:
        made.append(name)
        out = StageRun(tmp_path / name, name, 0, Console())
        out.write_rows("comparisons", (c.to_row() for c in eval_comparisons(WorldConfig(eval_comparisons=10), 0)))
        return out.directory

    monkeypatch.setattr(Pipeline, "run", run)
    assert __main__.run(configured(tmp_path)) is None
    assert made == ["responses"]
    printed = capsys.readouterr().out
    assert "dry run for gpt-x: 4 comparisons (6 remain for the tree)" in printed
    lines = {line.split()[1].rstrip(":"): line for line in printed.splitlines() if "calls," in line}
    assert [int(lines[step].split()[2]) for step in ("criteria", "guideline", "judgment", "all")] == [4, 8, 16, 28]


def test_external_response_models_are_not_asked_for_it(tmp_path: Path) -> None:
    config = configured(tmp_path)
    config.dialogues.sources = []
    config.responses.models = [EngineConfig(type="openai", name="api", model=ModelConfig(path="m"))]
    with pytest.raises(ConfigError, match=r"teacher\.dry_run=true: .*external models api; run stage=responses"):
        dry_run.show(Pipeline(config))


def test_the_flag_and_the_limits_redo_nothing(tmp_path: Path) -> None:
    def marks(**options: Any) -> str:
        config = configured(tmp_path)
        for name, value in options.items():
            setattr(config.teacher, name, value)
        return Pipeline(config).plan("teacher").fingerprint

    assert len({marks(), marks(dry_run=False), marks(max_requests=5), marks(max_tokens=5)}) == 1
    assert marks(branches=1) != marks()
