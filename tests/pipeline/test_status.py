"""``stage=status`` before anything is there: which models fit on planned GPUs, and which files are missing."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

from judgetrain.errors import ConfigError
from judgetrain.pipeline import fits, status
from judgetrain.pipeline.compose import recipes
from judgetrain.pipeline.run import Pipeline
from tests.builders.pipeline import configured, judgetrain


def table(printed: str) -> dict[str, list[str]]:
    """The table of what fits: by the first word of its lines (the last of a key counts), the words that follow."""
    lines = printed.split("by weights alone", 1)[1].split("\nrecipe ", 1)[0].splitlines()[2:]
    return {words[0]: words[1:] for line in lines if (words := line.split())}


@pytest.mark.parametrize(
    ("planned", "processes", "expected"),
    [("8x80", [], ("8", "yes")), ("8x16", [], ("8", "NO")), ("8x80", ["train.processes=1"], ("1", "NO"))],
)
def test_training_is_split_over_the_gpus_that_are_planned_for(
    tmp_path: Path, planned: str, processes: list[str], expected: tuple[str, str]
) -> None:
    """Whatever this machine has: a 7B model takes 112 GB in training, of each of eight GPUs 14, 85% of 16 is less."""
    (tmp_path / "id.jsonl").write_text('{"query": "a"}\n')
    asked = ["stage=status", "recipe=paper_id", f"data_dir={tmp_path}", f"status.gpus={planned}", *processes]
    found = table(judgetrain(*asked, cwd=tmp_path).stdout)
    assert {tuple(found[f"train.{stage}"][1:]) for stage in ("initial", "sft", "dpo")} == {("112", *expected)}


def test_what_fits_and_what_is_missing_are_said_before_the_data_is_there(tmp_path: Path) -> None:
    done = judgetrain("stage=status", "recipe=tables/table1", "status.gpus=8x80", cwd=tmp_path)
    assert done.returncode == 2
    assert table(done.stdout)["evaluate.methods"][0] == "data/judges/transfer-dpo"
    assert re.search(r"^dialogues +\w{16} +missing", done.stdout, re.MULTILINE), "a stage that lacks nothing"
    assert re.search(
        r"^evaluate +- +no input +- +stop +evaluate\.benchmarks\[0\]\.source\.path", done.stdout, re.MULTILINE
    )
    assert "evaluate.benchmarks[0].source.path='data/eval_p/*.jsonl': no such file" in done.stderr
    assert done.stderr.count("no such file") == 1, "once, not for each stage"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [*recipes()])
def test_every_recipe_is_told_what_fits_and_what_it_lacks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = Pipeline(configured(f"recipe={name}", "status.gpus=8x80"))
    fits.show(pipeline)
    assert all(words[-1] in ("yes", "NO", "unknown") for words in table(capsys.readouterr().out).values())
    with suppress(ConfigError):
        status.show(pipeline)
    printed = capsys.readouterr().out
    assert all(re.search(rf"^{stage}\b", printed, re.MULTILINE) for stage in ("dialogues", "dpo", "evaluate"))
