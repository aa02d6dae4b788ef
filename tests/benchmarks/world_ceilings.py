"""What can be reached in the quickstart world, and what is reached without reading: its ceilings and floors.

    python -m tests.benchmarks.world_ceilings --n 2000 --seed 0

On ``n`` held-out comparisons of a seed, agreement is the share with the true verdict in both orders, among all of them
and among those that are no ties. Perfect readers see what a response shows without error. The annotator errs as the
quickstart's does, and is asked as a judge is; the ensemble's labels are those of whole trees that it would grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import WorldEngine
from judgetrain.data.world.language import Kind, load_language
from judgetrain.judges import BASELINES, BranchingJudge
from judgetrain.judges.base import Prediction, verdict_of
from judgetrain.judges.config import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow
from judgetrain.label.config import LabelConfig
from judgetrain.label.labels import ensemble_label
from judgetrain.schema import Comparison, Verdict
from tests.benchmarks.common import parser_of

BRANCHES = 10
ERROR_RATE = 0.15
"""Of the annotator, as in recipes/quickstart.yaml."""

Verdicts = list[tuple[Verdict | None, Verdict | None]]


def reader(comparisons: Sequence[Comparison], criteria: Callable[[Kind], Sequence[str]]) -> Verdicts:
    """The vote of a perfect reader of some criteria, which depend on the kind of query."""
    language = load_language()

    def verdict(comparison: Comparison) -> Verdict | None:
        votes = 0
        for name in criteria(language.kinds[language.kind_of(comparison.dialogue.query)]):
            a, b = (language.grade(text, name) for text in (comparison.response_a, comparison.response_b))
            votes += (a > b) - (a < b)
        return verdict_of(votes)

    return [(found, found) for found in map(verdict, comparisons)]


def of_predictions(predictions: Sequence[Prediction]) -> Verdicts:
    """The verdicts in both orders."""
    return [(p.verdict_ab, p.verdict_ba) for p in predictions]


def labels(comparisons: Sequence[Comparison], engine: WorldEngine) -> Verdicts:
    """The labels that the ensemble of whole trees gives."""
    judge = BranchingJudge(engine, load_prompt_set("compact"))
    shape = Shape(count=BRANCHES, criteria=BRANCHES, guidelines=2, judgments=2)
    found = (
        ensemble_label(t, LabelConfig())
        for t in grow(comparisons, engine, judge.prompts, shape, judge.options.steps, 0)
    )
    return [(label.verdict, label.verdict) for label in found]


def rows(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, Verdicts]]:
    """Every ceiling and floor by name."""
    plausible, engine = load_language().plausible, WorldEngine(WorldEngineConfig(error_rate=ERROR_RATE))
    yield "perfect reader of both crucial criteria, by vote", reader(comparisons, lambda kind: kind.crucial)
    yield "perfect reader of the primary criterion", reader(comparisons, lambda kind: [kind.primary])
    yield "perfect reader of all ten plausible, by vote", reader(comparisons, lambda kind: plausible(kind.name))
    yield "perfect reader of the decoy", reader(comparisons, lambda kind: [kind.decoy])
    judge = BranchingJudge(engine, load_prompt_set("compact"), JudgeOptions(branches=BRANCHES))
    trees = judge.sample(comparisons, 0)
    for branches in (1, 3, BRANCHES):
        yield f"annotator, {branches} branch{'es' * (branches > 1)}", of_predictions(judge.predictions(trees, branches))
    yield "ensemble's labels, of the annotator's trees", labels(comparisons, engine)
    for name, baseline in BASELINES.items():
        yield f"`{name}`", of_predictions(baseline().compare_all(comparisons, 0))
    yield "always a tie: the share of true ties", [("tie", "tie")] * len(comparisons)


def line(name: str, verdicts: Verdicts, comparisons: Sequence[Comparison]) -> str:
    """A row: agreement on all and on decided comparisons, consistency, in percent."""
    right = [ab == ba == c.label for (ab, ba), c in zip(verdicts, comparisons, strict=True)]
    decided = [r for r, c in zip(right, comparisons, strict=True) if c.label != "tie"]
    same = [ab == ba is not None for ab, ba in verdicts]
    cells = " | ".join(f"{100 * sum(found) / len(found):.1f}" for found in (right, decided, same))
    return f"| {name} | {cells} |"


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=options.n), options.seed)
    print("| who | agreement % | on decided pairs % | consistency % |\n| --- | --- | --- | --- |")
    for name, verdicts in rows(comparisons):
        print(line(name, verdicts, comparisons), flush=True)
    print(f"\nn = {options.n}, seed {options.seed}.")


if __name__ == "__main__":
    main()
