"""What judges would be worth whose preference for a position were taken off, read off the trees of evaluations.

    python -m tests.benchmarks.positions outputs/artifacts/evaluate/FINGERPRINT ...

Evaluations print the same as their table "Position"; this reads it off those that were made by versions without it.
Branches are as many as were grown, added up by ``vote``. Intervals: 95%, 1,000 bootstrap resamples of prompts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from judgetrain.artifacts.shards import names_of, read_rows
from judgetrain.evaluate.metrics import agreement, consistency, single_order_accuracy
from judgetrain.evaluate.metrics.bootstrap import bootstrap_interval
from judgetrain.evaluate.metrics.position import balanced, balanced_verdicts
from judgetrain.judges.kinds.branching import predict
from judgetrain.judges.position import position_offset
from judgetrain.judges.trees.schema import trees_of

SEED, RESAMPLES = 0, 1000


def line(directory: Path, name: str) -> str:
    """The row of a table for the trees of one method on one benchmark."""
    rows = [trees_of(row, 0.0) for row in read_rows(directory, name)]
    rows = [row for row in rows if row[0].comparison.label is not None]
    most = [max(1, *(len(tree.criteria) for tree in row)) for row in rows]
    found = [
        predict(tree, k, "vote", name, other=next(iter(o), None)) for (tree, *o), k in zip(rows, most, strict=True)
    ]
    trees = [tree for tree, *_ in rows]
    labels = [str(tree.comparison.label) for tree in trees]
    prompts = [tree.comparison.dialogue.messages[-1].content for tree in trees]
    ab, ba = [p.verdict_ab for p in found], [p.verdict_ba for p in found]
    margins = [p.margin_ab for p in found], [p.margin_ba for p in found]
    offset, verdicts = position_offset(*margins), balanced_verdicts(*margins, prompts, SEED)
    result = balanced(*margins, labels, prompts, RESAMPLES, SEED)
    if offset is None or verdicts is None or result is None:
        return f"| {name} | {len(trees)} | – |"
    agreed = agreement(ab, ba, labels)
    low, high = bootstrap_interval(agreed, RESAMPLES, SEED, prompts) or (float("nan"), float("nan"))
    low_balanced, high_balanced = result.agreement_ci or (float("nan"), float("nan"))
    one, one_balanced = (single_order_accuracy(*both, labels).mean() for both in ((ab, ba), verdicts))
    return (
        f"| {name} | {len(trees)} | {offset:+.2f} | {agreed.mean():.1%} ({low:.0%}–{high:.0%}) | "
        f"{result.agreement or 0:.1%} ({low_balanced:.0%}–{high_balanced:.0%}) | {consistency(ab, ba).mean():.1%} | "
        f"{result.consistency or 0:.1%} | {one:.1%} | {one_balanced:.1%} |"
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evaluations", nargs="+", type=Path, help="directories of finished evaluations")
    print("| trees | n | offset | agreement | balanced | consistency | balanced | one order | balanced |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for directory in parser.parse_args().evaluations:
        for name in names_of(directory, "trees"):
            print(line(directory, name), flush=True)


if __name__ == "__main__":
    main()
