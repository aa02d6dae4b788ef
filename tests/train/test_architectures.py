"""Architectures of bases: a tiny model of each is checked, trained, written, read again and asked.

Those that pass stand in docs/architectures.md.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from judgetrain.engines.config import WORLD_BASE, ModelConfig, TransformersEngineConfig
from judgetrain.engines.loading import config_ends, end_token_ids, flat_ids, load_model, load_tokenizer
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.model_check import check_loadable
from tests.builders.engines import ask
from tests.builders.train import config, logged, run_initial, sft_rows, weights

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"
TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 1024,
    "initializer_range": 0.3,
}
WINDOW = {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]}
PICTURES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 14,
}
GEMMA = TEXT | {"query_pre_attn_scalar": 8}
KINDS: dict[str, dict[str, Any]] = {
    "cohere2": TEXT | WINDOW,
    "gemma2": GEMMA | WINDOW,
    "gemma3": {"text_config": GEMMA | WINDOW, "vision_config": PICTURES, "mm_tokens_per_image": 4},
    "gemma3_text": GEMMA | WINDOW,
    "glm4": TEXT,
    "granite": TEXT,
    "llama": TEXT,
    "mistral": TEXT | {"sliding_window": 64},
    "mixtral": TEXT | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "olmo2": TEXT,
    "phi3": TEXT,
    "qwen3": TEXT,
    "smollm3": TEXT,
}
"""The configuration of a tiny model by its ``model_type``."""


def tiny(kind: str, place: Path) -> Any:
    """Write a tiny model of a kind with the shipped base's tokenizer, and return its configuration."""
    tokenizer = load_tokenizer(ModelConfig(path=str(WORLD_BASE)))
    own_settings = {
        "vocab_size": max(tokenizer.get_vocab().values()) + 1,
        "bos_token_id": tokenizer.eos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    settings = dict(KINDS[kind])
    if "text_config" in settings:
        settings["text_config"] = settings["text_config"] | own_settings
    else:
        settings |= own_settings
    model_config = transformers.AutoConfig.for_model(kind, **settings)
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(model_config).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return model_config


@pytest.mark.parametrize("lora", [False, True], ids=["whole", "adapters"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_base_goes_from_the_check_to_its_answers(kind: str, lora: bool, tmp_path: Path) -> None:
    tiny(kind, tmp_path / "base")
    check_loadable(ModelConfig(path=str(tmp_path / "base")), "train.base.path")
    settings = config(max_steps=2, lora=lora)
    settings.train.base.path = str(tmp_path / "base")
    run = run_initial(tmp_path, settings, sft_rows(12))
    assert [row["step"] for row in logged(run) if "loss" in row] == [1, 2]
    judge = ModelConfig(path=str(run.path("model")))
    before = load_model(ModelConfig(path=str(tmp_path / "base"))).state_dict()
    after = weights(run.directory)
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    engine = TransformersEngine(TransformersEngineConfig(model=judge))
    (answer,) = engine.generate([ask("the cat", temperature=0.0, max_new_tokens=4)], 0)
    assert answer.error is None and answer.generated_tokens > 0


def test_a_model_of_text_and_pictures_ends_where_its_text_model_does(tmp_path: Path) -> None:
    directory = tiny("gemma3", tmp_path)
    # It stands in text_config alone.
    end = directory.text_config.eos_token_id
    assert getattr(directory, "eos_token_id", None) is None and end is not None
    assert flat_ids(config_ends(directory)) == {end}
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    tokenizer = load_tokenizer(ModelConfig(path=str(tmp_path)))
    tokenizer.eos_token = None
    assert end_token_ids(ModelConfig(path=str(tmp_path)), tokenizer) == {end}


def test_the_page_names_what_was_tried() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == sorted(KINDS)
