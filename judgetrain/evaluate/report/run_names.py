"""What runs and their methods are called in one report of several evaluations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import Any

MEASURED = ("evaluate.methods", "evaluate.branches", "evaluate.bootstrap", "evaluate.stored")
"""Settings that say what is measured and not what it is like."""
UNLABELLED = (*MEASURED, "evaluate.benchmarks")
"""Settings that are in no label."""

Settings = Mapping[str, str]
"""A run's settings by their full names, as text."""
Results = Mapping[Hashable, Hashable]
"""A method's figures in one run, by the place of their row in the report."""


def run_labels(settings: Sequence[Settings]) -> list[str]:
    """What tells each run from the others: the settings that differ, by the shortest name that is not ambiguous.

    A setting that a run does not have is no difference. Runs that no setting tells apart are numbered.
    """
    labels = _labels(settings, differing(settings))
    twice = Counter(labels)
    return [_numbered(label, i) if twice[label] > 1 else label for i, label in enumerate(labels, 1)]


def told_apart(names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of runs; those that have one name carry the settings that differ between them, too."""
    labels = dict[int, str]()
    for name in {name for name in names if names.count(name) > 1}:
        places = [i for i, each in enumerate(names) if each == name]
        labels |= dict(zip(places, run_labels([flat(settings[i]) for i in places]), strict=True))
    return [f"{name} ({labels[i]})" if i in labels else name for i, name in enumerate(names)]


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Settings by their full names, as text."""
    if not isinstance(value, Mapping):
        return {prefix: str(value)}
    parts = (flat(part, f"{prefix}.{name}" if prefix else name) for name, part in value.items())
    return {key: found for part in parts for key, found in part.items()}


def method_names(method: str, settings: Mapping[int, Settings], results: Mapping[int, Results]) -> list[str]:
    """What a method is called in each of the runs that have it; both mappings are by the number of the run, from 1.

    It carries the settings that differ (``dpo (beta=0.1)``): none where all runs gave the same figures, the number
    of the run where runs of equal settings gave different ones.
    """
    given = list(settings.values())
    labels = _labels(given, differing(given))
    apart = [
        (labels[i], labels[j])
        for (i, one), (j, other) in combinations(enumerate(results.values()), 2)
        if any(one[place] != other[place] for place in one if place in other)
    ]
    if not apart:
        return [method] * len(labels)
    unlike = {first for first, second in apart if first == second}
    names = (_numbered(label, n) if label in unlike else label for n, label in zip(settings, labels, strict=True))
    return [f"{method} ({name})" if name else method for name in names]


def differing(settings: Sequence[Settings]) -> list[str]:
    """The settings that have several values, of those that may stand in a label."""
    keys = sorted({key for each in settings for key in each if not key.startswith(UNLABELLED)})
    return [key for key in keys if len({each[key] for each in settings if key in each}) > 1]


def swept_keys(settings: Sequence[Settings]) -> list[str]:
    """The settings, but the seed, that all runs have and that differ between them."""
    return [key for key in differing(settings) if key != "seed" and all(key in each for each in settings)]


def natural(value: str) -> tuple[bool, float, str]:
    """What values of settings are ordered by: numbers by their size, before all others."""
    try:
        return False, float(value), value
    except ValueError:
        return True, 0.0, value


def _labels(settings: Sequence[Settings], keys: Sequence[str]) -> list[str]:
    """Each run's values of these settings, as one text."""
    last = Counter(key.rpartition(".")[2] for key in keys)
    names = {k: k.rpartition(".")[2] if last[k.rpartition(".")[2]] == 1 else k for k in keys}
    return [", ".join(f"{names[k]}={each[k]}" for k in keys if k in each) for each in settings]


def _numbered(label: str, number: int) -> str:
    return f"{label}{', ' if label else ''}run {number}"
