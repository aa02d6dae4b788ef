"""Judgments of two responses, one by one, that are ranked beside SFT by their expected scores."""

import random
from array import array
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
import torch

from judgetrain.engines.config import WORLD_BASE, ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import ConfigError, TrainingError
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.train.data import Examples
from judgetrain.train.ranking import order_of_pairs
from tests.builders.label import PROMPTER, leaf, tree_of
from tests.builders.pipeline import check_stage
from tests.builders.train import WORDS, config, logged, run_initial, sft_rows


def judgments(count: int, seed: int, ties: int = 0, exchanged: int = 0) -> list[dict[str, Any]]:
    """Judgments that all say 3: which response is better stands in the trees' scores alone, and in one of its words.

    In the last ``exchanged`` pairs it is the worse response that has this word.
    """
    rng, tree, rows = random.Random(seed), tree_of(("AB",)), list[dict[str, Any]]()
    criterion, guideline = tree.criteria[0], tree.criteria[0].guidelines[0]
    for n in range(count):
        better, words = rng.choice("AB"), {"A": "reads", "B": "reads"}
        is_exchanged = n >= count - exchanged
        words[better if not is_exchanged else {"A": "B", "B": "A"}[better]] = "gives"
        texts = {s: " ".join([*rng.choices(WORDS[:2], k=4), w, *rng.choices(WORDS[:2], k=3)]) for s, w in words.items()}
        shown = replace(tree.comparison, response_a=texts["A"], response_b=texts["B"])
        scores = (3.0, 3.0) if n < ties else (4.0, 2.0) if better == "A" else (2.0, 4.0)
        nodes = [leaf(f"d{n}/c0/g0/{side}0", side, "Score: 3", *scores, None) for side in rng.sample("AB", 2)]
        rows += [PROMPTER.judgment_row(shown, criterion, guideline, node) for node in nodes]
    return rows


def apart(model: Path, rows: list[dict[str, Any]]) -> list[float]:
    """Return how much higher the expected score of the better response is, by the model's own logits."""
    model_config = ModelConfig(path=str(model))
    tokenizer, judge = load_tokenizer(model_config), load_model(model_config).eval()
    texts = [tokenizer.decode([i]).strip() for i in range(len(tokenizer))]

    def expected(row: dict[str, Any]) -> float:
        prompt = tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
        ids = tokenizer(prompt + "Score:", add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            odds = judge(torch.tensor([ids])).logits[0, -1].exp().tolist()
        mass = [sum(p for p, text in zip(odds, texts, strict=True) if text == digit) for digit in "12345"]
        return sum(level * p for level, p in enumerate(mass, start=1)) / sum(mass)

    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    return [(expected(one) - expected(other)) * (1 if one["ahead"] >= 0 else -1) for one, other in pairs]


def test_the_loss_is_that_of_bradley_and_terry(tmp_path: Path) -> None:
    rows = judgments(2, 0, ties=1) + sft_rows(2)
    plain, ranking = (
        logged(run_initial(tmp_path, config(max_steps=1, per_device_train_batch_size=6, **more), rows, name))[0]
        for name, more in (("plain", {}), ("ranked", {"ranking_weight": 0.75}))
    )
    tie, decided = (2 * d for d in apart(WORLD_BASE, rows[:4]))
    expected = ((log(1 + exp(-tie)) + log(1 + exp(tie))) / 2 + log(1 + exp(-decided))) / 2
    assert ranking["ranking_loss"] == pytest.approx(expected, rel=1e-4)
    assert ranking["loss"] == pytest.approx(plain["loss"] / 4 + 3 * expected / 4, rel=1e-3)
    assert ranking["ranking_accuracy"] == float(decided > 0) and "ranking_loss" not in plain


def test_judgments_that_have_no_pair_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = judgments(3, 0)
    # That of the other response could not be read, and so is no example.
    # The only batch has no pair.
    out = run_initial(tmp_path, config(max_steps=1, ranking_weight=0.5), rows[:-1] + sft_rows(2))
    assert logged(out)[0]["ranking_loss"] == 0 and 0 < logged(out)[0]["loss"] < 20
    words = " ".join(capsys.readouterr().out.split())
    assert "2 pairs of responses are ranked" in words
    assert "1 judgment of one response is not ranked" in words and "train.initial.ranking_weight acts on" in words


def test_the_accuracy_is_a_mean_over_pairs(tmp_path: Path) -> None:
    """One of the five micro-batches holds ties alone, and one two pairs that are decided."""
    rows = judgments(10, 4, ties=5, exchanged=2)
    settings = config(max_steps=1, global_accumulation_steps=5, ranking_weight=1.0)
    (accuracies, *_) = logged(run_initial(tmp_path, settings, rows))
    right = [d > 0 for d in apart(WORLD_BASE, rows)[5:]]
    assert accuracies["ranking_accuracy"] == pytest.approx(sum(right) / 5)
    # Neither what a sum of nothing is, nor what every pair has.
    assert 0 < sum(right) < 5


@pytest.mark.parametrize("lora", [False, True])
def test_held_out_pairs_are_put_in_order(tmp_path: Path, lora: bool) -> None:
    held = judgments(20, 1)
    settings = config(max_steps=30, ranking_weight=1.0, learning_rate=1e-2 if lora else 3e-3, save_steps=30, lora=lora)
    out = run_initial(tmp_path, settings, judgments(40, 2))
    before, after = (sum(d > 0 for d in apart(model, held)) for model in (WORLD_BASE, out.path("model")))
    assert after > max(before, 17)


@pytest.mark.parametrize("batch", [2, 4, 8])
def test_a_pair_stands_in_one_micro_batch(batch: int) -> None:
    rng = random.Random(batch)
    numbers = rng.sample(range(101), 60)
    pairs = [(i, j, False) for i, j in zip(numbers[::2], numbers[1::2], strict=True)]
    lengths = array("i", [rng.randint(5, 200) for _ in range(101)])
    examples = Examples(data=None, lengths=lengths, dropped={}, pairs=pairs)  # type: ignore[arg-type]
    for seed in range(4):
        places = order_of_pairs(examples, batch, 2.5, seed)
        assert {*places[:102]} == {*range(101)} == {*places[102:204]} and places == order_of_pairs(
            examples, batch, 2.5, seed
        )
        at = {frozenset(places[k : k + 2]): k // batch for k in range(0, 204, 2)}
        assert all(frozenset(pair[:2]) in at for pair in pairs) and len(places) % 2 == 0


def test_what_cannot_be_ranked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"responses judged one by one: set tree\.reads=one or both"):
        run_initial(tmp_path, config(ranking_weight=1.0), [*judgments(2, 0)[::2], *sft_rows(4)])
    settings = config(ranking_weight=0.1, per_device_train_batch_size=3)
    with pytest.raises(ConfigError, match=r"whole pairs, as train\.initial\.ranking_weight .*batch_size=4$"):
        check_stage("initial", replace(settings, tree=TreeConfig(reads="one")))
    for stage in ("initial", "sft"):
        with pytest.raises(ConfigError, match=rf"train\.{stage}\.ranking_weight .*tree\.reads=one or both"):
            check_stage(stage, config(ranking_weight=0.1))
    settings.train.sft.per_device_train_batch_size = 4
    for mode in ("zero3", "fsdp"):
        settings.train.distributed = mode
        message = rf"train\.sft\.ranking_weight .*distributed={mode} .*set train\.distributed=zero2 or ddp$"
        with pytest.raises(ConfigError, match=message):
            check_stage("sft", settings)
