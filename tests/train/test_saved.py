"""A judge that is written is the one that was trained, DPO starts at its reference, and figures do not show batches."""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import SFTTrainer

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import WORLD_BASE, ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import TrainingError
from judgetrain.extras.rl.config import RlConfig
from judgetrain.extras.rl.run import branch_arguments
from judgetrain.judges.trees.config import StepsConfig
from judgetrain.train import checkpoints, distributed, run, stage
from judgetrain.train.arguments import KEPT
from judgetrain.train.checkpoints import AtReference, CheckpointMarks, FiniteFigures, finite
from judgetrain.train.complete import complete_checkpoints
from judgetrain.train.config import DpoConfig, TrainConfig
from judgetrain.train.data import Renderer, fitting
from judgetrain.train.run import Job, policy_of
from judgetrain.train.stages import SftSettings
from tests.builders import train as builders
from tests.builders.closeness import loss_rounding, sum_rounding
from tests.builders.pairs_pipeline import composed, killed_once, plant


@pytest.fixture(scope="module")
def initial(tmp_path_factory: pytest.TempPathFactory) -> StageRun:
    place = tmp_path_factory.mktemp("initial")
    return builders.run_initial(place, builders.config(num_train_epochs=4, learning_rate=3e-3), builders.sft_rows(40))


def other_weights(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor * 1.02 if "layers.1" in name else tensor for name, tensor in state.items()}


def half(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.to(torch.float8_e4m3fn).to(tensor.dtype) for name, tensor in state.items()}


