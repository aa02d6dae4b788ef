"""How methods are named: ``dpo``, ``random``, a judge's directory, or one of these asked in another way."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

ASKED_WAYS: tuple[Literal["one_step", "rating"], ...] = ("one_step", "rating")
"""Prefixes of methods that are asked once, as in ``one_step:base``."""

TARGETS = ("base", "teacher", "external", "initial", "sft", "dpo")
"""Models that a method may name; a directory is another."""


_READOUT = re.compile(r"(?:\+(?:parsed|expected|constrained))+$")


def base_method(method: str) -> str:
    """The method without the readouts that follow it, as ``dpo`` of ``dpo+expected+constrained``."""
    return _READOUT.sub("", method)


def split_method(method: str) -> tuple[str, str]:
    """The way of asking and the model: ``("one_step", "base")`` for ``one_step:base``, ``("", "dpo")`` for ``dpo``.

    The readouts of a branching judge (``dpo+expected``) are left out.
    """
    way, colon, target = method.partition(":")
    return (way, target) if colon and way in ASKED_WAYS else ("", base_method(method))


def is_directory(method: str) -> bool:
    """Whether a method is named by a model's directory: it holds a path separator."""
    target = split_method(method)[1]
    return "/" in target or os.sep in target


def method_name(method: str) -> str:
    """The name of a method in tables.

    A directory is named by its last part; ``.../dpo/0123456789abcdef/model``, where the pipeline puts judges,
    becomes ``dpo-012345``, since all of those end in ``model``. The way of asking stays in front, readouts behind.
    """
    if not is_directory(method):
        return method
    way, target = split_method(method)
    path, readout = Path(target), method.removeprefix(base_method(method))
    name = path.resolve().name
    if path.name == "model" and len(path.parts) > 2:
        name = f"{path.parts[-3]}-{path.parts[-2][:6]}"
    return f"{way}:{name}" if way else f"{name}{readout}"


def file_name(method: str) -> str:
    """:func:`method_name` in file names."""
    return method_name(method).replace(":", ".")
