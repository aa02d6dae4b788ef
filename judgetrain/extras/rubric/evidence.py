"""The judgments that a rubric is found in, as arrays: a tree is a row, and a type of criteria is a column."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from judgetrain.data.prompt_keys import PromptKey, conversation_starts, key_of_dialogue
from judgetrain.extras.rubric.wordings import Embed, part_of, types_by
from judgetrain.judges.kinds.aggregation import margin_of
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree
from judgetrain.label.worth import Judgments, collect, margins_by_type, types_of
from judgetrain.rubrics import HIGHEST, LOWEST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Integers = NDArray[np.int64]

SAME = 0.9
"""Agreement of two types' judgments from which on they say the same; that of one type with itself is 1."""
NEARLY = 0.75
"""Agreement from which on two types are told of as nearly the same."""
SHARED = 50
"""Trees that two types must both be judged in, for their agreement to be known."""
SELDOM = 0.05
"""The share of its judgments that a type decides, below which it separates nothing."""
REPEATED = 3
"""Times that a guideline must have been judged by twice, to be known by how far its judgments agree."""


@dataclass(frozen=True)
class Evidence:
    """What trees say of criteria, and what is known of the trees.

    Args:
        judgments: a row a criterion.
        types: the type of each criterion [criterion].
        names: of the types, all different.
        texts: what each type asks, without its name.
        columns: margins by type as a share of the scale, and last the label: 1 for A, -1 for B; 0 where there is none
            [tree, type + 1].
        seen: where there is one [tree, type + 1].
        prompts: what each tree's conversation begins with.
        decides: the share of each type's judgments that are no tie [type].
        agreement: how far two types agree, as a share of how far repeated judgments of them do; nan where unknown
            [type, type].
        merged: pairs of names that say the same, of which the second stands for both.
        guidelines: the text of each criterion's guidelines, and the margins of two halves of its judgments
            [criterion].
        wordings: of each type, what says the same as its name; none where no encoder was asked [type].
        seldom: criteria that are of no type, since they are named too seldom.
    """

    judgments: Judgments
    types: Integers
    names: list[str]
    texts: list[str]
    columns: Floats
    seen: Bools
    prompts: list[PromptKey]
    decides: Floats
    agreement: Floats
    merged: list[tuple[str, str]]
    guidelines: list[list[tuple[str, float, float]]]
    wordings: list[list[str]]
    seldom: int

    @property
    def margins(self) -> Floats:
        """Return the margins by type, 0 where there is none [tree, type]."""
        return self.columns[:, :-1]

    @property
    def labels(self) -> Floats:
        """Return the labels, 0 for a tie and where there is none [tree]."""
        return self.columns[:, -1]

    @property
    def labelled(self) -> Bools:
        """Return which trees have a label [tree]."""
        return self.seen[:, -1]

    def near(self) -> Iterator[tuple[str, str, float]]:
        """Yield the pairs of types that say nearly the same, with their agreement."""
        for first in range(len(self.names)):
            for second in range(first + 1, len(self.names)):
                if self.agreement[first, second] >= NEARLY:
                    yield self.names[first], self.names[second], float(self.agreement[first, second])


@dataclass
class _Recorder:
    """Notes what the arrays of label/worth.py leave out, while trees pass by."""

    prompts: list[tuple[str, ...]] = field(default_factory=list)
    halves: list[tuple[float, float]] = field(default_factory=list)
    decided: list[float] = field(default_factory=list)
    guidelines: list[list[tuple[str, float, float]]] = field(default_factory=list)

    def passing(self, trees: Iterable[EvaluationTree]) -> Iterator[EvaluationTree]:
        """Yield the trees, each noted."""
        for tree in trees:
            self.prompts.append(key_of_dialogue(tree.comparison.dialogue))
            for criterion in tree.criteria:
                self._note(criterion)
            yield tree

    def part(self, rows: Integers) -> _Recorder:
        """Return the notes of some criteria alone."""
        return _Recorder(
            prompts=self.prompts,
            halves=[self.halves[row] for row in rows],
            decided=[self.decided[row] for row in rows],
            guidelines=[self.guidelines[row] for row in rows],
        )

    def _note(self, criterion: CriterionNode) -> None:
        """Note a criterion: the margins of two halves of its judgments, and its guidelines."""
        margins = []
        of_guidelines = []
        for guideline in criterion.guidelines:
            of_guideline = []
            for judgment in guideline.judgments:
                margin = margin_of(criterion, judgment)
                if margin is not None:
                    of_guideline.append(margin / (HIGHEST - LOWEST))
            margins.extend(of_guideline)
            if of_guideline and not guideline.failure:
                of_guidelines.append((guideline.text.strip(), *_halves(of_guideline)))
        decided = np.nan
        if margins:
            decided = float(np.mean([margin != 0 for margin in margins]))
        self.halves.append(_halves(margins))
        self.decided.append(decided)
        self.guidelines.append(of_guidelines)


