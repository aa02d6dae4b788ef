"""What lies in launch/: DeepSpeed's own parser reads its JSON, shells its scripts, and they start what they say."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from judgetrain.rooms import shipped
from judgetrain.train.config import TrainStages
from judgetrain.train.distributed import deepspeed_json
from tests.builders.pipeline import configured

LAUNCH = shipped("launch")
CI = Path(__file__).parents[2] / ".ci"
"""The scripts of a run, in a clone alone."""
LENT = Path(__file__).parents[1] / "gpu" / "lent.sh"
"""For a GPU that is lent for a short while."""
SCRIPTS = [*sorted(LAUNCH.glob("*.sh")), LENT, *sorted(path for path in CI.rglob("*") if path.is_file())]
ZERO = {"zero2": 2, "zero3": 3, "zero3_offload": 3}


@pytest.mark.parametrize("mode", ZERO)
def test_deepspeed_parses_its_configuration_as_the_trainer_fills_it_in(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("deepspeed")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    from deepspeed.runtime.config import DeepSpeedConfig
    from transformers import TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    path = deepspeed_json(TrainStages(distributed=mode))
    assert path == str(LAUNCH / "deepspeed" / f"{mode}.json")
    filled = HfTrainerDeepSpeedConfig(path)
    arguments = TrainingArguments(
        str(tmp_path), per_device_train_batch_size=2, gradient_accumulation_steps=3, learning_rate=1e-5, use_cpu=True
    )
    filled.trainer_config_process(arguments)
    for key in ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"):
        filled.fill_only(f"zero_optimization.{key}", 4096)  # the model's width decides, when there is one
    assert "auto" not in json.dumps(filled.config)
    parsed = DeepSpeedConfig(filled.config)
    assert parsed.zero_config.stage == ZERO[mode]
    assert (parsed.train_micro_batch_size_per_gpu, parsed.gradient_accumulation_steps) == (2, 3)
    assert parsed.gradient_clipping == arguments.max_grad_norm
    offloaded = parsed.zero_config.offload_optimizer
    assert (offloaded is not None and offloaded.device == "cpu") == (mode == "zero3_offload")
    if ZERO[mode] == 3:
        assert parsed.zero_config.gather_16bit_weights_on_model_save


@pytest.mark.parametrize("name", ["one_node", "many_nodes"])
def test_accelerate_reads_its_configuration(name: str) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(LAUNCH / "accelerate" / f"{name}.yaml"))
    assert config.num_processes == 8 * config.num_machines
    assert str(config.distributed_type).endswith("MULTI_GPU")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_clean(script: Path) -> None:
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
    shellcheck = shutil.which("shellcheck") or shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([shellcheck, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def spoken(tmp_path: Path, script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script where torchrun, accelerate, srun and scontrol only say how they were called; PyTorch sees 3 GPUs."""
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    for name, body in {
        "torchrun": 'echo torchrun "$@"',
        "accelerate": 'echo accelerate "$@"',
        # As it waits for every node, what was started speaks before the end.
        "python": 'if [[ $1 == -c ]]; then echo "${GPUS:-3}"; else sleep 1; echo python "$@"; fi',
        "srun": 'if [[ $* == *hostname* ]]; then echo 10.0.0.7; else echo srun "$@"; fi',
        "ray": 'echo "$RAY_AUTH_MODE ${#RAY_AUTH_TOKEN}" >"$0.token"',
        "scontrol": "printf 'node7\\nnode8\\n'",
    }.items():
        (programs / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (programs / name).chmod(0o755)
    environment: dict[str, Any] = {"PATH": f"{programs}:{os.environ['PATH']}", **variables}
    return subprocess.run(
        ["bash", LAUNCH / script, *arguments], capture_output=True, text=True, env=environment, check=False
    )


def test_one_node_takes_every_gpu_and_the_mode_that_is_asked_for(tmp_path: Path) -> None:
    done = spoken(tmp_path, "one_node.sh", "stage=dpo", "recipe=paper_ood")
    assert done.stdout.split() == [
        *("torchrun", "--standalone", "--nproc_per_node", "3", "-m", "judgetrain"),
        *("train.distributed=zero3", "stage=dpo", "recipe=paper_ood"),
    ]
    done = spoken(tmp_path, "one_node.sh", "train.distributed=ddp", PROCESSES="2", LAUNCHER="accelerate")
    assert done.stdout.split()[:2] == ["accelerate", "launch"]
    assert done.stdout.endswith("--num_processes 2 -m judgetrain train.distributed=ddp\n")
    done = spoken(tmp_path, "one_node.sh", "stage=dpo", PROCESSES="1", LAUNCHER="accelerate")
    assert done.stdout == "python -m judgetrain train.distributed=zero3 train.processes=1 stage=dpo\n", (
        "a launcher with one process would start as many as there are GPUs"
    )
    for arguments, variables, message in [
        ((), {}, "usage:"),
        (("stage=dpo",), {"LAUNCHER": "mpirun"}, "allowed are torchrun and accelerate"),
        (("stage=dpo",), {"GPUS": "0"}, "no GPU here; set PROCESSES"),
    ]:
        done = spoken(tmp_path, "one_node.sh", *arguments, **variables)
        assert done.returncode == 2 and message in done.stderr


def test_slurm_starts_one_launcher_a_node_that_meet_at_the_first(tmp_path: Path) -> None:
    job = {"SLURM_JOB_NODELIST": "node[7-8]", "SLURM_JOB_ID": "41234", "SLURM_JOB_NUM_NODES": "2"}
    done = spoken(tmp_path, "slurm.sh", "stage=dpo", "data_dir=a b", SLURM_GPUS_ON_NODE="4", **job)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("srun --kill-on-bad-exit=1 torchrun --nnodes 2 --nproc_per_node 4 ")
    assert "--rdzv_endpoint node7:21234 " in done.stdout
    assert done.stdout.endswith("-m judgetrain train.distributed=zero3 stage=dpo data_dir=a b\n")
    assert "start it with sbatch" in spoken(tmp_path, "slurm.sh", "stage=dpo").stderr


def test_ray_starts_a_head_and_workers_and_then_the_command(tmp_path: Path) -> None:
    job = {"SLURM_JOB_NODELIST": "node[7-8]", "SLURM_JOB_ID": "41234", "SLURM_GPUS_ON_NODE": "4", "WAIT": "0"}
    done = spoken(tmp_path, "ray_slurm.sh", "stage=tree", "data_dir=a b", **job)
    assert done.returncode == 0, done.stderr
    lines = sorted(line for line in done.stdout.splitlines() if line.startswith("srun"))
    head, command, workers = (next(x for x in lines if part in x) for part in ("--head", "judgetrain", "--exclude"))
    assert (
        "--nodelist node7 ray start --head --node-ip-address 10.0.0.7 --port 21234 --num-cpus 64 --num-gpus 4" in head
    )
    assert "--nodes 1 --ntasks 1 --overlap --exclude node7 ray start --address 10.0.0.7:21234" in workers
    assert command.endswith("--nodelist node7 python -m judgetrain executor=ray stage=tree data_dir=a b")
    assert (tmp_path / "bin" / "ray.token").read_text() == "token 64\n", "a cluster lets in who has the job's token"
    alone = spoken(tmp_path, "ray_slurm.sh")
    assert alone.returncode and "start it with sbatch" in alone.stderr


def test_the_manifest_for_kuberay_holds_a_command_and_one_image() -> None:
    job = yaml.safe_load((LAUNCH / "kuberay.yaml").read_text(encoding="utf-8"))
    words = job["spec"]["entrypoint"].split()
    assert words[:3] == ["python", "-m", "judgetrain"]
    config = configured(*words[3:])
    assert (config.executor.type, config.stage) == ("ray", "tree")
    cluster = job["spec"]["rayClusterSpec"]
    pods = [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    assert len({pod["containers"][0]["image"] for pod in pods}) == 1
    for pod in pods:
        assert {m["name"] for m in pod["containers"][0]["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
