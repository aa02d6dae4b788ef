"""Training on the shipped base: what is learned, what is left out, and a kill that changes nothing."""

import math
import random
import re
from pathlib import Path
from signal import SIGINT, SIGTERM, default_int_handler, raise_signal, signal
from typing import Any

import datasets
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.artifacts.console import quiet_libraries
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import DataError, TerminatedError, TrainingError
from judgetrain.judges import BranchingJudge
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.train import reference
from judgetrain.train import run as training
from judgetrain.train.card import JudgeFigures, add_results
from judgetrain.train.checkpoints import COMPLETE, CheckpointMarks, Progress, last_complete
from judgetrain.train.config import TrainConfig
from judgetrain.train.data import Renderer, WithReminders, digest, fitting, order, with_reference
from judgetrain.train.run import lasting
from judgetrain.train.trainers import agreement_then_loss
from tests.builders.pairs_pipeline import PAIRS, composed, plant
from tests.builders.scripted import comparison
from tests.builders.train import config, logged, pair_rows, run_dpo, run_initial, run_sft, same, sft_rows, weights
from tests.builders.watched import Elsewhere, interrupted


def test_training_lowers_the_loss_and_leaves_a_whole_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets.enable_progress_bars()
    # As at the beginning of every stage.
    quiet_libraries()
    out = run_initial(tmp_path, config(num_train_epochs=2), sft_rows(60))
    assert "examples/s" not in capsys.readouterr().err, "bars of the trainer between the console's lines"
    log = logged(out)
    losses = [row["loss"] for row in log if "loss" in row]
    assert losses[-1] < 0.5 * losses[0]
    model = out.path("model")
    names = {p.name for p in model.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"} < names
    assert {"prompts.yaml", "judge.json", "training_args.json", "README.md", "weights.json"} < names
    assert not any(n.endswith((".bin", ".pt", ".pkl")) for n in names)
    assert not list(out.directory.glob("checkpoints*"))
    assert str(tmp_path) not in (model / "README.md").read_text() + (model / "training_args.json").read_text()
    judge = BranchingJudge.from_pretrained(model, branches=1)
    assert judge.compare(comparison(0)).cost.generated_tokens > 0
    (example,) = re.findall(r"```python\n(.*?)```", (model / "README.md").read_text(), re.DOTALL)
    assert "load_judge" in example
    monkeypatch.chdir(model)
    capsys.readouterr()
    exec(compile(example, "card", "exec"), {})  # as printed
    # The tiny base has no tokens for some of the example's words, which is said in a line before.
    lines = [line for line in capsys.readouterr().out.splitlines() if "no token for" not in line]
    assert lines[0].split()[0] in ("A", "B", "tie", "inconsistent", "unreadable")


def test_a_killed_training_ends_with_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A checkpoint that is written but not marked, or was cut after it was marked, is not gone on from.
    settings = config(num_train_epochs=1.5, save_steps=2)
    whole = run_initial(tmp_path, settings, sft_rows(30), "whole")
    interrupted(monkeypatch, CheckpointMarks, "on_save", 2)
    with pytest.raises(KeyboardInterrupt):
        run_initial(tmp_path, settings, sft_rows(30), "unmarked")
    steps = {p.name: (p / COMPLETE).exists() for p in (tmp_path / "unmarked" / "checkpoints").glob("checkpoint-*")}
    assert list(steps.values()).count(True) == 1
    real = CheckpointMarks.on_save
    saved = list[int]()

    def dying(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
        real(self, args, state, control, **kwargs)
        saved.append(state.global_step)
        if len(saved) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointMarks, "on_save", dying)
        with pytest.raises(KeyboardInterrupt):
            run_initial(tmp_path, settings, sft_rows(30), "cut")
    weight = tmp_path / "cut" / "checkpoints" / f"checkpoint-{saved[1]}" / "model.safetensors"
    weight.write_bytes(weight.read_bytes()[:1000])
    assert last_complete(tmp_path / "cut" / "checkpoints") == str(weight.parents[1] / f"checkpoint-{saved[0]}")
    ignored = signal(SIGINT, default_int_handler)  # pytest-xdist's workers ignore it
    for name, number, error in (("stopped", SIGINT, KeyboardInterrupt), ("terminated", SIGTERM, TerminatedError)):
        with monkeypatch.context() as patched:
            patched.setattr(
                Progress, "on_step_begin", lambda *a, n=number, **_: raise_signal(n) if a[2].global_step == 2 else None
            )
            with pytest.raises(error):
                run_initial(tmp_path, config(num_train_epochs=1.5, save_steps=100), sft_rows(30), name)
        assert str(last_complete(tmp_path / name / "checkpoints")).endswith("-3"), "the third step is not taken again"
    signal(SIGINT, ignored)
    monkeypatch.undo()
    for name in ("unmarked", "cut", "stopped", "terminated"):
        resumed = run_initial(tmp_path, settings, sft_rows(30), name)
        assert [row["step"] for row in logged(whole)] == [row["step"] for row in logged(resumed)]
        assert [row.get("num_tokens") for row in logged(whole)] == [row.get("num_tokens") for row in logged(resumed)]
        assert same(weights(whole.directory), weights(resumed.directory))
    assert not same(weights(whole.directory), load_model(ModelConfig(path="world")).state_dict())


def test_dpo_raises_the_margin_and_leaves_the_reference_alone(tmp_path: Path) -> None:
    start = run_initial(tmp_path, config(max_steps=2), sft_rows(40))
    before = weights(start.directory)
    out = run_dpo(tmp_path, config(num_train_epochs=3, eval_steps=3), start.directory)
    log = logged(out)
    margins = [row["rewards/margins"] for row in log if "rewards/margins" in row]
    assert margins[-1] > max(0.1, margins[0])
    assert out.notes["training"]["eval_rewards/accuracies"] == 1.0
    assert same(before, weights(start.directory))


def test_dpo_holds_levels_without_a_pair_in_place(tmp_path: Path) -> None:
    start = run_initial(tmp_path, config(max_steps=2), sft_rows(40))
    pairs = [row | {"level": "criteria"} for row in pair_rows(24)]
    examples = [
        {"prompt": [{"role": "user", "content": "Query: judge it"}], "completion": row["rejected"], "level": level}
        for row, level in zip(pairs, ["criteria", "judgment"] * 12, strict=True)
    ]
    likely = []
    for weight, trainer, count in ((0.0, {}, 24), (1.0, {"loss_type": "apo_down"}, 24), (1.0, {}, 27)):
        settings = config(num_train_epochs=4, per_device_train_batch_size=3, sft_weight=weight, trainer=trainer)
        out = run_dpo(tmp_path / f"{weight}-{count}", settings, start.directory, data=pairs, examples=examples)
        assert out.totals()["counts"] == {"in": count, "out": count, "dropped": {}}, "one for eight, where they rest"
        right = [row["rewards/accuracies"] for row in logged(out) if "rewards/accuracies" in row]
        assert min(right[len(right) // 2 :]) == pytest.approx(1.0), "of the pairs that prefer a side"
        likely.append(by_hand(config(), out.path("model"), [pairs[1] | {"prompt": examples[1]["prompt"]}])[0][1])
    assert likely[2] > likely[0] + 1, "nats: what pairs speak against is kept where another level has it"
    reminders = [*WithReminders(tmp_path / "1.0-27" / "label", "pairs-train")][24:]
    assert all(row["level"] == "judgment" and row["chosen"] == row["rejected"] for row in reminders)


def test_too_long_examples_are_left_out_never_cut(tmp_path: Path) -> None:
    data = sft_rows(12)
    data[3]["prompt"][0]["content"] += " the cat" * 200
    out = run_initial(tmp_path, config(max_steps=1), data)
    assert out.totals()["counts"] == {"in": 12, "out": 11, "dropped": {"too_long": 1}}
    with pytest.raises(TrainingError, match=r"all 12 .* longer than max_length=8 \(tokens\).*max_length"):
        run_initial(tmp_path, config(max_length=8), data, "again")
    with pytest.raises(TrainingError, match="no supervised examples to train on"):
        run_initial(tmp_path, config(), [], "empty")


def test_the_order_is_a_function_of_the_seed_and_covers_every_epoch() -> None:
    lengths = [random.Random(i).randint(5, 200) for i in range(103)]
    indices = order(lengths, 8, 2, 1)
    assert indices == order(lengths, 8, 2, 1) != order(lengths, 8, 2, 2)
    assert sorted(indices[:103]) == sorted(indices[103:]) == list(range(103))
    assert indices[:103] != indices[103:]
    padding = sum(max(b) * len(b) - sum(b) for b in ([lengths[i] for i in indices[k : k + 8]] for k in range(0, 96, 8)))
    plain = sum(max(b) * len(b) - sum(b) for b in (lengths[k : k + 8] for k in range(0, 96, 8)))
    assert padding < 0.6 * plain
    assert len(order(lengths, 8, 0.5, 1)) == 52
    settings = TrainConfig(per_device_train_batch_size=4, global_accumulation_steps=2, min_steps=30)
    assert lasting(settings, 60).num_train_epochs == 4  # 7.5 steps a pass
    assert lasting(settings, 6000) == settings


def test_a_broken_card_is_named_when_results_come(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(b"---\ntags: [\n---\n\xff")
    row = {"method": "sft", "agreement": 0.5, "benchmark": "b", "split": "test", "branches": 1}
    with pytest.raises(DataError, match=r"README\.md is no model card .*mend or remove the file$"):
        add_results(tmp_path, "sft", JudgeFigures([row], "e1"))


def test_sft_starts_from_the_initial_judge_and_keeps_its_prompts(tmp_path: Path) -> None:
    start = run_initial(tmp_path, config(max_steps=1), sft_rows(8))
    out = run_sft(tmp_path, config(learning_rate=0.0, max_steps=1), start.directory, sft_rows(8))
    assert same(weights(start.directory), weights(out.directory))
    assert (out.path("model") / "prompts.yaml").read_text() == (start.path("model") / "prompts.yaml").read_text()
    assert list(read_rows(tmp_path / "label", "sft-heldout")) == []


def evaluation(agreement: float, loss: float) -> dict[str, Any]:
    return {"eval_rewards/accuracies": agreement, "eval_loss": loss}


@given(st.integers(1, 500), st.data(), st.floats(0, 100), st.floats(0, 100))
def test_agreement_ranks_checkpoints_before_loss(pairs: int, data: Any, first: float, second: float) -> None:
    right = data.draw(st.integers(0, pairs))
    other = data.draw(st.integers(0, pairs))
    scores = [
        agreement_then_loss(evaluation(r / pairs, loss=loss), pairs) for r, loss in ((right, first), (other, second))
    ]
    assert agreement_then_loss(evaluation(right / pairs, loss=math.nan), pairs) <= min(scores[0], right + 0.5)
    if right != other:
        assert (scores[0] > scores[1]) == (right > other)
    elif abs(first - second) > 1e-3:
        assert (scores[0] > scores[1]) == (first < second)


def run_unlearning(tmp_path: Path, settings: Config, start: Path, name: str) -> StageRun:
    """DPO whose held-out pairs have the sides exchanged: training makes their chosen sides ever less likely."""
    held = [row | {"chosen": row["rejected"], "rejected": row["chosen"]} for row in pair_rows(4)]
    return run_dpo(tmp_path, settings, start, name, heldout=held)


def test_the_best_held_out_step_is_kept_and_a_kill_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = run_initial(tmp_path, config(max_steps=1), sft_rows(8)).directory
    steady = {"lr_scheduler_type": "constant", "warmup_steps": 0}
    best = config(max_steps=8, eval_steps=3, learning_rate=1e-5, keep_best=True, trainer=steady)
    whole = run_unlearning(tmp_path, best, start, "whole")
    kept = whole.notes["kept"]
    evaluations = [row for row in logged(whole) if "eval_loss" in row]
    assert [row["step"] for row in evaluations] == [3, 6, 8], "the last one too"
    assert kept["step"] == min(evaluations, key=lambda row: row["eval_loss"])["step"] == 3
    assert whole.notes["training"]["eval_loss"] == evaluations[0]["eval_loss"]
    assert "dpo: kept step 3 of 8: held-out agreement" in capsys.readouterr().out
    few = config(max_steps=3, learning_rate=1e-5, trainer=steady)
    short = run_dpo(tmp_path, few, start, "short")
    assert same(weights(whole.directory), weights(short.directory))

    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training, "_save", killed)
        for settings, name in ((best, "cut"), (few, "cut short")):
            with pytest.raises(KeyboardInterrupt):
                run_unlearning(tmp_path, settings, start, name)
    resumed = run_unlearning(tmp_path, best, start, "cut")
    assert same(weights(whole.directory), weights(resumed.directory)) and resumed.notes["kept"] == kept
    resumed = run_unlearning(tmp_path, few, start, "cut short")
    assert same(weights(short.directory), weights(resumed.directory)), "no step more than three"
    assert resumed.notes["training"]["steps"] == 3


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    pipeline = plant(composed(tmp_path_factory.mktemp("cached"), "train.dpo.max_steps=4"))
    pipeline.run("dpo")
    return pipeline


def by_hand(config: Config, model_path: Path, rows: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Sums of the completion tokens' log-probabilities, pair by pair without padding."""
    settings = ModelConfig(path=str(model_path))
    tokenizer = load_tokenizer(settings)
    model = load_model(settings)
    sums = []
    for row in rows:
        both = []
        for side in ("chosen", "rejected"):
            prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
            whole = tokenizer.apply_chat_template(row["prompt"] + row[side], tokenize=False)
            start = len(tokenizer.encode(prompt, add_special_tokens=False))
            ids = tokenizer.encode(whole, add_special_tokens=False)
            with torch.inference_mode():
                logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            both.append(sum(float(logprobs[i - 1, ids[i]]) for i in range(start, len(ids))))
        sums.append((both[0], both[1]))
    return sums


def test_log_probabilities_are_those_of_the_reference_model(cached: Pipeline) -> None:
    label = cached.plan("label").directory
    reference_directory = cached.plan("reference").directory
    rows = [*read_rows(label, "pairs-train")]
    stored = [*read_rows(reference_directory, "train")]
    fit = fitting(
        rows, Renderer.of(load_tokenizer(ModelConfig(path=str(cached.plan("sft").directory / "model")))), 2048, "rows"
    )
    assert [row["pair"] for row in stored] == [digest(row) for row in fit.data]
    expected = by_hand(cached.config, cached.plan("sft").directory / "model", rows[:5])
    stored_sums = [(row["ref_chosen_logps"], row["ref_rejected_logps"]) for row in stored[:5]]
    assert stored_sums == [pytest.approx(pair, abs=1e-3) for pair in expected]
    manifest = cached.plan("reference").manifest or {}
    assert manifest["counts"] == {"in": PAIRS + 5, "out": PAIRS + 5, "dropped": {}}
    assert not [path for path in reference_directory.iterdir() if path.is_dir()], (
        "what TRL's trainer wants to have is no part of it"
    )


def test_a_sweep_makes_them_once_and_loads_no_reference(cached: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("the reference model was run again")

    monkeypatch.setattr(reference._Forward, "__call__", never)
    marks = {cached.plan("dpo").fingerprint}
    for change in ("train.dpo.beta=0.5", "train.dpo.learning_rate=1e-4"):
        other = plant(composed(Path(cached.config.output_dir), "train.dpo.max_steps=1", change))
        assert other.plan("reference").fingerprint == cached.plan("reference").fingerprint
        marks.add(other.plan("dpo").fingerprint)
        other.run("dpo")
    assert len(marks) == 3


def shards_of(pipeline: Pipeline) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in pipeline.plan("reference").directory.glob("*-of-*.jsonl")}


def test_it_is_the_same_wherever_its_shards_are_processed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "SHARD", 10)
    here, elsewhere = (plant(composed(tmp_path / name)) for name in ("here", "there"))
    here.run("reference")
    executor = Elsewhere()
    monkeypatch.setattr("judgetrain.pipeline.processes.make_executor", lambda *_: executor)
    elsewhere.run("reference")
    assert len(executor.carried) == 2 and max(executor.carried) < 2**16, "how the model is loaded, and no pair"
    assert len(shards_of(here)) == 6 and shards_of(elsewhere) == shards_of(here)


def test_other_pairs_are_no_silent_zero(cached: Pipeline) -> None:
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    row = {
        "prompt": [{"role": "user", "content": "the cat"}],
        "chosen": [{"role": "assistant", "content": "reads"}],
        "rejected": [{"role": "assistant", "content": "gives"}],
    }
    examples = fitting([row], Renderer.of(tokenizer), 100, "pairs")
    with pytest.raises(TrainingError, match=r"lacks a pair of the train split.*run again"):
        with_reference(examples, cached.plan("reference").directory, "train")
