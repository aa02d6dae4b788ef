"""The link in ``output_dir`` to the newest judge, and judges named by a pattern."""

import os
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.errors import ConfigError
from judgetrain.judges.method import Method
from judgetrain.pipeline.newest import check_name, link_newest
from judgetrain.pipeline.run import Pipeline
from tests.builders.pipeline import configured


def pipeline(output: Path, *overrides: str) -> Pipeline:
    return Pipeline(configured("recipe=debug", f"output_dir={output}", *overrides), Console())


def test_the_link_leads_to_the_last_judge_and_moves_with_the_next_one(tmp_path: Path) -> None:
    first = pipeline(tmp_path)
    model = first.plan("dpo").directory / "model"
    model.mkdir(parents=True)
    link_newest(first, ["initial", "sft", "dpo"])
    assert (tmp_path / "judge").resolve() == model.resolve()
    # Relative, so that output_dir can be moved whole.
    assert not os.path.isabs(os.readlink(tmp_path / "judge"))

    second = pipeline(tmp_path, "train.dpo.beta=0.9")
    other = second.plan("dpo").directory / "model"
    other.mkdir(parents=True)
    assert other != model
    link_newest(second, ["dpo"])
    assert (tmp_path / "judge").resolve() == other.resolve()
    assert sorted(path.name for path in tmp_path.iterdir() if "judge" in path.name) == ["judge"]


def test_a_name_of_its_own_keeps_the_link_of_other_runs(tmp_path: Path) -> None:
    for name in ("judge", "support"):
        run = pipeline(tmp_path, f"name={name}", f"seed={len(name)}")
        (run.plan("sft").directory / "model").mkdir(parents=True)
        link_newest(run, ["sft"])
    assert (tmp_path / "judge").resolve() != (tmp_path / "support").resolve()


def test_without_a_name_or_a_judge_there_is_no_link(tmp_path: Path) -> None:
    link_newest(pipeline(tmp_path, "name=null"), ["sft"])
    link_newest(pipeline(tmp_path), [])
    assert not (tmp_path / "judge").is_symlink()


@pytest.mark.parametrize("name", ["a/b", "..", "artifacts"])
def test_a_name_that_is_taken_or_is_none_is_refused_before_the_run(name: str, tmp_path: Path) -> None:
    (tmp_path / "artifacts").mkdir()
    with pytest.raises(ConfigError, match=rf"name='{name}'"):
        check_name(configured("recipe=debug", f"output_dir={tmp_path}", f"name={name}"))


def test_a_pattern_with_one_match_is_that_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for mark in ("a", "b"):
        Path(f"artifacts/dpo/{mark}/model").mkdir(parents=True)
    assert Method.parse("artifacts/dpo/a*/model@3").target == "artifacts/dpo/a/model"
    assert Method.parse("pairwise:artifacts/*/b/model").target == "artifacts/dpo/b/model"
    # Two, or none: the check before a run says so.
    assert Method.parse("artifacts/dpo/*/model").target == "artifacts/dpo/*/model"
    assert Method.parse("artifacts/sft/*/model").target == "artifacts/sft/*/model"


def test_a_directory_whose_own_name_has_brackets_is_no_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run1", "run[1]"):
        Path(name, "model").mkdir(parents=True)
    assert Method.parse("./run[1]/model@3").target == "./run[1]/model"


def test_a_pattern_with_several_matches_is_refused_by_two_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for mark in ("a", "b"):
        Path(f"judges/{mark}").mkdir(parents=True)
        Path(f"judges/{mark}/config.json").write_text("{}")
    settings: list[Any] = ["recipe=debug", f"output_dir={tmp_path}", "stage=judge", "verdicts.source.type=world"]
    with pytest.raises(ConfigError, match="matches 2 directories, as judges/[ab] and judges/[ab]: name one"):
        Pipeline(configured(*settings, "verdicts.judge='judges/*'")).plan("judge")


def test_what_already_has_the_default_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "judge").mkdir()
    run = pipeline(tmp_path)
    check_name(run.config)
    (run.plan("sft").directory / "model").mkdir(parents=True)
    link_newest(run, ["sft"])
    assert (tmp_path / "judge").is_dir() and not (tmp_path / "judge").is_symlink()
