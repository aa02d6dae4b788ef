"""QLoRA, where bitsandbytes is installed: it also computes on a CPU, slowly, which is enough to see that all fits."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model
from judgetrain.train import stage
from judgetrain.train.config import AdapterConfig
from tests.train.test_train import config, pair_rows, run_initial, sft_rows, weights

pytest.importorskip("bitsandbytes")


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
def test_adapters_of_a_quantised_base_are_merged_into_the_whole_one(bits: str, tmp_path: Path) -> None:
    settings = config(max_steps=2, lora=AdapterConfig(enabled=True, r=4, quantize=bits, target_modules="q_proj,v_proj"))
    start = run_initial(tmp_path, settings, sft_rows(12))
    base, trained = load_model(ModelConfig(path="world")).state_dict(), weights(start.directory)
    assert base.keys() == trained.keys()
    for name, weight in trained.items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, base[name]) != any(part in name for part in ("q_proj", "v_proj"))
    label = StageRun(tmp_path / "label", "label", 0, Console())
    label.write_rows("pairs-train", pair_rows(8))
    label.write_rows("pairs-heldout", [])
    inputs = {"sft": start.directory, "label": label.directory}
    reference = StageRun(tmp_path / "reference", "reference", 0, Console())
    stage.run_reference(settings, inputs, reference)
    out = StageRun(tmp_path / "dpo", "dpo", 0, Console())
    stage.run_dpo(settings, inputs | {"reference": reference.directory}, out)
    first = json.loads(out.path("train_log.jsonl").read_text().splitlines()[0])
    # The reference is the quantised base too: before the first step, policy and reference are the same. In 8 bits
    # activations are rounded by what else is in the batch.
    assert first["loss"] == pytest.approx(math.log(2), abs=2e-3 if bits == "4bit" else 2e-2)
