"""What a newcomer tries first and gets wrong: each is told in a sentence, before anything is judged."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from judgetrain.artifacts import fingerprint
from judgetrain.artifacts.console import Console
from judgetrain.errors import ConfigError, DataError, EngineError, JudgetrainError
from judgetrain.extras.server.client import RemoteJudge
from judgetrain.pipeline.run import Pipeline
from tests.builders.judging import judge_stage, judged, lines
from tests.builders.pipeline import configured

ROW = {"query": "q", "response_a": "a", "response_b": "longer"}


def refused(home: Path, message: str, *overrides: str, judge: str = "longer", kind: type = DataError) -> None:
    """The stage is refused with this message, and leaves nothing behind."""
    with pytest.raises(kind, match=message):
        judge_stage(home, *overrides, judge=judge)
    assert not list(home.glob("artifacts/judge/*"))


def test_the_world_is_limited_like_any_source_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(judged(tmp_path, "verdicts.source.type=world", "verdicts.source.limit=3")) == 3
    assert "3 comparisons of the generated world; a file of your own is verdicts.source.path" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("blank.jsonl", "\n\n", r"blank\.jsonl: there is no row; expected a comparison a line"),
        ("x.jsonl", '"a"\n"b"\n', r"none of the 2 rows holds a comparison; the first: not_an_object: x\.jsonl:1"),
        ("x.jsonl", json.dumps(ROW | {"messages": "hello"}), "none of the 1 rows .* wrong_type: x.jsonl:1"),
        ("x.jsonl", json.dumps(ROW | {"query": {"text": "q"}}), "none of the 1 rows .* wrong_type: x.jsonl:1"),
        ("x.csv", "query,response_a,response_b\nä,b,c\n", "save the file as UTF-8"),
    ],
)
def test_a_file_without_any_comparison_is_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="latin-1")
    refused(tmp_path / "out", message, f"verdicts.source.path={tmp_path / name}")


@pytest.mark.parametrize(("judge", "key"), [("external", "evaluate.external"), ("pointwise:teacher", "teacher.engine")])
def test_the_quickstarts_referee_is_not_asked_about_real_text(judge: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(ROW), encoding="utf-8")
    message = rf"verdicts\.judge={judge}: {key}\.type=world knows what the generated world says and nothing else"
    refused(tmp_path / "out", message, f"verdicts.source.path={path}", judge=judge, kind=ConfigError)


def test_one_row_of_several_that_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    file = lines(tmp_path / "x.jsonl", [ROW, {**ROW, "query": 3}])
    assert [bool(row["failure"]) for row in judged(tmp_path / "out", f"verdicts.source.path={file}")] == [False, True]


def test_what_labels_mean_is_a_verdict(tmp_path: Path) -> None:
    file = lines(tmp_path / "x.jsonl", [ROW])
    source = (f"verdicts.source.path={file}", "+verdicts.source.labels={A: C}")
    refused(tmp_path / "out", r"verdicts\.source\.labels\.A='C': .* one of A, B, tie", *source, kind=ConfigError)


def test_a_directory_of_very_many_files_is_not_read_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = lines(tmp_path / "x.jsonl", [ROW])
    monkeypatch.setattr(fingerprint, "MOST", 5)
    home = tmp_path / "home"
    for number in range(6):
        lines(home / f"{number}.txt", [ROW])
    real = fingerprint.sha256_of

    def read(path: Path) -> str:
        assert home not in path.parents, f"{path} was read"
        return real(path)

    monkeypatch.setattr(fingerprint, "sha256_of", read)
    source = f"verdicts.source.path={file}"
    refused(tmp_path / "out", "it holds no prompts.yaml, so that", source, judge=str(home), kind=ConfigError)


def test_judges_that_there_are_not_have_a_suggestion(tmp_path: Path) -> None:
    source = f"verdicts.source.path={lines(tmp_path / 'x.jsonl', [ROW])}"
    for wrong, message in {
        "dpoo": "did you mean dpo",
        "longest": "did you mean longer",
        "dpo+sample": r"may stand \+",
        "scorer:sentprop": "did you mean sentprob",
    }.items():
        refused(tmp_path / "out", message, source, judge=wrong, kind=ConfigError)
        with pytest.raises(ConfigError, match=message):
            Pipeline(configured("recipe=debug", f"output_dir={tmp_path}", f"evaluate.methods=[{wrong}]")).check(
                "evaluate"
            )


def ranked(home: Path, *overrides: str) -> None:
    words = ("recipe=debug", f"output_dir={home}", "track.tracker=none", "verdicts.judge=longer", *overrides)
    Pipeline(configured(*words), Console()).run("leaderboard")


def test_a_leaderboard_looks_for_its_systems_before_it_judges(tmp_path: Path) -> None:
    file = lines(tmp_path / "x.jsonl", [ROW])
    answers = [lines(tmp_path / f"{n}.json", [{"prompt": f"p{n}", "model": n, "output": "text"}]) for n in "ab"]
    for overrides, message in (
        ([f"verdicts.source.path={file}"], "expected the names of two systems in model_a and model_b, found '' and ''"),
        ([f"verdicts.systems=[{','.join(map(str, answers))}]"], "none of .* can be judged; the first: no_answer"),
    ):
        with pytest.raises(DataError, match=message):
            ranked(tmp_path / "out", *overrides)
        assert not list((tmp_path / "out").glob("artifacts/judge/*"))


def test_a_missing_file_of_a_recipe_names_data_dir(tmp_path: Path) -> None:
    pipeline = Pipeline(configured("recipe=pairs", f"data_dir={tmp_path}", f"output_dir={tmp_path / 'out'}"))
    with pytest.raises(ConfigError, match=rf"train\.jsonl': no such file.*or set data_dir \(now {tmp_path}\)"):
        pipeline.plan("dialogues")


@pytest.mark.parametrize(
    ("files", "message"), [(60, "=/.*/model: holds more than 50 files"), (0, "='.*/model': an empty directory; give")]
)
def test_a_huge_or_empty_directory_is_refused_by_its_key(
    files: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    for number in range(files):
        (tmp_path / "model" / str(number)).touch()
    monkeypatch.setattr("judgetrain.artifacts.fingerprint.MOST", 50)
    pipeline = Pipeline(configured("recipe=debug", f"train.base.path={tmp_path / 'model'}", f"output_dir={tmp_path}"))
    with pytest.raises(ConfigError, match=rf"train\.base\.path{message}"):
        pipeline.plan("initial")


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8765", "localhost", "ftp://host", "", "any:a-token@host", "http://any:a-token@host:port"]
)
def test_an_address_without_http_is_refused_at_once(url: str) -> None:
    began = time.monotonic()
    with pytest.raises(ConfigError, match="url is no server's address: give one that begins with http://") as told:
        RemoteJudge(url)
    assert "a-token" not in str(told.value), "what stands before the host is a secret, with http:// or without"
    assert time.monotonic() - began < 5


def test_branches_that_are_no_number_and_a_closed_judge_are_told() -> None:
    from judgetrain.engines.config import ModelConfig, TransformersEngineConfig
    from judgetrain.engines.local.transformers_engine import TransformersEngine
    from judgetrain.judges.kinds.branching import check_branches

    with pytest.raises(ConfigError, match="branches='3': allowed are 1 to the 10 criteria"):
        check_branches("3", 10)  # type: ignore[arg-type]
    engine = TransformersEngine(TransformersEngineConfig(model=ModelConfig(path="world")))
    engine.close()
    with pytest.raises(EngineError, match="it was closed"):
        engine.generate([], 0)


def test_a_dry_run_looks_at_what_is_to_be_measured_on(tmp_path: Path) -> None:
    from judgetrain.pipeline.commands import show_cost as show

    lines(tmp_path / "train.jsonl", [ROW | {"label": "A"}] * 3)
    lines(tmp_path / "test.jsonl", [ROW | {"label": "1"}])
    tokens = [f"judge.{step}_tokens=24" for step in ("criteria", "guideline", "judgment")]
    words = (
        "teacher=openai",
        "teacher.engine.model=m",
        "train.base.path=world",
        "dry_run=true",
        *tokens,
        "stage=evaluate",
    )
    config = configured("recipe=pairs", f"data_dir={tmp_path}", f"output_dir={tmp_path / 'out'}", *words)
    with pytest.raises(JudgetrainError, match=r"test\.jsonl:1: label '1' is not one of A, B, tie"):
        show(Pipeline(config))
