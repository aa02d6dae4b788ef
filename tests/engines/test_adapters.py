"""Adapters that are merged into their base: each method that is allowed, and those that make another model."""

import json
import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers

from judgetrain.engines.adapters import MERGED
from judgetrain.engines.config import WORLD_BASE, ModelConfig
from judgetrain.engines.loading import load_model
from judgetrain.engines.model_check import check_loadable
from judgetrain.errors import ConfigError, EngineError

IDS = torch.arange(3, 40)[None]
ATTENTION = ["q_proj", "v_proj"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny Llama whose head has weights of its own."""
    return written(tmp_path_factory.mktemp("models") / "base", tied=False)


def written(place: Path, *, tied: bool) -> Path:
    tokenizer = transformers.AutoTokenizer.from_pretrained(WORLD_BASE)
    config = transformers.LlamaConfig(
        vocab_size=max(tokenizer.get_vocab().values()) + 1,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=0.3,
        tie_word_embeddings=tied,
    )
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def trained(base: Path, settings: peft.PeftConfig, place: Path) -> torch.Tensor:
    """Write adapters whose weights were moved away from their start, and return the logits of the adapted model."""
    model = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(base), settings)
    torch.manual_seed(1)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(place)
    transformers.AutoTokenizer.from_pretrained(base).save_pretrained(place)
    return logits(model.eval())


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


def lora(**options: Any) -> peft.LoraConfig:
    return peft.LoraConfig(**{"r": 4, "target_modules": ATTENTION, "task_type": "CAUSAL_LM"} | options)


def of_method(method: str) -> peft.PeftConfig:
    """Return the settings of one of PEFT's methods, for the attention of a tiny Llama."""
    kind = peft.PEFT_TYPE_TO_CONFIG_MAPPING[peft.PeftType[method]]
    more: dict[str, Any] = {
        "ADALORA": {"total_step": 10, "tinit": 1, "tfinal": 1},
        "BOFT": {"boft_block_size": 4},
        "HRA": {"r": 4},
        "IA3": {"target_modules": ["q_proj", "down_proj"], "feedforward_modules": ["down_proj"]},
        "LN_TUNING": {"target_modules": ["input_layernorm"]},
        "OFT": {"oft_block_size": 4, "r": 0},
        "TRAINABLE_TOKENS": {"token_indices": [5, 6], "target_modules": ["embed_tokens"]},
        "VERA": {"r": 4, "target_modules": ["q_proj"]},
    }.get(method, {})
    return kind(**{"task_type": "CAUSAL_LM", "target_modules": ATTENTION} | more)


RIGHT = {method: lambda method=method: of_method(method) for method in MERGED} | {
    "rank-stabilised": lambda: lora(use_rslora=True),
    "decomposed": lambda: lora(use_dora=True),
    "patterns": lambda: lora(rank_pattern={"q_proj": 2}, alpha_pattern={"v_proj": 64}),
    "a saved norm": lambda: lora(modules_to_save=["norm"]),
    "tokens of its own": lambda: lora(trainable_token_indices=[5, 6]),
    "a head of its own": lambda: lora(target_modules=["lm_head"]),
}


@pytest.mark.parametrize("what", RIGHT)
def test_the_merged_model_is_the_adapted_one(what: str, base: Path, tmp_path: Path) -> None:
    adapted = trained(base, RIGHT[what](), tmp_path)
    config = ModelConfig(path=str(tmp_path))
    check_loadable(config, "train.base.path")
    merged = logits(load_model(config))
    assert (adapted - logits(load_model(ModelConfig(path=str(base))))).abs().max() > 1e-2
    assert torch.allclose(merged, adapted, atol=1e-4)


WRONG = {
    "replicated layers": (lambda: lora(layer_replication=[[0, 2], [1, 2]]), "another layer reads the same weights"),
    "a bias without a place": (lambda: lora(lora_bias=True), "cannot be merged into their base .*lora_bias"),
    "a prefix": (lambda: peft.PrefixTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"), "stand before every"),
    "a prompt": (lambda: peft.PromptTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"), "stand before every"),
    "an encoder of prompts": (
        lambda: peft.PromptEncoderConfig(num_virtual_tokens=4, encoder_hidden_size=8, task_type="CAUSAL_LM"),
        "stand before every",
    ),
    "a method that nobody tried": (
        lambda: peft.FourierFTConfig(n_frequency=10, target_modules=ATTENTION, task_type="CAUSAL_LM"),
        "of the method FOURIERFT",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_would_be_another_model_is_refused_before_it_is_loaded(what: str, base: Path, tmp_path: Path) -> None:
    settings, fault = WRONG[what]
    trained(base, settings(), tmp_path)
    refused(tmp_path, fault)


def fill_memory(*_: Any, **__: Any) -> None:
    """Ask for a pebibyte, as PyTorch does on a CPU that has no more memory."""
    torch.empty(1 << 50, dtype=torch.uint8, device="cpu")


def fill_gpu(*_: Any, **__: Any) -> None:
    """Raise what PyTorch raises where a GPU has no more memory."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize("fill", [fill_memory, fill_gpu])
@pytest.mark.parametrize("step", ["merge_and_unload", "from_config"])
def test_memory_that_runs_out_is_no_fault_of_adapters(
    fill: Any, step: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(base, lora(), tmp_path)
    owner = peft.tuners.tuners_utils.BaseTuner if step == "merge_and_unload" else transformers.AutoModelForCausalLM
    monkeypatch.setattr(owner, step, fill)
    config = ModelConfig(path=str(tmp_path))
    with pytest.raises(RuntimeError, match="can't allocate memory|out of memory"):
        check_loadable(config, "k")
    if step == "merge_and_unload":
        with pytest.raises(RuntimeError, match="can't allocate memory|out of memory"):
            load_model(config)


def refused(place: Path, fault: str) -> None:
    """Check that adapters are refused in one sentence, by their files alone and where they are loaded."""
    with pytest.raises(ConfigError, match=f"k: .*{fault}") as caught:
        check_loadable(ModelConfig(path=str(place)), "k")
    assert "\n" not in str(caught.value)
    with pytest.raises(EngineError, match=fault):
        load_model(ModelConfig(path=str(place)))


@pytest.mark.parametrize("module", ["embed_tokens", "lm_head"])
def test_adapters_of_embeddings_that_are_tied_to_the_head_are_refused(module: str, tmp_path: Path) -> None:
    base = written(tmp_path / "base", tied=True)
    trained(base, lora(target_modules=[module]), tmp_path / "adapters")
    refused(tmp_path / "adapters", "another layer reads the same weights")


def test_single_tokens_of_tied_embeddings_are_merged(tmp_path: Path) -> None:
    base = written(tmp_path / "base", tied=True)
    adapted = trained(base, lora(trainable_token_indices=[5, 6]), tmp_path / "adapters")
    check_loadable(ModelConfig(path=str(tmp_path / "adapters")), "k")
    assert torch.allclose(logits(load_model(ModelConfig(path=str(tmp_path / "adapters")))), adapted, atol=1e-4)


def test_adapters_below_adapters_are_looked_at(base: Path, tmp_path: Path) -> None:
    trained(base, lora(layer_replication=[[0, 2], [1, 2]]), tmp_path / "below")
    trained(base, lora(), tmp_path / "above")
    file = tmp_path / "above" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": str(tmp_path / "below")}))
    refused(tmp_path / "above", "another layer reads the same weights")


def test_adapters_of_a_base_that_is_stored_in_four_bits_are_refused(base: Path, tmp_path: Path) -> None:
    rounded = Path(shutil.copytree(base, tmp_path / "rounded"))
    settings = json.loads((rounded / "config.json").read_text())
    settings["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (rounded / "config.json").write_text(json.dumps(settings))
    trained(base, lora(), tmp_path / "adapters")
    file = tmp_path / "adapters" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": str(rounded)}))
    with pytest.raises(ConfigError, match="k: .*adapters is stored quantised.*the base in 16 bits"):
        check_loadable(ModelConfig(path=str(tmp_path / "adapters")), "k")
