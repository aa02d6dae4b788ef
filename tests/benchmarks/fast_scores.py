"""Scores without text beside judgments with text and beside ten branches: agreement, calibration, tokens, seconds.

    python -m tests.benchmarks.quickstart_table --rules 1 2 --output OUT
    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.fast_scores OUT --n 300

Each DPO judge under OUT is asked about held-out comparisons of its world, by the true criteria, one response at a time:
with text, and by its probabilities of the scores alone; and by ten criteria of its own with two responses shown.
Calibration is of the probability of the likeliest score (ten bins of equal width): what is shown is known, so that the
right score of a criterion is. Means over judges, with the least and the most.
"""

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons, true_rubric
from judgetrain.data.world.engine import criterion_name
from judgetrain.data.world.language import GRADE_SCORES
from judgetrain.data.world.rule import World, load_world
from judgetrain.judges import load_judge
from judgetrain.judges.base import Judge
from judgetrain.judges.predictions import Prediction
from judgetrain.schema import Comparison
from tests.benchmarks.common import parser_of

BINS = 10
WAYS = ("scores alone", "with text", "ten branches")
Measured = dict[str, float]


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--n", type=int, default=300)
    options = parser.parse_args()
    by_way: dict[str, list[Measured]] = defaultdict(list)
    for directory in sorted(options.home.glob("artifacts/dpo/*/model")):
        rule = json.loads((directory.parent / "manifest.json").read_text())["seed"]
        for way, measured in of_judge(directory, rule, options.n).items():
            by_way[way].append(measured)
    judges = len(by_way[WAYS[0]])
    print(f"{judges} judges, n = {options.n} comparisons each; mean (least to most)\n")
    print("| asked | agreement % | less scores alone | calibration error | tokens | CPU ms a verdict |")
    print("| --- | --- | --- | --- | --- | --- |")
    for way, of_way in by_way.items():
        fast = by_way[WAYS[0]]
        differences = [other["agreement"] - alone["agreement"] for other, alone in zip(of_way, fast, strict=True)]
        cells = [
            way,
            _spread([100 * measured["agreement"] for measured in of_way]),
            _spread([100 * difference for difference in differences]),
            _spread([measured["calibration"] for measured in of_way], digits=3) if "calibration" in of_way[0] else "–",
            _spread([measured["tokens"] for measured in of_way], digits=0),
            _spread([1000 * measured["seconds"] for measured in of_way]),
        ]
        print(f"| {' | '.join(cells)} |")


def of_judge(directory: Path, rule: int, n: int) -> dict[str, Measured]:
    """Return what a judge reaches in each way of asking, on the comparisons of its rule."""
    # A run without a rule of its own has its seed's.
    world = load_world(rule)
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=n), rule)
    given = [replace(c, rubric=true_rubric(world, c.dialogue.query)) for c in comparisons]
    measured: dict[str, Measured] = {}
    with load_judge(directory, reads="one", aggregation="mean", reasons=False) as judge:
        predictions, measured["scores alone"] = _asked(judge, given)
        measured["scores alone"]["calibration"] = calibration_of_levels(world, given, predictions)
    with load_judge(directory, reads="one", aggregation="mean") as judge:
        predictions, measured["with text"] = _asked(judge, given)
        measured["with text"]["calibration"] = calibration_of_levels(world, given, predictions)
    with load_judge(directory, branches=10) as judge:
        _, measured["ten branches"] = _asked(judge, comparisons)
    return measured


def _asked(judge: Judge, comparisons: Sequence[Comparison]) -> tuple[list[Prediction], Measured]:
    """Return the predictions, and their agreement, tokens and CPU seconds a verdict (both orders or responses)."""
    began = time.process_time()
    predictions = judge.compare_all(comparisons, progress=False)
    seconds = time.process_time() - began
    right = [p.verdict == c.label for p, c in zip(predictions, comparisons, strict=True)]
    tokens = [p.whole_cost.generated_tokens for p in predictions]
    return predictions, {
        "agreement": float(np.mean(right)),
        "tokens": float(np.mean(tokens)),
        "seconds": seconds / len(comparisons),
    }


def calibration_of_levels(world: World, comparisons: Sequence[Comparison], predictions: Sequence[Prediction]) -> float:
    """Return how far the probability of the likeliest score is from how often it is right, over bins of equal width."""
    confidences = []
    right = []
    for comparison, prediction in zip(comparisons, predictions, strict=True):
        for reason in prediction.reasons:
            if reason.levels is None:
                continue
            text = comparison.response_a if reason.order == "A" else comparison.response_b
            grade = world.language.grade(text, criterion_name(reason.criterion))
            likeliest = int(np.argmax(reason.levels)) + 1
            confidences.append(max(reason.levels))
            right.append(likeliest == GRADE_SCORES[grade])
    places = np.minimum((np.array(confidences) * BINS).astype(int), BINS - 1)
    error = 0.0
    for place in range(BINS):
        inside = places == place
        if inside.any():
            gap = abs(np.mean(np.array(confidences)[inside]) - np.mean(np.array(right)[inside]))
            error += inside.mean() * gap
    return float(error)


def _spread(values: Sequence[float], digits: int = 1) -> str:
    """Return a mean with the least and the most."""
    return f"{np.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


if __name__ == "__main__":
    main()