@pytest.mark.parametrize("damage", [other_weights, half])
def test_a_judge_that_is_written_otherwise_than_trained_is_refused(
    damage: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = run.whole_model

    @contextmanager
    def damaged(trainer: Any) -> Iterator[Any]:
        with real(trainer) as (model, state):
            yield model, damage(state)

    monkeypatch.setattr(run, "whole_model", damaged)
    message = (
        r"not the one that was trained: it gives a training row -\d+\.\d{4} nats a token, and the one in memory -\d"
    )
    with pytest.raises(TrainingError, match=message):
        builders.run_initial(tmp_path, builders.config(max_steps=2), builders.sft_rows(8))
    assert not (tmp_path / "initial" / "model").exists()
    assert (tmp_path / "initial" / "checkpoints" / "checkpoint-2" / "complete").exists(), "what was good is kept"
    monkeypatch.setattr(run, "whole_model", real)
    assert builders.run_initial(tmp_path, builders.config(max_steps=2), builders.sft_rows(8)).path("model").exists()


def test_a_tokenizer_that_is_written_otherwise_is_refused(initial: StageRun, monkeypatch: pytest.MonkeyPatch) -> None:
    start = ModelConfig(path="world")
    judge = initial.path("model")
    tokenizer = load_tokenizer(start)
    rows = [tokenizer("the cat reads")["input_ids"]]
    here = checkpoints.logprobs(load_model(start.at(judge)), rows)
    trained = checkpoints.Trained(start, tokenizer, rows, here, 1e-3)
    assert not checkpoints.check_saved(judge, trained)
    monkeypatch.setattr(checkpoints.os, "sysconf", lambda name: 1000)
    why = checkpoints.check_saved(judge, trained)
    assert "are not loaded again to be compared, in 0.001 GB of memory" in why
    tokenizer.chat_template = "other"
    with pytest.raises(TrainingError, match="the tokenizer that was written reads texts, or ends answers, otherwise"):
        checkpoints.check_saved(judge, trained)


def test_rounding_may_grow_with_how_unlikely_a_row_is(initial: StageRun) -> None:
    # With all weights trained a prompt had -6.06 nats a token in float32, -6.04 in bfloat16, and was refused for it.
    start = ModelConfig(path="world")
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    rows = [tokenizer("reads cat the the cat the reads")["input_ids"]]
    (logprob,) = checkpoints.logprobs(load_model(start.at(initial.path("model"))), rows)
    assert logprob < -4
    trained = checkpoints.Trained(start, tokenizer, rows, [0.99 * logprob], 0.02)
    assert not checkpoints.check_saved(initial.path("model"), trained)
    for other in (0.97 * logprob, -math.inf, math.nan):
        with pytest.raises(TrainingError, match=r"\(at most 0\.\d+ apart\)"):
            checkpoints.check_saved(initial.path("model"), replace(trained, logprobs=[other]))


def test_a_judge_brings_no_sampling_of_its_base(initial: StageRun, tmp_path: Path) -> None:
    """Qwen2.5's generation_config has penalties; generate() and vLLM's server would take them over."""
    base = Path(builders.templated(tmp_path / "base", (WORLD_BASE / "chat_template.jinja").read_text()))
    file = base / "generation_config.json"
    expected_config = json.loads(file.read_text()) | {"repetition_penalty": 1.1, "top_k": 20, "temperature": 0.7}
    file.write_text(json.dumps(expected_config | {"do_sample": True}))
    settings = builders.config(max_steps=1)
    settings.train.base.path = str(base)
    judge_config = json.loads(
        (builders.run_initial(tmp_path, settings, builders.sft_rows(8)).path("model") / file.name).read_text()
    )
    assert judge_config["eos_token_id"] == [load_tokenizer(settings.train.base).eos_token_id]
    assert not {"repetition_penalty", "top_k", "temperature", "do_sample"} & judge_config.keys()


def test_adapters_of_a_base_in_half_precision_are_merged_in_full(initial: StageRun, tmp_path: Path) -> None:
    settings = builders.config(max_steps=6, learning_rate=5e-5, lora=True)
    settings.train.base.dtype = "bfloat16"
    tuned = builders.run_dpo(tmp_path, settings, initial.directory, data=builders.pair_rows(24), heldout=[])
    before, after = (load_file(r.path("model") / "model.safetensors") for r in (initial, tuned))
    moved = {name: after[name] - before[name].bfloat16().float() for name in after if "proj" in name}
    assert {tensor.dtype for tensor in after.values()} == {torch.float32}
    assert min(float((m != 0).float().mean()) for m in moved.values()) > 0.9, "bfloat16 would keep a few per cent"


def test_dpo_starts_at_its_reference_or_not_at_all(initial: StageRun, tmp_path: Path) -> None:
    other = builders.run_initial(tmp_path / "other", builders.config(max_steps=3), builders.sft_rows(12))
    pairs = builders.pair_rows(12)
    settings = builders.config(max_steps=2)
    right, wrong = (
        builders.run_reference(tmp_path / name, settings, start.directory, pairs)
        for name, start in (("right", initial), ("wrong", other))
    )
    dpo = builders.run_dpo(
        tmp_path / "a", settings, initial.directory, data=pairs, heldout=[], reference=right.directory
    )
    first = builders.logged(dpo)[0]
    # The margin is beta times the differences of each side from its reference; at 0 a loss changes by half of it.
    size = settings.train.dpo.beta * (abs(first["logps/chosen"]) + abs(first["logps/rejected"]))
    assert first["loss"] == pytest.approx(math.log(2), rel=0, abs=sum_rounding(size))
    with pytest.raises(TrainingError, match=r"nats a token from its reference .* \(DPO's is ln 2 = 0\.6931 there"):
        builders.run_dpo(tmp_path / "b", settings, initial.directory, data=pairs, heldout=[], reference=wrong.directory)


@pytest.mark.parametrize("settings", [DpoConfig(), RlConfig(), TrainConfig()], ids=["dpo", "rl", "sft"])
def test_dropout_within_layers_is_for_supervised_training_alone(tmp_path: Path, settings: Any) -> None:
    """TRL switches modules off; attention's dropout is a number that every layer has."""
    shutil.copytree(WORLD_BASE, tmp_path / "m")
    file = tmp_path / "m" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"attention_dropout": 0.3}))
    start = ModelConfig(path=str(tmp_path / "m"))
    model = policy_of(Job(start=start, config=settings, key="k"))
    ids = torch.arange(3, 40)[None]
    assert model.training and model.config.attention_dropout == 0.3, "as it is saved again"
    assert torch.equal(model(ids).logits, model(ids).logits) == (type(settings) is not TrainConfig)


