"""Commands: status, dry runs, and cleaning up."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.files import using
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data import config as data
from judgetrain.data.world import eval_comparisons
from judgetrain.engines.config import ModelConfig, OpenAIEngineConfig
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.label.config import TeacherConfig
from judgetrain.pipeline import commands, job
from judgetrain.pipeline.commands import clean, leftovers, show_cost
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.pipeline.sweeps import write_job
from tests.builders.evaluate import manifest
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


def test_where_nothing_was_run_status_says_what_it_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.show(Pipeline(configured("recipe=debug", f"output_dir={tmp_path / 'out'}")))
    printed = " ".join(capsys.readouterr().out.split())
    assert f"nothing is there: looked for {tmp_path / 'out' / 'artifacts'}/STAGE/FINGERPRINT" in printed
    assert "or with output_dir=DIR" in printed


def test_status_says_which_settings_what_lies_there_was_made_under(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_run = ("recipe=debug", f"output_dir={tmp_path / 'out'}", "track.tracker=none")
    Pipeline(configured(*of_run, "dialogues.world.train_dialogues=24")).run("dialogues")
    capsys.readouterr()
    commands.show(Pipeline(configured(*of_run, "dialogues.world.train_dialogues=32")))
    printed = " ".join(capsys.readouterr().out.split())
    assert "recipe debug, seed 17: dialogues.world.train_dialogues=24 (here 32) status with the recipe" in printed
    commands.show(Pipeline(configured(*of_run, "dialogues.world.train_dialogues=24")))
    assert "looked for" not in capsys.readouterr().out


def test_what_no_run_reads_is_not_asked_for() -> None:
    commands.show(Pipeline(configured("recipe=debug", "correct.source={type: jsonl, path: nowhere.jsonl}")))


def test_every_missing_file_of_a_stage_is_named() -> None:
    sources = ",".join(f"{{name: {name}, path: nowhere/{name}.jsonl}}" for name in ("one", "two", "three"))
    with pytest.raises(ConfigError) as error:
        commands.show(Pipeline(configured("recipe=debug", f"dialogues.sources=[{sources}]")))
    lines = [line for line in str(error.value).splitlines() if line.startswith("dialogues.sources")]
    assert [line.partition("=")[0] for line in lines] == [f"dialogues.sources[{i}].path" for i in range(3)]
    assert all(f"nowhere/{name}.jsonl" in line for name, line in zip(("one", "two", "three"), lines, strict=True))


def paid(tmp_path: Path) -> Config:
    engine = OpenAIEngineConfig(model="gpt-x", base_url="http://127.0.0.1:9/v1")
    teacher = TeacherConfig(engine=engine, comparisons=4, branches=2)
    config = Config(prompts="compact", stage="dpo", dry_run=True, teacher=teacher, output_dir=str(tmp_path / "outputs"))
    config.dialogues.sources = [data.DialogueSourceConfig(name="world", type="world")]
    config.train.base.path = "world"
    return config


def pretended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, rows: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Make every stage a directory with these rows, and return the names of those that were asked for."""
    calls: list[str] = []

    def run(self: Pipeline, stage: str) -> Path:
        calls.append(stage)
        out = StageRun(tmp_path / stage, stage, 0, Console())
        out.write_rows(name, rows)
        return out.directory

    monkeypatch.setattr(Pipeline, "run", run)
    return calls


def test_the_expected_calls_are_printed_and_the_stage_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (c.to_row() for c in eval_comparisons(data.WorldConfig(eval_comparisons=10), 0))
    calls = pretended(tmp_path, monkeypatch, "comparisons", rows)
    assert job.run(paid(tmp_path)) is None
    assert calls == ["responses"]
    printed = capsys.readouterr().out
    assert "dry run for gpt-x: 4 comparisons (6 remain for the tree)" in printed
    lines = {line.split()[1].rstrip(":"): line for line in printed.splitlines() if "calls," in line}
    assert [int(lines[step].split()[2]) for step in ("criteria", "guideline", "judgment", "all")] == [4, 8, 16, 28]


def test_external_response_models_are_not_asked_for_it(tmp_path: Path) -> None:
    config = paid(tmp_path)
    config.responses.models = [data.ResponseModelConfig(name="api", engine=OpenAIEngineConfig(name="api", model="m"))]
    with pytest.raises(ConfigError, match=r"dry_run=true: stage responses asks api, and has no estimate"):
        show_cost(Pipeline(config))


def test_the_first_paid_model_is_the_one_that_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (c.to_row() for c in eval_comparisons(data.WorldConfig(eval_comparisons=10), 0))
    calls = pretended(tmp_path, monkeypatch, "comparisons", rows)
    config = paid(tmp_path)
    config.label.external.engine = config.teacher.engine
    config.label.source = "external"
    show_cost(Pipeline(config))
    assert calls == ["responses"] and "teacher: dry run for gpt-x" in capsys.readouterr().out
    config.teacher.engine = data.WorldEngineConfig()
    config.label.source = "ensemble"
    show_cost(Pipeline(config))
    assert "dpo: dry run: 0 calls, since no model that is paid for is asked" in capsys.readouterr().out


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    source = data.SourceConfig(name="world", type="world")
    evaluate = EvaluateConfig([data.BenchmarkConfig("world", source)], ["random"])
    config = Config(output_dir=str(tmp_path), evaluate=evaluate)
    config.train.base = ModelConfig(path="world")
    root = tmp_path / "artifacts"
    manifest(root, "tree", "t1", {})
    manifest(root, "dpo", "used", {"tree": "t1"})
    manifest(root, "dpo", "other", {"tree": "t1"})
    manifest(root, "evaluate", "e1", {"dpo": "used"})
    (root / "sft" / "half").mkdir(parents=True)
    return Pipeline(config)


def names(paths: list[Path]) -> list[str]:
    return [f"{directory.parent.name}/{directory.name}" for directory in paths]


@pytest.mark.parametrize("stage", ["judge", "leaderboard", "correct", "selfeval", "scenarios"])
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
    assert "sft/half: unfinished, 0.0 MB" in printed and "dpo/other: finished" in printed
    assert (pipeline.root / "dpo" / "other" / "manifest.json").is_file()
    pipeline.config.yes = True
    clean(pipeline)
    assert "clean: 2 artifacts removed" in capsys.readouterr().out
    remaining_artifacts = {f"{p.parent.parent.name}/{p.parent.name}" for p in pipeline.root.glob("*/*/manifest.json")}
    assert remaining_artifacts == {"tree/t1", "dpo/used", "evaluate/e1"}
    assert not (pipeline.root / "sft" / "half").exists()
    clean(pipeline)
    assert "nothing to remove" in capsys.readouterr().out


def test_nothing_is_removed_while_another_process_is_at_work(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A run holds ``output_dir`` from its first stage to its last; two of them do so together.
    refusals = []

    def make(self: Pipeline, plan: object, *more: object) -> bool:
        with pytest.raises(ConfigError, match="another process is at work there") as refused, using(home):
            clean(pipeline)
        refusals.append(refused)
        return True

    pipeline.config.yes = True
    home = Path(pipeline.config.output_dir)
    monkeypatch.setattr(Pipeline, "_make", make)
    monkeypatch.setattr(Pipeline, "check", lambda self, name: None)
    monkeypatch.setattr(Pipeline, "check_all", lambda self, name: None)
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
