"""Methods: what stands in a table of results, parsed once from the string that names it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

TARGETS = ("base", "teacher", "external", "initial", "sft", "dpo")
"""Models that a method may name; a directory is another."""
JUDGE_STAGES = ("initial", "sft", "dpo")
"""The targets that are judges of this run, by the stages that make them."""
BRANCHING, BASELINE = "branching", "baseline"
"""The kinds of methods that have no prefix; the kind of every other is the prefix of its name."""

_READOUT = re.compile(r"(?:\+(?:parsed|expected|constrained))+$")
_ASKED = ("one_step", "rating", "scorer", "stored")
"""Prefixes that stand before any target; a word before the colon of a path is part of the path otherwise."""
_PREFIX = re.compile(r"([a-z_]+):(.*)", re.DOTALL)


@dataclass(frozen=True)
class Method:
    """One way to compare two responses.

    Args:
        kind: ``branching``, ``one_step``, ``rating``, ``scorer``, ``stored`` or ``baseline``.
        target: the model (one of :data:`TARGETS` or a directory), or the scorer, stored entry or baseline by name.
        readouts: those that follow a branching judge's name, as ``("expected", "constrained")``.
        text: as the configuration has it.
    """

    kind: str
    target: str
    readouts: tuple[str, ...] = ()
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> Method:
        """The method that a string names: ``dpo``, ``dpo+expected``, ``one_step:base``, ``scorer:sentprob``, ``./DIR``.

        Nothing is refused here: whether there is such a kind, and such a target of it, the kind's runner says.
        """
        if (found := _PREFIX.fullmatch(text)) and (found[1] in _ASKED or not _is_path(text)):
            return cls(found[1], found[2], (), text)
        ending = _READOUT.search(text)
        target = text[: ending.start()] if ending else text
        if target in TARGETS or _is_path(target):
            return cls(BRANCHING, target, tuple(ending[0].split("+")[1:]) if ending else (), text)
        return cls(BASELINE, text, (), text)

    @property
    def names_model(self) -> bool:
        """Whether the target is a model that generates text: one of :data:`TARGETS`, or a directory."""
        if self.kind in ("scorer", "stored", BASELINE):
            return False
        return self.target in TARGETS or _is_path(self.target)

    @property
    def is_directory(self) -> bool:
        """Whether the target is a model's directory: it holds a path separator."""
        return self.names_model and _is_path(self.target)

    @property
    def has_branches(self) -> bool:
        """Whether its rows differ by a number of branches."""
        return self.kind == BRANCHING

    @cached_property
    def name(self) -> str:
        """The name in tables.

        A directory is named by its last part; ``.../dpo/0123456789abcdef/model``, where the pipeline puts judges,
        becomes ``dpo-012345``, since all of those end in ``model``, and a link to one keeps its own name. The kind
        stays in front, readouts behind.
        """
        if not self.is_directory:
            return self.text
        path = Path(self.target)
        name = path.resolve().name
        if path.name == "model" and len(path.parts) > 2:
            name = f"{path.parts[-3]}-{path.parts[-2][:6]}"
        elif name == "model":
            name = Path(os.path.abspath(path)).name
        return "+".join((name, *self.readouts)) if self.kind == BRANCHING else f"{self.kind}:{name}"

    @property
    def file_name(self) -> str:
        """The name in file names."""
        return self.name.replace(":", ".")

    @property
    def asking(self) -> dict[str, Any]:
        """What the readouts change in how a branching judge is asked.

        So one judge can be evaluated under several readouts side by side.
        """
        changes: dict[str, Any] = {}
        for readout in self.readouts:
            changes |= {"constrained": True} if readout == "constrained" else {"readout": readout}
        return changes


def _is_path(text: str) -> bool:
    return "/" in text or os.sep in text
