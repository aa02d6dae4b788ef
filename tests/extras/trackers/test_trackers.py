"""Tracking: which mode a machine gets, runs that are always finished, what an offline run holds, no secrets."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import wandb

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.tracker import TRACKERS, Run, Runs, StageFacts, TrackConfig, tracked
from judgetrain.data.config import ClusterConfig, DialoguesConfig, DialogueSourceConfig
from judgetrain.errors import ConfigError
from judgetrain.extras.trackers.wandb_run import WandbRun, mode
from judgetrain.keys import validate
from judgetrain.pipeline.cli import main
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from tests.builders.pipeline import configured
from tests.builders.wandb_files import read_runs


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Set no key, no mode, and a netrc file of the test's own (there is none yet)."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "WANDB_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    return tmp_path


def test_a_run_is_online_only_with_a_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert mode() == "offline"
    for content, expected in {
        "machine example.org login user password x\n": "offline",
        "machine api.wandb.ai login user password x\n": "online",
        "not a netrc file": "offline",
    }.items():
        (tmp_path / "netrc").write_text(content)
        assert mode() == expected
    monkeypatch.setenv("WANDB_API_KEY", "x")
    assert mode() == "online"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert mode() == "disabled"


def test_a_server_out_of_reach_is_said_once_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = wandb.init
    tries = list[str]()

    def init(**options: Any) -> Any:
        tries.append(options["mode"])
        if options["mode"] == "online":
            raise ConnectionError("no such\nhost")
        return real(**options)

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setenv("WANDB_API_KEY", "x")
    monkeypatch.setenv("WANDB_MODE", "")
    Pipeline(dialogues(tmp_path, ROWS)).run("cluster")
    assert tries == ["online", "offline", "offline"]
    assert [run.exit_code for run in read_runs(tmp_path / "out")] == [0, 0]
    printed = capsys.readouterr().out
    assert printed.count("tracked offline") == 1
    assert "no such host" in printed


def dialogues(tmp_path: Path, text: str) -> Config:
    (tmp_path / "in.jsonl").write_text(text)
    source = DialogueSourceConfig(name="mine", path=str(tmp_path / "in.jsonl"))
    return Config(
        recipe_name="mine",
        output_dir=str(tmp_path / "out"),
        dialogues=DialoguesConfig(sources=[source]),
        cluster=ClusterConfig(encoder="static:world", n_clusters=2, sample=3),
        track=TrackConfig("wandb"),
    )


ROWS = "".join(json.dumps({"query": f"What is a {word}?"}) + "\n" for word in ("dog", "cat", "house", "tree"))


def test_every_stage_is_a_run_with_what_it_used_and_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_RUN_GROUP", "an experiment")
    before = dict(os.environ)
    settings = dialogues(tmp_path, ROWS)
    pipeline = Pipeline(settings)
    pipeline.run("cluster")
    assert "WANDB_DATA_DIR" not in os.environ and before.items() <= os.environ.items()
    first, second = read_runs(tmp_path / "out")
    plans = [pipeline.plan(name) for name in ("dialogues", "cluster")]
    assert [run.id for run in (first, second)] == [f"{p.stage.name}-{p.fingerprint}" for p in plans]
    assert [(run.group, run.job_type) for run in (first, second)] == [
        ("an experiment", "dialogues"),
        ("an experiment", "cluster"),
    ]
    assert second.config["dialogues"]["strict"] is True, "what it is made from was made with"
    assert second.config["cluster"]["n_clusters"] == 2 and second.config["upstream"] == plans[1].upstream
    assert (first.summary["in"], first.summary["out"], first.exit_code, second.exit_code) == (4, 4, 0, 0)
    # One version, whichever run logs it: what the second used is what the first made.
    [artifact] = first.made.values()
    [used] = second.used.values()
    assert (artifact.name, artifact.type, artifact.digest) == (used.name, used.type, used.digest)
    assert (artifact.name, artifact.type) == ("mine-dialogues", "dataset")
    assert plans[0].fingerprint in artifact.aliases
    assert not first.used and list(second.made) == ["mine-cluster"]
    files = {entry.path: entry for entry in artifact.manifest.contents}
    assert files["dialogues.jsonl"].ref == (plans[0].directory / "dialogues.jsonl").resolve().as_uri()
    sent = Path(files["manifest.json"].local_path)
    assert json.loads(sent.read_text())["fingerprint"] == plans[0].fingerprint
    assert tmp_path in sent.parents, "W&B's copies lie beside the runs"
    assert not any("lock" in name or name.startswith(".") for name in files)


def test_a_failed_stage_is_a_failed_run_and_a_restart_continues_it(tmp_path: Path) -> None:
    settings = dialogues(tmp_path, ROWS)
    pipeline = Pipeline(settings)
    broken = pipeline.plan("dialogues").directory / "dialogues.jsonl"
    broken.mkdir(parents=True)  # the stage cannot put its file there
    with pytest.raises(OSError, match="dialogues"):
        pipeline.run("dialogues")
    broken.rmdir()
    Pipeline(settings).run("dialogues")
    failed, again = read_runs(tmp_path / "out")
    assert failed.id == again.id
    assert (failed.exit_code, again.exit_code) == (1, 0)
    assert not failed.made and list(again.made) == ["mine-dialogues"]


def test_jobs_of_a_sweep_have_a_run_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.jsonl").write_text(ROWS + "not json\n")
    source = f"[{{name: mine, path: '{tmp_path / 'in.jsonl'}'}}]"
    arguments = ["stage=dialogues", "dialogues.strict=true,false", "seed=1,2", f"dialogues.sources={source}"]
    command = ["judgetrain", "-m", *arguments, f"output_dir={tmp_path / 'out'}"]
    monkeypatch.setattr("sys.argv", command)
    assert main() == 2
    runs = read_runs(tmp_path / "out")
    assert [(run.config["dialogues"]["strict"], run.config["seed"], run.exit_code) for run in runs] == [
        *((True, 1, 1), (True, 2, 1), (False, 1, 0), (False, 2, 0))
    ]
    assert len({run.id for run in runs}) == 4
    (group,) = {run.group for run in runs}
    assert re.fullmatch(r"quickstart-\d{4}-\d\d-\d\d-[\d-]+", group)
    assert [run.tags for run in runs] == [[f"job-{i}"] for i in range(4)]


def test_stages_under_a_sweep_agent_have_a_run_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The environment is what ``wandb agent`` sets, and the file what it writes; the sweep's own run is the last.
    from wandb.sdk.lib.config_util import save_config_file_from_dict

    chosen = tmp_path / "wandb" / "sweep-s1" / "config-r1.yaml"
    save_config_file_from_dict(str(chosen), {"cluster.sample": {"value": 3}, "seed": {"value": 17}})
    for name, value in {"SWEEP_ID": "s1", "RUN_ID": "r1", "SWEEP_PARAM_PATH": str(chosen)}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    settings = dialogues(tmp_path, ROWS)
    settings.stage = "cluster"
    wandb.teardown()  # what tests before this one have set up
    try:
        pipeline = Pipeline(settings)
        pipeline.run("cluster")
    finally:
        wandb.teardown()
    assert os.environ["WANDB_RUN_ID"] == "r1"
    first, second = read_runs(tmp_path / "out")
    assert [first.id, second.id] == [f"dialogues-{pipeline.plan('dialogues').fingerprint}", "r1"]
    assert [(run.group, run.job_type, run.exit_code) for run in (first, second)] == [
        ("s1", "dialogues", 0),
        ("s1", "cluster", 0),
    ]
    for run in (first, second):
        assert run.config["cluster.sample"] == 3 and run.config["seed"] == 17
    assert (first.sweep, second.sweep) == ("", "s1")


def test_the_run_of_an_evaluation_holds_what_its_judges_were_trained_with() -> None:
    swept = ("train.dpo.beta=0.3", "train.dpo.learning_rate=0.002", "tree.criteria=4")
    ancestors = Pipeline(configured("recipe=debug", *swept)).plan("evaluate").lineage
    assert (ancestors["train.dpo"]["beta"], ancestors["train.dpo"]["learning_rate"]) == (0.3, 0.002)
    assert (ancestors["tree"]["criteria"], ancestors["seed"]) == (4, configured("recipe=debug").seed)


def test_no_secret_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"WANDB_API_KEY": "0123456789abcdef" * 2, "MY_SERVICE_TOKEN": "tok-s3cr3t-value"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    settings = dialogues(tmp_path, ROWS)
    settings.dialogues.sources[0].hub = {"revision": f"a-{secrets['MY_SERVICE_TOKEN']}"}
    Pipeline(settings).run("dialogues")
    [run] = read_runs(tmp_path / "out")
    assert run.config["dialogues"]["sources"][0]["hub"]["revision"] == "a-***"
    written = [path for path in (tmp_path / "out" / "wandb").rglob("*") if path.is_file()]
    assert len(written) > 3
    for path in written:
        data = path.read_bytes()
        assert not any(secret.encode() in data for secret in secrets.values()), path


def test_what_wandb_does_not_take_is_said_once_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged = []

    class Broken:
        def log(self, metrics: dict[str, Any], step: int | None = None) -> None:
            logged.append((metrics, step))
            raise ConnectionError("gone away")

    run = Runs([WandbRun(Broken()), Run()], Console())
    run.log({"loss": 0.5, "text": "left out", "flag": True}, step=3)
    run.log({"a": 2})
    assert logged == [({"loss": 0.5}, 3), ({"a": 2}, None)]
    assert capsys.readouterr().out.count("W&B did not take something (gone away)") == 1


@pytest.mark.parametrize("tracker", ["mlflow", "trackio"])
def test_curves_tables_alerts_and_lineage_are_taken_and_a_failed_stage_is_a_failed_run(
    tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Run by hand, where the tracker's package is installed.
    pytest.importorskip(tracker)
    monkeypatch.chdir(tmp_path)  # where MLflow puts files
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    settings = dialogues(tmp_path, ROWS)
    settings.track.tracker = tracker
    pipeline = Pipeline(settings)
    pipeline.run("cluster")
    plan = pipeline.plan("dialogues")
    stage_facts: dict[str, Any] = {
        "recipe": "r",
        "settings": {"a": {"b": 1}},
        "directory": tmp_path,
        "console": Console(),
    }
    facts = StageFacts(stage="evaluate", fingerprint="f" * 16, **stage_facts)
    with pytest.raises(RuntimeError, match="on purpose"), tracked(settings.track, facts) as run:  # noqa: PT012
        run.log({"sft/loss": 0.5}, step=3)
        run.table("bench/headline", ["method", "agreement"], [["dpo", 94.7], ["sft", None]])
        run.alert("gate", "did not pass")
        run.uses(plan.directory, json.loads((plan.directory / "manifest.json").read_text()))
        raise RuntimeError("on purpose")
    assert "did not take" not in capsys.readouterr().out
    if tracker == "mlflow":
        from mlflow import MlflowClient, load_table

        client = MlflowClient()
        runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
        run_of = {run.info.run_name.partition("-")[0]: run for run in runs}
        statuses = {"dialogues": "FINISHED", "cluster": "FINISHED", "evaluate": "FAILED"}
        assert {name: run.info.status for name, run in run_of.items()} == statuses
        assert all(run_of[name].data.tags["uses.dialogues"] == plan.fingerprint for name in ("cluster", "evaluate"))
        failed = run_of["evaluate"].info.run_id
        cluster = run_of["cluster"]
        assert cluster.data.params["cluster.n_clusters"] == "2" and cluster.data.metrics["summary/out"] > 0
        assert "manifest.json" in {file.path for file in client.list_artifacts(cluster.info.run_id)}
        assert [(point.step, point.value) for point in client.get_metric_history(failed, "sft/loss")] == [(3, 0.5)]
        assert load_table("bench/headline.json", [failed])["method"].tolist() == ["dpo", "sft"]
    else:
        from trackio import SQLiteStorage

        rows = SQLiteStorage.get_logs("judgetrain", facts.id)
        assert [row["sft/loss"] for row in rows if "sft/loss" in row] == [0.5]
        [table] = [row["bench/headline"] for row in rows if "bench/headline" in row]
        assert [point["method"] for point in table["_value"]] == ["dpo", "sft"]


@contextmanager
def unbegun(facts: StageFacts) -> Iterator[Run]:
    raise ConnectionError("no such host")
    yield Run()


@contextmanager
def unended(facts: StageFacts) -> Iterator[Run]:
    try:
        yield Run()
    finally:
        raise ConnectionError("the host is gone")


@pytest.mark.parametrize(("tracker", "message"), [(unbegun, "no such host"), (unended, "the host is gone")])
def test_a_tracker_that_cannot_begin_or_end_a_run_stops_nothing(
    tracker: Callable[..., Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(TRACKERS, "broken", f"{__name__}:{tracker.__name__}")
    facts = StageFacts(
        stage="sft", fingerprint="0" * 16, recipe="mine", settings={}, directory=tmp_path, console=Console()
    )
    with tracked(TrackConfig(["broken"]), facts) as run:
        run.summary({"loss": 1.0})
    assert message in capsys.readouterr().out
    with pytest.raises(ValueError, match="the stage's own"), tracked(TrackConfig(["broken"]), facts):
        raise ValueError("the stage's own")


def test_a_tracker_that_is_not_known_or_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured("track.tracker=[wandb,none,mlflow]").track.names == ["wandb", "mlflow"]
    assert configured("track.tracker=none").track.names == []
    with pytest.raises(ConfigError, match=r"tracker\[1\]='wandbb': allowed are wandb, trackio, mlflow, none"):
        validate(TrackConfig(["none", "wandbb"]))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "comet_ml" else object())
    with pytest.raises(ConfigError, match="track.tracker=comet_ml: the package comet-ml is not installed"):
        TrackConfig(["wandb", "comet_ml"]).check_here()
