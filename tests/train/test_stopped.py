"""Trainings that are told to end keep the step under way, in several processes too; no worker trains on alone."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from judgetrain.rooms import shipped
from judgetrain.train.complete import COMPLETE, complete_checkpoints
from tests.builders.pairs_pipeline import OVERRIDES, RL, ROOT, composed, first_checkpoint, plant

LONG = ["stage=sft", "train.sft={max_steps: 3000, save_steps: 3, per_device_train_batch_size: 4}"]
"""A training that does not end by itself in a test's time."""
LOADED_BY_OTHERS = {
    "sft": [*LONG, "++train.sft.trainer={dataloader_num_workers: 2}"],
    "dpo": ["stage=dpo", "train.dpo.max_steps=3000", "++train.dpo.trainer={dataloader_num_workers: 2}"],
    # Its checkpoints are made where it is evaluated.
    "rl": [*RL, "rl.max_steps=3000", "rl.eval_steps=2", "++rl.trainer={dataloader_num_workers: 2}"],
}
"""For each kind of trainer, such a training whose batches are loaded by other processes."""


def started(output: Path, log: Path, *arguments: str, words: Sequence[str] = LONG) -> subprocess.Popen[bytes]:
    """Start the command line, with the words of a training, in a process of its own, whose lines go to ``log``."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "judgetrain", *arguments, *OVERRIDES, *words, f"output_dir={output}"],
            stdout=file,
            stderr=file,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )


def last_step(checkpoints: Path) -> int:
    """Return the last step that a training has logged, which has to be that of its last checkpoint."""
    rows = (checkpoints.parent / "train_log.jsonl").read_text().splitlines()
    step = json.loads(rows[-1])["step"]
    assert complete_checkpoints(checkpoints)[-1][0] == step, "no step is taken twice"
    return step


@pytest.mark.parametrize(
    ("number", "mode"),
    [(signal.SIGTERM, "none"), (signal.SIGUSR1, "none"), (signal.SIGINT, "ddp"), (signal.SIGTERM, "fsdp")],
)
def test_a_signal_keeps_the_step_under_way(number: signal.Signals, mode: str, tmp_path: Path) -> None:
    several = [f"train.distributed={mode}", "train.processes=2"] if mode != "none" else []
    plant(composed(tmp_path, *LONG, *several))
    log = tmp_path / "log"
    process = started(tmp_path, log, *several)
    checkpoints = first_checkpoint(tmp_path, log, lambda: process.poll() is None)
    process.send_signal(number)
    expected = 130 if number == signal.SIGINT else 143
    assert process.wait(120) == expected, log.read_text()
    printed = log.read_text()
    assert printed.count("stopping as soon as the computation under way ends") == 1 and "Traceback" not in printed
    assert ("SIGTERM again stops at once" in printed) == (number == signal.SIGTERM)
    step = last_step(checkpoints)
    assert "interrupted in stage" in printed and f"(training step {step}" in printed


@pytest.mark.parametrize("stage", [*LOADED_BY_OTHERS])
def test_a_signal_to_all_processes_keeps_the_step_where_others_load_the_batches(stage: str, tmp_path: Path) -> None:
    """As SLURM and ``timeout`` send it: the processes that load batches are told as well."""
    words = LOADED_BY_OTHERS[stage]
    plant(composed(tmp_path, *words))
    log = tmp_path / "log"
    process = started(tmp_path, log, words=words)
    checkpoints = first_checkpoint(tmp_path, log, lambda: process.poll() is None)
    loaders = psutil.Process(process.pid).children(recursive=True)
    assert loaders
    for each in [*loaders, process]:
        each.send_signal(signal.SIGTERM)
    assert process.wait(120) == 143, log.read_text()
    assert "Traceback" not in log.read_text()
    last_step(checkpoints)


def test_a_signal_to_all_processes_of_several_leaves_no_errors_behind(tmp_path: Path) -> None:
    """SIGUSR1 also reaches the process in which multiprocessing keeps what the others share."""
    two = ["train.distributed=ddp", "train.processes=2"]
    plant(composed(tmp_path, *LONG, *two))
    log = tmp_path / "log"
    process = started(tmp_path, log, *two)
    checkpoints = first_checkpoint(tmp_path, log, lambda: process.poll() is None)
    for each in [*psutil.Process(process.pid).children(recursive=True), process]:
        each.send_signal(signal.SIGUSR1)
    assert process.wait(120) == 143, log.read_text()
    printed = log.read_text()
    assert "Error" not in printed and "resource_tracker" not in printed
    last_step(checkpoints)


STAND_INS = {
    # As SLURM's own: it hands on the signals that it gets, and gives a task the cores that its own variable says.
    "srun": """\
