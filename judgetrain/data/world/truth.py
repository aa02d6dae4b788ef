"""What the generated world says of comparisons of its queries and of judges' texts, beside labels that they get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from judgetrain.data.world.annotator import Annotator, criterion_name
from judgetrain.data.world.language import load_language
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


def reading(comparison: Comparison, criterion: str) -> Verdict | None:
    """What a reader without error says by one criterion; None where the line names none of the world's properties."""
    language, name = load_language(), criterion_name(criterion)
    if name not in language.properties:
        return None
    a, b = (language.grade(response, name) for response in (comparison.response_a, comparison.response_b))
    return "tie" if a == b else "A" if a > b else "B"


def is_sound(criterion: str, guideline: str) -> bool | None:
    """Whether a guideline names the evidence to look for; None where the criterion is none of the world's."""
    language = load_language()
    if criterion_name(criterion) not in language.properties:
        return None
    return guideline == Annotator(language, 0.0).sound_guideline(criterion)


def earliness(query: str, criteria: Sequence[str]) -> float:
    """How early the criteria that decide for a query stand in a list, the primary one counting double; at most 0."""
    kind, names = load_language().kinds[load_language().kind_of(query)], [criterion_name(line) for line in criteria]
    weights = {kind.primary: 2.0, kind.secondary: 1.0}
    return -sum(weight * names.index(name) for name, weight in weights.items() if name in names)
