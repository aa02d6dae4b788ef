"""Tiny models of the architectures that bases may have, and the page that names those which were tried.

``python -m tests.builders.architectures`` writes docs/architectures.md; a test fails while it is out of date.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers.pre_tokenizers import ByteLevel

from judgetrain.engines.config import WORLD_BASE, ModelConfig
from judgetrain.engines.loading import load_tokenizer

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
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
GEMMA = TEXT | {"query_pre_attn_scalar": 8}
# The last two layers read the keys and values of the two before them, as the last ones of the published models do.
SHARED_KEYS = {
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 2,
    "sliding_window": 64,
    "layer_types": 2 * ["sliding_attention", "full_attention"],
    "hidden_size_per_layer_input": 8,
}
GEMMA3N = (
    GEMMA
    | SHARED_KEYS
    | {
        "intermediate_size": 4 * [64],
        "laurel_rank": 8,
        "altup_num_inputs": 2,
        "activation_sparsity_pattern": [0.5, 0.5, 0.0, 0.0],
    }
)
# As published, heads of layers with a window are not as wide as those of the others.
GEMMA4 = TEXT | SHARED_KEYS | {"global_head_dim": 16, "num_global_key_value_heads": 2}
LLAMA4 = (
    TEXT
    | EXPERTS
    | {"num_experts_per_tok": 1, "intermediate_size_mlp": 64, "interleave_moe_layer_step": 1}
    | {"attention_chunk_size": 64}
)
QWEN3_NEXT = (
    TEXT
    | EXPERTS
    | {"num_hidden_layers": 4, "num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
    | {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
    | {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
)
OTHER_LOSS = "it does something with its logits that TRL does not know, so that it would learn by another loss"


@dataclass(frozen=True)
class Kind:
    """A kind of models: its ``model_type`` is the key of :data:`KINDS` or :data:`REFUSED`.

    Args:
        as_in: the models that are of it, for the page.
        settings: of a tiny one.
        whole: the class whose weights the Hub has, where it is another than that of a causal language model.
        refusal: a part of the sentence with which it is refused; empty: it is not.
        because: the reason of the refusal, for the page.
    """

    as_in: str
    settings: Mapping[str, Any]
    whole: str = ""
    refusal: str = ""
    because: str = ""


KINDS = {
    "cohere2": Kind("Command R7B", TEXT | WINDOW),
    "gemma2": Kind("Gemma 2", GEMMA | WINDOW),
    "gemma3": Kind(
        "Gemma 3, with pictures", {"text_config": GEMMA | WINDOW, "vision_config": PICTURES, "mm_tokens_per_image": 4}
    ),
    "gemma3_text": Kind("Gemma 3, text alone", GEMMA | WINDOW),
    "gemma3n_text": Kind("Gemma 3n, text alone", GEMMA3N),
    "gemma4": Kind(
        "Gemma 4, with pictures",
        {"text_config": GEMMA4, "vision_config": PICTURES | {"patch_size": 4, "num_key_value_heads": 4, "head_dim": 8}},
        whole="Gemma4ForConditionalGeneration",
    ),
    "gemma4_text": Kind("Gemma 4, text alone", GEMMA4),
    "glm4": Kind("GLM-4", TEXT),
    "gpt_oss": Kind(
        "gpt-oss, with experts",
        TEXT
        | WINDOW
        | EXPERTS
        | {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 512}},
    ),
    "granite": Kind("Granite", TEXT),
    "llama": Kind("Llama 2 and 3", TEXT),
    "mistral": Kind("Mistral", TEXT | {"sliding_window": 64}),
    "mixtral": Kind("Mixtral, with experts", TEXT | EXPERTS),
    "olmo2": Kind("OLMo 2", TEXT),
    "phi3": Kind("Phi-3", TEXT),
    "qwen2": Kind("Qwen2 and Qwen2.5", TEXT),
    "qwen3": Kind("Qwen3", TEXT),
    "qwen3_moe": Kind("Qwen3, with experts", TEXT | EXPERTS | {"num_experts": 4, "moe_intermediate_size": 32}),
    "qwen3_next": Kind("Qwen3-Next, with experts and layers without attention", QWEN3_NEXT),
    "smollm3": Kind("SmolLM3", TEXT),
}
"""What passes through the check, two steps, writing, reading and sampling, by ``model_type``."""

REFUSED = {
    "bart": Kind(
        "BART, and other encoders with a decoder",
        {
            "d_model": 32,
            "decoder_layers": 2,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 64,
            "encoder_layers": 1,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
        },
        refusal="an encoder and a decoder, which is no causal",
        because="its decoder alone is no causal language model",
    ),
    "cpmant": Kind(
        "CPM-Ant",
        TEXT | {"num_attention_heads": 4, "dim_head": 8, "dim_ff": 64},
        refusal="fails over two tokens with a cache",
        because="it reads tokens of its own before every text, and cannot go on from what it has read",
    ),
    "doge": Kind(
        "Doge, without experts",
        TEXT,
        refusal="says how experts are balanced, and this model .* has none",
        because="TRL asks for experts that it does not have; with `router_aux_loss_coef: 0` in config.json it passes",
    ),
    "gemma3n": Kind(
        "Gemma 3n, with pictures and sound, without the package timm",
        {"text_config": GEMMA3N},
        refusal="pip install .*timm",
        because="its pictures need the package timm; the text model alone (`gemma3n_text`) needs none",
    ),
    "granitemoe": Kind(
        "Granite 3, with experts",
        TEXT | EXPERTS,
        refusal="how many experts .*num_experts",
        because="TRL does not find how many experts it has, and could not balance them",
    ),
    "llama4": Kind(
        "Llama 4, with experts and pictures",
        {
            "text_config": LLAMA4,
            "vision_config": PICTURES
            | {"intermediate_size": 128, "vision_output_dim": 32, "projector_input_dim": 32}
            | {"projector_output_dim": 32},
        },
        whole="Llama4ForConditionalGeneration",
        refusal="does not show its decoder",
        because="TRL does not find its decoder; it can be asked as it is",
    ),
    "llama4_text": Kind(
        "Llama 4, text alone",
        LLAMA4,
        refusal="does not show its decoder",
        because="TRL does not find its decoder; it can be asked as it is",
    ),
    "mllama": Kind(
        "Llama 3.2, with pictures",
        {
            "text_config": TEXT | {"num_hidden_layers": 3, "cross_attention_layers": [1]},
            "vision_config": PICTURES
            | {"num_hidden_layers": 1, "num_global_layers": 1, "attention_heads": 4, "max_num_tiles": 1}
            | {"vision_output_dim": 64, "intermediate_layers_indices": [0], "supported_aspect_ratios": [[1, 1]]},
        },
        whole="MllamaForConditionalGeneration",
        refusal="'mllama_text_model', which cannot be read again",
        because="its text model alone cannot be read again as a causal language model",
    ),
    "modernbert-decoder": Kind(
        "Ettin's decoders", TEXT | {"local_attention": 64}, refusal="another loss than that of", because=OTHER_LOSS
    ),
    "recurrent_gemma": Kind(
        "RecurrentGemma",
        TEXT | {"lru_width": 32, "num_hidden_layers": 3, "attention_window_size": 64},
        refusal="another loss than that of|fails over two tokens",
        because=OTHER_LOSS,
    ),
    "roberta": Kind(
        "RoBERTa, BERT and their kin",
        TEXT | {"is_decoder": True},
        refusal="another loss than that of",
        because=OTHER_LOSS,
    ),
    "trocr": Kind(
        "TrOCR's decoder",
        {
            "d_model": 32,
            "decoder_layers": 2,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 64,
            "max_position_embeddings": 1024,
        },
        refusal="takes no position_ids",
        because="it counts its tokens itself, with the padding before them",
    ),
    "xlm": Kind(
        "XLM",
        {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 1024, "causal": True},
        refusal="fails over two tokens with a cache",
        because="it cannot go on from what it has read",
    ),
}
"""What is refused as a base before a teacher is paid, by ``model_type``."""

HEAD = """# Architectures that were tried

