"""Do auxiliary rewards help? Labels, pairs and DPO judges of a quickstart, by who labels and which signals are used.

    python -m tests.benchmarks.reward_ablation --seeds 101 102 103 --n 500 --output outputs

Each setting is one run of the main command a seed; the trees are sampled once, and finished runs are reused. ``--only``
names the settings to run in this call. Prints two Markdown tables a seed over the settings that are finished: labels
and pairs against the world's truth, and DPO judges; with several seeds also every setting's judges against those of the
first, pooled. Exit code 0 whatever the figures are.
"""

from __future__ import annotations

import datetime
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.world import true_verdict
from judgetrain.evaluate.metrics.statistics import paired_difference
from judgetrain.judges.trees.schema import EvaluationTree
from tests.benchmarks.common import parser_of
from tests.benchmarks.pair_truth import Fates, fates
from tests.benchmarks.quickstart_claims import RESAMPLES, Key, Seed
from tests.benchmarks.quickstart_table import load, read, run, spread

SETTINGS: dict[str, tuple[str, ...]] = {
    "ensemble": (),
    "+ ProbDiff": ("reward=probdiff",),
    "+ glass-box": ("reward=glassbox",),
    "+ both": ("reward=both",),
    "external judge": ("label.source=external",),
}
# The world's model reads at most 512 tokens, and none of its judgments is longer than these.
BRANCHES = (1, 3, 10)
SHARED = (
    "evaluate.methods=[dpo]",
    f"evaluate.branches=[{','.join(map(str, BRANCHES))}]",
    "scorer.max_new_tokens=64",
    "robustness.sample=0",
)
LEVELS = ("judgment", "guideline", "criteria")

Trees = dict[str, EvaluationTree]


def upstream(directory: Path, stage: str, output: Path) -> Path:
    """The directory of the ``stage`` that an artifact was made from."""
    manifest = json.loads((directory / "manifest.json").read_text())
    if manifest["stage"] == stage:
        return directory
    for name, mark in manifest["upstream"].items():
        found = output / "artifacts" / name / mark
        if name == stage:
            return found
        if name in ("dpo", "sft", "label"):
            return upstream(found, stage, output)
    raise KeyError(stage)


def share(right: int, n: int) -> str:
    """A share in percent with its 95% Wilson interval, and n."""
    from scipy.stats import binomtest

    low, high = binomtest(right, n).proportion_ci(method="wilson") if n else (0.0, 1.0)
    return f"{100 * right / max(n, 1):.1f} ({100 * low:.1f}–{100 * high:.1f}; {n})"


def label_fates(rows: Sequence[Mapping[str, Any]], trees: Trees) -> Fates:
    """How many labels are the truth (better), are not (worse), or meet a true tie (same)."""
    found: Fates = Counter()
    for row in rows:
        if row["verdict"] is not None:
            comparison = trees[row["comparison_id"]].comparison
            truth = true_verdict(comparison.dialogue.query, comparison.response_a, comparison.response_b)
            found["same" if truth == "tie" else "better" if row["verdict"] == truth else "worse"] += 1
    return found


def data_row(name: str, directory: Path, trees: Trees) -> str:
    """Labels and pairs of a setting against the truth."""
    labels = label_fates(list(read_rows(directory, "labels")), trees)
    pairs = fates(read_rows(directory, "pairs-train"), trees)
    cells = [share(labels["better"], labels["better"] + labels["worse"])]
    cells += [share(found["better"], found.total()) for found in (pairs.get(level, Counter()) for level in LEVELS)]
    return f"| {name} | {' | '.join(cells)} |"


def judge_row(name: str, directory: Path) -> str:
    """Agreement and consistency of a setting's DPO judge, with their intervals."""
    cells = []
    for (_, _), row in sorted(read(directory, None).items(), key=lambda item: item[0][1]):
        for metric in ("agreement", "consistency"):
            low, high = row[f"{metric}_ci"]
            cells.append(f"{100 * row[metric]:.1f} ({100 * low:.1f}–{100 * high:.1f})")
    return f"| {name} | {' | '.join(cells)} |"


