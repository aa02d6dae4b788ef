"""Chat templates in the several files of a model, against what Transformers' own tokenizer reads of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from judgetrain.engines.config import WORLD_BASE, ModelConfig
from judgetrain.engines.loading import DEFAULT_CHAT_TEMPLATE, load_tokenizer
from judgetrain.engines.prompting import render
from judgetrain.errors import EngineError
from tests.builders.engines import word_tokenizer

TUNED = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
WITH_PICTURES = (
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}"
    "{% else %}{% for part in m.content %}{{ part.text or '<image>' }}{% endfor %}{% endif %}<end>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
OTHER = TUNED.replace("<end>", "<end>\n")
QUESTION = ({"role": "system", "content": "the list"}, {"role": "user", "content": "the cat"})
PROMPT = "<system>the list<end><user>the cat<end><assistant>"


def model(place: Path, files: dict[str, Any]) -> ModelConfig:
    """Write a tokenizer without a template and put templates beside it, by their files' names."""
    word_tokenizer(None).save_pretrained(place)
    (place / "config.json").write_text(json.dumps({"model_type": "llama"}))
    for name, template in files.items():
        file = place / name
        if name.endswith(".jinja"):
            file.write_text(template)
            continue
        content = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(content | {"chat_template": template}))
    return ModelConfig(path=str(place))


@pytest.mark.parametrize("name", ["chat_template.json", "processor_config.json"])
@pytest.mark.parametrize("template", [TUNED, {"default": TUNED, "tool_use": OTHER}])
def test_a_template_that_only_processors_read_is_used(name: str, template: Any, tmp_path: Path) -> None:
    config = model(tmp_path, {name: template})
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template is None, "Transformers' tokenizers do not read it"
    assert render(QUESTION, load_tokenizer(config)) == PROMPT


@pytest.mark.parametrize(
    "files",
    [
        {"chat_template.jinja": TUNED + "\n", "tokenizer_config.json": TUNED},
        {"tokenizer_config.json": TUNED, "chat_template.json": WITH_PICTURES},
        {"tokenizer_config.json": [{"name": "default", "template": TUNED}], "processor_config.json": WITH_PICTURES},
        {"chat_template.json": WITH_PICTURES, "processor_config.json": TUNED},
    ],
)
def test_templates_that_write_the_same_stand_side_by_side(files: dict[str, Any], tmp_path: Path) -> None:
    assert render(QUESTION, load_tokenizer(model(tmp_path, files))) == PROMPT


@pytest.mark.parametrize(
    ("files", "first", "second"),
    [
        ({"chat_template.jinja": TUNED, "tokenizer_config.json": OTHER}, "chat_template.jinja", "tokenizer_config"),
        ({"tokenizer_config.json": TUNED, "chat_template.json": OTHER}, "tokenizer_config.json", "chat_template.json"),
        ({"tokenizer_config.json": TUNED, "processor_config.json": OTHER}, "tokenizer_config.json", "processor_config"),
        ({"chat_template.json": TUNED, "processor_config.json": OTHER}, "chat_template.json", "processor_config.json"),
    ],
)
def test_templates_that_write_different_prompts_are_refused(
    files: dict[str, Any], first: str, second: str, tmp_path: Path
) -> None:
    config = model(tmp_path, files)
    with pytest.raises(EngineError, match=f"different prompts: that of {first} and that of {second}") as refusal:
        load_tokenizer(config)
    assert "\n" not in str(refusal.value)


def test_a_model_without_any_template_gets_the_plain_one(tmp_path: Path) -> None:
    config = model(tmp_path, {"processor_config.json": None})
    assert load_tokenizer(config).chat_template == DEFAULT_CHAT_TEMPLATE.read_text(encoding="utf-8")


def test_a_written_tokenizer_has_one_template(tmp_path: Path) -> None:
    load_tokenizer(model(tmp_path / "base", {"chat_template.json": TUNED})).save_pretrained(tmp_path / "judge")
    assert AutoTokenizer.from_pretrained(tmp_path / "judge").chat_template == TUNED
    assert load_tokenizer(ModelConfig(path=str(tmp_path / "judge"))).chat_template == TUNED
    assert load_tokenizer(ModelConfig(path=str(WORLD_BASE))).chat_template != TUNED
