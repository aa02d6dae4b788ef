"""A logistic regression on surface statistics, fitted to the labels that a recipe trains on.

What of the measured comparisons can be had from those labels by counting words, with no model:

    python -m judgetrain recipe=gemma stage=dialogues data_dir=DIR output_dir=OUT
    python -m tests.benchmarks.surface_on_training_labels OUT recipe=gemma data_dir=DIR
"""

from __future__ import annotations

import sys

import numpy as np

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.benchmarks.benchmark import load_benchmark
from judgetrain.evaluate.metrics.intervals import bootstrap_interval
from judgetrain.judges.kinds.surface import differences, fitted
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Comparison
from tests.builders.pipeline import configured


def main(output: str, *overrides: str) -> None:
    """Print strict agreement (it is the same in both orders) with its 95% interval, and that on decided items."""
    config = configured(*overrides, f"output_dir={output}")
    rows = read_rows(Pipeline(config).plan("dialogues").directory, "comparisons")
    learned = [c for c in map(Comparison.from_row, rows) if c.label in ("A", "B")]
    measured = load_benchmark(config.evaluate.benchmarks[0], 0, config.seed, None)
    features = differences([*learned, *measured.comparisons])
    weights = fitted(features[: len(learned)], [1 if c.label == "A" else -1 for c in learned])
    margins = features[len(learned) :] @ weights
    right = np.array([c.label == ("A" if m > 0 else "B") for c, m in zip(measured.comparisons, margins, strict=True)])
    low, high = bootstrap_interval(right, 2000, config.seed, [measured.prompt_of(c) for c in measured.comparisons])
    decided = [c.label != "tie" for c in measured.comparisons]
    longer = np.mean([(len(c.response_a) > len(c.response_b)) == (c.label == "A") for c in learned])
    print(f"{len(learned)} labelled pairs, the longer side better in {longer:.1%}")
    print(f"{100 * right.mean():.1f} ({100 * low:.1f} to {100 * high:.1f}) of {len(right)}", end="; ")
    print(f"{100 * right[decided].mean():.1f} of {sum(decided)} decided")


if __name__ == "__main__":
    main(*sys.argv[1:])
