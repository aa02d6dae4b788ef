"""The output layer over the tokens that have a loss, and over no others, on a CPU too. Imports TRL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from trl.trainer import utils


@contextmanager
def labelled_tokens_alone() -> Iterator[None]:
    """Have TRL's fused output layer project, on a CPU, only the positions whose next token has a label.

    TRL 1.16 does so where Triton runs its kernels, and elsewhere projects every position, lest accelerators compile
    for each number of them; a CPU compiles nothing. Of a judgment nine tokens in ten are prompt: with a vocabulary of
    262,144 most of a step's time goes there. Losses and gradients are the same
    (``tests/benchmarks/fused_head.py`` has the ratio).
    """
    on_triton = getattr(utils, "_use_triton", None)
    if on_triton is None:  # another TRL, which does it as it does
        yield
        return
    utils._use_triton = lambda device: device == torch.device("cpu") or on_triton(device)
    try:
        yield
    finally:
        utils._use_triton = on_triton
