"""Reading one response against reading two, own criteria against given ones, and fitted verdicts, over several seeds.

    python -m judgetrain -m stage=dpo tree.reads=both seed=101,102,103,104,105 output_dir=OUT
    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.reading_one OUT --n 500

Each DPO judge under OUT is asked greedily about held-out comparisons of the world that no part of it has seen: in both
ways, by its own criteria (one, three and ten of them), by the true ones and by another query's (or by those that
``--criteria`` names). Weights are fitted on 100 further comparisons. Prints means over the judges, with the least and
the most.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons, true_rubric
from judgetrain.data.world.rule import World, load_world
from judgetrain.evaluate.runners.judges import by_criteria
from judgetrain.judges import BranchingJudge, load_judge
from judgetrain.judges.fitting import calibration_error, fit
from judgetrain.judges.kinds.aggregation import margins_of, used
from judgetrain.judges.kinds.tree_predictions import predict
from judgetrain.judges.predictions import BothOrders
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.schema import Comparison, Verdict
from tests.benchmarks.common import parser_of

BRANCHES = (1, 2, 3, 10)
LABELS = 100
Row = tuple[str, str, int, str]
"""How many responses are read, by whose criteria, how many of them, and what makes them a verdict."""


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--criteria", nargs="+", default=["own", "given", "shuffled"])
    options = parser.parse_args()
    figures: dict[Row, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for directory in sorted(options.home.glob("artifacts/dpo/*/model")):
        seed = json.loads((directory.parent / "manifest.json").read_text())["seed"]
        kept = directory.parent / f"reading_one-{options.n}-{'-'.join(options.criteria)}.json"
        if not kept.exists():  # by a run that was stopped
            world = load_world(seed)  # the run named no rule, so that its seed drew it
            rows = eval_comparisons(WorldConfig(eval_comparisons=options.n + LABELS), seed)
            rows = [replace(c, rubric=true_rubric(world, c.dialogue.query)) for c in rows]
            measured_rows = list(measures(directory, world, rows[: options.n], rows[options.n :], options.criteria))
            kept.write_text(json.dumps(measured_rows))
        for row, measured in json.loads(kept.read_text()):
            for name, value in measured.items():
                figures[tuple(row)][name].append(value)
    judges = max(len(of_row["agreement"]) for of_row in figures.values())
    first = 100 * np.array([x for of_row in figures.values() for x in of_row.pop("first", [])])
    if len(first):
        print(f"the criterion that counts twice stands first in {first.mean():.1f}% of own lists", end="")
        print(f" ({first.min():.1f} to {first.max():.1f})")
    print(f"{judges} judges, n = {options.n} comparisons each; mean (least to most)\n")
    print("reads  criteria    k verdict           agreement %   tokens  calls, 8    ECE")
    for (reads, criteria, k, rule), of_row in figures.items():
        agreed = 100 * np.array(of_row["agreement"])
        of_eight = k * (8 if reads == "one" else 56)
        agreement = f"{agreed.mean():.1f} ({agreed.min():.1f} to {agreed.max():.1f})"
        error = f"{np.mean(of_row['ece']):.3f}" if of_row["ece"] else ""
        tokens = f"{np.mean(of_row['tokens']):.0f}"
        print(f"{reads:6} {criteria:9} {k:3} {rule:8} {agreement:>20} {tokens:>8} {of_eight:9} {error:>6}")


def measures(
    directory: Path, world: World, rows: list[Comparison], more: list[Comparison], whose: Sequence[str]
) -> Iterator[tuple[Row, dict[str, float]]]:
    """Yield agreement, a verdict's tokens (both orders, or both responses) and calibration, for each way of asking."""
    for reads in ("two", "one"):
        judge = load_judge(directory, max(BRANCHES), reads=reads, early_stop=False)
        assert isinstance(judge, BranchingJudge)
        for criteria in whose:
            trees, fitted_on = (grown(judge, by_criteria(comparisons, criteria, reads)) for comparisons in (rows, more))
            for k in BRANCHES if criteria == "own" else (len(trees[0].criteria),):
                for rule in ("vote", "mean", "no tie"):
                    how = replace(judge.options, aggregation="vote" if rule == "vote" else "mean")
                    how = replace(how, tie=0.0) if rule == "no tie" else how
                    predictions = [predict(tree, k, how, "x") for tree in trees]
                    right = [p.verdict == c.label for p, c in zip(predictions, rows, strict=True)]
                    tokens = np.mean([p.whole_cost.generated_tokens for p in predictions])
                    values = {"agreement": float(np.mean(right)), "tokens": float(tokens)}
                    if (reads, criteria, k, rule) == ("two", "own", 1, "mean"):
                        values["first"] = float(np.mean([_decides(world, tree) for tree in trees]))
                    yield (reads, criteria, k, rule), values
                how = replace(judge.options, aggregation="mean")
                verdicts = [predict(tree, k, how, "x").verdict for tree in fitted_on]
                measured = fitted(trees, rows, fitted_on, more, k, verdicts)
                yield (reads, criteria, k, "fitted"), measured | {"tokens": float(tokens)}
        judge.close()


def _decides(world: World, tree: EvaluationTree) -> bool:
    """Return whether the tree's first criterion is the one that counts twice."""
    primary = world.language.properties[world.deciding_for(tree.comparison.dialogue.query).primary]
    return bool(tree.criteria) and tree.criteria[0].text in primary.criteria


def grown(judge: BranchingJudge, rows: Sequence[Comparison]) -> list[EvaluationTree]:
    """Return the judge's trees, grown 150 at a time."""
    parts = [rows[i : i + 150] for i in range(0, len(rows), 150)]
    return [tree for part in parts for tree in judge.ask(part, 0, numbers=[c.number for c in part])[0]]


def fitted(
    trees: Sequence[EvaluationTree],
    rows: Sequence[Comparison],
    fitted_on: Sequence[EvaluationTree],
    more: Sequence[Comparison],
    k: int,
    verdicts: Sequence[BothOrders],
) -> dict[str, float]:
    """Return agreement and calibration error of weights that were fitted to other comparisons.

    ``verdicts``: by the plain mean, on the comparisons that weights are fitted to.
    """
    labels: list[Verdict] = [c.label or "tie" for c in more]
    margins = [margins_of(used(tree, k)) for tree in fitted_on]
    weights = fit(margins, labels, [c.dialogue.user_texts for c in more], verdicts)
    logits = [weights.logit(margins_of(used(tree, k))) for tree in trees]
    right = [weights.verdict(x) == c.label for x, c in zip(logits, rows, strict=True)]
    chances = 1 / (1 + np.exp(-np.array([x or 0.0 for x in logits])))
    targets = np.array([{"A": 1.0, "B": 0.0}.get(c.label or "", 0.5) for c in rows])
    return {"agreement": float(np.mean(right)), "ece": calibration_error(chances, targets)}


if __name__ == "__main__":
    main()