A tiny model of each of these was checked, trained for two steps, written, read again and asked, with all weights
trained and with adapters (`tests/train/test_architectures.py`). Other architectures may work. They are checked before
a run as far as that is possible without weights, and once more when they are loaded.

| model_type | as in |
| --- | --- |
"""
BETWEEN = """
These are refused as bases before a teacher is paid:

| model_type | as in | because |
| --- | --- | --- |
"""
FOOT = """
Some settings of an architecture are bounded instead:

- **Position embeddings that depend on the longest text of a batch** (`longrope`, as in Phi-3 with 128k): texts are read
  up to `original_max_position_embeddings`, where every text has its own. Longer ones are left out and counted.
- **Several chat templates** in one tokenizer: judges are prompted, trained and written with the one named `default`.
  Where none is, the base is refused.
- **Chat templates in several files** (`chat_template.jinja`, `tokenizer_config.json`, `chat_template.json`,
  `processor_config.json`): one that a processor alone reads is taken where the tokenizer has none. Where two write
  different prompts, the base is refused.
- **A tokenizer of another family**: for some architectures (`qwen2`) Transformers takes a tokenizer class of its own,
  whatever `tokenizer.json` says. Where that splits texts otherwise, the base is refused.
"""


def page() -> str:
    """Return the text of docs/architectures.md."""
    tried = "".join(f"| `{name}` | {kind.as_in} |\n" for name, kind in sorted(KINDS.items()))
    refused = "".join(f"| `{name}` | {kind.as_in} | {kind.because} |\n" for name, kind in sorted(REFUSED.items()))
    return HEAD + tried + BETWEEN + refused + FOOT


def tokenizer_of(name: str) -> Any:
    """Return a tokenizer for a kind: the shipped base's, or of Qwen2's family where Transformers takes no other."""
    shipped = load_tokenizer(ModelConfig(path=str(WORLD_BASE)))
    if name != "qwen2":
        return shipped
    # Every byte is a token, and nothing is merged.
    alphabet = sorted(ByteLevel.alphabet())
    vocabulary = {character: place for place, character in enumerate(alphabet)}
    special = {"unk_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    tokenizer = transformers.Qwen2Tokenizer(vocab=vocabulary, merges=[], **special)
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message.role + ': ' + message.content }}"
        "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    return tokenizer


def configuration(name: str, kind: Kind) -> Any:
    """Return the configuration of a tiny model, with the tokens of its tokenizer."""
    tokenizer = tokenizer_of(name)
    size = max(tokenizer.get_vocab().values()) + 1
    tokens = {
        "vocab_size": size,
        "bos_token_id": tokenizer.eos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if "hidden_size_per_layer_input" in {**kind.settings, **kind.settings.get("text_config", {})}:
        tokens["vocab_size_per_layer_input"] = size
    settings = dict(kind.settings)
    if "text_config" in settings:
        settings["text_config"] = settings["text_config"] | tokens
    else:
        settings |= tokens
    return transformers.AutoConfig.for_model(name, **settings)


def tiny(name: str, place: Path) -> Any:
    """Write a tiny model as the Hub has it, with its tokenizer, and return its configuration."""
    kind = KINDS.get(name) or REFUSED[name]
    model_config = configuration(name, kind)
    torch.manual_seed(0)
    if kind.whole:
        model = getattr(transformers, kind.whole)._from_config(model_config)
    else:
        model = transformers.AutoModelForCausalLM.from_config(model_config)
    model.save_pretrained(place)
    tokenizer_of(name).save_pretrained(place)
    return model_config


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
