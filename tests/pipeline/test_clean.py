"""``stage=clean``: what nothing refers to is listed, removed only when asked, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from judgetrain.artifacts.files import using
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.engines.config import ModelConfig
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.pipeline.commands import clean, leftovers
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.pipeline.sweeps import write_job
from tests.builders.evaluate import manifest


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    source = SourceConfig(name="world", type="world")
    evaluate = EvaluateConfig([BenchmarkConfig("world", source)], ["random"])
    config = Config(output_dir=str(tmp_path), evaluate=evaluate)
    config.train.base = ModelConfig(path="world")
    root = tmp_path / "artifacts"
    manifest(root, "tree", "t1", {})
    manifest(root, "dpo", "used", {"tree": "t1"})
    manifest(root, "dpo", "other", {"tree": "t1"})
    manifest(root, "evaluate", "e1", {"dpo": "used"})
    (root / "sft" / "half").mkdir(parents=True)
    return Pipeline(config)


def names(found: list[Path]) -> list[str]:
    return [f"{directory.parent.name}/{directory.name}" for directory in found]


def test_what_an_evaluation_was_made_from_is_used(pipeline: Pipeline) -> None:
    assert names(leftovers(pipeline)) == ["sft/half", "dpo/other"]


@pytest.mark.parametrize("stage", ["judge", "leaderboard", "stress", "label_queue", "correct", "selfeval", "scenarios"])
def test_results_of_other_settings_are_kept_with_what_they_were_made_from(pipeline: Pipeline, stage: str) -> None:
    manifest(pipeline.root, stage, "verdicts", {"dpo": "other"})
    assert names(leftovers(pipeline)) == ["sft/half"]


def test_the_present_settings_and_sweeps_keep_what_they_use(pipeline: Pipeline, tmp_path: Path) -> None:
    present = pipeline.plan("dpo").directory
    present.mkdir(parents=True)
    assert names(leftovers(pipeline)) == ["sft/half", "dpo/other"], "work that a run would resume"
    write_job(
        tmp_path / "sweeps" / "day" / "time" / "0", [], {"state": "done", "directory": str(pipeline.root / "dpo/other")}
    )
    assert names(leftovers(pipeline)) == ["sft/half"]


def test_nothing_is_removed_unless_asked(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    clean(pipeline)
    printed = capsys.readouterr().out
    assert "2 artifacts would be removed; add yes=true" in printed
    assert "sft/half: unfinished, 0 B" in printed and "dpo/other: finished" in printed
    assert (pipeline.root / "dpo" / "other" / "manifest.json").is_file()
    pipeline.config.yes = True
    clean(pipeline)
    assert "clean: 2 artifacts removed" in capsys.readouterr().out
    left = {f"{p.parent.parent.name}/{p.parent.name}" for p in pipeline.root.glob("*/*/manifest.json")}
    assert left == {"tree/t1", "dpo/used", "evaluate/e1"}
    assert not (pipeline.root / "sft" / "half").exists()
    clean(pipeline)
    assert "nothing to remove" in capsys.readouterr().out


def test_nothing_is_removed_while_another_process_is_at_work(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run holds ``output_dir`` from its first stage to its last; two of them do so together."""
    refusals = []

    def make(self: Pipeline, plan: object) -> bool:
        with pytest.raises(ConfigError, match="another process is at work there") as refused, using(home):
            clean(pipeline)
        refusals.append(refused)
        return True

    pipeline.config.yes, home = True, Path(pipeline.config.output_dir)
    monkeypatch.setattr(Pipeline, "_make", make)
    monkeypatch.setattr(Pipeline, "check", lambda self, name: None)
    monkeypatch.setattr(Pipeline, "_check_here", lambda self, name: None)
    pipeline.run("cluster")
    assert len(refusals) == 2 and (pipeline.root / "dpo" / "other").is_dir()
    clean(pipeline)
    assert not (pipeline.root / "dpo" / "other").exists()


def test_links_to_elsewhere_are_not_followed(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.config.yes = True
    mine = manifest(tmp_path / "elsewhere", "dpo", "mine", {})
    (pipeline.root / "dpo" / "link").symlink_to(mine)
    (pipeline.root / "teacher").symlink_to(tmp_path / "elsewhere" / "dpo")
    (pipeline.root / "dpo" / "same").symlink_to(pipeline.root / "dpo" / "used")
    assert names(leftovers(pipeline)) == ["sft/half", "dpo/other"]
    clean(pipeline)
    assert (mine / "manifest.json").is_file()
    assert (pipeline.root / "dpo" / "used" / "manifest.json").is_file()
    assert (pipeline.root / "dpo" / "link").is_symlink()
