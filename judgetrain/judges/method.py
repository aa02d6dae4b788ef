"""Methods: what stands in a table of results, parsed once from the string that names it."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from judgetrain import rooms
from judgetrain.engines.hub import commit_of, looks_local
from judgetrain.judges.kinds.kind import find_kind

JUDGE_STAGES = tuple(stage.name for stage in rooms.stages().values() if stage.judge)
"""The stages that make judges, which a method may name."""
TARGETS = ("base", "teacher", "external", *JUDGE_STAGES)
"""Models that a method may name; a directory is another."""
BRANCHING, BASELINE = "branching", "baseline"
"""The kinds of methods that have no prefix; the kind of every other is the prefix of its name."""

OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.0},
    "parsed": {"score": "parsed"},
    "expected": {"score": "expected"},
    "constrained": {"constrained": True},
    "one": {"reads": "one"},
    "two": {"reads": "two"},
    "vote": {"aggregation": "vote"},
    "mean": {"aggregation": "mean"},
    "shared": {"plan": "shared"},
    "independent": {"plan": "independent"},
    "given": {},
    "shuffled": {},
}
"""What may follow a branching judge's name after ``+``, and what it changes in how the judge is asked. ``given`` and
``shuffled``: by which criteria (:attr:`Method.criteria`)."""

_OPTIONS = re.compile(rf"((?:\+(?:{'|'.join(OPTIONS)}))*)(?:@(\d+))?$")
_PREFIX = re.compile(r"([a-z_][a-z0-9_]*):(.*)", re.DOTALL)
_LEARNED = re.compile(r"(\d+)(?::(.+))?")
"""Behind the prefix of a kind that learns from labelled pairs: ``70`` or ``70:teacher``."""


def judge_among(inputs: Mapping[str, Path]) -> Path:
    """The directory of the one judge among a stage's inputs, which are directories by the stages that made them."""
    (found,) = (directory for name, directory in inputs.items() if name in JUDGE_STAGES)
    return found


