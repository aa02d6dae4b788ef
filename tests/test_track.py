"""Tracking: which mode a machine gets, runs that are always finished, and a server that cannot be reached."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from judgetrain.config import TrackConfig
from judgetrain.track import Console, duration, mode_of, tracked


class FakeRun:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options, self.logged, self.summary, self.exit_code = options, [], {}, None

    def log(self, metrics: dict[str, Any], step: int | None = None) -> None:
        self.logged.append((metrics, step))

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


class FakeWandb(types.ModuleType):
    """Stands in for wandb; ``reachable`` says whether going online works."""

    def __init__(self, reachable: bool = True) -> None:
        super().__init__("wandb")
        self.reachable, self.runs, self.tries = reachable, [], []

    def Settings(self, **options: Any) -> dict[str, Any]:  # wandb's name
        return options

    def init(self, **options: Any) -> FakeRun:
        self.tries.append(options["mode"])
        if options["mode"] == "online" and not self.reachable:
            raise ConnectionError("no such\nhost")
        self.runs.append(FakeRun(options))
        return self.runs[-1]

    def teardown(self) -> None:
        pass


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No key, no mode, and a netrc file of the test's own (there is none yet)."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    return tmp_path


def enter(tmp_path: Path, tracker: str = "auto") -> Any:
    return tracked(
        TrackConfig(tracker),
        stage="sft",
        fingerprint="0123456789abcdef",
        recipe="mine",
        settings={"seed": 1},
        directory=tmp_path / "out",
        console=Console(),
    )


def test_auto_goes_online_only_with_a_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert mode_of(TrackConfig("auto")) == "offline"
    (tmp_path / "netrc").write_text("machine example.org login user password x\n")
    assert mode_of(TrackConfig("auto")) == "offline"
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password x\n")
    assert mode_of(TrackConfig("auto")) == "online"
    (tmp_path / "netrc").write_text("not a netrc file")
    assert mode_of(TrackConfig("auto")) == "offline"
    monkeypatch.setenv("WANDB_API_KEY", "x")
    assert mode_of(TrackConfig("auto")) == "online"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert mode_of(TrackConfig("auto")) == "disabled"
    assert [mode_of(TrackConfig(t)) for t in ("wandb", "wandb_offline", "none")] == ["online", "offline", "disabled"]


def test_a_run_is_named_by_its_fingerprint_and_always_finished(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with enter(tmp_path) as run:
        run.log({"loss": 0.5, "text": "left out", "flag": True}, step=3)
        run.summary({"out": 2})
    with pytest.raises(ZeroDivisionError), enter(tmp_path):
        _ = 1 / 0
    first, failed = wandb.runs
    assert first.options["id"] == failed.options["id"] == "sft-0123456789abcdef"
    assert (first.options["group"], first.options["job_type"]) == ("mine", "sft")
    assert first.logged == [({"loss": 0.5}, 3)]
    assert first.summary == {"out": 2}
    assert (first.exit_code, failed.exit_code) == (0, 1)


def test_a_server_out_of_reach_is_said_once_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wandb = FakeWandb(reachable=False)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setenv("WANDB_API_KEY", "x")
    monkeypatch.setenv("WANDB_MODE", "")
    for _ in range(2):
        with enter(tmp_path):
            pass
    assert wandb.tries == ["online", "offline", "offline"]
    assert [run.exit_code for run in wandb.runs] == [0, 0]
    said = capsys.readouterr().out
    assert said.count("tracked offline") == 1
    assert "no such host" in said


def test_none_starts_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with enter(tmp_path, "none") as run:
        run.log({"loss": 1.0})
    assert wandb.tries == []


def test_durations_read_as_a_reader_wants_them() -> None:
    assert (duration(3.14159), duration(600)) == ("3.1 s", "10.0 min")