@pytest.mark.parametrize(("step", "kl", "refused"), [(1, 0.4, True), (1, 1e-5, False), (2, 0.4, False)])
def test_rl_starts_at_its_reference(step: int, kl: float, refused: bool) -> None:
    model = SimpleNamespace(dtype=torch.float32)
    args = SimpleNamespace(use_cpu=True, bf16=False)
    watch: Any = AtReference(0.1)
    with pytest.raises(TrainingError, match=r"0\.4 nats a token") if refused else nullcontext():
        watch.on_log(args, SimpleNamespace(global_step=step), None, logs={"loss": 0.0, "kl": kl}, model=model)
    assert branch_arguments(RlConfig(), StepsConfig())["disable_dropout"], "what is learned from is what sampled"


def test_the_held_out_loss_is_the_mean_over_tokens_however_they_are_batched(initial: StageRun, tmp_path: Path) -> None:
    held = builders.sft_rows(9)
    for place, row in enumerate(held):
        words = ["clear example"] if place % 4 else ["no example of the book"] * 9
        row["completion"] = [{"role": "assistant", "content": " ".join(words)}]
    label = builders.artifact(tmp_path, "label", {"sft-train": builders.sft_rows(12), "sft-heldout": held})
    losses = []
    for batch in (1, 2, 4):
        settings = builders.config(learning_rate=1e-9, max_steps=1, per_device_train_batch_size=batch, eval_steps=1)
        out = StageRun(tmp_path / f"sft{batch}", "sft", 0, Console())
        stage.run_next(SftSettings.of(settings), {"initial": initial.directory, "label": label}, out)
        losses += [row["eval_loss"] for row in builders.logged(out) if "eval_loss" in row][-1:]
    judge = ModelConfig(path=str(initial.path("model")))
    model = load_model(judge)
    tokenizer = load_tokenizer(judge)
    lost: list[float] = []
    for row in fitting(held, Renderer.of(tokenizer), 256, "rows").data:
        with torch.no_grad():
            logprobs = model(input_ids=torch.tensor([row["input_ids"]])).logits[0].log_softmax(-1)
        where = [i for i, kept in enumerate(row["completion_mask"]) if kept]
        lost += [-float(logprobs[i - 1, row["input_ids"][i]]) for i in where]
    expected = sum(lost) / len(lost)
    assert losses == pytest.approx([expected] * 3, rel=0, abs=sum_rounding(expected))


def test_the_supervised_term_of_dpo_is_the_mean_over_the_tokens_of_a_step(initial: StageRun, tmp_path: Path) -> None:
    pairs = builders.pair_rows(8)
    for place, row in enumerate(pairs):
        row["chosen"] = [{"role": "assistant", "content": " ".join(["clear example"] * (1 + 5 * (place % 3)))}]
    losses = []
    gradient_norms: list[float] = []
    for batch in (8, 2, 1):
        settings = builders.config(
            max_steps=2, per_device_train_batch_size=batch, global_accumulation_steps=8 // batch, sft_weight=1.0
        )
        dpo = builders.run_dpo(tmp_path / str(batch), settings, initial.directory, data=pairs, heldout=[])
        losses.append([row["loss"] for row in builders.logged(dpo) if "loss" in row])
        gradient_norms += [row["grad_norm"] for row in builders.logged(dpo) if "grad_norm" in row]
    off = loss_rounding(max(losses[0]), 2, settings.train.dpo.learning_rate, max(gradient_norms))
    assert losses[1:] == [pytest.approx(losses[0], rel=0, abs=off)] * 2


def test_examples_longer_than_the_context_of_the_base_are_left_out(tmp_path: Path) -> None:
    base = Path(builders.templated(tmp_path / "base", (WORLD_BASE / "chat_template.jinja").read_text()))
    base_config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(base_config | {"max_position_embeddings": 64}))
    rows = builders.sft_rows(8)
    settings = builders.config(max_steps=1)
    settings.train.base.path = str(base)
    for row in rows[:3]:
        row["prompt"][0]["content"] += " the cat reads a book for my sister" * 10
    initial_run = builders.run_initial(tmp_path, settings, rows)
    assert initial_run.totals()["counts"]["dropped"] == {"too_long": 3}