def _halves(margins: list[float]) -> tuple[float, float]:
    """Return the means of the first and the second half of margins, mostly one order each; nan of fewer than two."""
    half = len(margins) // 2
    if not half:
        return np.nan, np.nan
    return fmean(margins[:half]), fmean(margins[half:])


def evidence_of(trees: Iterable[EvaluationTree], embed: Embed | None = None) -> Evidence:
    """Return what trees say, criteria that say the same in one column; trees are read one by one and not kept.

    Args:
        trees: ``label`` of a comparison is a known label, or None.
        embed: the encoder by which wordings are put together; None: criteria of nearly the same words are.
    """
    recorder = _Recorder()
    judgments = collect(recorder.passing(trees), lambda tree: tree.comparison.label)
    named = len(judgments.texts)
    worded: list[str] = []
    if embed is None or not named:
        types = types_of(judgments.texts)
    else:
        types, worded = types_by(embed, judgments, np.array(recorder.halves).reshape(-1, 2))
        kept = np.flatnonzero(types >= 0)
        judgments = part_of(judgments, kept)
        recorder = recorder.part(kept)
        types = types[kept]
        worded = [worded[row] for row in kept]
    types, merged = _merged(judgments, types, recorder)
    names, texts = _names(judgments.texts, types)
    margins = margins_by_type(judgments, types)
    decided = np.array(recorder.decided)
    decides = []
    for number in range(len(names)):
        of_type = decided[types == number]
        read = of_type[~np.isnan(of_type)]
        # Of a type of which nothing was read, nothing decides.
        decides.append(float(read.mean()) if len(read) else 0.0)
    return Evidence(
        judgments=judgments,
        types=types,
        names=names,
        texts=texts,
        columns=np.nan_to_num(np.column_stack([margins, judgments.labels])),
        seen=np.column_stack([~np.isnan(margins), ~np.isnan(judgments.labels)]),
        prompts=conversation_starts(recorder.prompts),
        decides=np.array(decides),
        agreement=_agreement(judgments, types, recorder),
        merged=merged,
        guidelines=recorder.guidelines,
        wordings=_wordings(worded, types, names),
        seldom=named - len(judgments.texts),
    )


def _wordings(worded: list[str], types: Integers, names: list[str]) -> list[list[str]]:
    """Return of each type the wordings that say the same as its name, what is named most often first.

    Args:
        worded: the wording of each criterion [criterion]; empty: no encoder was asked.
        types: their types [criterion].
        names: of the types.
    """
    counts: list[Counter[str]] = [Counter() for _ in names]
    for wording, number in zip(worded, types.tolist(), strict=False):
        counts[number][wording] += 1
    wordings = []
    for name, of_type in zip(names, counts, strict=True):
        wordings.append([text for text, _ in of_type.most_common() if _split(text)[0] != name])
    return wordings


