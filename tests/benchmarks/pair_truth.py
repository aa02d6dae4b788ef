"""Of the preference pairs of a quickstart run, how many prefer what is better by the world's truth, at each level.

    python -m tests.benchmarks.pair_truth outputs

Reads the newest finished artifacts of stages ``tree`` and ``label`` under OUTPUTS/artifacts. A side is right when

- judgment: its verdict on its criterion is the true one;
- guideline: it names the evidence to look for, as a sound guideline of that criterion does;
- criteria: (compared) the criteria that decide for this kind of query stand earlier than on the other side.

Prints, by level, pairs whose chosen side is better, worse or no different, and the share of better among all pairs and
among those that differ, with 95% Wilson intervals; then the same of the labels.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import MANIFEST
from judgetrain.data.world import true_verdict
from judgetrain.data.world.annotator import Annotator, criterion_name
from judgetrain.data.world.language import GRADE_SCORES, Language, load_language
from judgetrain.judges.prompting.parsing import parse_criteria
from judgetrain.judges.trees.schema import EvaluationTree

Fates = Counter[str]


def newest(outputs: Path, stage: str) -> Path:
    """The directory of the stage's newest finished artifact."""
    found = sorted((outputs / "artifacts" / stage).glob(f"*/{MANIFEST}"), key=lambda p: p.stat().st_mtime)
    if not found:
        sys.exit(f"{outputs}/artifacts/{stage} holds no finished artifact: run python -m judgetrain stage=label")
    return found[-1].parent


def compare(chosen: float, rejected: float) -> str:
    """``better``, ``worse`` or ``same``."""
    return "better" if chosen > rejected else "worse" if chosen < rejected else "same"


def judgment_rightness(language: Language, trees: dict[str, EvaluationTree]) -> dict[str, float]:
    """1 or 0 by judgment id: whether its verdict on its criterion is the true one."""
    right = {}
    for tree in trees.values():
        for criterion, _, judgment in tree.judgments():
            name = criterion_name(criterion.text)
            if name in language.properties:
                pair = tree.comparison.response_a, tree.comparison.response_b
                a, b = (GRADE_SCORES[language.grade(response, name)] for response in pair)
                truth = "tie" if a == b else "A" if a > b else "B"
                right[judgment.id] = float(judgment.verdict == truth)
    return right


def earliness(language: Language, kind: str, text: str) -> float:
    """How early the deciding criteria stand in a list, the primary one counting double; larger is earlier."""
    names = [criterion_name(line) for line in parse_criteria(text, 100)]
    weights = {language.kinds[kind].primary: 2.0, language.kinds[kind].secondary: 1.0}
    return -sum(weight * names.index(name) for name, weight in weights.items() if name in names)


def fates(pairs: Iterator[dict[str, Any]], trees: dict[str, EvaluationTree]) -> dict[str, Fates]:
    """Counts of better, worse and same by level."""
    language = load_language()
    annotator = Annotator(language, 0.0)
    right = judgment_rightness(language, trees)
    names = {g.id: criterion_name(c.text) for t in trees.values() for c in t.criteria for g in c.guidelines}
    found: dict[str, Fates] = {}
    for pair in pairs:
        level, texts = pair["level"], [pair[side][0]["content"] for side in ("chosen", "rejected")]
        nodes = [pair["nodes"][side][0] for side in ("chosen", "rejected")]
        if level == "judgment":
            if not set(nodes) <= set(right):
                continue
            values = [right[node] for node in nodes]
        elif level == "guideline":
            if names[nodes[0]] not in language.properties:
                continue
            values = [float(text == annotator.sound_guideline(names[nodes[0]])) for text in texts]
        else:
            kind = language.kind_of(trees[pair["comparison_id"]].comparison.dialogue.query)
            values = [earliness(language, kind, text) for text in texts]
        found.setdefault(level, Counter())[compare(*values)] += 1
    return found


def line(name: str, count: Fates) -> str:
    """A row of the table."""
    from scipy.stats import binomtest

    better, different, total = count["better"], count["better"] + count["worse"], count.total()
    shares = []
    for n in (total, different):
        low, high = binomtest(better, n).proportion_ci(method="wilson") if n else (0.0, 1.0)
        shares.append(f"{100 * better / max(n, 1):.1f} ({100 * low:.1f}–{100 * high:.1f})")
    return f"| {name} | {total} | {better} | {count['same']} | {count['worse']} | {' | '.join(shares)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outputs", nargs="?", type=Path, default=Path("outputs"))
    outputs = parser.parse_args().outputs
    label = newest(outputs, "label")
    upstream = json.loads((label / MANIFEST).read_text())["upstream"]["tree"]
    rows = read_rows(outputs / "artifacts" / "tree" / upstream, "trees")
    trees = {tree.comparison.id: tree for tree in map(EvaluationTree.from_row, rows)}
    print("| level | pairs | better | same | worse | better, % of all | better, % of those that differ |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for level, count in sorted(fates(read_rows(label, "pairs-train"), trees).items()):
        print(line(level, count))
    labels: Fates = Counter()
    for row in read_rows(label, "labels"):
        if row["verdict"] is not None:
            comparison = trees[row["comparison_id"]].comparison
            truth = true_verdict(comparison.dialogue.query, comparison.response_a, comparison.response_b)
            labels["same" if truth == "tie" else "better" if row["verdict"] == truth else "worse"] += 1
    print(line("labels (same: truth is a tie)", labels))


if __name__ == "__main__":
    main()
