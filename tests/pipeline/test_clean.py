"""``stage=clean``: what nothing refers to is listed, removed only when asked, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.engines.config import ModelConfig
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.pipeline.clean import clean, leftovers
from judgetrain.pipeline.config import CleanConfig, Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.pipeline.sweeps import write_job
from tests.builders.evaluate import manifest


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    source = SourceConfig(name="world", type="world")
    evaluate = EvaluateConfig([BenchmarkConfig("world", source)], ["random"])
    config = Config(output_dir=str(tmp_path), evaluate=evaluate, clean=CleanConfig())
    config.train.base = ModelConfig(path="world")
    root = tmp_path / "artifacts"
    manifest(root, "tree", "t1", {})
    manifest(root, "dpo", "used", {"tree": "t1"})
    manifest(root, "dpo", "other", {"tree": "t1"})
    manifest(root, "evaluate", "e1", {"dpo": "used"})
    (root / "sft" / "half").mkdir(parents=True)
    return Pipeline(config)


def names(found: list) -> list[str]:  # type: ignore[type-arg]
    return [f"{f.directory.parent.name}/{f.directory.name}" for f in found]


def test_what_an_evaluation_was_made_from_is_used(pipeline: Pipeline) -> None:
    assert names(leftovers(pipeline)) == ["sft/half", "dpo/other"]
    assert [f.finished for f in leftovers(pipeline)] == [False, True]
    assert names(leftovers(pipeline, evaluations=True)) == [
        "tree/t1",
        "sft/half",
        "dpo/other",
        "dpo/used",
        "evaluate/e1",
    ]


def test_the_present_settings_and_sweeps_keep_what_they_use(pipeline: Pipeline, tmp_path: Path) -> None:
    present = pipeline.plan("dpo").directory
    present.mkdir(parents=True)
    assert names(leftovers(pipeline)) == ["sft/half", "dpo/other"], "work that a run would resume"
    write_job(
        tmp_path / "sweeps" / "day" / "time" / "0", [], {"state": "done", "directory": str(pipeline.root / "dpo/other")}
    )
    assert names(leftovers(pipeline)) == ["sft/half"]
    report = tmp_path / "reports" / "all"
    report.mkdir(parents=True)
    (report / "summary.json").write_text('{"runs": [{"fingerprint": "e1"}]}')
    assert names(leftovers(pipeline, evaluations=True)) == ["sft/half"]


def test_nothing_is_removed_unless_asked(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    clean(pipeline)
    printed = capsys.readouterr().out
    assert "2 artifacts would be removed; add clean.yes=true" in printed and "unfinished" in printed
    assert (pipeline.root / "dpo" / "other" / "manifest.json").is_file()
    pipeline.config.clean.yes = True
    clean(pipeline)
    assert "2 of 2 artifacts removed" in capsys.readouterr().out
    left = {f"{p.parent.parent.name}/{p.parent.name}" for p in pipeline.root.glob("*/*/manifest.json")}
    assert left == {"tree/t1", "dpo/used", "evaluate/e1"}
    assert not (pipeline.root / "sft" / "half").exists()
    clean(pipeline)
    assert "nothing to remove" in capsys.readouterr().out


def test_what_another_process_is_making_is_left_alone(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.config.clean.yes = True
    held = pipeline.root / "dpo" / "other"
    with FileLock(held / ".lock", thread_local=False):
        clean(pipeline)
    assert "1 of 2 artifacts removed" in capsys.readouterr().out
    assert (held / "manifest.json").is_file()
