"""What helps where a judge gave no verdict."""

from __future__ import annotations

from collections.abc import Mapping

from judgetrain.judges.config import LEVELS


def of_too_long(failures: Mapping[str, int]) -> str | None:
    """What was not asked for want of context, by the reasons of predictions' ``failures``, and what to lower.

    None where nothing was too long. A server's and a scorer's have no step, and are not meant.
    """
    found = {step: n for step in LEVELS if (n := failures.get(f"{step}:too_long", 0))}
    if not found:
        return None
    keys = " and ".join(f"judge.{step}_tokens" for step in found)
    told = ", ".join(f"{n} {step}:too_long" for step, n in found.items())
    return f"{told}: a prompt and {keys} together exceed the model's context, so that it was not asked: lower {keys}"
