"""The command line as a user meets it: help, errors, exit codes, and no heavy imports before they are needed."""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra.errors import HydraException

from judgetrain.data.clustering import Encoder
from judgetrain.engines.loading import say_once
from judgetrain.errors import ConfigError
from judgetrain.pipeline import cli, key_names
from judgetrain.pipeline.cli_errors import arguments, sentence
from judgetrain.pipeline.compose import recipe_overrides
from tests.builders.pipeline import configured, here, judgetrain, modules_after
from tests.builders.watched import interrupted

HEAVY = {"torch", "transformers", "trl", "datasets", "sentence_transformers", "sklearn", "wandb", "vllm", "cuml"}
LIBRARIES = HEAVY | {"numpy", "scipy", "pandas", "pyarrow", "accelerate", "peft", "tokenizers", "openai", "jinja2"}
LIBRARIES |= {"httpx"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train.dpo.beta=-1"], ["train.dpo.beta=-1", "above 0"]),
        (["train.dpo.bta=1"], ["train.dpo.bta", "did you mean train.dpo.beta?"]),
        (["stage=report"], ["holds no finished evaluation", "stage=evaluate first", "report.runs"]),
        (["train.dpo.beta=much"], ["train.dpo.beta", "'much'", "Float"]),
        (["stage=dop"], ["stage='dop'", "evaluate", "did you mean dpo?"]),
        (["recipe=nope"], ["recipe=nope", "quickstart"]),
        (["recipe=nowhere.yaml"], ["recipe=nowhere.yaml", "no such file"]),
        (["stage=evaluate", "evaluate.branches=[1,99]"], ["evaluate.branches=[1, 99]", "tree.criteria=10"]),
        (["dialogues.sources=[{name: a, pth: b}]"], ["pth", "did you mean path?"]),
        (["dialogues.sources=[{name: a, path: nowhere.jsonl}]"], ["dialogues.sources[0].path", "nowhere.jsonl"]),
        (["prompts=mine"], ["prompts", "mine"]),
        (["responses.models=[{name: a/b}]"], ["responses.models[0].name='a/b'"]),
        (["data_dir=${oc.env:NO_SUCH_VARIABLE}"], ["NO_SUCH_VARIABLE"]),
        (["train.distributed=zero4"], ["train.distributed='zero4'", "zero2", "zero3_offload"]),
        (["train.processes=2"], ["train.processes=2 and train.distributed=none", "set train.distributed=ddp"]),
        (
            [
                "train.distributed=ddp",
                "train.processes=3",
                "train.sft.per_device_train_batch_size=4",
                "train.initial.per_device_train_batch_size=3",
            ],
            ["over 3 processes", "set train.sft.per_device_train_batch_size=6"],
        ),
        (["evaluate.methods=[{a: 1}]"], ["evaluate.methods[0]={'a': 1}: expected a text"]),
        (["evaluate.branches=[[1,2]]"], ["evaluate.branches[0]=[1, 2]: expected a number"]),
        (["verdicts.source.labels={left: {a: 1}}"], ["verdicts.source.labels.left={'a': 1}: expected a text"]),
    ],
)
def test_wrong_configuration_names_key_value_and_what_is_allowed(
    arguments: list[str], expected: list[str], tmp_path: Path
) -> None:
    done = here(*arguments, f"output_dir={tmp_path}")
    assert done.returncode == 2
    assert all(text in done.stderr for text in expected), done.stderr
    assert "Traceback" not in done.stderr
    assert "Error executing job" not in done.stderr
    assert "To append" not in done.stderr
    assert ("did you mean" in done.stderr) == any("did you mean" in text for text in expected)
    assert not list(tmp_path.glob("artifacts/*"))


