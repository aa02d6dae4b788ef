"""Lay the examples of a comparison out as one row, in which a beginning that several of them share stands once.

Judgments of a response by several criteria differ in their last words, and those of both responses begin with the same
query. Read apart, the model computes such a beginning once for each. As one row they are a tree of tokens, written in
depth-first order. A token attends to the tokens on its own path from the root alone, and its position is its depth, so
that the model computes for it what it would compute in its example apart (tree attention: SpecInfer, arXiv 2305.09781,
section 4.2; shared prefixes in preference training: arXiv 2410.20305).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from judgetrain.train.data import Examples, Row, Slices, table
from judgetrain.train.ranking import PAIRS, RANK

ENDS = "subtree_ends"
"""The column with the place behind the last token of each token's subtree."""
POSITIONS = "position_ids"
"""The column with each token's depth in its tree, which is its position in its example."""
COLUMNS: Mapping[str, str] = {
    "input_ids": "int32",
    "completion_mask": "int8",
    POSITIONS: "int32",
    ENDS: "int32",
    PAIRS: "int32",
}
"""The columns of a row (lists), by type."""
_WIDTH = 2
"""A row has at most so many times the tokens of the longest example that is allowed: a pair always fits."""


@dataclass
class PrefixTree:
    """Examples of tokens as one tree, written in depth-first order.

    A token at place ``p`` attends to a place ``q`` if ``q <= p < ends[q]``. The first token of an answer and the token
    before it always stand side by side in an example's own part, so that the shifted labels of a causal language model
    are right at every place with a label.
    """

    tokens: array[int] = field(default_factory=lambda: array("i"))
    depths: array[int] = field(default_factory=lambda: array("i"))
    ends: array[int] = field(default_factory=lambda: array("i"))
    is_answer: array[int] = field(default_factory=lambda: array("b"))
    shifts: dict[int, int] = field(default_factory=dict)
    """For each example, how far the places of its own part stand behind the same places of the example."""

    @classmethod
    def of(cls, examples: Mapping[int, Row]) -> PrefixTree:
        """Return the tree of some examples, each with its columns ``input_ids`` and ``completion_mask``."""
        tree = cls()
        tree._add(examples, [*examples], 0)
        return tree

    def __len__(self) -> int:
        return len(self.tokens)

    def _add(self, examples: Mapping[int, Row], members: Sequence[int], depth: int) -> None:
        """Write the rest of examples that share their tokens up to a depth."""
        # By the next token; an example that may share no more begins a branch of its own.
        branches: dict[int | tuple[int], list[int]] = {}
        for member in members:
            branch: int | tuple[int] = (member,)
            if depth < _most_shared(examples[member]):
                branch = examples[member]["input_ids"][depth]
            branches.setdefault(branch, []).append(member)
        for branch_members in branches.values():
            first = examples[branch_members[0]]
            begin = len(self)
            if len(branch_members) == 1:
                self.shifts[branch_members[0]] = begin - depth
                self._write(first, depth, len(first["input_ids"]))
                self.ends.extend([len(self)] * (len(self) - begin))
                continue
            end = _shared_end([examples[member] for member in branch_members], depth)
            self._write(first, depth, end)
            shared = len(self) - begin
            self.ends.extend([0] * shared)
            self._add(examples, branch_members, end)
            # The subtree of a shared token ends with the last example that shares it.
            self.ends[begin : begin + shared] = array("i", [len(self)] * shared)

    def _write(self, example: Row, begin: int, end: int) -> None:
        """Write the tokens of an example between two depths."""
        self.tokens.extend(example["input_ids"][begin:end])
        self.is_answer.extend(example["completion_mask"][begin:end])
        self.depths.extend(range(begin, end))

    def row(self, pairs: Sequence[tuple[int, int, bool]], marks: Mapping[int, int]) -> Row:
        """Return the columns :data:`COLUMNS`.

        Args:
            pairs: of examples of this tree that are ranked, as in :attr:`Examples.pairs`.
            marks: each ranked example's value in the column :data:`RANK`.
        """
        ranked: list[int] = []
        for better, worse, is_tie in pairs:
            places = [abs(marks[side]) + self.shifts[side] for side in (better, worse)]
            ranked += [*places, int(is_tie)]
        return {
            # Arrays hold a row in little memory, and are no type of a table's.
            "input_ids": self.tokens.tolist(),
            "completion_mask": self.is_answer.tolist(),
            POSITIONS: self.depths.tolist(),
            ENDS: self.ends.tolist(),
            PAIRS: ranked,
        }