@pytest.mark.parametrize(("kind", "experts"), [("mixtral", False), ("gpt_oss", True)])
def test_what_adapters_leave_as_it_is_is_said(
    kind: str, experts: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(WORLD_BASE)
    size = dict(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1, head_dim=8)
    moe_settings = dict(num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **size, **moe_settings))
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    settings = builders.config(max_steps=1, lora=True)
    settings.train.base.path = str(tmp_path / "base")
    builders.run_initial(tmp_path, settings, builders.sft_rows(8))
    assert ("weights of experts as they are" in capsys.readouterr().out) == experts


STEPS = 12
CASES = {
    "sft": [
        "stage=sft",
        "train.sft={per_device_train_batch_size: 4, global_accumulation_steps: 2, num_train_epochs: 2, save_steps: 2}",
    ],
    "sft that ranks": [
        "stage=sft",
        "tree.reads=both",
        "train.sft={per_device_train_batch_size: 4, global_accumulation_steps: 2, num_train_epochs: 2, save_steps: 2, "
        "ranking_weight: 0.5}",
    ],
    "dpo": ["stage=dpo", "train.dpo={num_train_epochs: 2, eval_steps: 2, keep_best: true}"],
}


def made(output: Path, stage: str) -> Path:
    return next((output / "artifacts" / stage).iterdir())