def test_several_processes_have_to_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = here("stage=dialogues", f"output_dir={tmp_path}")
    assert done.returncode == 2 and "WORLD_SIZE=2" in done.stderr and "train.distributed=ddp" in done.stderr
    done = here("-m", "stage=dialogues", "seed=1,2", f"output_dir={tmp_path}")
    assert done.returncode == 2 and "leave out torchrun" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--help"], "stage=STAGE"),
        (["--cfg", "job", "--resolve"], "recipe_name: quickstart"),
        (["stage=dop"], "stage='dop'"),
        (["keys"], "train.dpo.beta"),
        (["train.dpo.beta=-1"], "must be above 0"),
        (["train.dpo.bta=1"], "did you mean train.dpo.beta?"),
    ],
)
def test_help_and_errors_of_the_configuration_import_no_library(arguments: list[str], message: str) -> None:
    modules, printed = modules_after(*arguments)
    assert message in printed
    assert not LIBRARIES & modules


def test_a_page_may_be_read_in_part() -> None:
    for page in ("--help", "keys", "--hydra-help", "-sc install=bash"):
        command = [sys.executable, "-m", "judgetrain", *page.split()]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout and process.stderr
            process.stdout.close()
            assert "BrokenPipeError" not in process.stderr.read()
        assert process.returncode == 0


