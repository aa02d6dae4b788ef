"""What is checked before a model is used: its prompts, its decoding, its numbers, its adapters."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

from judgetrain.engines.config import WORLD_BASE, ModelConfig, TransformersEngineConfig
from judgetrain.engines.loading import adapted, end_token_ids, load_model, load_tokenizer, own_context
from judgetrain.engines.local import row_cache
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.model_check import check_loadable
from judgetrain.engines.openai.engine import chat_body
from judgetrain.engines.prompting import render
from judgetrain.errors import ConfigError, EngineError
from judgetrain.rooms import shipped
from tests.builders.engines import ask as any_ask
from tests.engines.tokenizers import byte_level

SYSTEM, USER = ({"role": role, "content": f"  what the {role} says\n"} for role in ("system", "user"))
DROPS = (
    "{% for m in messages %}{% if m['role'] == ROLE %}<s>{{ m['content'] | trim }}</s>{% endif %}{% endfor %}"  # Phi-3
)
IDS = torch.arange(3, 40)[None]
ask = partial(any_ask, temperature=0.0, max_new_tokens=8)


def engine_at(path: Path, **how: str) -> TransformersEngine:
    return TransformersEngine(TransformersEngineConfig(model=ModelConfig(path=str(path), **how)))


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


def test_every_message_is_in_the_prompt():
    drops_system = byte_level(DROPS.replace("ROLE", "'user'"), ["what the system says"])
    text = render([SYSTEM, USER], drops_system)
    assert text == "<s>what the system says\n\n\n  what the user says</s>"
    with pytest.raises(EngineError, match="the user message is not in what it writes"):
        render([SYSTEM, USER], byte_level(DROPS.replace("ROLE", "'system'"), ["what"]))


@pytest.mark.parametrize("turns", [("hi", "hi", "hi"), ("hi", "oh hi", "say hi"), ("no\n", " no", "is it no?")])
def test_a_turn_that_is_dropped_is_noticed_where_another_one_holds_its_words(turns):
    roles = ("user", "assistant", "user")
    chat = [{"role": role, "content": content} for role, content in zip(roles, turns, strict=True)]
    last_alone = byte_level("<s>{{ messages[-1].content }}</s>", [*turns])
    with pytest.raises(EngineError, match="the (user|assistant) message is not in what it writes"):
        render(chat, last_alone)
    all_of_them = byte_level("{% for m in messages %}<s>{{ m.content | trim }}</s>{% endfor %}", [*turns])
    assert render(chat, all_of_them) == "".join(f"<s>{content.strip()}</s>" for content in turns)


def test_a_template_that_writes_the_date_writes_one_date(tmp_path):
    shutil.copytree(WORLD_BASE, tmp_path / "m")
    template = (
        "{% if strftime_now is defined %}Today {{ strftime_now('%d %b %Y') }} {% endif %}{{ messages[0].content }}"
    )
    (tmp_path / "m" / "chat_template.jinja").write_text(template)
    tokenizer = load_tokenizer(ModelConfig(path=str(tmp_path / "m")))
    assert render([{"role": "user", "content": "hi"}], tokenizer) == "Today 26 Jul 2024 hi"
    tokenizer.save_pretrained(tmp_path / "saved")
    plain = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")  # as a server reads the judge
    assert plain.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "Today 26 Jul 2024 hi"
    assert load_tokenizer(ModelConfig(path=str(tmp_path / "saved"))).chat_template == tokenizer.chat_template


def test_a_state_that_the_decoder_does_not_carry_is_refused(tmp_path, monkeypatch):
    tokenizer = transformers.AutoTokenizer.from_pretrained(WORLD_BASE)
    torch.manual_seed(0)
    size = dict(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, initializer_range=0.3)
    tokenizer.save_pretrained(tmp_path)
    transformers.MambaForCausalLM(transformers.MambaConfig(**size)).save_pretrained(tmp_path)
    # It takes the cache since Transformers 5.24, and counts padding among what it has read.
    with pytest.raises(EngineError, match="the mamba model (says|fails) step by step"):
        engine_at(tmp_path)
    rwkv = transformers.RwkvConfig(**size | {"attention_hidden_size": 32})
    transformers.RwkvForCausalLM(rwkv).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="type 'rwkv' leaves the cache empty"):
        check_loadable(ModelConfig(path=str(tmp_path)), "train.base.path")
    with pytest.raises(EngineError, match="the rwkv model fails step by step .*leaves the cache empty"):
        engine_at(tmp_path)
    bloom = transformers.BloomConfig(vocab_size=len(tokenizer), hidden_size=32, n_layer=1, n_head=4)
    falcon = transformers.FalconConfig(**size | {"num_attention_heads": 4, "alibi": True})
    for model in (
        transformers.BloomForCausalLM(bloom),
        transformers.FalconForCausalLM(falcon),
    ):  # positions of a mask of their own shape
        model.save_pretrained(tmp_path)
        kind = model.config.model_type
        with pytest.raises(ConfigError, match=f"type '{kind}' with ALiBi"):
            check_loadable(ModelConfig(path=str(tmp_path)), "train.base.path")
        with pytest.raises(
            EngineError, match=rf"the {kind} model fails step by step \(ValueError: .* cannot be decoded here"
        ):
            engine_at(tmp_path)
    falcon.alibi = False
    transformers.FalconForCausalLM(falcon).save_pretrained(tmp_path)
    check_loadable(ModelConfig(path=str(tmp_path)), "train.base.path")
    assert engine_at(tmp_path).max_context == 2048
    whole = row_cache.RowLayer.update

    def swallowed(self, keys, values, *args, **kwargs):
        before, _ = whole(self, keys, values)
        return torch.zeros_like(before), torch.zeros_like(before)

    monkeypatch.setattr(row_cache.RowLayer, "update", swallowed)
    with pytest.raises(EngineError, match="it cannot be decoded here"):
        engine_at(WORLD_BASE)


def test_logits_that_are_no_numbers_name_the_precision(tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(WORLD_BASE)
    with torch.no_grad():  # the next norm takes it back, in float32
        model.model.layers[1].mlp.down_proj.weight *= 3e5
    model.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(WORLD_BASE).save_pretrained(tmp_path)
    assert engine_at(tmp_path).generate([ask("the cat")], 0)[0].text
    with pytest.raises(EngineError, match="not finite in float16: set its dtype"):
        engine_at(tmp_path, dtype="float16")


def test_a_pad_token_without_an_embedding(tmp_path):
    shutil.copytree(WORLD_BASE, tmp_path / "m")
    tokenizer = transformers.AutoTokenizer.from_pretrained(WORLD_BASE)
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(tmp_path / "m")
    texts = ["the cat", "the cat reads a book for my sister"]
    engine = engine_at(tmp_path / "m")
    right = engine_at(WORLD_BASE)
    assert [c.text for c in engine.generate([*map(ask, texts)], 0)] == [
        right.generate([ask(text)], 0)[0].text for text in texts
    ]
    size = json.loads((WORLD_BASE / "config.json").read_text())["vocab_size"]
    with pytest.raises(ConfigError, match=f"tokens up to id {size}, and the model embeddings for {size}"):
        check_loadable(ModelConfig(path=str(tmp_path / "m")), "train.base.path")


@pytest.mark.parametrize("kept", [["embed_tokens"], ["embed_tokens", "lm_head"]])
def test_adapters_go_on_what_they_were_trained_on(tmp_path, kept):
    """New tokens, adapters of adapters, and a base at a revision."""
    base = transformers.AutoModelForCausalLM.from_pretrained(WORLD_BASE)
    tokenizer = transformers.AutoTokenizer.from_pretrained(WORLD_BASE)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<verdict>"]})
    base.resize_token_embeddings(len(tokenizer))
    torch.manual_seed(1)
    last = shutil.copytree(WORLD_BASE, tmp_path / "base")
    (last / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    for name, saved in (("first", kept), ("second", None)):
        lora = LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=saved, task_type="CAUSAL_LM")
        trained = get_peft_model(base, lora)
        trained.peft_config["default"].base_model_name_or_path = str(last)
        for parameter in trained.parameters():
            parameter.data += 0.05 * torch.randn_like(parameter) if parameter.requires_grad else 0.0
        last = tmp_path / name
        trained.save_pretrained(last)
        tokenizer.save_pretrained(last)
        base = trained.merge_and_unload()
    config = ModelConfig(path=str(tmp_path / "second"))
    got = load_model(config)
    assert end_token_ids(config, tokenizer) == {2, 7} and own_context(config) == base.config.max_position_embeddings
    assert torch.allclose(logits(got), logits(base), atol=1e-4)
    assert isinstance(base, torch.nn.Module) and not isinstance(got, PeftModel)
    file = tmp_path / "first" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"revision": "v1"}))
    assert adapted(ModelConfig(path=str(tmp_path / "first"))) == ModelConfig(path=str(tmp_path / "base"), revision="v1")
    for name in (str(tmp_path / "first"), str(tmp_path / "second"), 7, None):
        file.write_text(json.dumps({"base_model_name_or_path": name}))
        end = " but itself, or adapters that are based on it: write" if isinstance(name, str) else ": write"
        with pytest.raises(ConfigError, match=f"k: .*first: adapter_config.json names no base_model_name_or_path{end}"):
            check_loadable(config, "k")


def test_servers_are_told_every_sampling_parameter():
    neutral = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
    assert chat_body("m", ask("q"), 1, "max_tokens", True)["extra_body"] == neutral
    assert "extra_body" not in chat_body("m", ask("q"), 1, "max_tokens")
    assert "--generation-config vllm" in (shipped("launch") / "vllm_server.sh").read_text()
