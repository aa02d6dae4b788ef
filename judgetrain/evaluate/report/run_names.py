"""What runs and their methods are called in one report of several evaluations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from judgetrain.judges.method import ASKED_ONCE, Method

MEASURED = ("evaluate.methods", "evaluate.branches", "evaluate.bootstrap", "evaluate.stored")
"""Settings that say what is measured and not what it is like."""
UNLABELLED = (*MEASURED, "evaluate.benchmarks")
"""Settings that are in no label."""

Results = Mapping[Hashable, Hashable]
"""A method's figures in one run, by the place of their row in the report."""

_COMPARISONS = ("seed", "recipe", "dialogues.world", "evaluate.dev_share")
_LATER = {
    "initial": ("label", "train.sft", "train.dpo", "train.rl"),
    "sft": ("train.dpo", "train.rl"),
    "dpo": ("train.rl",),
    "rl": (),
}
_ALL_LATER = ("train.initial", *_LATER["initial"])


def run_labels(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """What tells each run from the others: the settings that differ, by the shortest name that is not ambiguous.

    A setting that a run does not have is no difference. Runs that no setting tells apart are numbered.
    """
    labels = _differing_settings(settings)
    twice = Counter(labels)
    return [_numbered(label, i) if twice[label] > 1 else label for i, label in enumerate(labels, 1)]


def method_names(method: str, settings: Mapping[int, Mapping[str, str]], results: Mapping[int, Results]) -> list[str]:
    """What a method is called in each of the runs that have it; both mappings are by the number of the run, from 1.

    It carries the settings that it uses and that differ (``dpo (beta=0.1)``), and its own name alone where there are
    none or all of the runs gave the same figures. Runs that no setting tells apart share a name where they have the
    same figures at every place that both have, else their numbers follow.
    """
    numbers = list(settings)
    labels = _differing_settings([{k: v for k, v in settings[i].items() if uses(method, k)} for i in numbers])
    if all(results[i] == results[numbers[0]] for i in numbers):
        labels = [""] * len(numbers)
    first: dict[str, list[int]] = {}
    shared: list[tuple[str, int]] = []
    for number, label in zip(numbers, labels, strict=True):
        known = first.setdefault(label, [])
        same = next((i for i in known if _same_figures(results[i], results[number])), None)
        if same is None:
            known.append(number)
        shared.append((label, number if same is None else same))
    labels = [_numbered(label, number) if len(first[label]) > 1 else label for label, number in shared]
    return [f"{method} ({label})" if label else method for label in labels]


def uses(method: str, key: str) -> bool:
    """Whether a setting may change what a method gives."""
    parsed = Method.parse(method)
    if parsed.kind == "scorer":
        return _within(key, (*_COMPARISONS, "scorer", "train.base"))
    if not parsed.names_model:
        return _within(key, _COMPARISONS)
    target = parsed.target
    unused = {"scorer", *(f"evaluate.{name}" for name in ("scenarios", "external", *ASKED_ONCE))}
    unused -= {f"evaluate.{parsed.kind}", f"evaluate.{target}"}
    if not parsed.has_branches:
        unused |= {"tree", "judge", "evaluate.aggregation", "evaluate.early_stop", "evaluate.top_up"}
    untrained = _ALL_LATER if target in ("base", "teacher", "external") else ()
    return not _within(key, (*unused, *_LATER.get(target, untrained)))


def _within(key: str, groups: Sequence[str]) -> bool:
    return any(key == group or key.startswith(f"{group}.") for group in groups)


def swept_keys(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The settings, but the seed, that all runs have and that differ between them."""
    return [key for key in _differing(settings) if key != "seed" and all(key in each for each in settings)]


def natural(value: str) -> tuple[bool, float, str]:
    """What values of settings are ordered by: numbers by their size, before all others."""
    try:
        return False, float(value), value
    except ValueError:
        return True, 0.0, value


def _differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    keys = sorted({key for each in settings for key in each if not key.startswith(UNLABELLED)})
    return [key for key in keys if len({each[key] for each in settings if key in each}) > 1]


def _differing_settings(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Each run's values of the settings that differ between runs, as one text."""
    differing = _differing(settings)
    last = Counter(key.rpartition(".")[2] for key in differing)
    names = {k: k.rpartition(".")[2] if last[k.rpartition(".")[2]] == 1 else k for k in differing}
    return [", ".join(f"{names[k]}={each[k]}" for k in differing if k in each) for each in settings]


def _numbered(label: str, number: int) -> str:
    return f"{label}{', ' if label else ''}run {number}"


def _same_figures(one: Results, other: Results) -> bool:
    return all(one[place] == other[place] for place in one if place in other)
