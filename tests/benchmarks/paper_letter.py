"""Ours against the branching paper's letter (label=paper) on a quickstart: what is trained on, and the DPO judges.

    python -m tests.benchmarks.paper_letter --seed 17 --output outputs

Each setting is one run of the main command; the trees are sampled once, and finished runs are reused. ``--only`` names
the settings to run in this call. Prints three Markdown tables: how much each setting makes, labels and pairs against
the world's truth, and DPO judges. Exit code 0 whatever the figures are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.judges.trees.schema import EvaluationTree
from tests.benchmarks.reward_ablation import BRANCHES, command, data_row, judge_row, upstream

ALL = "label=default"
SETTINGS: dict[str, tuple[str, ...]] = {
    "the recipe's own": (),
    "ours, every level": (ALL,),
    "ours, but pairs by the label": (ALL, "label.pairs_by=label"),
    "ours, but labels by plurality": (ALL, "label.vote=plurality"),
    "ours, but labels by mean score": (ALL, "label.vote=mean_score"),
    "ours, but ties are wrong": (ALL, "label.ties=wrong"),
    "the letter": ("label=paper",),
    "the letter, SFT and DPO disjoint": ("label=paper", "label.sft_share=0.5"),
}
SHARED = (
    "evaluate.methods=[dpo]",
    f"evaluate.branches=[{','.join(map(str, BRANCHES))}]",
    "tree.judgments=2",  # the quickstart has one in an order, which makes no pair of judgments
)
MADE = ("over_cap", "level_is_chance", "repeated", "unbalanced")
"""Beginnings of the reasons for which pairs that were made are left out afterwards."""


def yield_of(table: Mapping[str, Mapping[str, int]], guidelines: int) -> float:
    """Judgment pairs that were made for each guideline of the trees, before caps and balance.

    ``table`` is a stage label's ``yield.json``.
    """
    skipped = {reason: n for reason, n in table["pairs_skipped"].items() if reason.startswith("judgment:")}
    left_out = sum(n for reason, n in skipped.items() if reason.partition(":")[2].startswith(MADE))
    return (table["pairs"].get("judgment", 0) + left_out) / guidelines


def yield_row(name: str, directory: Path, trees: Iterable[EvaluationTree]) -> str:
    """How much a setting makes: labels, SFT examples, pairs by level, judgment pairs for each guideline."""
    table: dict[str, Any] = json.loads((directory / "yield.json").read_text())
    labels = [f"{table['trees'].get(f'label_{verdict}', 0)}" for verdict in ("A", "B", "tie")]
    pairs = [str(table["pairs"].get(level, 0)) for level in ("judgment", "guideline", "criteria")]
    rate = yield_of(table, sum(1 for tree in trees for _ in tree.guidelines()))
    cells = [" / ".join(labels), str(sum(table["sft"].values())), *pairs, f"{rate:.2f}"]
    return f"| {name} | {' | '.join(cells)} |"


def tables(done: Mapping[str, Path], output: Path) -> str:
    """The three tables of the finished settings."""
    labels = {name: upstream(directory, "label", output) for name, directory in done.items()}
    rows = read_rows(upstream(next(iter(labels.values())), "tree", output), "trees")
    trees = {tree.comparison.id: tree for tree in map(EvaluationTree.from_row, rows)}
    lines = [
        "| setting | labels A / B / tie | SFT | judgment pairs | guideline pairs | criteria pairs | made a guideline |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(yield_row(name, directory, trees.values()) for name, directory in labels.items()),
        "",
        "| setting | labels right % | judgment pairs right % | guideline pairs | criteria pairs |",
        "| --- | --- | --- | --- | --- |",
        *(data_row(name, directory, trees) for name, directory in labels.items()),
        "",
        f"| DPO judge | {' | '.join(f'agreement %, k={k} | consistency %' for k in BRANCHES)} |",
        f"| --- |{' --- | --- |' * len(BRANCHES)}",
        *(judge_row(name, directory) for name, directory in done.items()),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    command(str(__doc__), SETTINGS, SHARED, tables)
