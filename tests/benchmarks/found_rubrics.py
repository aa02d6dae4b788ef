"""What stage rubric finds on the generated world, where the truth is known.

    python -m tests.benchmarks.found_rubrics --rules 1 2 3 4 5
    python -m tests.benchmarks.found_rubrics --trees outputs/artifacts/tree/*

Trees are by the world's annotator, who errs in 15% of its judgments, or those of finished stages tree. For each number
of trees and of labels a row says for how many of the twelve kinds most held-out queries are judged by the true set of
criteria, and by the set in its order; the share of all held-out queries for which the set is true; how often the
annotator then agrees with the truth on held-out comparisons, by the found criteria and by the true ones; and, of the
annotator's trees, how many of four criteria that were put in (worthless, redundant, reversed, never different) are
marked, and how many of those that count are. The columns *told* are of somebody who is told the twelve kinds and the
true set of each, and weighs them by the same labels in the same way: more than that is not in these labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from judgetrain.artifacts.integrity import checked
from judgetrain.artifacts.shards import read_rows
from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons, queries, true_rubric
from judgetrain.data.world.engine import WorldEngine
from judgetrain.data.world.rule import World, load_world
from judgetrain.errors import DataError
from judgetrain.extras.rubric.config import RubricConfig
from judgetrain.extras.rubric.described import rubric_for
from judgetrain.extras.rubric.evidence import Evidence, evidence_of
from judgetrain.extras.rubric.kinds import Kinds, find_kinds, with_all
from judgetrain.extras.rubric.measure import resampled_worth, weigh, why_left_out
from judgetrain.extras.rubric.stage import find
from judgetrain.extras.rubric.stages import RubricSettings
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.worth import worth_by_kind
from judgetrain.rubrics import Rubric
from judgetrain.schema import Comparison
from tests.benchmarks.common import parser_of
from tests.builders.rubrics import ERRORS, INJECTED, annotated, injected

SIZES = ((600, 600), (1400, 0), (1400, 200))
"""Trees, and how many of them have a label."""
COMPARED = 300
"""Held-out comparisons of a rule."""
ASKED = 600
"""Held-out queries of a rule for which criteria are looked up."""


@dataclass(frozen=True)
class Figures:
    """The figures of one rubric."""

    sets: int
    orders: int
    share: float
    found: float
    true: float
    kinds: int


def figures_of(world: World, rubric: Rubric, kinds: int, compared: Sequence[Comparison]) -> Figures:
    """Return how true a rubric is, and how far the annotator agrees with the truth by it."""
    asked: dict[str, list[tuple[bool, bool]]] = {}
    held_out = queries("heldout")
    for query in held_out[:: len(held_out) // ASKED]:
        crucial = world.deciding_for(query).crucial
        names = tuple(criterion.name for criterion in rubric.for_query(query).criteria)
        outcome = (set(names) == set(crucial), names == crucial)
        asked.setdefault(world.language.kind_of(query), []).append(outcome)
    outcomes = [outcome for of_kind in asked.values() for outcome in of_kind]
    return Figures(
        sets=sum(2 * sum(right for right, _ in of_kind) > len(of_kind) for of_kind in asked.values()),
        orders=sum(2 * sum(right for _, right in of_kind) > len(of_kind) for of_kind in asked.values()),
        share=sum(right for right, _ in outcomes) / len(outcomes),
        found=agreement(world, [comparison.with_rubric(rubric) for comparison in compared]),
        true=agreement(
            world, [comparison.with_rubric(true_rubric(world, comparison.dialogue.query)) for comparison in compared]
        ),
        kinds=kinds,
    )


def agreement(world: World, comparisons: Sequence[Comparison]) -> float:
    """Return the share of comparisons on which the annotator, by the criteria that they bring, says the truth."""
    engine = WorldEngine(WorldEngineConfig(error_rate=ERRORS), world)
    options = JudgeOptions(aggregation="mean", tie=0.125)
    judge = BranchingJudge(engine, load_prompt_set("compact"), options)
    predictions = judge.compare_all(comparisons, seed=5)
    right = [one.verdict == other.label for one, other in zip(predictions, comparisons, strict=True)]
    return sum(right) / len(right)


def marked(rule: int, trees: Sequence[EvaluationTree]) -> tuple[int, int, int]:
    """Return how many criteria that are put in are marked, how many that count are, and how many count."""
    evidence = evidence_of(injected(rule, trees))
    kinds = find_kinds(evidence, None, 6)
    rows = why_left_out(evidence, kinds, resampled_worth(evidence, kinds, 0))
    out = {row.name for row in rows if not row.kinds}
    # What is counted under another name is marked as saying the same.
    same = {name for pair in evidence.merged for name in pair}
    counting = {name for deciding in load_world(rule).deciding.values() for name in deciding.crucial}
    wrongly = counting & (out - same)
    return sum(name in out | same for name in INJECTED), len(wrongly), len(counting)


def told(world: World, evidence: Evidence, compared: Sequence[Comparison]) -> tuple[int, float]:
    """Return in how many kinds the weights' order is true, and the agreement, where kinds and sets are known."""
    names = list(world.language.kinds)
    kind_of_tree = [world.language.kind_of(query) for query in evidence.judgments.queries]
    present = [name for name in names if name in kind_of_tree]
    crucial = {name: world.deciding[name].crucial for name in present}
    of_tree = np.array([present.index(kind) for kind in kind_of_tree])
    worth = worth_by_kind(evidence.columns, evidence.seen, with_all(of_tree), np.ones(len(of_tree), dtype=bool))
    kinds = Kinds(
        of_tree=of_tree,
        grains=[of_tree],
        worth=worth,
        criteria=[[evidence.names.index(criterion) for criterion in crucial[name]] for name in present],
        error={},
        by_labels=bool(evidence.labelled.any()),
    )
    figures = weigh(evidence, kinds, resampled_worth(evidence, kinds, 0), 0)
    orders = 0
    rubrics = {}
    for name, of_kind in zip(present, figures, strict=True):
        first, second = of_kind.criteria[0], of_kind.criteria[-1]
        # Of equal weights neither stands first.
        orders += (first.name, second.name) == crucial[name] and first.weight > second.weight
        rubrics[name] = rubric_for(evidence, of_kind)
    asked = []
    for comparison in compared:
        kind = world.language.kind_of(comparison.dialogue.query)
        asked.append(comparison.with_rubric(rubrics[kind]))
    return orders, agreement(world, asked)


