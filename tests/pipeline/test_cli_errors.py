"""What a mistyped command line or recipe is told: one sentence with what to say instead, none of Hydra's own noise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hydra.errors import HydraException

from judgetrain.errors import ConfigError
from judgetrain.pipeline.cli_errors import arguments, sentence
from judgetrain.pipeline.compose import recipe_overrides
from tests.builders.pipeline import configured, here, judgetrain


def told(*given: str) -> str:
    """What a command line is told."""
    with pytest.raises((ConfigError, HydraException)) as caught:
        configured(*recipe_overrides(arguments(list(given))))
    return sentence(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["evaluate"], "evaluate: expected key=value; did you mean stage=evaluate?"),
        (["stage", "evaluate"], "stage: expected key=value; did you mean stage=VALUE?"),
        (["quikstart"], "quikstart: expected key=value; did you mean recipe=quickstart?"),
        (["reciep=debug"], "reciep: there is no such key; did you mean recipe?"),
        (["engine=vlm"], "engine=vlm: there is no such option (there are transformers, vllm); did you mean vllm?"),
        (
            ["sweep=optun"],
            "sweep=optun: there is no such option (there are joblib, optuna, slurm); did you mean optuna?",
        ),
        (["hydra/launcher=jobslib"], "did you mean joblib?"),
        (["train.dpo.beta=0.1,0.2"], "train.dpo.beta=0.1,0.2: several values are a sweep, which needs the flag -m"),
        (["data_dir=/my(1)"], "data_dir=/my(1): the value cannot be read; one with signs such as ( ) = , needs quotes"),
        (["evaluate.benchmarks[0].nmae=x"], "did you mean evaluate.benchmarks.0.nmae=VALUE?"),
        (["train.dpo=3"], "train.dpo=3: it is a section, whose keys are set one by one"),
        (["evaluate.methods=dpo"], "evaluate.methods=dpo: expected a list, as in evaluate.methods=[a,b]"),
        (["dialogues.sources=[{nme: a}]"], "dialogues.sources: nme: there is no such key; did you mean na"),
        (["+sed=1"], "sed: there is no such key; did you mean seed?"),
        (["+train.dpo.bta=1"], "train.dpo.bta: there is no such key; did you mean train.dpo.beta?"),
        (["--confg-name", "x"], "--confg-name: there is no such flag; did you mean --config-name?"),
        (["recipe=quikstart"], "did you mean quickstart?"),
        (["recipe="], "recipe=: no such recipe"),
    ],
)
def test_a_mistyped_command_is_told_what_was_meant(given: list[str], expected: str) -> None:
    said = told(*given)
    assert expected in said
    assert "\n" not in said
    assert not any(noise in said for noise in ("search path", "EOF", "full_key", "To append", "hydra.cc", "override '"))


def test_a_recipe_that_builds_on_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("defaults: [quikstart]\n")
    said = told(f"recipe={path}")
    assert (
        said.startswith("recipe mine: recipe=quikstart: there is no such option") and "did you mean quickstart?" in said
    )


def test_entries_of_mappings_are_added_with_a_plus() -> None:
    assert configured("+selfeval.temperatures.math=0.5").selfeval.temperatures == {"math": 0.5}


def test_a_group_that_is_null_keeps_the_recipes() -> None:
    assert configured(*recipe_overrides(["engine=null"])).engine == configured().engine


@pytest.mark.parametrize(("sweep", "extra"), [("joblib", "joblib"), ("optuna", "optuna"), ("slurm", "submitit")])
def test_a_launcher_or_sweeper_that_is_not_installed_is_named_with_what_to_install(sweep: str, extra: str) -> None:
    code = "import sys; sys.modules['hydra_plugins'] = None\nfrom judgetrain.pipeline.cli import main\nsys.exit(main())"
    command = [sys.executable, "-c", code, "-m", f"sweep={sweep}", "seed=1,2", "stage=status"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"its package is not installed; pip install 'judgetrain[{extra}]'")


def test_flags_may_stand_among_keys() -> None:
    assert arguments(["seed=1", "-m", "stage=status"]) == ["-m", "seed=1", "stage=status"]
    assert arguments(["seed=1", "--cfg", "job", "stage=x"]) == ["--cfg", "job", "seed=1", "stage=x"]


def test_without_arguments_there_is_usage_and_nothing_runs(tmp_path: Path) -> None:
    done = judgetrain(cwd=tmp_path)
    assert done.returncode == 2
    assert "python -m judgetrain stage=STAGE" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_version_is_the_projects_own() -> None:
    from judgetrain import __version__

    done = here("--version")
    assert (done.returncode, done.stdout) == (0, f"judgetrain {__version__}\n")


@pytest.mark.parametrize("flags", [[], ["-m", "seed=1,2"]])
def test_an_empty_output_dir_is_refused_before_anything_is_written(tmp_path: Path, flags: list[str]) -> None:
    done = judgetrain(*flags, "stage=dialogues", "output_dir=", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "judgetrain: output_dir='': must not be empty; leave it out for outputs\n"
    assert not list(tmp_path.iterdir())
