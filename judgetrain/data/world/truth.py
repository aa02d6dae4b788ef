"""What the generated world says of comparisons of its queries, beside labels that they get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from judgetrain.data.world.splits import true_verdict
from judgetrain.schema import Comparison, Verdict


def truth_of(comparison: Comparison) -> Verdict | None:
    """The world's verdict on two responses; None of dialogues of other sources."""
    if comparison.dialogue.source != "world":
        return None
    try:
        return true_verdict(comparison.dialogue.query, comparison.response_a, comparison.response_b)
    except KeyError:  # a source of the same name
        return None


def with_truth(comparison: Comparison) -> Comparison:
    """The comparison labelled by the world, where it is one of the world's."""
    truth = truth_of(comparison)
    return replace(comparison, label=truth) if truth else comparison


def against_the_world(comparisons: Iterable[Comparison]) -> dict[str, int]:
    """How many labels A or B are ``right``, ``wrong``, or of responses that the world has as equals (``tie``).

    Empty where none of the comparisons is the world's.
    """
    found = Counter[str]()
    for comparison in comparisons:
        if truth := truth_of(comparison):
            found["tie" if truth == "tie" else "right" if truth == comparison.label else "wrong"] += 1
    return {name: found[name] for name in ("right", "tie", "wrong")} if found else {}
