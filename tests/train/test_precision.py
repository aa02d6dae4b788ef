"""In which precision is computed: as the GPU has it, and on a CPU as the base's dtype asks for it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from judgetrain.train.arguments import mixed_precision
from tests.builders.train import config, run_initial, sft_rows


@pytest.mark.parametrize(
    ("has_gpu", "gpu_has_it", "bf16", "dtype", "expected"),
    [
        (False, False, None, "auto", False),
        (False, False, None, "float32", False),
        (False, False, None, "bfloat16", True),
        (False, False, False, "bfloat16", False),
        (False, False, True, "float32", True),
        (True, True, None, "float32", True),
        (True, False, None, "bfloat16", False),
        (True, True, False, "bfloat16", False),
    ],
)
def test_a_cpu_computes_in_bfloat16_where_it_is_asked_for(
    has_gpu: bool, gpu_has_it: bool, bf16: bool | None, dtype: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: gpu_has_it)
    assert mixed_precision(bf16, dtype) is expected


def trained(tmp_path: Path, name: str, dtype: str, bf16: bool | None) -> dict[str, torch.Tensor]:
    """Return the weights, as written, that stage initial makes of the shipped base in three steps."""
    settings = config(max_steps=3, bf16=bf16)
    settings.train.base = replace(settings.train.base, dtype=dtype)
    out = run_initial(tmp_path, settings, sft_rows(12), name)
    return load_file(out.directory / "model" / "model.safetensors")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has a precision of its own")
def test_a_base_in_bfloat16_trains_in_it_and_keeps_weights_in_float32(tmp_path: Path) -> None:
    whole = trained(tmp_path, "whole", "float32", None)
    refused = trained(tmp_path, "refused", "bfloat16", False)
    mixed = trained(tmp_path, "mixed", "bfloat16", None)
    assert {tensor.dtype for tensor in mixed.values()} == {torch.float32}
    assert all(torch.equal(refused[name], whole[name]) for name in whole), "bf16=false computes in float32"

    # Adam's steps are about the learning rate, 1e-3, whatever the gradient's size: three of them at most.
    furthest = max(float((mixed[name] - whole[name]).abs().max()) for name in whole)
    assert 0 < furthest < 6.1e-3, "other digits, and no other training"