def test_a_run_whose_reader_ends_says_so_and_can_be_gone_on_with(tmp_path: Path) -> None:
    words = ["recipe=debug", "stage=dialogues", f"output_dir={tmp_path}", "track.tracker=none"]
    command = [sys.executable, "-m", "judgetrain", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 2
    assert "Traceback" not in said
    assert "stopped, since what read its output has ended; what is finished is kept" in said
    # Hydra's own line on the error would stand before it.
    assert "Error executing job" not in said
    assert here(*words).returncode == 0


def test_a_table_whose_reader_has_ended_is_an_error_that_the_command_line_can_tell() -> None:
    """Rich alone would end the process, with code 1 and without a word."""
    code = (
        "import sys\n"
        "from judgetrain.artifacts.console import Console\n"
        "from judgetrain.pipeline import cli\n"
        "sys.stdin.readline()\n"
        "cli._main = lambda: Console().plain(['a table'])\n"
        "cli.leave(cli.main())"
    )
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()
        process.stdin.close()
        said = process.stderr.read()
    assert process.returncode == 2
    assert "stopped, since what read its output has ended" in said and "Traceback" not in said


def test_an_output_that_is_no_file_has_no_reader_that_could_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stdout", stream)
        assert not cli._reader_is_gone()


def test_keys_are_printed_with_all_that_is_known_of_them() -> None:
    page = here("keys", "train.dpo", "tree", "recipe=quickstart", "tree.criteria=3").stdout
    assert "train.dpo.beta=0.5  float; above 0; default 0.1\n    strength of the KL constraint\n" in page
    assert "train.dpo.max_length=384  int tokens; at least 8; default 2048\n" in page
    assert "train.dpo.lora=" in page
    assert "tree.criteria=3  int; 1 to 100; default 10\n" in page, "the value in force, and the default beside it"
    assert max(map(len, page.splitlines())) <= 100
    named = [line.split("=")[0].split()[0] for line in page.splitlines() if not line.startswith(" ")]
    assert all(name.startswith(("train.dpo", "tree")) for name in named)
    assert here("keys", "dialogues.sources[0].path").stdout.startswith("dialogues.sources[].path")
    every = {re.split(r"[ =]", line)[0] for line in here("keys").stdout.splitlines()}
    assert {"seed", "objective", "engine.batch_size", "evaluate.benchmarks[].source.path"} | set(named) <= every
    wrong = here("keys", "train.dpo.bta")
    assert wrong.returncode == 2 and "did you mean train.dpo.beta?" in wrong.stderr


def test_a_section_s_keys_come_without_those_of_its_engines_which_have_a_command_of_their_own() -> None:
    page = here("keys", "responses").stdout
    assert "responses.max_chars=null" in page and "responses.models[].engine.batch_size" not in page
    assert "keys: python -m judgetrain keys responses.models[].engine\n" in page
    inside = here("keys", "responses.models[].engine").stdout
    # Where there is no one value, the default stands alone.
    assert "responses.models[].engine.batch_size  int requests; at least 1; default 32\n" in inside
    assert "=null" not in inside
    assert here("keys", "responses.models[0].engine.batch").stdout.startswith("responses.models[].engine.batch_size ")


def test_a_record_that_stands_in_several_places_is_described_once() -> None:
    rows = [line for line in key_names.page().splitlines() if line.startswith("| `")]
    assert any("`evaluate.benchmarks`" in row and "list of [BenchmarkConfig](#benchmarkconfig)" in row for row in rows)
    assert sum(row.startswith("| `tensor_parallel_size`") for row in rows) == 1
    assert not any("engine.tensor_parallel_size" in row for row in rows)
    for stage in ("sft", "dpo"):
        assert any(row.startswith(f"| `train.{stage}` |") and "[TrainConfig](#trainconfig)" in row for row in rows)
        assert not any(row.startswith(f"| `train.{stage}.lora") for row in rows), "as for TrainConfig"
    assert any(row.startswith("| `train.sft.ranking_weight`") for row in rows), "its own key"
    assert any(row.startswith("| `train.dpo.learning_rate` | `5e-07`") for row in rows), "its own default"


def test_wandb_of_a_parent_process_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SERVICE", f"3-1-unix-{tmp_path}/of-the-parent")
    monkeypatch.setenv("WANDB_MODE", "offline")
    done = judgetrain("recipe=debug", "stage=dialogues", f"output_dir={tmp_path}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "48 read, 48 made" in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["mine", "quickstart"])
def test_a_recipe_of_the_users_own_may_have_the_name_of_the_one_it_builds_on(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.yaml").write_text("defaults: [quickstart]\nrecipe_name: mine\nseed: 5\n")
    done = here(f"recipe={tmp_path / name}.yaml", "--cfg", "job")
    assert all(line in done.stdout for line in ("recipe_name: mine", "seed: 5", "encoder: static:world")), done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed: 1\nseed: 2\n", "duplicate key"),
        ("- a\n", "expected keys"),
        ("a: [", "not valid"),
        (b"# caf\xe9\nseed: 1\n", "not valid YAML: 'utf-8' codec"),
        ("sed: 1\n", "sed: there is no such key; did you mean seed?"),
        ("train: {dpo: {btea: 1}}\n", "did you mean train.dpo.beta?"),
    ],
)
def test_a_broken_recipe_is_said_in_a_line(tmp_path: Path, text: str | bytes, expected: str) -> None:
    (tmp_path / "mine.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    done = here(f"recipe={tmp_path / 'mine.yaml'}", "--cfg", "job")
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("word", "code"), [("status", 0), ("stage=status", 0), ("clean", 2), ("stage=clean", 2)])
def test_what_only_looks_or_removes_makes_no_directory(tmp_path: Path, word: str, code: int) -> None:
    done = here(word, "recipe=debug", f"output_dir={tmp_path / 'mistyped'}")
    assert done.returncode == code, done.stderr
    assert not list(tmp_path.iterdir())
    if code:
        assert "mistyped': there is no such directory, so nothing to remove" in done.stderr


def test_a_status_and_a_second_run_import_nothing_heavy(tmp_path: Path) -> None:
    arguments = ["recipe=debug", "stage=dialogues", f"output_dir={tmp_path}", "track.tracker=none"]
    assert judgetrain(*arguments).returncode == 0
    for command, expected in ((["stage=status", f"output_dir={tmp_path}"], "missing"), (arguments, "nothing to do")):
        modules, printed = modules_after(*command)
        assert expected in printed
        assert not HEAVY & modules


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        ValueError("a defect"),
        OSError(5, "Input/output error"),
        FileNotFoundError(2, "No such file", "lost"),
    ],
)
def test_a_full_disk_is_said_in_one_line_and_an_error_that_nobody_expected_is_not_swallowed(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from judgetrain.pipeline import job as entry
    from judgetrain.pipeline.cli import main

    def broken() -> None:
        raise error

    monkeypatch.setattr(entry, "job", broken)
    monkeypatch.setattr(sys, "argv", ["judgetrain", "stage=dpo"])
    if getattr(error, "errno", None) == errno.ENOSPC:
        assert main() == 2
        assert "the disk is full; everything finished is kept" in capsys.readouterr().err
    else:
        with pytest.raises(type(error), match=str(error.args[-1])):
            main()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ini", {"init", "initial"}),
        ("stage=evaluate train.dpo.be", {"train.dpo.beta="}),
        ("train.d", {"train.dpo.", "train.distributed="}),
        ("dialogues.sources[2].tu", {"dialogues.sources[2].turns="}),
        (
            "dialogues.sources[2].turns=",
            {f"dialogues.sources[2].turns={which}" for which in ("first", "last", "every")},
        ),
        ("+recipe=quickstart_", {"+recipe=quickstart_rl", "+recipe=quickstart_scorers"}),
        ("--config-dir DIR recipe=own", {"recipe=own_words"}),
        ("teacher=", {"teacher=given", "teacher=local", "teacher=openai"}),
        ("stage=ev", {"stage=evaluate"}),
        ("dry_run=", {"dry_run=true", "dry_run=false"}),
        ("keys train.sft.max_l", {"train.sft.max_length"}),
        ("--hydra", {"--hydra-help"}),
        ("seed=1", set()),
        ("init ", set()),
    ],
)
def test_what_may_follow_is_completed(
    typed: str, offered: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "own_words.yaml").touch()
    line = "python -m judgetrain " + typed.replace("DIR", str(tmp_path))
    monkeypatch.setenv("COMP_LINE", f"{line} more")
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    words = here("-sc", "query=bash").stdout.split()
    assert set(words) == offered, "which are all that begin so"


