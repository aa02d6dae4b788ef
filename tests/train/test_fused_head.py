"""TRL's output layer on a CPU: the same losses and gradients from the tokens that have a label alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
import torch
from trl.trainer import utils

from judgetrain.engines.config import ModelConfig
from judgetrain.train.trainers import labelled_tokens_alone
from tests.benchmarks.fused_head import ROWS, adapted, batch, step

TOKENS, LABELLED = 24, 5


@contextmanager
def projected() -> Iterator[list[int]]:
    """The number of positions of each projection."""
    counts: list[int] = []
    project = utils._ChunkedLogProbFunction.apply

    def counting(hidden: torch.Tensor, *rest: object) -> object:
        counts.append(len(hidden))
        return project(hidden, *rest)

    with patch.object(utils._ChunkedLogProbFunction, "apply", counting):
        yield counts


def test_losses_and_gradients_stay_and_other_tokens_are_left_out() -> None:
    model = adapted(ModelConfig(path="world"))
    model.eval()  # no dropout
    rows = batch(model.config.vocab_size, TOKENS, LABELLED)
    with projected() as counts:
        _, loss, gradient = step(model, rows)
        with labelled_tokens_alone():
            _, other, others = step(model, rows)
    assert counts == [ROWS * (TOKENS - 1), ROWS * LABELLED]
    assert other == pytest.approx(loss, rel=1e-6)
    torch.testing.assert_close(others, gradient, rtol=1e-4, atol=1e-7)
    assert gradient.norm() > 0


def test_other_devices_are_as_trl_has_them_and_all_is_undone() -> None:
    before = utils._use_triton
    with patch.object(utils, "_use_triton", lambda device: device.type == "cuda"), labelled_tokens_alone():
        assert [utils._use_triton(torch.device(name)) for name in ("cpu", "cuda", "xpu")] == [True, True, False]
    with pytest.raises(RuntimeError), labelled_tokens_alone():
        raise RuntimeError
    assert utils._use_triton is before
