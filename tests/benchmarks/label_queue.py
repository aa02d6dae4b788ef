"""Are labels better spent where a judge is unsure? Stage label_queue's order against chance, on the world.

    python -m tests.benchmarks.label_queue                              # a light judge that learns from the labels
    python -m tests.benchmarks.label_queue --verdicts OUTPUTS ...     # labels in the place of a judge's verdicts

First: a light judge, over seeds. A pool and a test set of held-out queries' comparisons are judged by the world's
annotator with ten criteria, as stage judge writes it. The light judge is a logistic regression on the scores'
differences by kind of query and criterion, and on their sum; it learns which criteria decide, from the labels of the
first so many of the queue, or of as many drawn by chance. Agreement is on the test set's decided pairs. The labels are
the world's truth.

Second: no training. A label takes the place of a judge's verdict where there is one, in stored predictions of stage
evaluate (``OUTPUTS/artifacts/evaluate/*``); what is said in the end agrees with the truth in how many?

How branches become a verdict and the share that is drawn by chance are those of recipe label_queue (``--aggregation``,
``--random``): the line *as shipped* has both.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.config import WorldEngineConfig
from judgetrain.data.world.annotator import criterion_name
from judgetrain.data.world.engine import WorldEngine
from judgetrain.data.world.language import load_language
from judgetrain.data.world.splits import queries, true_verdict
from judgetrain.data.world.writers import write_response
from judgetrain.extras.label_queue.config import LabelQueueConfig
from judgetrain.extras.label_queue.ranking import ranked
from judgetrain.judges.config import Aggregation, JudgeOptions
from judgetrain.judges.kinds.branching import BranchingJudge, predict
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.judging.rows import row_of
from judgetrain.schema import Comparison
from tests.benchmarks.common import parser_of
from tests.builders.pipeline import configured

NUMBERS = (25, 50, 100, 200, 300)
WAYS = (("branches",), ("orders",), ("margin",), ("branches", "orders", "margin"))
SHIPPED = "as shipped"
"""Ranked by all that information is the mean of by default, with the share that is drawn by chance."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Set:
    """Judged comparisons: rows of stage judge, what the light judge reads of them [n, features], and the truth."""

    rows: list[Row]
    features: NDArray[np.float64]
    truth: list[str]

    def part(self, places: Sequence[int]) -> Set:
        """Some of them."""
        return Set([self.rows[i] for i in places], self.features[places], [self.truth[i] for i in places])


def queues(rows: Sequence[Row], random_share: float, seed: int) -> dict[str, list[int]]:
    """Places of the rows in the order of the queue, by each way of ranking and :data:`SHIPPED`."""
    places = {row["id"]: i for i, row in enumerate(rows)}
    ways = {" + ".join(way): LabelQueueConfig(random=0.0, by=list(way)) for way in WAYS}
    ways[SHIPPED] = LabelQueueConfig(random=random_share)
    return {name: [places[row["id"]] for row in ranked(rows, config, seed)] for name, config in ways.items()}


def judged(count: int, seed: int, errors: float, aggregation: Aggregation = "clear") -> Set:
    """Comparisons of held-out queries, by writers of three skills, judged by the annotator with ten criteria."""
    language, rng = load_language(), random.Random(f"queue {seed}")
    made = []
    for query in rng.sample(queries("heldout"), count):
        skills = rng.sample((0.35, 0.6, 0.85), 2)
        made.append(Comparison.of(query, *(write_response(language, query, s, rng) for s in skills)))
    engine = WorldEngine(WorldEngineConfig(error_rate=errors))
    judge = BranchingJudge(
        engine, load_prompt_set("compact"), JudgeOptions(branches=10, aggregation=aggregation), "annotator"
    )
    rows = [row_of(c, p, "annotator") for c, p in zip(made, judge.compare_all(made, seed), strict=True)]
    truth = [true_verdict(c.dialogue.query, c.response_a, c.response_b) for c in made]
    return Set(rows, np.array([_features(row) for row in rows]), list(truth))


def _features(row: Row) -> NDArray[np.float64]:
    """The mean difference of both orders' scores by kind and criterion, in points over 4, and their sum."""
    language = load_language()
    names, kinds = list(language.properties), list(language.kinds)
    kind = kinds.index(language.kind_of(row["messages"][-1]["content"]))
    found = np.zeros((len(kinds), len(names)))
    for reason in row["reasons"]:
        if reason["score_a"] is not None and reason["score_b"] is not None:
            found[kind, names.index(criterion_name(reason["criterion"]))] += (reason["score_a"] - reason["score_b"]) / 8
    return np.append(found.ravel(), found.sum())


def agreement(train: Set, test: Set) -> float:
    """Of the light judge that learned from some labels, in percent of the test set's decided pairs."""
    from sklearn.linear_model import LogisticRegression

    decided = [i for i, label in enumerate(train.truth) if label != "tie"]
    tested = test.part([i for i, label in enumerate(test.truth) if label != "tie"])
    right = np.array([1 if label == "A" else -1 for label in tested.truth])
    if len({train.truth[i] for i in decided}) < 2:  # nothing to learn from: the vote
        said = np.sign(tested.features[:, -1])
    else:
        x = train.features[decided]
        y = np.array([train.truth[i] == "A" for i in decided])
        # A pair shown the other way round is as much of an example.
        model = LogisticRegression(C=1.0, fit_intercept=False, max_iter=1000).fit(
            np.vstack([x, -x]), np.concatenate([y, ~y])
        )
        said = np.sign(model.decision_function(tested.features))
    return 100 * float(np.mean(said == right))


