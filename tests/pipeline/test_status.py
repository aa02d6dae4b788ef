"""``stage=status`` before anything is there: which files are missing."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

from judgetrain.errors import ConfigError
from judgetrain.pipeline import status
from judgetrain.pipeline.options import recipes
from judgetrain.pipeline.run import Pipeline
from tests.builders.pipeline import configured, judgetrain


def test_what_is_missing_is_said_before_the_data_is_there(tmp_path: Path) -> None:
    done = judgetrain("stage=status", "recipe=tables/table1", cwd=tmp_path)
    assert done.returncode == 2
    assert re.search(r"^dialogues +\w{16} +missing", done.stdout, re.MULTILINE), "a stage that lacks nothing"
    assert re.search(
        r"^evaluate +- +no input +- +stop +evaluate\.benchmarks\[0\]\.source\.path", done.stdout, re.MULTILINE
    )
    assert "evaluate.benchmarks[0].source.path='data/eval_p/*.jsonl': no such file" in done.stderr
    assert done.stderr.count("no such file") == 1, "once, not for each stage"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [*recipes()])
def test_every_recipe_is_told_what_it_lacks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with suppress(ConfigError):
        status.show(Pipeline(configured(f"recipe={name}")))
    printed = capsys.readouterr().out
    assert all(re.search(rf"^{stage}\b", printed, re.MULTILINE) for stage in ("dialogues", "dpo", "evaluate"))
