"""How far apart two trainings may end that differ in rounding alone, whatever the processor."""

import math
from collections.abc import Mapping

import torch


def rounding(steps: int, learning_rate: float, precision: torch.dtype = torch.float32) -> float:
    """Return the root mean square of what rounding may change in the weights by ``steps`` of Adam.

    A step moves a weight by the learning rate times its gradient over the gradient's own size. A gradient is a sum,
    whose rounding is ``eps`` of its terms (``eps``: of the precision). Sums of terms that cancel are spread evenly
    around zero: a share ``x`` of the weights has a gradient below ``x`` of its terms, where rounding is ``eps / x`` of
    it. The step is that much off, and twice its length at most (the other sign). The mean of the square over all ``x``
    from 0 to 1 is below ``4 * eps``, whose root is ``2 * sqrt(eps)`` of a step. Steps add up at most.
    """
    return steps * learning_rate * 2 * math.sqrt(torch.finfo(precision).eps)


TERMS = 64
"""Operations behind a number here at most, each on the result of the one before: a text has as many tokens at most."""


def sum_rounding(size: float, terms: int = TERMS, precision: torch.dtype = torch.float32) -> float:
    """Return how far apart two computations of one number may be that differ in rounding alone.

    An operation is off by half of ``eps`` of its result at most, evenly around zero: its standard deviation is
    ``eps / sqrt(12)``. That of two computations of ``terms`` operations is ``sqrt(terms / 6) * eps``, and this is two
    and a half times as much. Sums of many terms are made in parts, and have fewer operations behind them than terms.

    Args:
        size: of the number; of numbers that are subtracted from one another, the sum of their sizes.
        terms: operations, each on the result of the one before.
        precision: of the operations.
    """
    return math.sqrt(terms) * torch.finfo(precision).eps * abs(size)


def loss_rounding(size: float, steps: int, learning_rate: float, gradient_norm: float) -> float:
    """Return how far apart the losses of two trainings in float32 may be that differ in rounding alone.

    The loss itself is a sum (:func:`sum_rounding`). The weights before it differ by :func:`rounding` each, with signs
    that have nothing to do with the gradient: along it that is as much as of one weight, times the gradient's norm.

    Args:
        size: of the loss, or of the terms that cancel in it.
        steps: of Adam up to this loss.
        learning_rate: the largest of these steps.
        gradient_norm: the largest norm of the loss's gradient.
    """
    return sum_rounding(size) + gradient_norm * rounding(steps, learning_rate)


def apart(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> tuple[float, float]:
    """Return the root mean square and the largest of the differences between two models' weights."""
    assert first.keys() == second.keys()
    differences = torch.cat([(first[name].double() - second[name].double()).flatten() for name in first])
    return float(differences.square().mean().sqrt()), float(differences.abs().max())


def assert_same_but_for_rounding(
    first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor], steps: int, learning_rate: float
) -> None:
    """Check that two trainings of ``steps`` by Adam in float32 took the same steps.

    All weights together are as near as :func:`rounding` says. No single one is more than two learning rates off, which
    is one step in the other direction: a tensor that was left out is farther.
    """
    mean, largest = apart(first, second)
    allowed = rounding(steps, learning_rate)
    assert largest <= 2 * learning_rate, f"a weight is {largest:.2e} off, more than one step of {learning_rate:g}"
    assert mean <= allowed, f"weights are {mean:.2e} apart (root mean square); rounding explains {allowed:.2e}"
