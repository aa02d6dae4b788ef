"""Two processes under ZeRO-2, ZeRO-3, FSDP and DDP against one: the same steps, the same weights, also after a kill."""

import itertools
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM

from judgetrain.artifacts.shards import read_rows
from judgetrain.errors import ConfigError, TrainingError
from judgetrain.train import distributed
from judgetrain.train.checkpoints import last_complete
from judgetrain.train.complete import COMPLETE, complete_checkpoints
from judgetrain.train.data import filled
from tests.builders import pairs_pipeline
from tests.builders.closeness import apart, assert_same_but_for_rounding, loss_rounding, sum_rounding
from tests.builders.debug_run import forked, lines_of

pytest.importorskip("deepspeed")

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")


def artifact(output: Path, stage: str = "dpo") -> Path:
    return next(output.glob(f"artifacts/{stage}/*/manifest.json")).parent


def steps(directory: Path) -> list[dict[str, Any]]:
    return [row for row in map(json.loads, (directory / "train_log.jsonl").open()) if "loss" in row]


def tokens(rows: list[dict[str, Any]]) -> list[float]:
    """Tokens of every step."""
    counts = [0.0, *(row["num_tokens"] for row in rows)]
    return [now - before for before, now in itertools.pairwise(counts)]


def assert_same_weights(one: Path, two: Path, steps: int, learning_rate: float) -> None:
    models = [AutoModelForCausalLM.from_pretrained(directory / "model").state_dict() for directory in (one, two)]
    assert_same_but_for_rounding(models[0], models[1], steps, learning_rate)


def assert_same_losses(
    one: list[dict[str, Any]], two: list[dict[str, Any]], key: str, steps: int, learning_rate: float
) -> None:
    """Check that losses of two logs differ by rounding alone: of a loss of 12 nats, by 6e-4 after twelve steps."""
    gradient_norm = max(row["grad_norm"] for row in one if "grad_norm" in row)
    ours = [row[key] for row in one if key in row]
    theirs = [row[key] for row in two if key in row]
    assert len(ours) == len(theirs)
    for first, second in zip(ours, theirs, strict=True):
        assert second == pytest.approx(first, rel=0, abs=loss_rounding(first, steps, learning_rate, gradient_norm)), key


