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
