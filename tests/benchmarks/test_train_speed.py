"""The training benchmark: its pairs, its held-out loss and its table, and two arms that learn the same."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from tests.benchmarks.train_speed import BETA, heldout_loss, make_model, pairs, run_arm
from tests.benchmarks.train_speed_table import Measured, table


def tokens(messages: list[dict[str, str]]) -> int:
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    return len(tokenizer.encode(tokenizer.apply_chat_template(messages, tokenize=False), add_special_tokens=False))


def test_pairs_have_the_lengths_of_the_quickstarts() -> None:
    lengths = sorted(tokens(row["prompt"] + row["chosen"]) for row in pairs(200, 1.0, 3))
    # Judgments, 43% of the pairs, have 171 to 228 tokens; the others fewer than 130.
    judged = sum(length > 150 for length in lengths) / len(lengths)
    assert 0.33 < judged < 0.53 and lengths[0] > 35 and lengths[-1] < 235
    longer = sorted(tokens(row["prompt"] + row["chosen"]) for row in pairs(200, 4.0, 3))
    assert 3.5 < sum(longer) / sum(lengths) < 4.5


def test_the_held_out_loss_is_that_of_equation_2(tmp_path: Path) -> None:
    make_model(tmp_path / "start", "tiny", 1.0)
    rows = pairs(2, 1.0, 1)
    assert heldout_loss(tmp_path / "start", tmp_path / "start", rows) == pytest.approx(math.log(2))
    model = load_model(ModelConfig(path=str(tmp_path / "start")))
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.01 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    model.save_pretrained(tmp_path / "other")
    expected = []
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    for row in rows:
        ratio = {}
        for side in ("chosen", "rejected"):
            prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=False)
            whole = tokenizer.apply_chat_template(row["prompt"] + row[side], return_dict=False)
            sums = []
            for path in ("other", "start"):
                logits = load_model(ModelConfig(path=str(tmp_path / path)))(torch.tensor([whole])).logits[0].detach()
                each = [logits[i - 1].log_softmax(-1)[whole[i]].item() for i in range(len(prompt), len(whole))]
                sums.append(sum(each))
            ratio[side] = sums[0] - sums[1]
        expected.append(math.log1p(math.exp(-BETA * (ratio["chosen"] - ratio["rejected"]))))
    assert heldout_loss(tmp_path / "other", tmp_path / "start", rows) == pytest.approx(sum(expected) / 2, rel=1e-4)


def test_speed_is_against_the_first_arm() -> None:
    slow, fast = Measured("trl", 10, 1000, 4.0, 8.0, 500.0, 0.5), Measured("judgetrain", 10, 1000, 2.0, 4.0, 400.0, 0.5)
    lines = table([slow, fast], 1_000_000, None)
    assert lines[2] == "| trl | 2.50 | 250 | 8.0 | 500 | 0.5000 | 1.00x |"
    assert lines[3] == "| judgetrain | 5.00 | 500 | 4.0 | 400 | 0.5000 | 2.00x |"
    reference = Measured("reference", 10, 1000, 1.0, 2.0, 450.0)
    assert table([slow, reference, fast], 1_000_000, None)[-1] == (
        "| judgetrain, reference included | 3.33 | 333 | 6.0 | 450 | 0.5000 | 1.33x |"
    )
    # 6 * 1e6 parameters * 500 tokens/s = 3e9 FLOP/s, of 1e10.
    assert table([slow, fast], 1_000_000, 1e10)[3].endswith("| 30.0% |")


def test_arms_learn_the_same(tmp_path: Path) -> None:
    make_model(tmp_path / "start", "tiny", 1.0)
    (tmp_path / "settings.json").write_text(
        json.dumps({"pairs": 16, "heldout": 4, "scale": 0.3, "count": True, "label": None})
    )
    results = {name: run_arm(name, tmp_path) for name in ("trl_no_checkpointing", "reference", "judgetrain")}
    plain, ours = results["trl_no_checkpointing"], results["judgetrain"]
    assert plain.tokens == ours.tokens and plain.examples == ours.examples == 16
    assert plain.heldout_loss is not None and ours.heldout_loss is not None and plain.heldout_loss < math.log(2)
    assert plain.gigaflops is not None and ours.gigaflops is not None
    # A live reference is one forward pass in four; pairs of like length have less padding, of random length a third.
    assert 0.75 * 0.6 < ours.gigaflops / plain.gigaflops < 0.75
    assert ours.heldout_loss == pytest.approx(plain.heldout_loss, abs=0.01)
