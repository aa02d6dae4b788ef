"""Sweeps: a job fails alone and is named at the end, jobs give their objective, merged reports, launchers' settings."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from judgetrain.data.config import BenchmarkConfig
from judgetrain.errors import ConfigError
from judgetrain.evaluate.objective import check_objective, objective_value
from judgetrain.pipeline import RECIPES
from judgetrain.pipeline import job as entry
from judgetrain.pipeline.cli import main
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.pipeline.sweeps import best_of
from tests.builders.data import write_lines
from tests.builders.pipeline import composed, configured
from tests.builders.watched import interrupted


def run_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any, *arguments: str
) -> tuple[int, list[dict[str, Any]]]:
    """Run a sweep of the real command line over ``seed=1,2,3`` in which ``run`` stands for the pipeline."""
    monkeypatch.setattr(entry, "run", run)
    seeds = () if any(a.startswith("seed=") for a in arguments) else ("seed=1,2,3",)
    command = ["judgetrain", "-m", *seeds, *arguments, f"output_dir={tmp_path}", "track.tracker=none"]
    monkeypatch.setattr("sys.argv", command)
    code = main()
    sweep = max(tmp_path.glob("sweeps/*/*"))
    return code, json.loads((sweep / "sweep.json").read_text())


def outcome(seed: int, objective: float | None = None) -> entry.Outcome:
    return entry.Outcome(f"artifacts/evaluate/{seed}", ["dpo", "evaluate"], ["tree"], objective)


def two_dialogues(tmp_path: Path) -> str:
    (tmp_path / "in.jsonl").write_text('{"query": "a"}\n{"query": "b"}\n')
    return f"dialogues.sources=[{{name: mine, path: '{tmp_path / 'in.jsonl'}'}}]"


def longer(tmp_path: Path) -> tuple[str, ...]:
    """Return the settings of an evaluation that needs no model, and its objective."""
    rows = [{"query": f"q{i}", "response_a": "x", "response_b": "yy", "label": "AABB"[i % 4]} for i in range(8)]
    source = f"{{name: b, path: '{write_lines(tmp_path / 'pairs.jsonl', rows)}', format: comparison}}"
    of_it = f"evaluate.benchmarks=[{{name: b, source: {source}}}]"
    return "stage=evaluate", of_it, "evaluate.methods=[longer]", "objective=b/longer/agreement"


def test_a_failing_job_fails_alone_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[int] = []

    def run(config: Config) -> entry.Outcome:
        if config.seed == 2:
            raise ZeroDivisionError("a bug")
        done.append(config.seed)
        return outcome(config.seed)

    code, jobs = run_sweep(tmp_path, monkeypatch, run)
    assert (code, done) == (2, [1, 3])
    assert [(j["job"], j["state"]) for j in jobs] == [("0", "done"), ("1", "failed"), ("2", "done")]
    assert jobs[1]["error"] == "ZeroDivisionError: a bug"
    assert (jobs[0]["made"], jobs[0]["reused"]) == (["dpo", "evaluate"], ["tree"])
    printed = capsys.readouterr()
    assert "puts their evaluations together" in printed.out + printed.err
    printed_words = " ".join(printed.out.split())  # a long place of the files wraps the line
    assert "job 1 (seed=2" in printed_words and "ZeroDivisionError: a bug" in printed_words
    assert "2 of 3 jobs done; the same command again does what is missing" in printed.out
    assert "Traceback" in printed.err, "a bug is shown whole"


def test_an_interrupted_sweep_does_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("stage=dialogues", two_dialogues(tmp_path), "dialogues.near_dedup=true,false")
    executed = interrupted(monkeypatch, Pipeline, "execute", 4)
    code, jobs = run_sweep(tmp_path, monkeypatch, entry.run, *arguments)
    assert (code, [job["state"] for job in jobs]) == (130, ["done", "done", "done", "unfinished"])
    code, jobs = run_sweep(tmp_path, monkeypatch, entry.run, *arguments)
    assert (code, [job["state"] for job in jobs]) == (0, ["done"] * 6)
    assert [job["made"] for job in jobs] == [[], [], [], *[["dialogues"]] * 3]
    assert [job["reused"] for job in jobs] == [*[["dialogues"]] * 3, [], [], []]
    begun = [plan.fingerprint for _, plan in executed]
    assert len(begun) == 7 and begun[3] == begun[4], "the interrupted job begins again, the finished ones do not"


def test_jobs_that_are_all_done_end_well_and_the_best_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    objective = "objective=world/dpo@1/agreement"
    code, jobs = run_sweep(tmp_path, monkeypatch, lambda config: outcome(config.seed, config.seed / 4), objective)
    assert (code, [j["objective"] for j in jobs]) == (0, [0.25, 0.5, 0.75])
    assert {(job["metric"], job["direction"]) for job in jobs} == {("world/dpo@1/agreement", "maximize")}
    printed = capsys.readouterr().out
    assert "3 of 3 jobs done; stage=report" in printed and "0.7500 *" in printed
    assert "sweep: world/dpo@1/agreement: best 0.7500, job 2 (seed=3)" in printed
    assert best_of([{**job, "direction": "minimize"} for job in jobs])["job"] == "0"  # type: ignore[index]


SHARED = {"benchmark": "b", "method": "dpo", "split": "test", "n": 10}
ROWS = [
    *(SHARED | {"branches": k, "agreement": k / 10} for k in (1, 3, 5)),
    {"benchmark": "b", "method": "random", "split": "test", "n": 10, "branches": 0, "agreement": 0.2, "spread": None},
]


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ("b/dpo@1/agreement", 0.1),
        ("b/dpo/agreement", 0.5),
        ("b/random/agreement", 0.2),
        ("b/dpo@2/agreement", r"no such row; it has b/dpo@1, b/dpo@3, b/dpo@5, b/random$"),
        ("b/dpo@1/agrement", r"no number called 'agrement'; there are branches, n, agreement"),
        ("b/random/spread", "no number called 'spread'"),
        ("b/dpo@1/split", "no number called 'split'"),
        ("agreement", "expected BENCHMARK/METHOD/METRIC"),
        ("b/dpo@k/agreement", "expected BENCHMARK/METHOD/METRIC"),
    ],
)
def test_any_metric_is_an_objective_and_nothing_else(tmp_path: Path, objective: str, expected: float | str) -> None:
    (tmp_path / "metrics.json").write_text(json.dumps(ROWS))
    with pytest.raises(ConfigError, match=expected) if isinstance(expected, str) else nullcontext():
        assert objective_value(tmp_path, objective) == expected


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("world/dpo@1/agreement", "evaluate.methods has no 'dpo'; it has sft, random, dpo-012345"),
        ("human/sft@1/agreement", "evaluate.benchmarks has no 'human'; it has world"),
        ("world/sft@2/agreement", "sft is asked with 1, 3, not with 2"),
        ("world/random@1/agreement", "random is asked without branches, not with 1"),
        ("world/dpo-012345@3/consistency", None),
        ("world/random/agreement", None),
        ("world/random@0/agreement", None),
        ("world/sft/agreement", None),
    ],
)
def test_an_objective_that_nothing_gives_is_refused_before_anything_runs(objective: str, message: str | None) -> None:
    config = Config(stage="evaluate", objective=objective)
    config.evaluate.benchmarks = [BenchmarkConfig(name="world")]
    config.evaluate.methods = ["sft", "random", "a/dpo/0123456789/model"]
    config.evaluate.branches = [1, 3]
    with pytest.raises(ConfigError, match=message) if message else nullcontext():
        check_objective(objective, config.evaluate, config.stage)
    with pytest.raises(ConfigError, match="is a metric of stage=evaluate, not of stage=dpo"):
        check_objective(objective, config.evaluate, "dpo")


def test_every_sweep_recipe_is_a_valid_configuration_and_names_keys_that_exist() -> None:
    recipes = sorted((RECIPES / "sweeps").glob("*.yaml"))
    assert recipes
    for path in recipes:
        hydra = composed(f"recipe=sweeps/{path.stem}", hydra=True).hydra
        assert str(hydra.mode) == "RunMode.MULTIRUN"
        params = {key: str(values).split(",") for key, values in hydra.sweeper.params.items()}
        assert 1 <= len(params) <= 2
        jobs = [*zip(*params.values(), strict=False)]
        for values in (jobs[0], jobs[-1]):
            overrides = [f"{key}={value}" for key, value in zip(params, values, strict=True)]
            config = configured(f"recipe=sweeps/{path.stem}", *overrides)
            assert config.objective or config.stage == "selfeval", "judges are told apart by a metric"


def command(tmp_path: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """Run the real command in a process of its own, and return it with what its sweep's jobs came to."""
    done = subprocess.run(
        [sys.executable, "-m", "judgetrain", "-m", *arguments, f"output_dir={tmp_path / 'out'}", "track.tracker=none"],
        capture_output=True, text=True, timeout=120, cwd=Path(entry.__file__).parents[2],
    )  # fmt: skip
    (sweep,) = tmp_path.glob("out/sweeps/*/*/sweep.json")
    return done, json.loads(sweep.read_text())


