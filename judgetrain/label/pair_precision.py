"""How often a pair's chosen side is the better one by the generated world's truth, and what the levels' tests say.

A reader without error is asked: a judgment is better if it says what its criterion shows, a guideline if it names the
evidence to look for, a list if what decides for the query stands earlier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from judgetrain.data.world.truth import earliness, is_sound, reading, truth_of
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.examples import Pair
from judgetrain.label.significance import LevelTest

_Key = tuple[str, tuple[str, ...], tuple[str, ...]]


class PairPrecision:
    """Remembers of pairs, as they are made, whether their chosen side is the better one."""

    def __init__(self) -> None:
        self._right: dict[_Key, bool] = {}

    def add(self, pairs: Sequence[Pair], tree: EvaluationTree) -> None:
        """Take in the pairs of a tree."""
        if tree.comparison.label is None or truth_of(tree.comparison) is None:
            return
        for pair in pairs:
            chosen, rejected = (_worth(tree, pair.level, nodes) for nodes in (pair.chosen_nodes, pair.rejected_nodes))
            if chosen is not None and rejected is not None:
                self._right[_key(pair)] = chosen > rejected

    def table(self, pairs: Sequence[Pair]) -> dict[str, dict[str, int]]:
        """By level, of the pairs given: how many are ``right``, and ``of`` how many it is known."""
        found: dict[str, dict[str, int]] = {}
        for pair in pairs:
            if (right := self._right.get(_key(pair))) is not None:
                row = found.setdefault(pair.level, {"right": 0, "of": 0})
                row["right"] += right
                row["of"] += 1
        return found


def _key(pair: Pair) -> _Key:
    return pair.level, tuple(pair.chosen_nodes), tuple(pair.rejected_nodes)


def _worth(tree: EvaluationTree, level: str, nodes: Sequence[str]) -> float | None:
    """What the nodes of a side are worth; None where nothing is known of them."""
    if level == "criteria":
        texts = {c.id: c.text for c in tree.criteria}
        return earliness(tree.comparison.dialogue.query, [texts[node] for node in nodes])
    if level == "guideline":
        return next(is_sound(c.text, g.text) for c, g in tree.guidelines() if g.id == nodes[0])
    criterion, judgment = next((c, j) for c, _, j in tree.judgments() if j.id == nodes[0])
    truth = reading(tree.comparison, criterion.text)
    return None if truth is None else float(judgment.verdict == truth)


def in_words(levels: Mapping[str, Mapping[str, Any]], pairs: Mapping[str, int]) -> Iterator[str]:
    """A sentence a level that gives pairs: how many there are, how many are right, and whether the level was tested."""
    for level, number in pairs.items():
        row = levels.get(level, {})
        said = f"{number:,} {level} pairs"
        if row.get("of"):
            said += f", {100 * row['right'] / row['of']:.1f}% of {row['of']:,} right by the truth"
        if row.get("chance") is None:
            said += (
                f"; untested: an independent signal was found for {row.get('tested', 0)} such differences, of "
                f"{LevelTest.FEWEST} that a test needs"
            )
        yield said
