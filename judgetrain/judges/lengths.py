"""Whether a model's context leaves room for a prompt beside the longest text that it is asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from judgetrain.engines.config import model_files
from judgetrain.errors import ConfigError
from judgetrain.judges.config import LEVELS, JudgeConfig


def check_lengths(judge: JudgeConfig, path: str, method: str) -> None:
    """Check that no step of a branching judge asks for as many tokens as its model can read and write together.

    ``path``: the model's directory, ``world``, or an id on the Hub, of which nothing is known here; ``method`` names
    the judge in the message.

    Raises:
        ConfigError: no prompt would ever fit; names the key, the limit and what to set.
    """
    here = model_files(path)
    context = _context(Path(here).expanduser()) if here else None
    if context is None:
        return
    found = {f"judge.{step}_tokens": n for step in LEVELS if (n := getattr(judge, f"{step}_tokens")) >= context}
    if found:
        told = " ".join(f"{key}={value}" for key, value in found.items())
        lower = " ".join(f"{key}={context // 4}" for key in found)
        raise ConfigError(
            f"{told}: the model of {method} has a context of {context} tokens, which leaves none for a prompt: lower "
            f"them, for example {lower}"
        )


def too_long_hint(failures: Mapping[str, int]) -> str | None:
    """What to lower where comparisons did not fit into the context, by the reasons of predictions' ``failures``; None
    where all did. A server's and a scorer's failures name no step, and get no hint."""
    found = {step: n for step in LEVELS if (n := failures.get(f"{step}:too_long", 0))}
    if not found:
        return None
    keys = " and ".join(f"judge.{step}_tokens" for step in found)
    told = ", ".join(f"{n} {step}:too_long" for step, n in found.items())
    return f"{told}: a prompt and {keys} together exceed the model's context, so that it was not asked: lower {keys}"


def _context(directory: Path) -> int | None:
    """The context length of a model in a directory, tokens; None where there is no configuration that says it."""
    try:
        found: dict[str, Any] = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    text = found.get("text_config") or found
    length = text.get("max_position_embeddings") or text.get("n_positions")
    return length if isinstance(length, int) else None