def test_joblib_runs_jobs_in_processes_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    done, jobs = command(tmp_path, "sweep=joblib", "stage=dialogues", two_dialogues(tmp_path), "seed=1,2")
    assert done.returncode == 0, done.stderr
    assert [(job["state"], job["made"]) for job in jobs] == [("done", ["dialogues"])] * 2
    assert len(list(tmp_path.glob("out/artifacts/dialogues/*/manifest.json"))) == 2
    assert "2 of 2 jobs done" in done.stdout


def test_optunas_failed_job_is_a_failed_trial(tmp_path: Path) -> None:
    """``evaluate.dev_share`` is at most 0.9; baselines need no model."""
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    search = ("sweep=optuna", "hydra.sweeper.n_trials=2", "hydra.sweeper.sampler.seed=0")
    done, jobs = command(tmp_path, *search, *longer(tmp_path), "evaluate.dev_share=choice(0.5,0.95)")
    assert done.returncode == 2, done.stderr
    (good,), (bad,) = ([job for job in jobs if job["state"] == state] for state in ("done", "failed"))
    development = json.loads((Path(good["directory"]) / "development.json").read_text())
    assert good["objective"] == development[0]["agreement"] and development[0]["split"] == "development"
    assert "evaluate.dev_share=0.95" in bad["error"]
    assert "Traceback" not in done.stdout + done.stderr
    best = yaml.safe_load(next(tmp_path.glob("out/sweeps/*/*/optimization_results.yaml")).read_text())
    assert (best["best_value"], best["best_params"]) == (good["objective"], {"evaluate.dev_share": 0.5})
    assert "on the development split, of which the report has nothing" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("objective=world/dpo@1/agreement",), "is not to choose by what is reported; set evaluate.dev_share"),
        (("evaluate.dev_share=0.3",), "objective is empty, but the sweeper chooses by it"),
    ],
)
def test_a_search_without_anything_to_choose_by_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    begun: list[Config] = []
    search = ("stage=evaluate", "sweep=optuna", "hydra.sweeper.n_trials=1", "seed=choice(1,2)")
    code, jobs = run_sweep(tmp_path, monkeypatch, begun.append, *search, *arguments)
    assert (code, [job["state"] for job in jobs], begun) == (2, ["failed"], [])
    assert message in jobs[0]["error"]


def test_a_grid_lists_its_objective_without_a_development_split_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("seed=17", *longer(tmp_path), "evaluate.bootstrap=50,60")
    code, jobs = run_sweep(tmp_path, monkeypatch, entry.run, *words)
    assert code == 0
    assert [job["objective"] for job in jobs] == [0.5, 0.5]
    printed = " ".join("".join(capsys.readouterr()).split())
    assert printed.count("on the comparisons that are reported: what is chosen by it is flattered by it") == 2


def test_optuna_without_any_finished_job_ends_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")

    def run(config: Config) -> entry.Outcome:
        raise ConfigError("no such thing")

    code, jobs = run_sweep(tmp_path, monkeypatch, run, "sweep=optuna", "hydra.sweeper.n_trials=2", "seed=choice(1,2)")
    assert (code, [job["state"] for job in jobs]) == (2, ["failed", "failed"])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.out + printed.err
    assert "no job of the sweep is done" in printed.err
    assert "0 of 2 jobs done" in printed.out
