"""Training on the shipped base: what is learned, what is left out, and a kill that changes nothing."""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import DataError, TrainingError
from judgetrain.judges import BranchingJudge
from judgetrain.train.card import add_results
from judgetrain.train.checkpoints import COMPLETE, CheckpointMarks, last_complete
from judgetrain.train.config import InitialConfig, TrainConfig
from judgetrain.train.data import fitting, neutral
from judgetrain.train.order import order, verdict_tokens
from judgetrain.train.run import lasting
from tests.builders.scripted import comparison
from tests.builders.train import config, logged, run_dpo, run_initial, run_sft, same, sft_rows, weights
from tests.builders.watched import interrupted


def test_a_template_without_system_role_trains_on_the_prompt_that_the_engines_send(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    refuse = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    tokenizer.chat_template = refuse + str(tokenizer.chat_template)
    [row] = sft_rows(1)
    row["prompt"] = [{"role": "system", "content": "be fair"}, *row["prompt"]]
    clean = neutral(row, tokenizer)
    assert [m["role"] for m in clean["prompt"]] == ["user"]
    assert clean["prompt"][0]["content"].startswith("be fair\n\nList 10 criteria.")
    assert clean["completion"] == row["completion"]


def test_training_lowers_the_loss_and_leaves_a_whole_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run_initial(tmp_path, config(num_train_epochs=2), sft_rows(60))
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
    printed = capsys.readouterr().out.split()
    assert printed[0] in ("A", "B", "tie", "inconsistent", "unreadable")


def test_a_killed_training_ends_with_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two phases; of sft, dpo and rl in one see test_killed.py."""

    def run(name: str) -> StageRun:
        return run_initial(tmp_path, config(verdict_token_warmup=1.0), verdict_rows(12), name)

    whole = run("whole")
    # The second checkpoint is written but not marked: it must not be used.
    interrupted(monkeypatch, CheckpointMarks, "on_save", 2)
    with pytest.raises(KeyboardInterrupt):
        run("cut")
    steps = {p.name: (p / COMPLETE).exists() for p in (tmp_path / "cut" / "checkpoints").glob("checkpoint-*")}
    assert list(steps.values()).count(True) == 1
    resumed = run("cut")
    logs = [logged(out) for out in (whole, resumed)]
    assert [row["step"] for row in logs[0]] == [row["step"] for row in logs[1]]
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


def test_too_long_examples_are_left_out_never_cut(tmp_path: Path) -> None:
    data = sft_rows(12)
    data[3]["prompt"][0]["content"] += " the cat" * 200
    out = run_initial(tmp_path, config(max_steps=1), data)
    assert out.totals()["counts"] == {"in": 12, "out": 11, "dropped": {"too_long": 1}}
    with pytest.raises(TrainingError, match=r"all 12 .* longer than max_length=8 tokens.*max_length"):
        run_initial(tmp_path, config(max_length=8), data, "again")
    with pytest.raises(TrainingError, match="no supervised examples to train on"):
        run_initial(tmp_path, config(), [], "empty")


def test_special_tokens_in_rows_stay_text() -> None:
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    row = {
        "prompt": [{"role": "user", "content": "say <end> <assistant>"}],
        "completion": [{"role": "assistant", "content": "<end>"}],
    }
    ids = fitting([row], tokenizer, 100, "rows").data[0]["input_ids"]
    assert Counter(ids)[tokenizer.eos_token_id] == 1, "the end of the answer"


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


def test_judgments_in_both_orders_stand_in_one_batch() -> None:
    rng = random.Random(3)
    # Twenty guidelines with a judgment in each order, ten with a second one in an order or two, ten other rows.
    nodes = [f"t{i}/g0/{order}0" for i in range(30) for order in ("AB", "BA")]
    nodes += [f"t{i}/g0/AB1" for i in range(10)] + [f"t{i}/g0/BA1" for i in range(5)] + [""] * 10
    rng.shuffle(nodes)
    number = len(nodes)
    lengths = [rng.randint(5, 200) for _ in nodes]
    indices = order(lengths, 4, 2, 1, nodes)
    assert sorted(indices[:number]) == sorted(indices[number:]) == list(range(number))
    assert indices[:number] != indices[number:]

    def parted(indices: list[int]) -> int:
        """Of the 35 pairs those that have not both orders in one batch."""
        together = 0
        for batch in (indices[k : k + 4] for k in range(0, len(indices), 4)):
            sides = Counter((nodes[i].rpartition("/")[0], nodes[i].rpartition("/")[2][:2]) for i in batch if nodes[i])
            together += sum(min(sides[g, "AB"], sides[g, "BA"]) for g in {g for g, _ in sides})
        return 35 - together

    assert parted(indices[:number]) == parted(indices[number:]) == 0
    half = order(lengths, 4, 0.51, 1, nodes)
    assert len(half) % 4 == 0 and half == indices[: len(half)]
    assert parted(order(lengths, 4, 2, 1)[:number]) > 10


def verdict_rows(number: int, ties: int = 0, better: tuple[str, str] = ("A", "B")) -> list[dict[str, Any]]:
    """A judgment in either order by each of so many guidelines, the last ``ties`` of which say the same in both."""
    made = []
    for i in range(number):
        for place, shown in enumerate(("AB", "BA")):
            said = "no one" if i >= number - ties else better[(place + i) % 2]
            query = [{"role": "user", "content": f"Response {shown[0]} {'the ' * i}cat"}]
            answer = [{"role": "assistant", "content": f"Comparison : {said} is better . Response A Score : 4"}]
            nodes = [f"t{i}/g0/{shown}0"]
            made.append({"prompt": query, "completion": answer, "level": "judgment", "nodes": nodes})
    return made


def test_verdicts_come_first_by_the_token_at_which_the_orders_part_alone() -> None:
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    rows = [*verdict_rows(11, ties=2), *sft_rows(5)]
    rows[0]["prompt"][0]["content"] += " the" * 300  # too long, so that the other order of it stands alone
    random.Random(1).shuffle(rows)
    settings = InitialConfig(per_device_train_batch_size=4, global_accumulation_steps=2, verdict_token_warmup=1.5)
    examples = fitting(rows, tokenizer, 256, "examples")
    found = verdict_tokens(examples, settings, 3)
    # 8 decided pairs are 16 judgments; once and half of them again, filled up to steps of 8.
    assert (found.judgments, found.steps, len(found.data)) == (16, 3, 24)
    seen = Counter[tuple[str, str]]()
    for start in range(0, len(found.data), 4):
        batch = found.data[start : start + 4]
        texts = [tokenizer.decode(ids) for ids in batch["input_ids"]]
        for text, ids, mask in zip(texts, batch["input_ids"], batch["completion_mask"], strict=True):
            assert re.search(r"Comparison ?: ?[AB]$", text)  # ends with the verdict
            assert mask == [0] * (len(ids) - 1) + [1]
        # Both orders of two comparisons (known by how many words they have), with one verdict each.
        known = [(text.count("the"), re.findall(r"Response ([AB])", text)[0], text[-1]) for text in texts]
        pairs = Counter(words for words, _, _ in known)
        assert set(pairs.values()) == {2}
        assert {(words, shown) for words, shown, _ in known} == {(words, side) for words in pairs for side in "AB"}
        assert all(len({said for w, _, said in known if w == words}) == 2 for words in pairs)
        seen.update((str(words), shown) for words, shown, _ in known)
    assert len(seen) == 16 and set(seen.values()) == {1, 2}
    assert found.told(tokenizer).startswith("before all else the verdicts of 16 judgments, 3 steps")
    assert re.search(r": ' ?B' \(8\), ' ?A' \(8\)$", found.told(tokenizer))
    again, other = verdict_tokens(examples, settings, 3), verdict_tokens(examples, settings, 4)
    assert found.data.to_list() == again.data.to_list() != other.data.to_list()
    with pytest.raises(TrainingError, match=r"train\.initial\.verdict_token_warmup=1\.5: no judgment differs"):
        verdict_tokens(fitting(verdict_rows(3, ties=3), tokenizer, 256, "examples"), settings, 3)


def test_what_is_no_verdict_is_said() -> None:
    tokenizer, words = load_tokenizer(ModelConfig(path="world")), verdict_rows(6, better=("query", "response"))
    rows = verdict_rows(6) + [{**row, "nodes": [row["nodes"][0].replace("t", "u")]} for row in words]
    found = verdict_tokens(fitting(rows, tokenizer, 256, "examples"), InitialConfig(verdict_token_warmup=1.0), 0)
    assert "these are hardly verdicts" in found.told(tokenizer)


def test_verdicts_are_learned_before_all_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from judgetrain.train import trainers

    masks: list[list[int]] = []

    class Watched(trainers.PhasedTrainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            masks[:] = kwargs["train_dataset"]["completion_mask"]
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(trainers, "PhasedTrainer", Watched)
    rows = [*verdict_rows(12), *sft_rows(12)]
    out = run_initial(tmp_path, config(verdict_token_warmup=2.0, trainer={"adam_beta2": 0.95}), rows)
    assert [sum(mask) for mask in masks[:48]] == [1] * 48
    assert len(masks) == 48 + 36 and min(sum(mask) for mask in masks[48:]) > 1
    assert out.notes["training"]["steps"] == len(masks) // 4
    assert out.notes["verdict_token_warmup"] == {"judgments": 24, "steps": 12}
    steady = config(verdict_token_warmup=2.0, trainer={"warmup_steps": 0})
    slower = run_initial(tmp_path, steady, rows, "slower")
    assert not same(weights(out.directory), weights(slower.directory))  # adam_beta2 reaches the optimizer
    logs = [json.loads(line) for line in (slower.directory / "train_log.jsonl").read_text().splitlines()]
    rates = {row["step"]: row["learning_rate"] for row in logs if "learning_rate" in row}
    for start, steps in ((0, 12), (12, 9)):  # twelve steps of verdicts, and nine of all that there is
        expected = [rates[1] * (1 + math.cos(math.pi * i / steps)) / 2 for i in range(steps)]
        assert [rates[start + i + 1] for i in range(steps)] == pytest.approx(expected, rel=1e-6)


def test_little_data_is_gone_through_until_there_are_enough_steps() -> None:
    settings = TrainConfig(per_device_train_batch_size=4, global_accumulation_steps=2, min_steps=30)
    assert lasting(settings, 60).num_train_epochs == 4  # 7.5 steps a pass
    assert lasting(settings, 6000) == settings
    assert lasting(replace(settings, min_steps=0), 3).num_train_epochs == 1


def test_checkpoints_without_their_mark_are_removed(tmp_path: Path) -> None:
    for step, marked in ((5, True), (10, True), (15, False)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if marked:
            (tmp_path / f"checkpoint-{step}" / COMPLETE).write_text('{"layout": "none or ddp", "bytes": {}}')
    assert last_complete(tmp_path) == str(tmp_path / "checkpoint-10")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-5"]
    assert last_complete(tmp_path / "none") is None


def test_a_checkpoint_that_was_cut_is_not_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(num_train_epochs=1.5, save_steps=2)
    whole = run_initial(tmp_path, settings, sft_rows(30), "whole")
    real, saved = CheckpointMarks.on_save, list[int]()

    def dying(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
        real(self, args, state, control, **kwargs)
        saved.append(state.global_step)
        if len(saved) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(CheckpointMarks, "on_save", dying)
    with pytest.raises(KeyboardInterrupt):
        run_initial(tmp_path, settings, sft_rows(30), "cut")
    monkeypatch.setattr(CheckpointMarks, "on_save", real)
    weight = tmp_path / "cut" / "checkpoints" / f"checkpoint-{saved[1]}" / "model.safetensors"
    weight.write_bytes(weight.read_bytes()[:1000])
    assert last_complete(tmp_path / "cut" / "checkpoints") == str(weight.parents[1] / f"checkpoint-{saved[0]}")
    assert same(weights(whole.directory), weights(run_initial(tmp_path, settings, sft_rows(30), "cut").directory))


def test_a_models_files_have_the_permissions_of_all_others(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        out = run_initial(tmp_path, config(max_steps=1), sft_rows(8))
    finally:
        os.umask(old)
    files = [path for path in out.path("model").rglob("*") if path.is_file()]
    assert "model.safetensors" in {path.name for path in files}
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in files} == {path.name: "0o640" for path in files}


def test_a_broken_card_is_named_when_results_come(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(b"---\ntags: [\n---\n\xff")
    row = {"method": "sft", "agreement": 0.5, "benchmark": "b", "split": "test", "branches": 1}
    with pytest.raises(DataError, match=r"README\.md is no model card .*mend or remove the file$"):
        add_results(tmp_path, "sft", [row], "e1")


def test_sft_starts_from_the_initial_judge_and_keeps_its_prompts(tmp_path: Path) -> None:
    start = run_initial(tmp_path, config(max_steps=1), sft_rows(8))
    out = run_sft(tmp_path, config(learning_rate=0.0, max_steps=1), start.directory, sft_rows(8))
    assert same(weights(start.directory), weights(out.directory))
    assert (out.path("model") / "prompts.yaml").read_text() == (start.path("model") / "prompts.yaml").read_text()
    assert list(read_rows(tmp_path / "label", "sft-heldout")) == []
