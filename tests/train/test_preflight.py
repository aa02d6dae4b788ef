"""What is wrong with a model, a tokenizer or the machine ends training with one sentence: the cause and the remedy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from judgetrain.data.world import BASE
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.errors import ConfigError, EngineError, TrainingError
from judgetrain.pipeline.run import Pipeline
from judgetrain.train.arguments import check_vocabulary, memory_explained
from judgetrain.train.data import fitting
from tests.builders.pairs_pipeline import composed
from tests.builders.train import config, run_initial, sft_rows, templated

MUTE = "{% for m in messages if m.role == 'user' %}<user>{{ m.content }}{% endfor %}"
"""A chat template that renders no assistant's turn."""


def test_labels_that_are_all_masked(tmp_path: Path) -> None:
    settings = config(max_steps=1)
    settings.train.base.path = templated(tmp_path / "mute", MUTE)
    with pytest.raises(TrainingError, match=r"in all 4 supervised .* label is masked: .*chat_template\.jinja"):
        run_initial(tmp_path, settings, sft_rows(4))


def test_examples_without_a_completion_are_left_out_and_counted(tmp_path: Path) -> None:
    template = "{% for m in messages if m.role == 'user' or m.content|length > 12 %}<user>{{ m.content }}{% endfor %}"
    tokenizer = load_tokenizer(ModelConfig(path=templated(tmp_path / "partial", template)))
    data = sft_rows(4)
    data[2]["completion"][0]["content"] = "it gives"
    for row, words in zip(data, ("a clear example", "no clear example", "", "a book for my sister"), strict=True):
        row["completion"][0]["content"] += f" {words}".rstrip()
    data[2]["completion"][0]["content"] = "it gives"
    examples = fitting(data, tokenizer, 256, "examples")
    assert len(examples) == 3 and examples.dropped == {"all_masked": 1, "too_long": 0}


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    model, tokenizer = load_model(ModelConfig(path="world")), load_tokenizer(ModelConfig(path="world"))
    check_vocabulary(model, tokenizer, "world")
    tokenizer.add_tokens(["<one>", "<two>"])
    with pytest.raises(TrainingError, match=r"tokenizer of world has tokens up to id 594, and .* for 593: .*resize"):
        check_vocabulary(model, tokenizer, "world")


def test_a_tokenizer_that_cannot_pad(tmp_path: Path) -> None:
    copy = tmp_path / "base"
    shutil.copytree(BASE, copy)
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    tokenizer.pad_token = tokenizer.eos_token = tokenizer.unk_token = None
    tokenizer.save_pretrained(copy)
    settings = config(max_steps=1)
    settings.train.base.path = str(copy)
    with pytest.raises(EngineError, match=r"tokenizer of .* has no pad, eos or unk token; add one to its files"):
        run_initial(tmp_path, settings, sft_rows(4))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), "out of memory: lower k.per_device_train_batch_size"),
        (MemoryError(), "out of memory: lower k.per_device_train_batch_size"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
            "out of memory: lower k.per_device",
        ),
        (RuntimeError("shapes do not match"), "shapes do not match"),
    ],
)
def test_memory_that_runs_out_is_said_and_nothing_else_is_taken_for_it(error: Exception, said: str) -> None:
    with pytest.raises(RuntimeError if "shapes" in said else TrainingError, match=said), memory_explained("k"):
        raise error


def test_an_argument_that_trl_does_not_know_is_refused_before_the_first_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = Pipeline(composed(tmp_path, "++train.dpo.trainer={warmup: 5}"))
    with pytest.raises(ConfigError, match=r"train\.dpo\.trainer\.warmup: TRL's DPOConfig has no such argument"):
        pipeline.run("dpo")
    assert "starting" not in capsys.readouterr().out and not list(tmp_path.glob("artifacts/*/*"))