def in_prefix_trees(examples: Examples, longest: int, place: Path | None = None) -> Examples:
    """Return the examples with those of a comparison in one row, or in several rows if they do not fit in one.

    The two sides of a pair that is ranked stand in the same row.

    Args:
        examples: supervised ones, with the column :data:`RANK` if pairs are ranked.
        longest: the most tokens of an example; a row has at most twice as many.
        place: the file of the table; None: it is held in memory.
    """
    lengths = array("i")

    def rows() -> Iterator[Row]:
        for tree, pairs, marks in _trees(examples, _WIDTH * longest):
            lengths.append(len(tree))
            yield tree.row(pairs, marks)

    data = table(rows(), place, COLUMNS)
    return replace(examples, data=data, lengths=lengths, pairs=(), comparisons=())


def _trees(
    examples: Examples, most_tokens: int
) -> Iterator[tuple[PrefixTree, Sequence[tuple[int, int, bool]], Mapping[int, int]]]:
    """Yield the trees of all examples, each with its pairs and the marks of its examples."""
    is_ranked = RANK in examples.data.column_names
    pairs_of = dict[int, tuple[int, int, bool]]()
    if is_ranked:
        for pair in examples.pairs:
            pairs_of[pair[0]] = pairs_of[pair[1]] = pair
    members = dict[int, list[int]]()
    for example, comparison in enumerate(examples.comparisons):
        members.setdefault(comparison, []).append(example)
    rows = Slices(examples.data)
    for of_comparison in members.values():
        read = {example: rows[example] for example in of_comparison}
        for tree in _that_fit(read, pairs_of, most_tokens):
            together = sorted(tree.shifts)
            # Each pair once, in the order of its first side.
            pairs = [*dict.fromkeys(pairs_of[example] for example in together if example in pairs_of)]
            marks = dict[int, int]()
            if is_ranked:
                marks = {example: read[example][RANK] for example in together}
            yield tree, pairs, marks


def _that_fit(
    examples: Mapping[int, Row], pairs_of: Mapping[int, tuple[int, int, bool]], most_tokens: int
) -> Iterator[PrefixTree]:
    """Yield the trees of a comparison's examples, of at most so many tokens each, with no pair parted."""
    whole = PrefixTree.of(examples)
    if len(whole) <= most_tokens:
        yield whole
        return
    units = dict[tuple[int, ...], None]()
    for example in examples:
        unit: tuple[int, ...] = (example,)
        if example in pairs_of:
            unit = pairs_of[example][:2]
        units[unit] = None
    part: dict[int, Row] = {}
    tree = PrefixTree()
    for unit in units:
        of_unit = {example: examples[example] for example in unit}
        larger = PrefixTree.of({**part, **of_unit})
        if part and len(larger) > most_tokens:
            yield tree
            part = {}
            larger = PrefixTree.of(of_unit)
        part.update(of_unit)
        tree = larger
    yield tree


def _most_shared(example: Row) -> int:
    """Return how many of an example's first tokens may be shared: all of its prompt but the last one.

    The token before an answer is the example's own, since it predicts the answer's first token.
    """
    return int(example["completion_mask"].index(1)) - 1


def _shared_end(examples: Sequence[Row], depth: int) -> int:
    """Return the depth up to which examples share their tokens, given that they share them up to a smaller one."""
    end = min(map(_most_shared, examples))
    first = examples[0]["input_ids"]
    for other in examples[1:]:
        shared = depth
        while shared < end and other["input_ids"][shared] == first[shared]:
            shared += 1
        end = shared
    return end