def assert_same_training(one: Path, two: Path) -> None:
    first, second = steps(one), steps(two)
    assert len(first) == pairs_pipeline.STEPS
    # The same pairs in the same order.
    assert tokens(first) == tokens(second)
    assert_same_losses(first, second, "loss", pairs_pipeline.STEPS, pairs_pipeline.RATE)
    assert_same_weights(one, two, pairs_pipeline.STEPS, pairs_pipeline.RATE)
    assert (two / "model" / "model.safetensors").exists()
    assert not list(two.glob("checkpoints*"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("alone")
    pairs_pipeline.plant(pairs_pipeline.composed(output)).run("dpo")
    return output


def kill(victim: int, workers: list[psutil.Process]) -> None:
    """Kill a process, and see that no worker outlives it."""
    assert len(workers) == 2
    os.kill(victim, signal.SIGKILL)
    assert psutil.wait_procs(workers, timeout=300)[1] == [], "a worker outlived the process that started it"


def last_step(checkpoints: Path) -> int:
    """Return the step of the last complete checkpoint, beside which one that is not complete is put."""
    marked, _ = complete_checkpoints(checkpoints)[-1]
    # Every file but the mark: killed between the last process's file and the mark.
    partly = checkpoints / "checkpoint-11"
    shutil.copytree(checkpoints / f"checkpoint-{marked}", partly, ignore=shutil.ignore_patterns(COMPLETE))
    return marked


@pytest.mark.parametrize(("mode", "then"), [("zero2", 2), ("fsdp", 1)])
def test_killed_in_two_processes_the_same_command_ends_with_the_weights_of_one(
    mode: str, then: int, alone: Path, tmp_path: Path
) -> None:
    """The parent is killed. Its workers are forked; those of the test under ZeRO-3 are started anew, as users' are.

    ``then``: processes that go on. FSDP's checkpoints fit any number of them.
    """
    output, log, overrides = tmp_path / "outputs", tmp_path / "log", (f"train.distributed={mode}", "train.processes=2")
    shutil.copytree(alone, output)
    shutil.rmtree(output / "artifacts" / "dpo")
    run = forked(log, pairs_pipeline.make_by_forked, output, *overrides)
    checkpoints = pairs_pipeline.first_checkpoint(output, log, run.is_alive)
    kill(run.pid or 0, psutil.Process(run.pid).children())
    step = last_step(checkpoints)
    overrides = f"train.distributed={mode}", f"train.processes={then}"
    text = lines_of(forked(log, pairs_pipeline.make_by_forked, output, *overrides), log)
    assert f"dpo: resuming at step {step}" in text
    assert ": reference: " not in text, "log-probabilities made in one process serve here too"
    assert_same_training(artifact(alone), artifact(output))


def killed_worker(output: Path, log: Path, *overrides: str) -> int:
    """Return the step that a run by the real command in two processes had come to, one of which was killed."""
    run = pairs_pipeline.launched((sys.executable,), output, log, *overrides, "train.processes=2")
    checkpoints = pairs_pipeline.first_checkpoint(output, log, lambda: run.poll() is None)
    workers = [p for p in psutil.Process(run.pid).children() if "spawn_main" in " ".join(p.cmdline())]
    kill(workers[1].pid, workers)
    assert run.wait(timeout=120) == 2
    text = log.read_text()
    assert "process 1 of stage dpo was killed (signal 9)" in text and "lower per_device_train_batch_size" in text, text
    return last_step(checkpoints)


def test_a_checkpoint_of_another_layout_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoint-4").mkdir()
    (tmp_path / "checkpoint-4" / COMPLETE).write_text('{"layout": "zero3 with 2 processes", "bytes": {}}')
    with pytest.raises(TrainingError, match=r"written under zero3 with 2 processes.*under none or ddp.*remove it"):
        last_complete(tmp_path)
    monkeypatch.setattr(distributed, "_current", distributed.ProcessGroup(0, 2, "zero3", "zero3.json"))
    assert last_complete(tmp_path) == str(tmp_path / "checkpoint-4")
    # FSDP's fit any number of processes, and no other mode.
    (tmp_path / "checkpoint-4" / COMPLETE).write_text('{"layout": "fsdp", "bytes": {}}')
    with pytest.raises(TrainingError, match=r"written under fsdp, and this run is under zero3 with 2 processes: "):
        last_complete(tmp_path)
    monkeypatch.setattr(distributed, "_current", distributed.ProcessGroup(0, 8, "fsdp"))
    assert last_complete(tmp_path) == str(tmp_path / "checkpoint-4")


def test_whole_steps_are_filled_up_and_no_more_are_there_than_are_taken() -> None:
    assert filled([5, 6, 7], 8) == [5, 6, 7, 5, 6, 7, 5, 6]
    assert filled(range(16), 8) == [*range(16)] and filled(range(16), 4, 2) == [*range(8)]


def regression(parts: int, steps: int = 12, leave_out: int | None = None) -> dict[str, torch.Tensor]:
    """Return a small network after steps of Adam, each on 32 rows whose gradients are summed in ``parts``."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64))
    rows = torch.randn(12, 32, 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        kept = rows[step] if step != leave_out else rows[step, 1:]
        for part in kept.chunk(parts):
            ((model(part) - part.roll(1, dims=1)).square().sum() / len(kept)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


def test_rounding_is_told_from_a_step_or_a_row_too_few() -> None:
    whole = regression(1)
    assert_same_but_for_rounding(whole, regression(8), 12, 1e-3)
    assert apart(whole, regression(8))[0] > 0, "sums in another order are others"
    for wrong in (regression(1, steps=11), regression(1, leave_out=11)):
        with pytest.raises(AssertionError, match="root mean square"):
            assert_same_but_for_rounding(whole, wrong, 12, 1e-3)
    shifted = whole | {"2.bias": whole["2.bias"].clone()}
    shifted["2.bias"][5] += 3e-3
    with pytest.raises(AssertionError, match="a weight is 3.00e-03 off"):
        assert_same_but_for_rounding(whole, shifted, 12, 1e-3)


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    train = pairs_pipeline.composed(tmp_path, "train.distributed=zero3", "train.processes=2").train
    assert distributed.check_distributed(train) == 2
    train.distributed = "none"
    with pytest.raises(ConfigError, match=r"train.processes=2 and train.distributed=none: set train.distributed=ddp"):
        distributed.check_distributed(train)


SETTINGS = [
    # Whole steps alone, since they fill up the last one.
    "++train.sft={per_device_train_batch_size: 4, global_accumulation_steps: 2, max_steps: 5, "
    "learning_rate: 5e-4, eval_steps: 4, share_prefixes: true}",
    "train.dpo.lora=true",
    "train.dpo.keep_best=true",
    "++train.dpo.trainer={lr_scheduler_type: constant}",
    "train.dpo.num_train_epochs=1",
    "train.dpo.learning_rate=3e-3",
    "train.dpo.sft_weight=0",
    "train.dpo.eval_steps=2",
]
SPLIT = [
    "train.sft.per_device_train_batch_size=8",
    "train.sft.global_accumulation_steps=1",
    "++train.sft.ranking_weight=0.5",
    "tree.reads=one",
]
"""One micro-batch a step, which two processes split: an artifact of its own, where the others are those of one. Of its
examples 20 pairs are ranked, whole in either process."""
HELD = 7
"""Held-out rows: two processes do not share them out evenly, and none may be counted twice."""


def log_of(output: Path, stage: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (artifact(output, stage) / "train_log.jsonl").open()]


def logged(output: Path, stage: str, key: str) -> list[float]:
    return [row[key] for row in log_of(output, stage) if key in row]


@pytest.mark.parametrize("mode", ["zero3", "fsdp", "ddp"])
def test_two_processes_make_the_stages_of_one(mode: str, tmp_path: Path) -> None:
    """Started once for all stages, two processes train ``sft`` in full, make ``reference``, then train ``dpo``.

    Under ZeRO-3 they go on where two processes of the command itself, one of which was killed, had come to in ``dpo``;
    under DDP torchrun starts them.
    """
    alone, output = tmp_path / "alone", tmp_path / "outputs"
    mode_overrides = [*SETTINGS, *(SPLIT if mode == "ddp" else ())]
    pairs_pipeline.plant(pairs_pipeline.composed(alone, *mode_overrides), "initial", HELD, unlearn=True).run("dpo")
    shutil.copytree(alone, output)
    shutil.rmtree(output / "artifacts" / "dpo")
    log, words = tmp_path / "log", [*pairs_pipeline.OVERRIDES, *mode_overrides, f"train.distributed={mode}"]
    step = killed_worker(output, tmp_path / "killed.log", *words) if mode == "zero3" else None
    for stage in ("sft", "reference"):
        shutil.rmtree(output / "artifacts" / stage)
    if mode == "ddp":
        assert pairs_pipeline.launched(TORCHRUN, output, log, *words).wait(1800) == 0, log.read_text()
    else:
        pairs_pipeline.together(output, log, *words)
    text = log.read_text()
    log_lines = re.findall(r"(?m)^\d\d:\d\d:\d\d  (.*)", text)
    assert mode == "zero3" or len(log_lines) == len(set(log_lines)), "what one process says, the other said too"
    assert text.count("dpo: resuming at step") == text.count(f"dpo: resuming at step {step}") == (step is not None)
    assert re.findall(r"stage \d+ of \d+: (\w+):", text) == ["sft", "reference", "dpo"]
    for stage, count, rate in (("sft", 5, 5e-4), ("dpo", 6, 3e-3)):
        for key in ("loss", "eval_loss", *(["ranking_loss"] if mode == "ddp" and stage == "sft" else [])):
            assert len(logged(alone, stage, key)) >= (1 if key == "eval_loss" else count)
            assert_same_losses(log_of(alone, stage), log_of(output, stage), key, count, rate)
        assert_same_weights(artifact(alone, stage), artifact(output, stage), count, rate)
        assert not list(artifact(output, stage).glob("checkpoints*"))
    for split in ("train", "heldout"):
        one, two = ([*read_rows(artifact(o, "reference"), split)] for o in (alone, output))
        assert [row["pair"] for row in one] == [row["pair"] for row in two]
        for column in ("ref_chosen_logps", "ref_rejected_logps"):
            for ours, theirs in zip(one, two, strict=True):
                assert theirs[column] == pytest.approx(ours[column], rel=0, abs=sum_rounding(ours[column]))
    # The last step is not the best on held-out pairs: an earlier one's weights are what is left.
    kept = [json.loads((artifact(o, "dpo") / "manifest.json").read_text())["notes"]["kept"] for o in (alone, output)]
    assert kept[0] == kept[1] and kept[0]["step"] in (2, 4)
    (agreement,) = re.findall(rf"dpo: kept step {kept[0]['step']} of 6: held-out agreement ([\d.]+) on", text)
    assert 0 < float(agreement) < 1, "a sum over nothing, or over all, would tell nothing of who counts which pairs"
    held = logged(alone, "dpo", "eval_loss")
    assert len(held) == 3
    assert not list((artifact(output, "dpo") / "model").glob("adapter*")), "merged"
    assert torch.isfinite(torch.tensor(held)).all()
