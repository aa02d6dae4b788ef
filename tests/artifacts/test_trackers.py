"""Trackers beside W&B: the trainers report their curves to the real packages, where these are installed."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from judgetrain.artifacts.tracker import TrackConfig
from judgetrain.errors import ConfigError
from judgetrain.keys import validate
from tests.builders.pairs_pipeline import composed, plant
from tests.builders.pipeline import configured


def of_tensorboard(home: Path, run: str) -> list[float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(home / "tensorboard" / run))
    events.Reload()
    return [event.value for event in events.Scalars("train/loss")]


def of_mlflow(home: Path, run: str) -> list[float]:
    from mlflow import MlflowClient

    client = MlflowClient()
    [found] = client.search_runs(["0"], f"attributes.run_name = '{run}'")
    return [point.value for point in client.get_metric_history(found.info.run_id, "loss")]


def of_trackio(home: Path, run: str) -> list[float]:
    from trackio import SQLiteStorage

    return [row["train/loss"] for row in SQLiteStorage.get_logs("huggingface", run) if "train/loss" in row]


READERS: Mapping[str, Callable[[Path, str], list[float]]] = {
    "tensorboard": of_tensorboard,
    "mlflow": of_mlflow,
    "trackio": of_trackio,
}


@pytest.mark.parametrize("tracker", READERS)
def test_the_curves_of_training_are_read_back(tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec(tracker) is None:
        pytest.skip(f"{tracker} is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlflow").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    config = composed(tmp_path / "out", "stage=sft")
    config.track.tracker = [tracker]
    pipeline = plant(config)
    pipeline.run("sft")
    plan = pipeline.plan("sft")
    found = READERS[tracker](tmp_path / "out", f"sft-{plan.fingerprint}")
    rows = map(json.loads, (plan.directory / "train_log.jsonl").read_text().splitlines())
    losses = [row["loss"] for row in rows if "loss" in row]
    assert len(losses) > 3 and found == pytest.approx(losses, rel=1e-5)


def test_a_tracker_that_is_not_known_or_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured("track.tracker=[wandb,none,mlflow]").track.names == ["wandb", "mlflow"]
    assert configured("track.tracker=none").track.names == []
    with pytest.raises(ConfigError, match=r"tracker\[1\]='wandbb': allowed are wandb, none, trackio, mlflow"):
        validate(TrackConfig(["none", "wandbb"]))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "comet_ml" else object())
    with pytest.raises(ConfigError, match="track.tracker=comet_ml: the package comet-ml is not installed"):
        TrackConfig(["wandb", "comet_ml"]).check_here()
