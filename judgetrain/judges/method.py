"""Methods: what stands in a table of results, parsed once from the string that names it."""

import glob
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
# The kinds of methods that have no prefix; the kind of every other method is the prefix of its name.
BRANCHING = "branching"
BASELINE = "baseline"

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
    "scores": {"reasons": False},
    "given": {},
    "shuffled": {},
}
"""The options that may follow a branching judge's name after ``+``, and the settings that each changes.

``given`` and ``shuffled`` choose the criteria instead (:attr:`Method.criteria`).
"""

# At the end of a name: "+sampled+expected@3", each part of which may be missing.
_OPTIONS = re.compile(rf"((?:\+(?:{'|'.join(OPTIONS)}))*)(?:@(\d+))?$")
# "pairwise:base": a word, which a Windows drive looks like, too.
_PREFIX = re.compile(r"([a-z_][a-z0-9_]*):(.*)", re.DOTALL)
_LEARNED = re.compile(r"(\d+)(?::(.+))?")
"""The target of a kind that learns from labelled pairs: ``70`` or ``70:teacher``."""


def judge_among(inputs: Mapping[str, Path]) -> Path:
    """Return the directory of the one judge among a stage's inputs, which are directories by the stage's name."""
    # A stage that takes one judge has no second among its inputs: more would be an error of its settings.
    (judge,) = (directory for name, directory in inputs.items() if name in JUDGE_STAGES)
    return judge


