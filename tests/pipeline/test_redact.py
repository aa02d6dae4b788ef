"""A password in an address on the command line stands in no file, line or message of a run or a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.secrets import without_passwords
from tests.builders.pipeline import judgetrain

ADDRESS = "http://me:hunter2@127.0.0.1:9/v1?key=tok-9-secret"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["stage=status"], 0),
        (["stage=clean"], 0),
        (["-m", "seed=1,2", "stage=status"], 0),
        (["stage=teacher", f"data_dir='{ADDRESS}'", f"teacher.evaluations='{ADDRESS}'"], 2),
        (["-m", "seed=1,2", "stage=teacher", f"teacher.evaluations='{ADDRESS}'"], 2),
    ],
)
def test_no_file_line_or_message_shows_it(arguments: list[str], code: int, tmp_path: Path) -> None:
    engine = ["teacher=openai", "teacher.engine.model=m", f"teacher.engine.base_url='{ADDRESS}'"]
    done = judgetrain(*arguments, *engine, f"output_dir={tmp_path}", "track.tracker=none")
    assert done.returncode == code, done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    shown = [done.stdout, done.stderr, *(path.read_text(errors="replace") for path in files)]
    assert not [text for text in shown if "hunter2" in text or "tok-9-secret" in text]
    if not {"stage=status", "stage=clean"}.intersection(arguments):  # which write nothing
        assert [path for path in files if path.name == "overrides.yaml"]
        assert any("http://***@127.0.0.1:9/v1?key=***" in text for text in shown), "the rest is there"


def test_lines_on_the_console_hide_it(capsys: pytest.CaptureFixture[str]) -> None:
    Console().line(f"asking {ADDRESS}&n=1, user@host")
    assert capsys.readouterr().out.endswith("asking http://***@127.0.0.1:9/v1?key=***&n=1, user@host\n")


@pytest.mark.parametrize("text", ["https://host/a@b", "me@host", "a?keys=3", "http://host/v1?api-version=2", "'q?n=1'"])
def test_what_is_no_password_stays(text: str) -> None:
    assert without_passwords(text) == text
