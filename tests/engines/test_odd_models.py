"""Models from elsewhere: templates without end, settings of another type, weights that nobody vouches for."""

import json
import math
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM, Gemma4TextConfig

from judgetrain.engines import digests, loading, template_check
from judgetrain.engines.config import WORLD_BASE, ModelConfig, TransformersEngineConfig
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.model_check import check_loadable
from judgetrain.engines.prompting import render
from judgetrain.engines.sizes import check_sizes
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


ODD_VALUES = (0, -1, 1.5, True, "x", [], {}, [0], 10**12, -(10**30), "12", math.nan, math.inf)
WORLD_CONFIG = json.loads((WORLD_BASE / "config.json").read_text())
MUST_BE_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
)


def outcome_of(model: Path) -> str:
    """Return the sentence that refuses a model, by the check before a run and by loading alike; empty: it is loaded."""
    config = ModelConfig(path=str(model))
    sentences = []
    try:
        check_loadable(config, "k")
    except ConfigError as error:
        sentences.append(str(error))
    try:
        loading.load_model(config)
    except EngineError as error:
        sentences.append(str(error))
    for sentence in sentences:
        assert "\n" not in sentence
    return "".join(sentences[:1])


@pytest.mark.parametrize("field", [*WORLD_CONFIG, "rope_parameters.rope_theta", "rope_parameters.rope_type"])
def test_an_odd_value_of_any_field_is_one_sentence_or_harmless_at_once(field: str, model: Path) -> None:
    """Neither a traceback nor a wait, whatever stands in config.json; and a size that is none is never loaded."""
    name, _, part = field.partition(".")
    for value in ODD_VALUES:
        content = WORLD_CONFIG | {name: value}
        if part:
            content = WORLD_CONFIG | {name: WORLD_CONFIG[name] | {part: value}}
        (model / "config.json").write_text(json.dumps(content))
        started_at = time.process_time()
        sentence = outcome_of(model)
        assert time.process_time() - started_at < 30, f"{field}={value!r}"
        if field in MUST_BE_SIZES:
            assert sentence, f"{field}={value!r} was loaded"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 0}, r"num_hidden_layers=0, which no model has \(expected 1 to 2,000\)"),
        ({"num_hidden_layers": -1}, r"num_hidden_layers=-1, which no model has"),
        ({"num_hidden_layers": 2001}, r"num_hidden_layers=2001, which no model has"),
        # Each is made before the weights are looked at: a minute on two cores.
        ({"num_hidden_layers": 500}, r"num_hidden_layers=500, and its files hold 38 weights, fewer than one a layer"),
        ({"intermediate_size": 0}, r"intermediate_size=0, which no model has"),
        ({"hidden_size": 0}, r"hidden_size=0, which no model has"),
        ({"num_key_value_heads": 0}, r"num_key_value_heads=0, which no model has"),
        ({"head_dim": 0}, r"head_dim=0, which no model has"),
        # It would be read as one without a limit.
        ({"max_position_embeddings": 0}, r"max_position_embeddings=0, which no model has"),
        ({"num_key_value_heads": 3}, r"num_attention_heads=4 and num_key_value_heads=3, which does not divide it"),
        ({"attention_dropout": 1.5}, r"attention_dropout=1.5, and a number from 0 to below 1 is expected"),
        ({"attention_dropout": -0.1}, r"attention_dropout=-0.1, and a number from 0"),
        ({"rms_norm_eps": math.inf}, r"rms_norm_eps=inf, and a number from 0"),
        ({"rms_norm_eps": math.nan}, r"rms_norm_eps=nan, and a number from 0"),
    ],
)
def test_numbers_of_a_configuration_are_looked_at_before_a_model_is_made(
    changes: dict[str, Any], message: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(model, "config.json", changes)
    monkeypatch.setattr(AutoModelForCausalLM, "from_config", None)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)
    for call in (loading.load_model, lambda config: check_loadable(config, "k")):
        with pytest.raises((EngineError, ConfigError), match=message):
            call(ModelConfig(path=str(model)))


def test_the_configurations_of_all_architectures_pass(tmp_path: Path) -> None:
    """What Transformers itself fills in for a model is no odd value."""
    count = 0
    for kind in MODEL_FOR_CAUSAL_LM_MAPPING:
        try:
            text_config = kind().get_text_config()
        except (ValueError, StrictDataclassError):
            # It has two text models in one, or nothing is filled in that would do.
            continue
        check_sizes(kind.__name__, text_config, tmp_path)
        count += 1
    assert count > 150


@pytest.mark.parametrize("changes", [{"unk_token": "x"}, {"vocab": {}}])
def test_a_tokenizer_that_fails_over_unknown_words_is_one_sentence(changes: dict[str, Any], model: Path) -> None:
    """It is loaded, and fails over a text: by the check before a run, and where nothing looked at it."""
    content = json.loads((model / "tokenizer.json").read_text())
    write(model, "tokenizer.json", {"model": content["model"] | changes})
    with pytest.raises(EngineError, match=r"a file of \S*model is cut or damaged \(WordLevel error: Missing"):
        loading.load_tokenizer(ModelConfig(path=str(model)))
    with pytest.raises(ConfigError, match=r"^k: a file of \S*model is cut or damaged"):
        check_loadable(ModelConfig(path=str(model)), "k")


def test_sizes_that_differ_by_layer_can_be_looked_at(tmp_path: Path) -> None:
    """As Gemma 4's width of a head, which its configuration does not tell as one number."""
    Gemma4TextConfig().save_pretrained(tmp_path)
    config = loading.load_config(ModelConfig(path=str(tmp_path)), str(tmp_path))
    with pytest.raises(RuntimeError, match="per-layer"):
        _ = config.head_dim
    write(tmp_path, "config.json", {"hidden_size": 0})
    with pytest.raises(EngineError, match="hidden_size=0, which no model has"):
        loading.load_config(ModelConfig(path=str(tmp_path)), str(tmp_path))
