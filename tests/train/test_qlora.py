"""QLoRA, where bitsandbytes is installed: it also computes on a CPU, slowly, which is enough to see that all fits."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model
from judgetrain.train.config import AdapterConfig
from tests.builders.train import config, logged, pair_rows, run_dpo, run_initial, run_reference, sft_rows, weights

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
    pairs = pair_rows(8)
    reference = run_reference(tmp_path, settings, start.directory, pairs).directory
    out = run_dpo(tmp_path, settings, start.directory, data=pairs, heldout=[], reference=reference)
    first = logged(out)[0]
    # The reference is the quantised base too: before the first step, policy and reference are the same. In 8 bits
    # activations are rounded by what else is in the batch.
    assert first["loss"] == pytest.approx(math.log(2), abs=2e-3 if bits == "4bit" else 2e-2)
