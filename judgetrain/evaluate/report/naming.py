"""Names of runs in a report, made of the settings that differ between them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from judgetrain import rooms

SEED = "seed"
MEASURED = (
    "evaluate.methods",
    "evaluate.branches",
    "evaluate.bootstrap",
    *(name for name, section in rooms.sections().items() if section.measured),
)
"""Settings that choose what is measured, and make no difference to what is measured."""
UNLABELLED = (*MEASURED, "evaluate.benchmarks")
"""Settings that are in no label."""

DATA = (SEED, "dialogues.world.", "evaluate.")
"""The beginnings of the settings that choose what a benchmark's data are."""

Settings = Mapping[str, str]
"""A run's settings by their full names, as text."""


def run_labels(settings: Sequence[Settings]) -> list[str]:
    """Return a label of each run that tells it from the others: its settings that differ, as ``NAME=VALUE``.

    Each setting has the shortest name that is not ambiguous. A setting that a run does not have is no difference. Runs
    that no setting tells apart are numbered.
    """
    labels = _labels(settings, differing(settings))
    counts = Counter(labels)
    result = []
    for number, label in enumerate(labels, 1):
        parts = []
        # Runs that differ in nothing have an empty label.
        if label:
            parts.append(label)
        if counts[label] > 1:
            parts.append(f"run {number}")
        result.append(", ".join(parts))
    return result


def shared_labels(groups: Sequence[Sequence[Settings]]) -> list[str]:
    """Return a label of each group of runs: the settings of its data that all its runs share and not all groups do.

    The label is empty where there is none, and groups may have the same.
    """
    shared = []
    for group in groups:
        first, *others = group
        common = {}
        for key, value in first.items():
            if key.startswith(DATA) and all(run.get(key) == value for run in others):
                common[key] = value
        shared.append(common)
    return _labels(shared, differing(shared))


def distinct_names(names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of runs; where runs share a name, the settings that differ between them stand behind it."""
    result = list(names)
    for name, count in Counter(names).items():
        if count == 1:
            continue
        # Only among the runs of one name: what differs from other models' runs tells these not apart.
        places = [place for place, other in enumerate(names) if other == name]
        labels = run_labels([flat(settings[place]) for place in places])
        for place, label in zip(places, labels, strict=True):
            result[place] = f"{name} ({label})"
    return result


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Return nested settings by their full names (``train.base.path``), as text."""
    if not isinstance(value, Mapping):
        return {prefix: str(value)}
    # As text, so that runs of older versions compare with newer ones.
    settings: dict[str, str] = {}
    for name, part in value.items():
        full_name = name
        if prefix:
            full_name = f"{prefix}.{name}"
        settings.update(flat(part, full_name))
    return settings


def differing(settings: Sequence[Settings]) -> list[str]:
    """Return the settings that have several values, of those that may stand in a label, in alphabetical order."""
    values: dict[str, set[str]] = {}
    for run in settings:
        for key, value in run.items():
            if not key.startswith(UNLABELLED):
                values.setdefault(key, set()).add(value)
    return [key for key in sorted(values) if len(values[key]) > 1]


def swept_keys(settings: Sequence[Settings]) -> list[str]:
    """Return the settings, but the seed, that all runs have and that differ between them."""
    return [key for key in differing(settings) if key != SEED and all(key in run for run in settings)]


def natural(value: str) -> tuple[bool, float, str]:
    """Return the key that sorts values of settings: numbers by their size, before all others."""
    try:
        # The text decides between equal numbers, as 1 and 1.0.
        return False, float(value), value
    except ValueError:
        return True, 0.0, value


def _labels(settings: Sequence[Settings], keys: Sequence[str]) -> list[str]:
    """Return the label of each run, by the settings that are named."""
    last_parts = {key: key.rpartition(".")[2] for key in keys}
    counts = Counter(last_parts.values())
    names = {}
    for key, last in last_parts.items():
        names[key] = key
        # The last part of a key is enough where no other key ends in it.
        if counts[last] == 1:
            names[key] = last
    labels = []
    for run in settings:
        labels.append(", ".join(f"{names[key]}={run[key]}" for key in keys if key in run))
    return labels