def asks_judge_of(text: str, stage: str) -> bool:
    """Return whether a method asks the judge of a training stage as a user would: ``dpo``, ``dpo+given@3``.

    Args:
        text: the method, as the configuration has it.
        stage: one of :data:`JUDGE_STAGES`.
    """
    method = Method.parse(text)
    # By the criteria of another query a judge is measured, and never asked.
    return method.kind == BRANCHING and method.target == stage and "shuffled" not in method.options


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
        # Options and a number stand at the end of a branching judge's name; all other names have none.
        ending = _OPTIONS.search(text)
        # The pattern matches an empty ending, too.
        assert ending is not None
        target = text[: ending.start()]
        # A word that is no model is the name of a baseline, or a mistake, which the checks tell apart.
        if target not in TARGETS and not _is_path(target):
            return cls(BASELINE, text, (), text)
        options, most = ending.groups()
        limit = None
        if most:
            limit = int(most)
        return cls(BRANCHING, only_match(target), tuple(options.split("+")[1:]), text, limit)

    @classmethod
    def _prefixed(cls, name: str, target: str, text: str) -> "Method":
        """Return the method of a kind's prefix and what follows it."""
        kind = find_kind(name)
        if kind is not None and kind.target.learns:
            pairs_and_model = _LEARNED.fullmatch(target)
            if pairs_and_model is not None:
                pairs, model = pairs_and_model.groups()
                return cls(name, model or "base", (), text, labels=int(pairs))
        return cls(name, only_match(target), (), text)

    @property
    def names_model(self) -> bool:
        """Return whether the target is a model that generates text: one of :data:`TARGETS`, or a directory."""
        kind = find_kind(self.kind)
        return kind is not None and kind.target.model and (self.target in TARGETS or _is_path(self.target))

    @property
    def names_files(self) -> bool:
        """Return whether the target is a path, of a model that generates no text."""
        kind = find_kind(self.kind)
        return kind is not None and kind.target.files

    @property
    def goes_by_criteria(self) -> bool:
        """Return whether its judges grow a branch for each criterion (``criteria`` of its kind)."""
        kind = find_kind(self.kind)
        return kind is not None and kind.criteria

    @property
    def asked_as(self) -> "Method":
        """Return the method whose judge is asked: itself, but for kinds that ask another kind's in their own way."""
        kind = find_kind(self.kind)
        if kind is None or kind.asked_as == "{}":
            return self
        # As text, so that the target is parsed like one that a user writes.
        return Method.parse(kind.asked_as.format(self.target))

    @property
    def is_directory(self) -> bool:
        """Return whether the target is a model's directory or id on the Hub: it holds a path separator."""
        return self.names_model and _is_path(self.target)

    @property
    def on_hub(self) -> bool:
        """Return whether the target is an id on the Hub: ``OWNER/NAME`` or ``OWNER/NAME:REVISION``."""
        # A directory of this name comes first, and a pattern is of directories.
        if not self.is_directory or looks_local(self.target) or glob.has_magic(self.target):
            return False
        return not Path(self.target).exists()

    @cached_property
    def name(self) -> str:
        """Return the name in tables.

        A directory is named by its last part; ``.../dpo/0123456789abcdef/model``, where the pipeline puts judges,
        becomes ``dpo-012345``. The kind stays in front, with the number of labels where it learns from such, options
        behind; the most branches are no part of it.
        """
        if self.kind == BRANCHING and not self.is_directory:
            return "+".join((self.target, *self.options))
        if not self.is_directory:
            return self.text
        path = Path(self.target)
        name = path.resolve().name
        # All of the pipeline's judges end in "model".
        if path.name == "model" and len(path.parts) > 2:
            name = f"{path.parts[-3]}-{path.parts[-2][:6]}"
        elif name == "model":
            # A link to such a judge keeps the name that the user gave it.
            name = Path(os.path.abspath(path)).name
        # Tables show methods that learned from different numbers of pairs side by side.
        if self.labels:
            name = f"{self.labels}:{name}"
        if self.kind != BRANCHING:
            return f"{self.kind}:{name}"
        return "+".join((name, *self.options))

    @property
    def criteria(self) -> str:
        """Return the criteria that stage evaluate has it judge by.

        They are its ``own``, those ``given`` with each comparison, or ``shuffled``: those given with another query,
        which show what a list is worth.
        """
        for option in self.options:
            if option in ("given", "shuffled"):
                return option
        return "own"

    @property
    def file_name(self) -> str:
        """Return the name as part of a file's name."""
        return in_file_name(self.name)

    def branches(self, numbers: Sequence[int]) -> list[int]:
        """Return the configured numbers of branches up to this method's limit, or its limit where all are larger.

        Empty for judges that have no branches.
        """
        if not self.goes_by_criteria:
            return []
        if self.most is None:
            return list(numbers)
        within_limit = [number for number in numbers if number <= self.most]
        return within_limit or [self.most]

    @property
    def changes(self) -> dict[str, Any]:
        """Return the settings that the options change, by name; the last option of a setting counts."""
        changes: dict[str, Any] = {}
        for option in self.options:
            changes.update(OPTIONS[option])
        return changes

    @property
    def asking(self) -> dict[str, Any]:
        """Return the keys of ``judge.*`` that the options change: all of :attr:`changes` but the plan, no key."""
        changes = self.changes
        changes.pop("plan", None)
        return changes


def method_directory(text: str, owner: object = None) -> str | list[str | None] | None:
    """Return the path of the model that a method names, or its commit on the Hub; None without either."""
    method = Method.parse(text)
    if method.on_hub:
        return ["commit", commit_of(method.target)]
    if method.is_directory or method.names_files:
        return method.target
    return None


def _is_prefix(name: str) -> bool:
    """Return whether methods of a kind begin with this word."""
    # These two are kinds, but no prefixes.
    return name in rooms.kinds() and name not in (BRANCHING, BASELINE)


def _is_path(text: str) -> bool:
    """Return whether a text holds a path separator, of Unix or of this system."""
    return "/" in text or os.sep in text


def in_file_name(name: str) -> str:
    """Return a name as part of a file's name."""
    # Windows has no colons in file names, and no system has the slashes of an address.
    return name.replace(":", ".").replace("/", "_")


def only_match(target: str) -> str:
    """Return the one path that a pattern matches, as ``outputs/artifacts/dpo/*/model``; else the text as it is."""
    if not _is_path(target) or not glob.has_magic(target):
        return target
    place = Path(target).expanduser()
    # Brackets may be a part of a directory's own name, which as a pattern would be another directory's.
    if place.exists():
        return target
    matches = glob.glob(str(place))
    if len(matches) != 1:
        # The check before a run says that there is no such directory, or too many.
        return target
    return matches[0]
