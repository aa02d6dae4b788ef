"""Of preference pairs of the quickstart, how many prefer what is better by the world's truth, at each level.

A side is right when

- judgment: its verdict on its criterion is the true one;
- guideline: it names the evidence to look for, as a sound guideline of that criterion does;
- criteria: (compared) the criteria that decide for this kind of query stand earlier than on the other side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from judgetrain.data.world.annotator import Annotator, criterion_name
from judgetrain.data.world.language import load_language
from judgetrain.judges.prompting.parsing import parse_criteria
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.schema import Comparison, Verdict

Fates = Counter[str]


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


def compare(chosen: float, rejected: float) -> str:
    """``better``, ``worse`` or ``same``."""
    return "better" if chosen > rejected else "worse" if chosen < rejected else "same"


def judgment_rightness(trees: dict[str, EvaluationTree]) -> dict[str, float]:
    """1 or 0 by judgment id: whether its verdict on its criterion is the true one."""
    every = ((tree.comparison, *branch) for tree in trees.values() for branch in tree.judgments())
    known = ((j, reading(comparison, c.text)) for comparison, c, _, j in every)
    return {j.id: float(j.verdict == truth) for j, truth in known if truth}


def fates(pairs: Iterator[dict[str, Any]], trees: dict[str, EvaluationTree]) -> dict[str, Fates]:
    """Counts of better, worse and same by level."""
    right = judgment_rightness(trees)
    names = {g.id: c.text for t in trees.values() for c in t.criteria for g in c.guidelines}
    found: dict[str, Fates] = {}
    for pair in pairs:
        level, texts = pair["level"], [pair[side][0]["content"] for side in ("chosen", "rejected")]
        nodes = [pair["nodes"][side][0] for side in ("chosen", "rejected")]
        if level == "judgment":
            values = [right.get(node) for node in nodes]
        elif level == "guideline":
            values = [is_sound(names[nodes[0]], text) for text in texts]
        else:
            query = trees[pair["comparison_id"]].comparison.dialogue.query
            values = [earliness(query, parse_criteria(text, 100)) for text in texts]
        if None in values:
            continue
        found.setdefault(level, Counter())[compare(*map(float, values))] += 1
    return found
