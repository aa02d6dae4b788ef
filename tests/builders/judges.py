"""Sampling settings, and engines that fail, for trees of scripted judges."""

from __future__ import annotations

from judgetrain.engines.base import Request
from judgetrain.judges.config import StepsConfig
from tests.builders.scripted import noisy, number

SAMPLING = StepsConfig()


def failing(request: Request, occurrence: int) -> str:
    """Every kind of failure at every level but the list, decided by the content alone."""
    if request.step == "criteria":
        return noisy(request, occurrence)
    draw = number(sorted(request.slots.items())) % 7
    if draw in (0, 1, 2):
        return ("!too_long", "!error", "   ")[draw]
    return noisy(request, occurrence)
