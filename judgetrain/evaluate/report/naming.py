"""What runs are called in a report: by the settings that differ between them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from judgetrain import rooms

SEED = "seed"
MEASURED = (
    *("evaluate.methods", "evaluate.branches", "evaluate.bootstrap"),
    *(name for name, section in rooms.sections().items() if section.measured),
)
"""Settings that say what is measured and not what it is like."""
UNLABELLED = (*MEASURED, "evaluate.benchmarks")
"""Settings that are in no label."""

Settings = Mapping[str, str]
"""A run's settings by their full names, as text."""


def run_labels(settings: Sequence[Settings]) -> list[str]:
    """What tells each run from the others: the settings that differ, by the shortest name that is not ambiguous.

    A setting that a run does not have is no difference. Runs that no setting tells apart are numbered.
    """
    labels = _labels(settings, differing(settings))
    twice = Counter(labels)
    numbers = [[f"run {i}"] if twice[label] > 1 else [] for i, label in enumerate(labels, 1)]
    return [", ".join([*([label] if label else []), *number]) for label, number in zip(labels, numbers, strict=True)]


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
    last = Counter(key.rpartition(".")[2] for key in keys)
    names = {k: k.rpartition(".")[2] if last[k.rpartition(".")[2]] == 1 else k for k in keys}
    return [", ".join(f"{names[k]}={each[k]}" for k in keys if k in each) for each in settings]