def test_bash_completes_the_command_and_the_module_and_asks_nothing_that_takes_long() -> None:
    script = """
      judgetrain() { python -m judgetrain "$@"; }
      eval "$(judgetrain -sc install=bash)"
      for COMP_LINE in "judgetrain recipe=quickstart_s" "python -m judgetrain stage=evalu" "python -m json stage="; do
        COMP_POINT=${#COMP_LINE}; COMPREPLY=(); _judgetrain "${COMP_LINE%% *}"; echo "<${COMPREPLY[*]}>"
      done; complete -p python judgetrain"""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, env=os.environ | {"PATH": path}, check=True
    )
    assert done.stdout.split()[:3] == ["<quickstart_scorers>", "<evaluate>", "<>"], "what follows the = is a word"
    assert done.stdout.count("-F _judgetrain") == 2 and not done.stderr
    heavy = {"hydra", "omegaconf", "torch", "numpy"}
    assert not heavy & modules_after("-sc", "query=bash")[0]


@pytest.mark.parametrize("gone", [False, True])
def test_ctrl_c_is_answered_during_a_computation_and_the_second_ends_it_here_and_now(gone: bool) -> None:
    code = (
        "import hashlib, multiprocessing, signal\n"
        "from judgetrain.artifacts.console import Console\n"
        "from judgetrain.pipeline.interrupts import answered\n"
        "signal.signal(signal.SIGINT, lambda *_: None)\n"
        "with answered(Console()):\n"
        "    child = multiprocessing.get_context('fork').Process(target=signal.raise_signal, args=[signal.SIGINT])\n"
        "    child.start(), child.join()\n"  # as a data loader's worker, whose signals are its own
        "    print('begun', flush=True)\n"
        "    hashlib.pbkdf2_hmac('sha256', b'', b'', 10**8)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        if gone:  # as tee, which hears Ctrl-C too
            process.stdout.close()
        process.send_signal(signal.SIGINT)
        assert gone or "Ctrl-C again stops at once" in process.stdout.readline(), "though Python has not heard it yet"
        time.sleep(gone)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130


def test_an_interrupted_process_ends_though_a_thread_and_an_exit_function_wait_for_ever() -> None:
    code = (
        "import atexit, sys, threading\n"
        "from judgetrain.pipeline import cli\n"
        "cli.main, cli.TIDYING = lambda: cli.EXIT_INTERRUPTED, 0.5\n"
        "atexit.register(threading.Event().wait)\n"
        "atexit.register(print, 'the cursor is back', flush=True)\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "sys.exit(cli.command())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (130, "the cursor is back\n")


def test_a_finished_process_awaits_threads_and_exit_functions_and_tidies_nothing_up() -> None:
    code = (
        "import atexit, threading, time\n"
        "from judgetrain.pipeline import cli\n"
        "class Model:\n"
        "    def __del__(self): print('taken apart', flush=True)\n"
        "model = Model()\n"
        "atexit.register(print, 'exit function')\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\n"
        "cli.leave(3)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "thread\nexit function\n", "")


def told(*words: str) -> str:
    """Return what a command line is told."""
    with pytest.raises((ConfigError, HydraException)) as caught:
        configured(*recipe_overrides(arguments(list(words))))
    return sentence(caught.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["evaluate"], "evaluate: expected key=value; did you mean stage=evaluate?"),
        (["stage", "evaluate"], "stage: expected key=value; did you mean stage=VALUE?"),
        (["quikstart"], "quikstart: expected key=value; did you mean recipe=quickstart?"),
        (["reciep=debug"], "reciep: there is no such key; did you mean recipe?"),
        (
            ["engine=vlm"],
            "engine=vlm: there is no such option (there are auto, generate, transformers, vllm); did you mean vllm?",
        ),
        (
            ["sweep=optun"],
            "sweep=optun: there is no such option (there are joblib, optuna, slurm); did you mean optuna?",
        ),
        (["hydra/launcher=jobslib"], "did you mean joblib?"),
        (["train.dpo.beta=0.1,0.2"], "train.dpo.beta=0.1,0.2: several values are a sweep, which needs the flag -m"),
        (["data_dir=/my(1)"], "data_dir=/my(1): the value cannot be read; one with signs such as ( ) = , needs quotes"),
        (["train.dpo=3"], "train.dpo=3: it is a section, whose keys are set one by one"),
        (["evaluate.methods=dpo"], "evaluate.methods=dpo: expected a list, as in evaluate.methods=[a,b]"),
        (
            ["jury.judges=[longer]"],
            "jury.judges=[longer]: 'longer' is no record; expected records with their keys, as in "
            "jury.judges=[{name: …, members: […]}]: python -m judgetrain keys jury.judges",
        ),
        (
            ["jury.judges=[{name: x, members: [longer]}]"],
            "'longer' is no record; expected records with their keys, as in members=[{judge: …, decided: …}]: "
            "python -m judgetrain keys jury.judges",
        ),
        (
            ["recipe=debug", "dialogues.decontaminate.1.only=x.txt"],
            "dialogues.decontaminate.1.only=x.txt: dialogues.decontaminate has 0 entries, counted from 0, and none at "
            "place 1; write the whole list, as in dialogues.decontaminate=[{name: …, source: {…}}]",
        ),
        (
            ["recipe=people_pairs", "evaluate.branches.7=3"],
            "evaluate.branches.7=3: evaluate.branches has 1 entry, counted from 0, and none at place 7",
        ),
        (["jury.judges=longer"], "expected a list, as in jury.judges=[{name: …, members: […]}]"),
        (["evaluate.benchmarks=[mine.csv]"], "as in evaluate.benchmarks=[{name: …, source: {…}}]: python -m"),
        (["dialogues.sources=[{nme: a}]"], "dialogues.sources: nme: there is no such key; did you mean na"),
        (["+sed=1"], "sed: there is no such key; did you mean seed?"),
        (["+train.dpo.bta=1"], "train.dpo.bta: there is no such key; did you mean train.dpo.beta?"),
        (["--confg-name", "x"], "--confg-name: there is no such flag; did you mean --config-name?"),
        (["recipe=quikstart"], "did you mean quickstart?"),
    ],
)
def test_a_mistyped_command_is_told_what_was_meant(words: list[str], expected: str) -> None:
    message = told(*words)
    assert expected in message
    assert "\n" not in message
    assert not any(
        noise in message for noise in ("search path", "EOF", "full_key", "To append", "hydra.cc", "override '")
    )


def test_a_recipe_that_builds_on_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("defaults: [quikstart]\n")
    message = told(f"recipe={path}")
    assert (
        message.startswith("recipe mine: recipe=quikstart: there is no such option")
        and "did you mean quickstart?" in message
    )


def test_a_group_that_is_null_keeps_the_recipes() -> None:
    assert configured(*recipe_overrides(["engine=null"])).engine == configured().engine


@pytest.mark.parametrize(("sweep", "extra"), [("joblib", "joblib"), ("optuna", "optuna"), ("slurm", "submitit")])
def test_a_launcher_or_sweeper_that_is_not_installed_is_named_with_what_to_install(sweep: str, extra: str) -> None:
    code = "import sys; sys.modules['hydra_plugins'] = None\nfrom judgetrain.pipeline.cli import main\nsys.exit(main())"
    command = [sys.executable, "-c", code, "-m", f"sweep={sweep}", "seed=1,2", "stage=status"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"its package is not installed; pip install 'judgetrain[{extra}]'")


def test_flags_may_stand_among_keys() -> None:
    assert arguments(["seed=1", "-m", "stage=status"]) == ["-m", "seed=1", "stage=status"]
    assert arguments(["seed=1", "--cfg", "job", "stage=x"]) == ["--cfg", "job", "seed=1", "stage=x"]


def test_the_version_is_the_projects_own() -> None:
    from judgetrain import __version__

    done = here("--version")
    assert (done.returncode, done.stdout) == (0, f"judgetrain {__version__}\n")


def test_what_the_package_logs_is_a_line_of_the_run_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert here("stage=dop").returncode == 2
    for _ in range(2):
        say_once("%s has no chat template", "base")
    assert re.fullmatch(r"\d\d:\d\d:\d\d  base has no chat template\n", capsys.readouterr().out)


EMPTY = "judgetrain: output_dir='': must not be empty; leave it out for outputs\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stage=dialogues", "output_dir="], EMPTY),
        (["-m", "seed=1,2", "stage=dialogues", "output_dir="], EMPTY),
        ([], "python -m judgetrain stage=STAGE"),
    ],
)
def test_without_arguments_or_a_place_for_outputs_nothing_runs(tmp_path: Path, words: list[str], message: str) -> None:
    done = judgetrain(*words, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr
    assert not list(tmp_path.iterdir())


def test_libraries_are_quiet_also_while_settings_and_models_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    # Transformers prints a line of its own where this is set.
    monkeypatch.delenv("WANDB_MODE", raising=False)
    # All of what stage initial needs is imported and looked at before the encoder is.
    done = judgetrain("initial", "recipe=debug", "cluster.encoder=me/none", cwd=tmp_path)
    assert done.returncode == 2
    ours = re.compile(r"\d\d:\d\d:\d\d  |judgetrain: cluster.encoder=me/none: ")
    others = [line for line in (done.stdout + done.stderr).splitlines() if not ours.match(line)]
    assert others == []


def test_a_run_says_which_stage_of_how_many_where_it_goes_on_and_why_rows_are_left_out_when_asked(
    tmp_path: Path,
) -> None:
    command = ["cluster", "recipe=debug", f"output_dir={tmp_path}", "track.tracker=none"]
    first = here(*command).stdout
    assert "  stage 2 of 2: cluster: embeddings, k-means" in first and "8 left out (-v says why)" in first
    shutil.rmtree(next(tmp_path.glob("artifacts/cluster/*")))
    with pytest.MonkeyPatch.context() as patch:
        interrupted(patch, Encoder, "__call__", 1)
        ended = here(*command)
    assert ended.returncode == 130 and "judgetrain: interrupted; what is finished is kept" in ended.stderr
    assert "interrupted in stage 2 of 2: cluster; the same command goes on there (" in ended.stdout
    again = here(*command, "-v").stdout
    assert "cluster: 1 of 2 stages is to be made; the rest is reused" in again
    assert "  stage 2 of 2: cluster: " in again
    assert re.search(r"48 read, 40 made, 8 not_sampled, \d+\.\d s, \d+\.\d s of them before\n", again)
    printed = here(*command, "cluster.n_clusters=3").stdout
    assert re.search(r"even over clusters \(last time \d+\.\d s; all that is left \d+\.\d s\)\n", printed)
