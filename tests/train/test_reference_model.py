"""A reference model of the user's choice: what the loss is measured from, and that it must read the same tokens."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.world import BASE
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import TrainingError
from judgetrain.pipeline.config import Config
from tests.builders.train import config, pair_rows, run_dpo, run_initial, run_reference, sft_rows


def run(root: Path, settings: Config, cached: bool) -> StageRun:
    """DPO with the shipped base as reference, from an artifact or beside the policy."""
    start = run_initial(root, config(max_steps=6, learning_rate=3e-4), sft_rows(24), "sft")
    pairs = pair_rows(4)
    reference = run_reference(root, settings, start.directory, pairs).directory if cached else None
    return run_dpo(root, settings, start.directory, data=pairs, heldout=[], reference=reference)


@pytest.mark.parametrize("cached", [True, False])
def test_the_loss_is_measured_from_the_reference_that_is_given(cached: bool, tmp_path: Path) -> None:
    settings = config(max_steps=1)
    settings.train.dpo.reference.path = "world"
    settings.train.dpo.precompute_ref_log_probs = cached
    loss = run(tmp_path, settings, cached).notes["training"]["train_loss"]
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    policy = load_model(ModelConfig(path=str(tmp_path / "sft" / "model")))
    reference = load_model(ModelConfig(path="world"))
    losses = []
    for row in pair_rows(4):
        ratios = []
        for side in ("chosen", "rejected"):
            prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=False)
            ids = tokenizer.apply_chat_template(row["prompt"] + row[side], return_dict=False)
            with torch.no_grad():
                sums = [
                    sum(
                        float(model(torch.tensor([ids])).logits[0, i - 1].log_softmax(-1)[ids[i]])
                        for i in range(len(prompt), len(ids))
                    )
                    for model in (policy, reference)
                ]
            ratios.append(sums[0] - sums[1])
        losses.append(torch.nn.functional.softplus(torch.tensor(-0.1 * (ratios[0] - ratios[1]))))
    expected = float(torch.stack(losses).mean())
    assert loss == pytest.approx(expected, rel=1e-4)
    assert abs(expected - 0.6931) > 0.005


@pytest.mark.parametrize("cached", [True, False])
def test_a_reference_with_other_tokens_is_refused(cached: bool, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(BASE, other)
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    tokenizer.add_tokens(["<extra>"])
    tokenizer.save_pretrained(other)
    settings = config(max_steps=1)
    settings.train.dpo.reference.path = str(other)
    settings.train.dpo.precompute_ref_log_probs = cached
    with pytest.raises(
        TrainingError, match=r"reference\.path=.* different vocabularies \(594 and 593 tokens; '<extra>' .*take a ref"
    ):
        run(tmp_path, settings, cached)