def _merged(judgments: Judgments, types: Integers, recorder: _Recorder) -> tuple[Integers, list[tuple[str, str]]]:
    """Return types of which none agrees with another as with itself, and the names of those that were put together."""
    merged: list[tuple[str, str]] = []
    while True:
        agreement = _agreement(judgments, types, recorder)
        # Each pair once, and none with itself.
        above = np.where(np.triu(np.nan_to_num(agreement), 1) >= SAME, agreement, 0.0)
        if not above.any():
            return types, merged
        # The two that agree most; the one that stands more often names both.
        first, second = map(int, np.unravel_index(np.argmax(above), above.shape))
        names, _ = _names(judgments.texts, types)
        rarer, commoner = sorted((first, second), key=lambda number: int((types == number).sum()))
        merged.append((names[rarer], names[commoner]))
        types = np.where(types == rarer, commoner, types)
        # Numbered without a gap again.
        types = np.unique(types, return_inverse=True)[1]


def _agreement(judgments: Judgments, types: Integers, recorder: _Recorder) -> Floats:
    """Return how far two types agree, as a share of how far repeated judgments of them do [type, type].

    Two criteria that are one have different margins only as far as judgments are unsure. So the cosine of their margins
    is divided by what it could be at most: the root of both reliabilities (Spearman 1904). Where no criterion was
    judged twice, judgments count as sure. It is nan for types that :data:`SHARED` trees do not share.
    """
    margins = margins_by_type(judgments, types)
    halves = []
    for half in np.array(recorder.halves).reshape(-1, 2).T:
        halves.append(np.nan_to_num(margins_by_type(_with_margin(judgments, half), types)))
    # Of two halves; of both together by Spearman and Brown.
    between = _cosines(
        np.sum(halves[0] * halves[1], axis=0), np.sum(halves[0] ** 2, axis=0), np.sum(halves[1] ** 2, axis=0)
    )
    reliability = np.clip(2 * between / (1 + np.maximum(between, 0.0)), 0.1, 1.0)
    reliability[np.isnan(between)] = 1.0

    seen = ~np.isnan(margins)
    known = np.nan_to_num(margins)
    shared = seen.T.astype(float) @ seen
    products = known.T @ known
    # Each type's own size over the trees that both are judged in.
    sizes = (known**2).T @ seen
    agreement = _cosines(products, sizes, sizes.T) / np.sqrt(np.outer(reliability, reliability))
    agreement[shared < SHARED] = np.nan
    np.fill_diagonal(agreement, 1.0)
    return np.clip(agreement, -1.0, 1.0)


def _with_margin(judgments: Judgments, margin: Floats) -> Judgments:
    """Return judgments with other margins."""
    return Judgments(
        judgments.trees, judgments.queries, judgments.labels, judgments.ids, judgments.texts, judgments.tree, margin
    )


def _cosines(products: Floats, first: Floats, second: Floats) -> Floats:
    """Return products over the root of two sums of squares; nan where one of them is 0."""
    size = np.sqrt(first * second)
    return np.where(size > 0, products / np.maximum(size, 1e-12), np.nan)


def _names(texts: list[str], types: Integers) -> tuple[list[str], list[str]]:
    """Return the name of each type and what it asks, as its criteria most often have them; names are all different."""
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for number, text in zip(types.tolist(), texts, strict=True):
        counts[number][" ".join(text.split())] += 1
    names: list[str] = []
    asked: list[str] = []
    for number in range(len(counts)):
        # By name first: one that is said in several ways must not lose to one that is said in one.
        by_name: Counter[str] = Counter()
        for text, count in counts[number].items():
            by_name[_split(text)[0]] += count
        name = by_name.most_common(1)[0][0]
        of_name = Counter({text: count for text, count in counts[number].items() if _split(text)[0] == name})
        names.append(name)
        asked.append(_split(of_name.most_common(1)[0][0])[1])
    unique: list[str] = []
    for name in names:
        candidate = name
        number = 1
        # Two types may have one name where their criteria are one, said in very different words.
        while candidate.casefold() in (other.casefold() for other in unique):
            number += 1
            candidate = f"{name} {number}"
        unique.append(candidate)
    return unique, asked


def _split(text: str) -> tuple[str, str]:
    """Return a criterion's name and what it asks: the words before its colon and after it, or its text as both."""
    name, colon, asked = text.partition(":")
    if not colon or not name.strip() or not asked.strip():
        return text, text
    return name.strip(), asked.strip()