def tables(done: Mapping[str, Path], output: Path) -> str:
    """The tables of the finished settings."""
    labels = {name: upstream(directory, "label", output) for name, directory in done.items()}
    first = next(iter(labels.values()))
    rows = read_rows(upstream(first, "tree", output), "trees")
    trees = {tree.comparison.id: tree for tree in map(EvaluationTree.from_row, rows)}
    lines = [
        "| label and reward | labels right % | judgment pairs right % | guideline pairs | criteria pairs |",
        "| --- | --- | --- | --- | --- |",
        *(data_row(name, directory, trees) for name, directory in labels.items()),
        "",
        f"| DPO judge | {' | '.join(f'agreement %, k={k} | consistency %' for k in BRANCHES)} |",
        f"| --- |{' --- | --- |' * len(BRANCHES)}",
        *(judge_row(name, directory) for name, directory in done.items()),
    ]
    return "\n".join(lines)


def command(
    doc: str,
    settings: Mapping[str, Sequence[str]],
    shared: Sequence[str],
    show: Callable[[Mapping[str, Path], Path], str],
) -> None:
    """The command line of a script that runs settings beside one another, and shows the finished ones."""
    parser = parser_of(doc)
    parser.add_argument("--seeds", type=int, nargs="+", default=[17])
    parser.add_argument("--n", type=int, help="held-out comparisons of a seed; without it the recipe's")
    parser.add_argument("--recipe", default="quickstart")
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--only", nargs="+", choices=list(settings), default=list(settings))
    options = parser.parse_args()
    more = [f"dialogues.world.eval_comparisons={options.n}"] if options.n else []
    found: dict[str, list[Path]] = {}
    for seed in options.seeds:
        # Those of earlier calls are there already: the main command then does nothing, and says where they are.
        done = {
            name: run(options.recipe, seed, options.output, [*shared, *more, *overrides])
            for name, overrides in settings.items()
            if name in options.only
        }
        print(show(done, options.output))
        n = next(iter(read(next(iter(done.values())), None).values()))["n"]
        print(
            f"\nRecipe {options.recipe}, seed {seed}; n = {n} held-out comparisons, both orders; in brackets 95% "
            f"intervals, and n of labels and pairs; {datetime.date.today().isoformat()}; {os.cpu_count()} cores.\n",
            flush=True,
        )
        for name, directory in done.items():
            found.setdefault(name, []).append(directory)
    if len(options.seeds) > 1:
        print(over_seeds(found, options.seeds))


def over_seeds(found: Mapping[str, Sequence[Path]], seeds: Sequence[int]) -> str:
    """DPO judges of every setting over seeds, and by how much they agree more often than those of the first setting,
    on all seeds' comparisons, with a 95% interval over them and McNemar's p."""
    judges = {name: [load(d, None, s) for d, s in zip(ds, seeds, strict=True)] for name, ds in found.items()}
    first = next(iter(judges.values()))
    keys = sorted(first[0].rows, key=lambda key: key[1])
    lines = [
        f"| DPO judge | {' | '.join(f'agreement %, k={k} | less the first | consistency %' for _, k in keys)} |",
        f"| --- |{' --- | --- | --- |' * len(keys)}",
    ]
    for name, own in judges.items():
        cells = []
        for key in keys:
            cells.append(spread([seed.rows[key]["agreement"] for seed in own]))
            cells.append("–" if own is first else _less(own, first, key))
            cells.append(spread([seed.rows[key]["consistency"] for seed in own]))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    n = sum(len(seed.right[keys[0]]) for seed in first)
    return "\n".join([*lines, "", f"Seeds {', '.join(map(str, seeds))}: mean ± standard deviation; n = {n}."])


def _less(own: Sequence[Seed], first: Sequence[Seed], key: Key) -> str:
    a, b = ([right for seed in seeds for right in seed.right[key]] for seeds in (own, first))
    found = paired_difference(a, b, RESAMPLES, 0)
    assert found is not None
    low, high = found.interval or (found.mean, found.mean)
    return f"{100 * found.mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}; p {found.p_value:.2g})"


if __name__ == "__main__":
    command(str(__doc__), SETTINGS, SHARED, tables)
