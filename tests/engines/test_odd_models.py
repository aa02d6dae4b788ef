"""Models from elsewhere: templates without end, settings of another type, weights that nobody vouches for."""

import json
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from judgetrain.engines import digests, loading, template_check
from judgetrain.engines.config import WORLD_BASE, ModelConfig, TransformersEngineConfig
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.model_check import check_loadable
from judgetrain.engines.prompting import render
from judgetrain.errors import ConfigError, EngineError
from tests.builders.engines import word_tokenizer

QUESTION = [{"role": "user", "content": "clear and short"}]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WORLD_BASE, tmp_path / "model"))


def write(model: Path, file: str, changes: dict[str, Any]) -> None:
    content = json.loads((model / file).read_text())
    (model / file).write_text(json.dumps(content | changes))


ENDLESS = {
    "gigabytes while it is compiled": ("{{ 'a' * (10 ** 10) }}", r"takes more than|takes longer than"),
    "gigabytes by doubling": (
        "{% set ns = namespace(text='ab') %}{% for i in range(60) %}{% set ns.text = ns.text ~ ns.text %}{% endfor %}"
        "{{ ns.text }}",
        r"takes more than|takes longer than",
    ),
    "gigabytes behind a system message alone": (
        "{% set n = 1 if messages[0].role != 'system' else 10 ** 10 %}{{ 'a' * n }}{{ messages[-1].content }}",
        r"takes more than|takes longer than",
    ),
    "gigabytes in training alone": (
        "{% set n = 1 if add_generation_prompt else 10 ** 10 %}{{ 'a' * n }}{{ messages[-1].content }}",
        r"takes more than|takes longer than",
    ),
    "loops": (
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "takes longer than 1 s",
    ),
    "a long text": ("{% for i in range(99999) %}a long line of text {% endfor %}", "writes more than"),
    "no number": ("{{ 1 // 0 }}", "fails .ZeroDivisionError"),
    "a range that Jinja refuses": ("{% for i in range(10 ** 9) %}a{% endfor %}", "fails .OverflowError"),
    "a macro that calls itself": ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "calls itself without end|fails"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_a_template_that_does_harm_is_refused_before_it_is_used(
    what: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template, fault = ENDLESS[what]
    (model / "chat_template.jinja").write_text(template)
    program = Path(template_check.__file__).read_text()
    # The process reads the module anew: a shorter limit has to stand there.
    monkeypatch.setattr(template_check, "SECONDS", 1)
    shorter = model.parent / "shorter.py"
    shorter.write_text(program.replace("SECONDS = 20", "SECONDS = 1").replace("MEMORY = 1 << 30", "MEMORY = 1 << 28"))
    run = template_check.subprocess.run

    def run_shorter(command: list[str], **options: Any) -> Any:
        return run([command[0], str(shorter)], **options)

    monkeypatch.setattr(template_check.subprocess, "run", run_shorter)
    started_at = time.monotonic()
    with pytest.raises(EngineError, match=rf"chat template of .*model ({fault}).*chat_template.jinja"):
        loading.load_tokenizer(ModelConfig(path=str(model)))
    assert time.monotonic() - started_at < 60


def test_a_template_that_refuses_a_second_question_is_no_fault(model: Path) -> None:
    template = (
        "{% if messages | length > 1 %}{{ raise_exception('one question only') }}{% endif %}"
        "Q: {{ messages[0]['content'] }}\nA:"
    )
    (model / "chat_template.jinja").write_text(template)
    tokenizer = loading.load_tokenizer(ModelConfig(path=str(model)))
    assert render(QUESTION, tokenizer) == "Q: clear and short\nA:"


def test_a_template_that_fails_on_some_messages_alone_is_said() -> None:
    tokenizer = word_tokenizer()
    tokenizer.chat_template = "{{ messages[0]['content'] }}{{ 1 // (messages[0]['content'] | length - 15) }}"
    assert "short" not in render([{"role": "user", "content": "clear"}], tokenizer)
    with pytest.raises(EngineError, match="the chat template refuses the messages: .*zero"):
        render(QUESTION, tokenizer)


ODD = {
    "a size that does not fit": ("config.json", {"hidden_size": 96}),
    "a vocabulary that does not fit": ("config.json", {"vocab_size": 100}),
    "layers without end": ("config.json", {"num_hidden_layers": 10**8}),
    "no attention heads": ("config.json", {"num_attention_heads": 0}),
    "a word for a number": ("config.json", {"rms_norm_eps": "x"}),
    "a type that there is not": ("config.json", {"dtype": "evil"}),
    "special tokens as a number": ("tokenizer_config.json", {"extra_special_tokens": 7}),
    "a pad token as a list": ("tokenizer_config.json", {"pad_token": ["a"]}),
    "a length as a word": ("tokenizer_config.json", {"model_max_length": "x"}),
}


@pytest.mark.parametrize("what", ODD)
def test_a_setting_of_another_type_is_one_sentence(what: str, model: Path) -> None:
    file, changes = ODD[what]
    write(model, file, changes)
    # The weights' type is the user's, so that the model's own is not even looked at where they are loaded.
    read_first = "tokenizer" in file or "dtype" in changes
    load = loading.load_tokenizer if read_first else loading.load_model
    with pytest.raises(EngineError, match="model") as caught:
        load(ModelConfig(path=str(model)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"vocab_size": -1}, "vocab_size=-1, which no model has"),
        ({"num_key_value_heads": 10**9}, "num_key_value_heads=1000000000, which no model has"),
        ({"max_position_embeddings": 10**30}, "max_position_embeddings=10{30}, which no model has"),
        # Eight gigabytes of embeddings that no file holds.
        ({"vocab_size": 2**24, "tie_word_embeddings": False}, "vocab_size=16777216 and hidden_size=128, and its files"),
    ],
)
def test_sizes_that_no_model_has_are_refused_before_memory_is_filled(
    changes: dict[str, Any], said: str, model: Path
) -> None:
    write(model, "config.json", changes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(EngineError, match=said):
        loading.load_model(ModelConfig(path=str(model)))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20, "a gigabyte, in kilobytes"


def test_an_index_that_points_outside_is_one_sentence(model: Path) -> None:
    (model / "model.safetensors").rename(model / "model-00001-of-00001.safetensors")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "../other.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(EngineError, match="model"):
        loading.load_model(ModelConfig(path=str(model)))


@pytest.mark.parametrize("ends", ["x", ["x"], [["x"], 2], {"a": 1}, True, 2.0])
def test_an_end_token_that_is_no_number_is_one_sentence(ends: object, model: Path) -> None:
    """Before the run, and where nothing looked at it: no answer would end on such a token, or nothing would run."""
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    sentence = r"eos_token_id of \S*model holds .*, and a token's number is expected: look into generation_config\.json"
    with pytest.raises(ConfigError, match=rf"^k: {sentence}"):
        check_loadable(ModelConfig(path=str(model)), "k")
    with pytest.raises(EngineError, match=sentence):
        TransformersEngine(TransformersEngineConfig(model=ModelConfig(path=str(model))))


@pytest.mark.parametrize("content", ["[]", "[" * 100_000])
def test_settings_of_generation_that_are_no_object_are_one_sentence(content: str, model: Path) -> None:
    config = ModelConfig(path=str(model))
    (model / "generation_config.json").write_text(content)
    # It takes the ends that it can read.
    assert loading.end_token_ids(config, loading.load_tokenizer(config)) == {2}
    with pytest.raises(EngineError, match="model holds a value that a model of this kind cannot have"):
        loading.load_model(config)


def test_weights_of_other_sizes_are_told_by_what_the_user_can_see(model: Path) -> None:
    write(model, "config.json", {"hidden_size": 96})
    with pytest.raises(EngineError, match=r"^the weights of \S*model have other sizes than its config\.json says"):
        loading.load_model(ModelConfig(path=str(model)))


@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 100_000, '{"weight_map": []}', '{"weight_map": {"a": 5}}'])
def test_an_index_that_names_no_files_is_one_sentence(content: str, model: Path) -> None:
    (model / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ConfigError, match=r"^k: .*index\.json names no file for each weight: copy the model again$"):
        check_loadable(ModelConfig(path=str(model)), "k")


@pytest.mark.parametrize("content", ["", "[]", "[" * 100_000, "no JSON"])
def test_adapters_that_are_no_json_are_one_sentence(content: str, model: Path) -> None:
    (model / "adapter_config.json").write_text(content)
    with pytest.raises(EngineError, match=r"adapter_config.json is not a JSON object"):
        loading.load_model(ModelConfig(path=str(model)))


def test_adapters_of_a_method_that_is_no_word_are_one_sentence(model: Path) -> None:
    settings = {"base_model_name_or_path": "world", "peft_type": 5}
    (model / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=r"^k: adapter_config\.json of .* that PEFT cannot read \(KeyError: 5\)"):
        check_loadable(ModelConfig(path=str(model)), "k")


def test_weights_that_no_digest_names_are_not_loaded(model: Path) -> None:
    digests.note_weights(model)
    loading.load_model(ModelConfig(path=str(model)))
    (model / digests.DIGESTS).write_text("{}")
    with pytest.raises(EngineError, match=r"weights.json does not name model.safetensors"):
        loading.load_model(ModelConfig(path=str(model)))
