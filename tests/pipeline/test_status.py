"""``stage=status`` before anything is there: which files are missing."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

from judgetrain.errors import ConfigError
from judgetrain.pipeline import commands, recipes
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
    assert done.stderr.count("evaluate.benchmarks[0].source.path") == 1, "once, not for each stage"
    assert not list(tmp_path.iterdir())


def test_every_missing_file_of_a_stage_is_named() -> None:
    sources = ",".join(f"{{name: {name}, path: nowhere/{name}.jsonl}}" for name in ("one", "two", "three"))
    with pytest.raises(ConfigError) as error:
        commands.show(Pipeline(configured("recipe=debug", f"dialogues.sources=[{sources}]")))
    lines = [line for line in str(error.value).splitlines() if line.startswith("dialogues.sources")]
    assert [line.partition("=")[0] for line in lines] == [f"dialogues.sources[{i}].path" for i in range(3)]
    assert all(f"nowhere/{name}.jsonl" in line for name, line in zip(("one", "two", "three"), lines, strict=True))


@pytest.mark.parametrize("name", [*recipes()])
def test_every_recipe_is_told_what_it_lacks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with suppress(ConfigError):
        commands.show(Pipeline(configured(f"recipe={name}")))
    printed = capsys.readouterr().out
    assert all(re.search(rf"^{stage}\b", printed, re.MULTILINE) for stage in ("dialogues", "dpo", "evaluate"))