@dataclass(frozen=True)
class Method:
    """One way to compare two responses.

    Args:
        kind: the name of its kind (:mod:`judgetrain.judges.kinds.kind`); there may be none of this name.
        target: what stands behind the prefix: the model (one of :data:`TARGETS` or a directory) where the kind asks
            one, or whatever else the kind is about.
        options: those that follow a branching judge's name, as ``("sampled", "expected")``: see :data:`OPTIONS`.
        text: as the configuration has it.
        most: a branching judge's largest number of branches, after ``@`` as in ``dpo+sampled@3``; None: the
            configuration's.
        labels: labelled pairs that a method learns from without training (``rubric:70``).
    """

    kind: str
    target: str
    options: tuple[str, ...] = ()
    text: str = ""
    most: int | None = None
    labels: int = 0

    @classmethod
    def parse(cls, text: str) -> "Method":
        """Return the method that a string names: ``dpo``, ``dpo+sampled``, ``pairwise:base``, ``random``, ``./DIR``.

        Nothing is refused here: whether there is such a kind, and such a target of it, the checks before a run say.
        """
        prefixed = _PREFIX.fullmatch(text)
        if prefixed is not None:
            name, target = prefixed.groups()
            # A word before the colon of a path is part of the path, unless a kind has this name.
            if _is_prefix(name) or not _is_path(text):
                return cls._prefixed(name, target, text)
        ending = _OPTIONS.search(text)
        assert ending is not None  # it may be empty
        target = text[: ending.start()]
        options, most = ending.groups()
        if target in TARGETS or _is_path(target):
            return cls(BRANCHING, target, tuple(options.split("+")[1:]), text, int(most) if most else None)
        return cls(BASELINE, text, (), text)

    @classmethod
    def _prefixed(cls, name: str, target: str, text: str) -> "Method":
        kind = find_kind(name)
        if kind is not None and kind.learns:
            learned = _LEARNED.fullmatch(target)
            if learned is not None:
                return cls(name, learned[2] or "base", (), text, labels=int(learned[1]))
        return cls(name, target, (), text)

    @property
    def names_model(self) -> bool:
        """Whether the target is a model that generates text: one of :data:`TARGETS`, or a directory."""
        kind = find_kind(self.kind)
        return kind is not None and kind.model and (self.target in TARGETS or _is_path(self.target))

    @property
    def goes_by_criteria(self) -> bool:
        """Whether its judges grow a branch for each criterion (:attr:`~judgetrain.judges.kinds.kind.Kind.criteria`)."""
        kind = find_kind(self.kind)
        return kind is not None and kind.criteria

    @property
    def asked_as(self) -> "Method":
        """The method whose judge is asked: itself, but for kinds that ask another kind's in their own way."""
        kind = find_kind(self.kind)
        if kind is None or kind.asked_as == "{}":
            return self
        return Method.parse(kind.asked_as.format(self.target))

    @property
    def is_directory(self) -> bool:
        """Whether the target is a model's directory or id on the Hub: it holds a path separator."""
        return self.names_model and _is_path(self.target)

    @property
    def on_hub(self) -> bool:
        """Whether the target is an id on the Hub (``OWNER/NAME``, ``OWNER/NAME:REVISION``): there is no such directory,
        and it may be one."""
        return self.is_directory and not looks_local(self.target) and not Path(self.target).exists()

    @cached_property
    def name(self) -> str:
        """The name in tables.

        A directory is named by its last part; ``.../dpo/0123456789abcdef/model``, where the pipeline puts judges,
        becomes ``dpo-012345``, since all of those end in ``model``, and a link to one keeps its own name. The kind
        stays in front, with the number of labels where it learns from such, options behind; the most branches are no
        part of it.
        """
        if self.kind == BRANCHING and not self.is_directory:
            return "+".join((self.target, *self.options))
        if not self.is_directory:
            return self.text
        path = Path(self.target)
        name = path.resolve().name
        if path.name == "model" and len(path.parts) > 2:
            name = f"{path.parts[-3]}-{path.parts[-2][:6]}"
        elif name == "model":
            name = Path(os.path.abspath(path)).name
        if self.labels:
            name = f"{self.labels}:{name}"
        return "+".join((name, *self.options)) if self.kind == BRANCHING else f"{self.kind}:{name}"

    @property
    def criteria(self) -> str:
        """By which criteria stage evaluate has it judge: its ``own``, those ``given`` with each comparison, or
        ``shuffled``: those given with another query's, which show what a list is worth."""
        return next((option for option in self.options if option in ("given", "shuffled")), "own")

    @property
    def file_name(self) -> str:
        """The name in file names."""
        return self.name.replace(":", ".")

    def branches(self, numbers: Sequence[int]) -> list[int]:
        """Return the configured numbers of branches up to this method's limit, or its limit where all are larger.

        Empty for judges that have no branches.
        """
        if not self.goes_by_criteria:
            return []
        if self.most is None:
            return list(numbers)
        return [k for k in numbers if k <= self.most] or [self.most]

    @property
    def changes(self) -> dict[str, Any]:
        """What the options change in how the judge is asked: so one can be evaluated in several ways side by side."""
        return {name: value for option in self.options for name, value in OPTIONS[option].items()}

    @property
    def asking(self) -> dict[str, Any]:
        """What they change of ``judge.*``: all but the plan, which is no key."""
        return {name: value for name, value in self.changes.items() if name != "plan"}


def method_directory(text: str, owner: object = None) -> str | list[str | None] | None:
    """The directory of the model that a method names, or its commit on the Hub; None where it names no such place."""
    method = Method.parse(text)
    if method.on_hub:
        return ["commit", commit_of(method.target)]
    return method.target if method.is_directory else None


def _is_prefix(name: str) -> bool:
    """Return whether methods of a kind begin with this word."""
    return name in rooms.kinds() and name not in (BRANCHING, BASELINE)


def _is_path(text: str) -> bool:
    return "/" in text or os.sep in text
