"""How often a pair's chosen side is the better one by a truth that is known, and what the levels' tests say, in words.

Of the generated world's comparisons a reader without error is asked: a judgment is better if it says what its criterion
shows, a guideline if it names the evidence to look for, a list if what decides for the query stands earlier. Of others
that the data label, the label: the side is better whose judgments (of a list: those by the criterion that leads it)
give it more often, less those that give another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from judgetrain.data.world.truth import earliness, is_sound, reading, truth_of
from judgetrain.judges.trees.schema import EvaluationTree, JudgmentNode
from judgetrain.label.evidence import LevelTest
from judgetrain.label.examples import Pair
from judgetrain.schema import Verdict

Worth = Callable[[str, Sequence[str]], float | None]
"""What the nodes of a side are worth at a level; None where nothing is known of them."""
_Key = tuple[str, tuple[str, ...], tuple[str, ...]]


class Precision:
    """Remembers of pairs, as they are made, whether their chosen side is the better one."""

    def __init__(self) -> None:
        self._right: dict[_Key, bool] = {}

    def add(self, pairs: Sequence[Pair], tree: EvaluationTree) -> None:
        """Take in the pairs of a tree."""
        if tree.comparison.label is None:
            return
        world = truth_of(tree.comparison) is not None
        worth = _by_the_world(tree) if world else _by_label(tree, tree.comparison.label)
        for pair in pairs:
            chosen, rejected = (worth(pair.level, nodes) for nodes in (pair.chosen_nodes, pair.rejected_nodes))
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


def _by_the_world(tree: EvaluationTree) -> Worth:
    criteria = {c.id: c.text for c in tree.criteria}
    guidelines = {g.id: (c.text, g.text) for c, g in tree.guidelines()}
    judgments = {j.id: (c.text, j.verdict) for c, _, j in tree.judgments()}

    def worth(level: str, nodes: Sequence[str]) -> float | None:
        if level == "criteria":
            return earliness(tree.comparison.dialogue.query, [criteria[node] for node in nodes])
        if level == "guideline":
            return is_sound(*guidelines[nodes[0]])
        criterion, verdict = judgments[nodes[0]]
        truth = reading(tree.comparison, criterion)
        return None if truth is None else float(verdict == truth)

    return worth


def _by_label(tree: EvaluationTree, label: Verdict) -> Worth:
    under: dict[str, Sequence[JudgmentNode]] = {c.id: c.judgments for c in tree.criteria}
    under |= {g.id: g.judgments for _, g in tree.guidelines()} | {j.id: [j] for _, _, j in tree.judgments()}

    def worth(level: str, nodes: Sequence[str]) -> float | None:
        verdicts = [j.verdict for j in under[nodes[0]]]
        wrong = sum(verdict not in (label, "tie", None) for verdict in verdicts)
        return (verdicts.count(label) - wrong) / max(1, len(verdicts))

    return worth


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
