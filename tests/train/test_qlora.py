"""QLoRA, where bitsandbytes is installed: it also computes on a CPU, slowly, which is enough to see that all fits."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model

from judgetrain.engines.config import WORLD_BASE, ModelConfig
from judgetrain.engines.loading import load_model
from judgetrain.errors import ConfigError, EngineError
from judgetrain.train.arguments import peft_config
from judgetrain.train.config import TrainConfig, TrainerConfig
from judgetrain.train.stages import INITIAL, InitialSettings, check_stage
from tests.builders.train import config, logged, pair_rows, run_dpo, run_initial, run_reference, sft_rows, weights


def test_adapters_of_a_base_in_four_bits_are_merged_into_the_whole_one(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    # The first step has rate 0, and after one more some processors round a part of the updates to nothing.
    settings = config(max_steps=4, lora=True, four_bit=True, gradient_checkpointing=True)
    start = run_initial(tmp_path, settings, sft_rows(12))
    base = load_model(ModelConfig(path="world")).state_dict()
    trained = weights(start.directory)
    assert base.keys() == trained.keys()
    for name, weight in trained.items():
        linear = name.endswith("_proj.weight")
        assert weight.dtype == torch.float32 and torch.equal(weight, base[name]) != linear
        # Rounded to 4 bits it would be a twentieth of its size away.
        assert (weight - base[name]).norm() < 0.02 * base[name].norm()
    pairs = pair_rows(8)
    reference = run_reference(tmp_path, settings, start.directory, pairs).directory
    out = run_dpo(tmp_path, settings, start.directory, data=pairs, heldout=[], reference=reference)
    # The reference is in 4 bits too: before the first step, policy and reference are the same but for the rounding of
    # batches. A reference in full precision would be 0.04 off, four times what is allowed.
    assert logged(out)[0]["loss"] == pytest.approx(math.log(2), abs=1e-2)


def gradients(model: Any, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the gradients of a model's adapters, of the loss over all tokens."""
    model.train()
    model.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.requires_grad}


def test_a_look_at_the_model_leaves_its_gradients_as_they_were() -> None:
    """As a pass of bitsandbytes' kernel for CPUs did not: what flowed through the base was lost after it."""
    bnb = pytest.importorskip("bitsandbytes")
    rounded = load_model(ModelConfig(path="world"), four_bit=True)
    # The same weights in float32, multiplied by PyTorch.
    plain = load_model(ModelConfig(path="world", dtype="float32"), "cpu")
    modules = dict(plain.named_modules())
    for name, module in rounded.named_modules():
        if isinstance(module, bnb.nn.Linear4bit):
            weight = bnb.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
            modules[name].weight.data.copy_(weight)
    adapted = []
    for model in (plain, rounded):
        torch.manual_seed(1)
        adapted.append(get_peft_model(model, peft_config(TrainerConfig(lora=True))))
    ids = torch.randint(5, 500, (4, 30), generator=torch.Generator().manual_seed(3))
    expected = gradients(adapted[0], ids)
    with torch.no_grad():
        adapted[1].eval()(input_ids=ids)
    after_look = gradients(adapted[1], ids)
    assert expected.keys() == after_look.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(
            after_look[name], gradient, rtol=1e-3, atol=1e-5 * float(gradient.abs().max()) + 1e-8
        )
    assert sum(bool(gradient.any()) for gradient in expected.values()) == len(expected) / 2, "those of B, as B is 0"


def test_what_cannot_be_in_four_bits_is_refused(tmp_path: Path) -> None:
    stages = config().train
    with pytest.raises(ConfigError, match=r"k\.four_bit=true: adapters alone .* set k\.lora=true"):
        check_stage(stages, "k", TrainConfig(four_bit=True))
    stages.distributed = "zero3"
    with pytest.raises(ConfigError, match=r"four_bit=true and .*=zero3: .* set train\.distributed=zero2 or ddp"):
        check_stage(stages, "k", TrainConfig(lora=True, four_bit=True))
    gguf = tmp_path / "model.gguf"
    gguf.touch()
    with pytest.raises(EngineError, match=r"gguf holds GGUF weights, .*: leave out four_bit"):
        load_model(ModelConfig(path=str(gguf)), four_bit=True)


@pytest.mark.parametrize("stored", [{"quant_method": "bitsandbytes", "load_in_4bit": True}, {"quant_method": "mxfp4"}])
@pytest.mark.parametrize("lora", [False, True])
def test_a_base_that_is_stored_quantised_is_refused_before_anything_runs(
    stored: dict[str, Any], lora: bool, tmp_path: Path
) -> None:
    base = Path(shutil.copytree(WORLD_BASE, tmp_path / "base"))
    settings = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(settings | {"quantization_config": stored}))
    run = config(max_steps=2, lora=lora)
    run.train.base.path = str(base)
    method = stored["quant_method"]
    with pytest.raises(ConfigError, match=rf"train\.base\.path=.*base: .*quantised \({method}\).*base in 16 bits"):
        INITIAL.check_here(InitialSettings.of(run))
    # Nor is it trained on where nobody looked before.
    with pytest.raises(ConfigError, match=r"train\.initial starts from .*base: its weights are stored quantised"):
        run_initial(tmp_path, run, sft_rows(12))
    run.train.base.path = "world"
    INITIAL.check_here(InitialSettings.of(run))