def learned(seed: int, options: argparse.Namespace) -> dict[str, list[float]]:
    """Agreement after each number of labels: by chance (the mean over draws), and by each of :func:`queues`."""
    pool = judged(options.pool, 2 * seed, options.errors, options.aggregation)
    test = judged(options.test, 2 * seed + 1, options.errors, options.aggregation)
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(pool.rows)) for _ in range(options.draws)]
    found = {"chance": [float(np.mean([agreement(pool.part(o[:n]), test) for o in orders])) for n in NUMBERS]}
    for name, order in queues(pool.rows, options.random, seed).items():
        found[name] = [agreement(pool.part(order[:n]), test) for n in NUMBERS]
    return found


def needed(numbers: Sequence[int], curve: Sequence[float], wanted: float) -> float | None:
    """How many labels reach an agreement first, between the numbers measured linearly; None: none of them does."""
    for i, value in enumerate(curve):
        if value >= wanted:
            if i == 0:
                return float(numbers[0])
            share = (wanted - curve[i - 1]) / (value - curve[i - 1])
            return numbers[i - 1] + share * (numbers[i] - numbers[i - 1])
    return None


def table_of_learning(options: argparse.Namespace) -> None:
    """Print agreement by labels, and the labels needed for what 200 by chance reach."""
    seeds = [learned(seed, options) for seed in range(options.seeds)]
    print(f"| ranked by | {' | '.join(map(str, NUMBERS))} | labels for the agreement of 200 by chance |")
    print("| --- " * (len(NUMBERS) + 2) + "|")
    for name in seeds[0]:
        values = np.array([each[name] for each in seeds])
        cells = [f"{m:.1f} ± {d:.1f}" for m, d in zip(values.mean(axis=0), values.std(axis=0, ddof=1), strict=True)]
        reached = [needed(NUMBERS, each[name], each["chance"][NUMBERS.index(200)]) for each in seeds]
        known = [r for r in reached if r is not None]
        short = (
            f", {len(reached) - len(known)} of {len(reached)} not by {NUMBERS[-1]}" if len(known) < len(reached) else ""
        )
        told = f"{np.mean(known):.0f} ({min(known):.0f} to {max(known):.0f}){short}" if known else "not reached"
        print(f"| {name} | {' | '.join(cells)} | {told} |", flush=True)


def stored(outputs: Path, method: str, branches: int, aggregation: Aggregation) -> list[Row]:
    """Rows of stage judge out of the trees of a finished stage evaluate, each with its truth as ``truth``."""
    found = [outputs] if (outputs / "manifest.json").is_file() else sorted(outputs.glob("artifacts/evaluate/*"))
    known = [d for d in found if (d / "manifest.json").is_file() and [*d.glob(f"trees-world-{method}-*.jsonl")]]
    if len(known) != 1:
        several = f"several have ({', '.join(d.name for d in known)}): name one" if known else "there is none"
        raise SystemExit(f"{outputs}: expected a finished evaluation with trees of {method} on the world; {several}")
    trees = [EvaluationTree.from_row(row) for row in read_rows(known[0], f"trees-world-{method}")]
    rows = []
    for tree in trees:
        c = tree.comparison
        prediction = predict(tree, branches, JudgeOptions(aggregation=aggregation, early_stop=True), method)
        truth = true_verdict(c.dialogue.query, c.response_a, c.response_b)
        rows.append(row_of(c, prediction, method) | {"label": None, "truth": truth})
    return rows


def replaced(rows: Sequence[Row], order: Sequence[int], count: int) -> float:
    """The share that agrees with the truth, in percent, where the first of an order carry labels."""
    labelled = set(order[:count])
    return 100 * float(np.mean([i in labelled or row["verdict"] == row["truth"] for i, row in enumerate(rows)]))


def table_of_verdicts(options: argparse.Namespace) -> None:
    """Print the agreement of verdicts and labels together, by the share that is labelled."""
    shares = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    print(f"| judge | n | ranked by | {' | '.join(f'{100 * s:.0f}% labelled' for s in shares)} |")
    print("| --- " * (len(shares) + 3) + "|")
    for outputs in options.verdicts:
        for branches in options.branches:
            rows = stored(Path(outputs), options.method, branches, options.aggregation)
            counts = [round(s * len(rows)) for s in shares]
            base = replaced(rows, (), 0)
            lines = {"chance (expected)": [base + (100 - base) * s for s in shares]}
            for name, order in queues(rows, options.random, 0).items():
                lines[name] = [replaced(rows, order, n) for n in counts]
            for name, values in lines.items():
                cells = " | ".join(f"{v:.1f}" for v in values)
                print(f"| {options.method}@{branches} | {len(rows)} | {name} | {cells} |", flush=True)


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line; how judges are asked and queues drawn is by default as recipe label_queue has
    it."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pool", type=int, default=600)
    parser.add_argument("--test", type=int, default=400)
    parser.add_argument("--errors", type=float, default=0.15, help="of the annotator's judgments")
    parser.add_argument("--draws", type=int, default=3, help="by chance, a seed")
    parser.add_argument("--verdicts", nargs="*", default=[], help="finished evaluations, or output_dirs with one")
    parser.add_argument("--method", default="dpo")
    parser.add_argument("--branches", type=int, nargs="*", default=[3])
    shipped = configured("recipe=label_queue")
    parser.add_argument("--aggregation", choices=get_args(Aggregation), default=shipped.judge.aggregation)
    parser.add_argument(
        "--random", type=float, default=shipped.label_queue.random, help=f"share drawn by chance of what is {SHIPPED}"
    )
    return parser.parse_args(arguments)


def main() -> None:
    """Print a table."""
    options = options_of()
    table_of_verdicts(options) if options.verdicts else table_of_learning(options)


if __name__ == "__main__":
    main()
