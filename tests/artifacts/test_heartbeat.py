"""A line every ten seconds of silence: what it says, when it comes, and where it does not."""

import io
import os
import subprocess
import sys
import threading
import time
from contextlib import redirect_stdout
from pathlib import Path
from threading import Timer

import pytest

from judgetrain.artifacts import heartbeat
from judgetrain.artifacts.console import Console
from judgetrain.artifacts.heartbeat import Activity, beating, doing


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have left a training that failed."""
    monkeypatch.setattr(heartbeat, "_activities", [])


def test_what_was_begun_and_not_ended_goes_with_what_it_belongs_to() -> None:
    with doing("stage"):
        left_open = doing("training", 40, "steps")
        left_open.__enter__()
    assert heartbeat.line(0.0) is None
    left_open.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("total", "before", "done", "seconds", "expected"),
    [
        (0, 0, 0, 12.0, "loading, 12.0 s so far"),
        (10, 0, 0, 12.0, "loading: 0 of 10 rows, 12.0 s so far"),
        # Four rows in 12 s, so that the other six take 18.
        (10, 0, 4, 12.0, "loading: 4 of 10 rows, about 18.0 s left"),
        # Of six rows four are from before: two in 12 s, so that the last four take 24.
        (10, 4, 2, 12.0, "loading: 6 of 10 rows, about 24.0 s left"),
        (10, 0, 10, 12.0, "loading: 10 of 10 rows, 12.0 s so far"),
        (2000, 0, 1, 0.5, "loading: 1 of 2,000 rows, about 16.7 min left"),
    ],
)
def test_an_activity_tells_how_far_it_is(total: int, before: int, done: int, seconds: float, expected: str) -> None:
    activity = Activity("loading", total, "rows", before, started=100.0)
    activity.advance(done)
    assert activity.text(100.0 + seconds) == expected


def test_the_innermost_activity_is_said_with_the_rows_around_it() -> None:
    assert heartbeat.line(0.0) is None
    with doing("judge: at work"), doing("judge: judged", 21, "comparisons") as rows:
        rows.advance(3)
        with doing("unpacking the weights") as inner:
            assert heartbeat.line(inner.started + 20) == (
                "judge: judged: 3 of 21 comparisons; unpacking the weights, 20.0 s so far"
            )
    with doing("stage"), doing("a bar shows it", 3, "rows", shown=True):
        assert heartbeat.line(0.0) is None
    assert heartbeat.line(0.0) is None


def test_lines_come_by_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "SILENCE", 0.2)
    monkeypatch.setattr(heartbeat, "LOOKS", 0.05)
    lines: list[str] = []
    began = time.monotonic()
    with beating(lines.append), beating(lines.append), doing("counting", 4, "rows"):
        # On a busy machine a line may be late.
        while len(lines) < 3 and time.monotonic() - began < 60:
            time.sleep(0.05)
    seconds = time.monotonic() - began
    assert lines[0].startswith("counting: 0 of 4 rows, ")
    # One each 0.2 s at most, from one thread although two were asked for.
    assert 3 <= len(lines) <= seconds / 0.2
    count = len(lines)
    time.sleep(0.4)
    assert len(lines) == count


def test_a_start_is_told_until_anything_else_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "SILENCE", 0.2)
    monkeypatch.setattr(heartbeat, "LOOKS", 0.05)
    lines: list[str] = []
    began = time.monotonic()
    with heartbeat.starting(lines.append):
        # On a busy machine a line may be late.
        while len(lines) < 2 and time.monotonic() - began < 60:
            time.sleep(0.05)
        (watching,) = [thread for thread in threading.enumerate() if thread.name == "starting"]
        heartbeat.noticed()
        watching.join(60)
        assert not watching.is_alive(), "it goes on though something was said"
    assert len(lines) >= 2
    assert lines[0].startswith("judgetrain: starting, ")


def test_where_lines_are_printed_anyway_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Ten times as long as the time between two rows, which a busy machine may stretch.
    monkeypatch.setattr(heartbeat, "SILENCE", 1.0)
    monkeypatch.setattr(heartbeat, "LOOKS", 0.05)
    console = Console()
    with beating(console.line), doing("counting"):
        for _ in range(15):
            console.line("a row")
            time.sleep(0.1)
    assert "counting" not in capsys.readouterr().out


def test_a_command_that_waits_for_a_server_says_so(tmp_path: Path) -> None:
    """The server takes the request and never answers: the command says what it waits for, and does not end."""
    (tmp_path / "mine.csv").write_text("query,response_a,response_b\nq,a,b\n")
    port = tmp_path / "port"
    server = subprocess.Popen([sys.executable, "-c", SILENT, str(port)])
    try:
        while not port.exists() or not port.read_text():
            time.sleep(0.05)
        command = [sys.executable, "-m", "judgetrain", "judge", "recipe=pairs", "verdicts.judge=external"]
        command += [
            "external=openai",
            "evaluate.external.model=slow",
            f"evaluate.external.base_url=http://127.0.0.1:{port.read_text()}/v1",
        ]
        command += ["verdicts.source.path=mine.csv", f"output_dir={tmp_path / 'out'}"]
        overrides = {"OPENAI_API_KEY": "none", "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            command, cwd=tmp_path, env=os.environ | overrides, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert process.stdout is not None
        # A command that says nothing would be read from for as long as it waits.
        watch = Timer(1200, process.kill)
        watch.start()
        try:
            told = any(b"waiting for" in text for text in process.stdout)
        finally:
            watch.cancel()
            process.kill()
            process.wait()
        assert told
    finally:
        server.kill()
        server.wait()


SILENT = """
import pathlib, socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
pathlib.Path(sys.argv[1]).write_text(str(listener.getsockname()[1]))
time.sleep(600)
"""


def test_lines_are_seen_where_standard_output_is_turned_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(heartbeat, "SILENCE", 0.2)
    monkeypatch.setattr(heartbeat, "LOOKS", 0.05)
    shown = ""
    until = time.monotonic() + 60
    with beating(Console(stream=sys.stdout).line), doing("playing"), redirect_stdout(io.StringIO()) as elsewhere:
        while "playing, " not in shown and time.monotonic() < until:
            time.sleep(0.05)
            shown += capsys.readouterr().out
    assert "playing, " in shown
    assert "playing" not in elsewhere.getvalue()