def known(trees: Iterable[EvaluationTree], number: int, labelled: int) -> list[EvaluationTree]:
    """Return the first trees, with labels for the first of them."""
    result = []
    for place, tree in enumerate(trees):
        if place == number:
            break
        label = None
        if place < labelled:
            label = tree.comparison.label
        result.append(replace(tree, comparison=replace(tree.comparison, label=label)))
    return result


def grown(directories: Sequence[Path]) -> Iterator[tuple[int, list[EvaluationTree]]]:
    """Yield the rule and the trees of finished stages tree."""
    for directory in directories:
        manifest = checked(directory)
        assert manifest is not None, f"{directory} is not finished"
        yield manifest["seed"], [EvaluationTree.from_row(row) for row in read_rows(directory, "trees")]


def print_row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main() -> None:
    """Print a row for each rule and each number of trees and labels."""
    parser = parser_of(__doc__)
    parser.add_argument("--rules", type=int, nargs="*", default=[])
    parser.add_argument("--trees", type=Path, nargs="*", default=[])
    arguments = parser.parse_args()
    most = max(number for number, _ in SIZES)
    sources: list[tuple[int, list[EvaluationTree], bool]] = []
    sources += [(rule, annotated(rule, most), True) for rule in arguments.rules]
    sources += [(rule, trees, False) for rule, trees in grown(arguments.trees)]
    columns = ("rule", "trees", "labels", "kinds", "true sets", "in order", "told: in order")
    shares_of_rows = ("queries %", "agreement %", "told: agreement %", "by the true %", "marked")
    print_row(*columns, *shares_of_rows)
    print_row(*["---"] * len((*columns, *shares_of_rows)))
    for rule, trees, by_annotator in sources:
        world = load_world(rule)
        compared = eval_comparisons(WorldConfig(eval_comparisons=COMPARED, rule=rule), rule)
        for number, labelled in SIZES:
            here = known(trees, number, labelled)
            with threadpool_limits(1):
                try:
                    found = find(evidence_of(here), RubricSettings(seed=0, rubric=RubricConfig(), judge=""), 0)
                except DataError as error:
                    print_row(rule, number, labelled, error)
                    continue
                orders_told, agreement_told = told(world, found.evidence, compared)
                marks = "–"
                if by_annotator:
                    put_in, wrongly, counting = marked(rule, here)
                    marks = f"{put_in} of {len(INJECTED)}, {wrongly} of {counting}"
            row = figures_of(world, found.rubric, found.kinds.number, compared)
            shares = [f"{100 * share:.1f}" for share in (row.share, row.found, agreement_told, row.true)]
            print_row(rule, len(here), labelled, row.kinds, row.sets, row.orders, orders_told, *shares, marks)


if __name__ == "__main__":
    main()
