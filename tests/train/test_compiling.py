"""Regional compilation: the same losses and gradients from compiled blocks, and what is said where it is left out."""

from __future__ import annotations

import copy

import pytest
import torch

from judgetrain.engines.config import ModelConfig
from judgetrain.train.arguments import compiled
from tests.benchmarks.fused_head import adapted, batch, step


def test_losses_gradients_and_names_stay_whatever_the_width() -> None:
    plain = adapted(ModelConfig(path="world")).eval()  # no dropout
    other = copy.deepcopy(plain)
    names = list(other.state_dict())
    if "no C++ compiler" in (said := compiled(other)):
        pytest.skip(said)
    assert said.startswith(f"{plain.config.num_hidden_layers} blocks") and list(other.state_dict()) == names
    for tokens in (24, 31):
        rows = batch(plain.config.vocab_size, tokens, 5)
        rows["attention_mask"][0, -3:] = 0
        _, loss, gradient = step(plain, rows)
        _, again, others = step(other, rows)
        assert again == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(others, gradient, rtol=1e-3, atol=1e-6)
        assert gradient.norm() > 0


def test_without_a_compiler_it_is_said_and_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.exc import InvalidCxxCompiler

    def none_here() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr("torch._inductor.cpp_builder.get_cpp_compiler", none_here)
    assert compiled(torch.nn.Linear(2, 2)) == (
        "regional_compilation is left out, since there is no C++ compiler (g++ or clang++)"
    )