echo "${SRUN_CPUS_PER_TASK:-1}" >>"$(dirname "$0")/cores"
while [[ $1 == -* ]]; do shift; done
"$@" &
run=$!
trap 'kill -USR1 "$run"' USR1
while kill -0 "$run" 2>/dev/null; do status=0; wait "$run" || status=$?; done
exit "$status"
""",
    "scontrol": 'if [[ $1 == show ]]; then echo localhost; else echo "$@" >>"$(dirname "$0")/scontrol.log"; fi\n',
    "torchrun": f'exec {sys.executable} -m torch.distributed.run "$@"\n',
}
"""SLURM's programs on this machine alone."""


def test_a_job_of_slurm_keeps_its_step_before_its_time_limit_and_queues_itself_again(tmp_path: Path) -> None:
    two = "train.distributed=ddp"
    plant(composed(tmp_path, *LONG, two))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in STAND_INS.items():
        (programs / name).write_text(f"#!/usr/bin/env bash\n{body}")
        (programs / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NUM_NODES": "1"}
    environment = os.environ | slurm | {"SLURM_GPUS_ON_NODE": "2", "SLURM_CPUS_PER_TASK": "6", "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    # As sbatch: the node runs a copy, beside which nothing else of launch/ lies.
    script = Path(shutil.copy(shipped("launch") / "slurm.sh", programs / "slurm_script"))
    command = [script, two, *OVERRIDES, *LONG, f"output_dir={tmp_path}"]
    log = tmp_path / "log"
    steps = [0]
    for _ in range(2):
        with log.open("wb") as file:
            job = subprocess.Popen(command, stdout=file, stderr=file, cwd=ROOT, env=environment)
        try:
            # The second time it goes on from the first one's last step.
            deadline = time.monotonic() + 600
            while not [
                mark
                for mark in tmp_path.glob(f"artifacts/sft/*/checkpoints/*/{COMPLETE}")
                if int(mark.parent.name.rpartition("-")[2]) > steps[-1]
            ]:
                assert job.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            # The batch script alone gets it: --signal=B:USR1@300.
            job.send_signal(signal.SIGUSR1)
            assert job.wait(120) != 0, log.read_text()
        finally:
            job.kill()
        printed = log.read_text()
        assert printed.count("stopping as soon as the computation under way ends") == 1
        assert printed.count("judgetrain: interrupted") == 1, "one process speaks"
        assert ("sft: resuming at step" in printed) == (steps[-1] > 0)
        assert f"sft: resuming at step {steps[-1]}\n" in printed or not steps[-1]
        steps.append(last_step(next(tmp_path.glob("artifacts/sft/*/checkpoints"))))
    assert 0 < steps[1] < steps[2]
    assert (programs / "scontrol.log").read_text() == f"requeue {slurm['SLURM_JOB_ID']}\n" * 2
    assert (programs / "cores").read_text() == "6\n" * 2, "without it srun gives all processes of a node one core"


FORMER = {
    # As SLURM's own, which kills its tasks when it gets SIGTERM (_srun_signal_mgr); scancel sends signals to them.
    "srun": """\
while [[ $1 == -* ]]; do shift; done
"$@" &
run=$!
echo "$run" >"$(dirname "$0")/task"
trap 'kill -KILL "$run"' TERM
trap 'kill -USR1 "$run"' USR1
while kill -0 "$run" 2>/dev/null; do status=0; wait "$run" || status=$?; done
exit "$status"
""",
    "scontrol": STAND_INS["scontrol"],
    "scancel": '[[ $* == "--signal=TERM $SLURM_JOB_ID" ]] && kill -TERM "$(cat "$(dirname "$0")/task")"\n',
    # Of torch 2.11: it does not know the options, hands SIGTERM on, and ends at once by SIGUSR1.
    "torchrun": """\
[[ $1 == --help ]] && echo "usage: torchrun [--nnodes NNODES]" && exit
[[ $* == *--signals-to-handle* || $* == *--shutdown-timeout* ]] && exit 2
trap 'touch "$(dirname "$0")/told"; exit 143' TERM
touch "$(dirname "$0")/runs"
for _ in {1..600}; do sleep 0.1; done
""",
}
"""SLURM's programs, and a torchrun of the time before it had options for the end."""


def end_job_of_former_torchrun(place: Path, programs: dict[str, str], job: dict[str, str], signals: int) -> None:
    """Run slurm.sh among stand-ins, signal it so often while its torchrun runs, and check that the step is kept.

    Args:
        place: of the programs and the log.
        programs: what stands in for each, as :data:`FORMER`.
        job: the variables that SLURM gives this job.
        signals: how often SIGUSR1 comes, half a second apart.
    """
    for name, body in programs.items():
        (place / name).write_text(f"#!/usr/bin/env bash\n{body}")
        (place / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_NUM_NODES": "1"} | job
    environment = os.environ | slurm | {"PATH": f"{place}:{os.environ['PATH']}"}
    log = place / "log"
    with log.open("wb") as file:
        script = subprocess.Popen(
            [shipped("launch") / "slurm.sh", "stage=sft"], stdout=file, stderr=file, env=environment
        )
    try:
        deadline = time.monotonic() + 120
        while not (place / "runs").exists():
            assert script.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        script.send_signal(signal.SIGUSR1)
        for _ in range(signals - 1):
            time.sleep(0.5)
            script.send_signal(signal.SIGUSR1)
        assert script.wait(60) == 143, log.read_text()
    finally:
        script.kill()


def test_a_job_of_slurm_keeps_its_step_with_a_former_torchrun_too(tmp_path: Path) -> None:
    end_job_of_former_torchrun(tmp_path, FORMER, {"SLURM_JOB_ID": "41235"}, signals=1)
    assert (tmp_path / "told").exists()
    assert (tmp_path / "scontrol.log").read_text() == "requeue 41235\n"


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_task_of_an_array_queues_itself_again_once_its_step_is_kept(is_refused: bool, tmp_path: Path) -> None:
    """Also where the signal comes twice before the step is kept, and where SLURM refuses to queue it."""
    slow = FORMER["torchrun"].replace("trap 'touch", "trap 'sleep 2; touch")
    # What stands in the log beside the words shows whether the step was kept before.
    answer = """if [[ $1 == show ]]; then echo localhost; exit; fi
here=$(dirname "$0"); ls "$here" | grep -cx told >>"$here/kept"; echo "$@" >>"$here/scontrol.log"; exit STATUS
""".replace("STATUS", str(int(is_refused)))
    by_number = FORMER["scancel"].replace("$SLURM_JOB_ID", "41230_7")
    programs = FORMER | {"torchrun": slow, "scontrol": answer, "scancel": by_number}
    job = {"SLURM_JOB_ID": "41237", "SLURM_ARRAY_JOB_ID": "41230", "SLURM_ARRAY_TASK_ID": "7"}
    end_job_of_former_torchrun(tmp_path, programs, job, signals=2)
    assert (tmp_path / "scontrol.log").read_text() == "requeue 41230_7\n"
    assert (tmp_path / "kept").read_text() == "1\n"
    assert ("submit the same command" in (tmp_path / "log").read_text()) == is_refused


def test_a_job_of_slurm_says_why_torchrun_cannot_be_started(tmp_path: Path) -> None:
    for name, body in {"scontrol": STAND_INS["scontrol"], "torchrun": "echo no torch here >&2; exit 1"}.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_ID": "41236", "SLURM_JOB_NUM_NODES": "1"}
    environment = os.environ | slurm | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    job = subprocess.run([shipped("launch") / "slurm.sh"], capture_output=True, text=True, env=environment)
    assert (job.returncode, job.stderr) == (1, "slurm.sh: torchrun cannot be started: no torch here\n")


@pytest.mark.parametrize("name", ["slurm.sh", "ray_slurm.sh"])
def test_sbatch_is_asked_for_a_signal_in_time_and_to_queue_again(name: str) -> None:
    lines = (shipped("launch") / name).read_text().splitlines()
    options = dict(line.removeprefix("#SBATCH --").partition("=")[::2] for line in lines if line.startswith("#SBATCH"))
    to_shell, _, seconds = options["signal"].partition("@")
    assert to_shell == "B:USR1" and int(seconds) >= 120
    assert options["requeue"] == "" and options["open-mode"] == "append"


RAY = {
    "srun": """\
[[ $* == *hostname* ]] && echo 127.0.0.1 && exit
while [[ $1 == -* ]]; do [[ $1 == --nodes || $1 == --ntasks || $1 == --nodelist ]] && shift; shift; done
exec "$@"
""",
    "scontrol": STAND_INS["scontrol"],
    "ray": "[[ $1 == status ]] || exec sleep 300\n",
    # It is told to end as the real one is, and ends by its signal's number, or it ends by itself.
    "python": """\
[[ $1 == - ]] && exit
trap 'exit 143' USR1
touch "$(dirname "$0")/runs"
for _ in {1..600}; do [[ -e "$(dirname "$0")/end" ]] && exit; sleep 0.1; done
""",
}
"""What ray_slurm.sh calls, on one node."""


@pytest.mark.parametrize("is_told", [True, False])
def test_a_job_of_ray_queues_itself_again_if_its_time_is_up_and_else_does_not(is_told: bool, tmp_path: Path) -> None:
    for name, body in RAY.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{body}")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_ID": "41234", "WAIT": "0"}
    environment = os.environ | slurm | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = shipped("launch") / "ray_slurm.sh"
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen([script, "stage=tree"], stdout=log, stderr=log, env=environment)
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "runs").exists():
            assert job.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.05)
        if is_told:
            job.send_signal(signal.SIGUSR1)
        else:
            (tmp_path / "end").touch()
        assert job.wait(60) == (143 if is_told else 0), (tmp_path / "log").read_text()
    finally:
        job.kill()
    requeued = tmp_path / "scontrol.log"
    assert (requeued.read_text() if requeued.exists() else "") == ("requeue 41234\n" if is_told else "")


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_the_jobs_of_a_sweep_end_with_the_command(tmp_path: Path, by: signal.Signals) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    for seed in (1, 2):
        plant(composed(tmp_path, *LONG, f"seed={seed}"))
    log = tmp_path / "log"
    process = started(tmp_path, log, "-m", "sweep=joblib", "seed=1,2")
    workers: list[psutil.Process] = []
    try:
        deadline = time.monotonic() + 600
        while len({mark.parents[2] for mark in tmp_path.glob(f"artifacts/sft/*/checkpoints/*/{COMPLETE}")}) < 2:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        workers = psutil.Process(process.pid).children(recursive=True)
        assert len(workers) >= 2
        process.send_signal(by)
        assert process.wait(300) == -by
        _, alive = psutil.wait_procs(workers, timeout=300)
        assert not alive, [worker.cmdline() for worker in alive]
    finally:
        process.kill()
        for worker in workers:
            if worker.is_running():
                worker.kill()
