"""Regional compilation: the same losses and gradients from compiled blocks, and what is said where it is left out."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from judgetrain.engines.config import ModelConfig
from judgetrain.train.compiling import compile_blocks, no_compiler
from tests.benchmarks.fused_head import adapted, batch, step
from tests.builders.train import config, run_initial, same, sft_rows, weights

needs_compiler = pytest.mark.skipif(no_compiler() is not None, reason="no C++ compiler")


@needs_compiler
def test_losses_gradients_and_names_stay_whatever_the_width() -> None:
    plain = adapted(ModelConfig(path="world")).eval()  # no dropout
    compiled = copy.deepcopy(plain)
    names = list(compiled.state_dict())
    assert compile_blocks(compiled) == plain.config.num_hidden_layers
    assert list(compiled.state_dict()) == names
    for tokens in (24, 31):
        rows = batch(plain.config.vocab_size, tokens, 5)
        rows["attention_mask"][0, -3:] = 0
        _, loss, gradient = step(plain, rows)
        _, other, others = step(compiled, rows)
        assert other == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(others, gradient, rtol=1e-3, atol=1e-6)
        assert gradient.norm() > 0


def test_without_a_compiler_it_is_said_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torch._inductor.exc import InvalidCxxCompiler

    def none_here() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr("torch._inductor.cpp_builder.get_cpp_compiler", none_here)
    assert no_compiler() == "there is no C++ compiler (g++ or clang++)"
    plain = run_initial(tmp_path, config(max_steps=2), sft_rows(16), "plain")
    out = run_initial(tmp_path, config(max_steps=2, regional_compilation=True), sft_rows(16), "left-out")
    assert "regional_compilation is left out, since there is no C++ compiler" in capsys.readouterr().out
    assert same(weights(plain.directory), weights(out.directory))


def test_what_has_no_blocks_is_left_as_it_is() -> None:
    assert compile_blocks(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))) == 0
    assert compile_blocks(torch.nn.ModuleList([torch.nn.Linear(2, 2)])) == 0