@pytest.mark.parametrize("case", CASES)
def test_a_killed_process_goes_on_at_its_checkpoint_and_keeps_no_more_than_it_may(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = case.split()[0]
    counts = list[tuple[int, int]]()
    real = CheckpointMarks.on_save

    def counted(self: CheckpointMarks, args: Any, *arguments: Any, **named: Any) -> None:
        directory = Path(args.output_dir)
        counts.append((len(complete_checkpoints(directory)), len(list(directory.glob("checkpoint-*")))))
        real(self, args, *arguments, **named)
        counts.append((len(complete_checkpoints(directory)), len(list(directory.glob("checkpoint-*"))) + 1))

    monkeypatch.setattr(CheckpointMarks, "on_save", counted)
    whole = tmp_path / "whole"
    cut = tmp_path / "cut"
    plant(composed(whole, *CASES[case])).run(stage)
    marked = killed_once(cut, tmp_path / "log", *CASES[case])
    assert 1 <= len(marked) <= KEPT
    capsys.readouterr()
    plant(composed(cut, *CASES[case])).run(stage)
    assert f"{stage}: resuming at step {marked[-1]}\n" in capsys.readouterr().out
    assert 0 < marked[-1] < STEPS
    assert builders.same(builders.weights(made(whole, stage)), builders.weights(made(cut, stage)))
    # Beside the complete ones there is never more than the one that is being written.
    assert max(whole for whole, _ in counts) == KEPT and max(count for _, count in counts) == KEPT + 1
    assert not (made(cut, stage) / "checkpoints").exists()


def left(out: Path) -> list[int]:
    """Steps of the checkpoints on disk, complete or not, and 0 for a model."""
    steps = [int(path.name.split("-")[1]) for path in (out / "checkpoints").glob("checkpoint-*")]
    return sorted(steps + [0] * (out / "model").exists())


@pytest.mark.parametrize(
    ("broken", "save_steps", "message", "kept"),
    [
        ("grad", 3, r"the gradient's norm is nan at step 4: .*; checkpoint-3, the last with", 3),
        # The step's loss and gradient are fine, the weights after it are not: its checkpoint is not marked.
        ("data", 2, r"weights hold nan or inf at step 4: .*; checkpoint-2, the last with", 2),
    ],
)
def test_what_breaks_in_a_step_stops_and_the_checkpoint_before_is_named(
    broken: str, save_steps: int, message: str, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SFTTrainer.training_step

    def training_step(self: Trainer, model: Any, *arguments: Any, **named: Any) -> Any:
        loss = real(self, model, *arguments, **named)
        if self.state.global_step == 3:
            value = math.nan if broken == "grad" else math.inf
            getattr(next(model.parameters()), broken).view(-1)[:1].fill_(value)
        return loss

    monkeypatch.setattr(SFTTrainer, "training_step", training_step)
    with pytest.raises(TrainingError, match=message):
        builders.run_initial(tmp_path, builders.config(max_steps=4, save_steps=save_steps), builders.sft_rows(16))
    assert left(tmp_path / "initial") == [kept]


def test_weights_that_break_after_the_last_checkpoint_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = SFTTrainer.train

    def train(self: Trainer, *arguments: Any, **named: Any) -> Any:
        result = whole(self, *arguments, **named)
        next(self.model.parameters()).data.view(-1)[-1] = math.inf
        return result

    monkeypatch.setattr(SFTTrainer, "train", train)
    with pytest.raises(TrainingError, match=r"weights hold nan or inf at step 2: .*; checkpoint-2, the last with"):
        builders.run_initial(tmp_path, builders.config(max_steps=2), builders.sft_rows(8))
    assert left(tmp_path / "initial") == [2]


def test_every_figure_that_training_depends_on_is_looked_at(tmp_path: Path) -> None:
    args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    watch: TrainerCallback = FiniteFigures()
    for key, name in (("loss", "loss"), ("grad_norm", "gradient's norm"), ("eval_loss", "held-out loss")):
        watch.on_log(args, TrainerState(global_step=7), TrainerControl(), logs={key: 1e30, "epoch": 1})
        for value in (math.inf, torch.tensor(math.nan)):
            with pytest.raises(TrainingError, match=f"the {name} is (inf|nan) at step 7: .*no checkpoint is kept"):
                watch.on_log(args, TrainerState(global_step=7), TrainerControl(), logs={key: value, "note": "none"})


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_of_a_partitioned_weight_each_process_sees_its_own_part_without_the_padding(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven values over three processes: parts of three, the last with two places that nothing is written to."""
    weight: Any = nn.Parameter(torch.empty(0))
    weight.ds_numel = 7
    weight.ds_process_group = None
    weight.ds_tensor = torch.tensor([0.0, 1.0, 2.0] if rank < 2 else [6.0, math.nan, math.nan])
    monkeypatch.setattr("torch.distributed.get_rank", lambda group: rank)
    assert distributed.own_part(weight).tolist() == ([0.0, 1.0, 2.0] if rank < 2 else [6.0])


def test_of_a_weight_that_fsdp_shares_out_each_process_sees_its_own_part(tmp_path: Path) -> None:
    """One process of one has all of it; that two have half of it each, the trainings of two processes show."""
    from torch.distributed.tensor import Shard, distribute_tensor

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/met", rank=0, world_size=1)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        weight = nn.Parameter(distribute_tensor(torch.tensor([0.0, 1.0, math.nan]), mesh, [Shard(0)]))
        assert type(distributed.own_part(weight).detach()) is torch.Tensor
        assert distributed.own_part(weight)[:2].tolist() == [0.0, 1.0]
        model: Any = nn.Module()
        model.weight = weight
        assert not finite(model)
    finally:
        torch.distributed.destroy_process_group()


def test_processes_agree_that_weights_are_broken_when_one_of_them_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one would end, and the others wait for it."""
    other = {"finite": 1}

    def all_reduce(tensor: torch.Tensor, op: Any, group: str) -> None:
        assert (op, group) == (torch.distributed.ReduceOp.MIN, "group")
        tensor.fill_(min(int(tensor), other["finite"]))

    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    monkeypatch.setattr(distributed, "_current", distributed.ProcessGroup(0, 2, "zero3", group="group"))
    model: Any = nn.Linear(2, 2)
    assert finite(model)
    other["finite"] = 0
    assert not finite(model)
    other["finite"] = 1
    model.weight.data[0, 0] = math.nan
    assert not finite(model)
    model.weight.requires_grad = False
    assert finite(model), "weights that are not trained are as they were loaded"
