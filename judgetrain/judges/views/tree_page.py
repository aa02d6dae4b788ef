"""Evaluation trees as self-contained pages: one a tree, and an index of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.pages import render
from judgetrain.judges.trees.schema import EvaluationTree, JudgmentNode, prune
from judgetrain.schema import Verdict

DIRECTORY = "view"
"""The folder of pages in a stage's directory."""
INDEX = "index.html"
_TEMPLATES = Path(__file__).with_name("templates")

VERDICTS: tuple[Verdict, ...] = ("A", "tie", "B")
"""The verdicts in the order of the page's bars."""

Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class View:
    """A tree and the rows about it, all of which may be missing.

    Args:
        tree: the tree.
        label: its row of ``labels.jsonl``.
        sft: the examples made of it.
        pairs: the preference pairs made of it.
        facts: what stands at the top of the page, in order.
    """

    tree: EvaluationTree
    label: Mapping[str, Any] | None = None
    sft: Sequence[Mapping[str, Any]] = ()
    pairs: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def views(trees: Iterable[EvaluationTree], labels: Rows = (), sft: Rows = (), pairs: Rows = ()) -> list[View]:
    """Return trees with their labels, examples and pairs, which are found in rows of many trees.

    Args:
        trees: the trees to show.
        labels: rows of ``labels.jsonl``.
        sft: rows of examples.
        pairs: rows of preference pairs.
    """
    shown = list(trees)
    names = {tree.comparison.id for tree in shown}
    label_of = {row["comparison_id"]: row for row in labels if row["comparison_id"] in names}
    sft_of = _by_comparison(sft, names)
    pairs_of = _by_comparison(pairs, names)
    # With independent plans a comparison has two trees, which share its rows.
    result = []
    for tree in shown:
        name = tree.comparison.id
        result.append(View(tree, label_of.get(name), sft_of.get(name, ()), pairs_of.get(name, ())))
    return result


def _by_comparison(rows: Rows, names: Set[str]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows of some comparisons by the comparison's id."""
    by_comparison: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        # The rows of all trees need not fit into memory.
        if row["comparison_id"] in names:
            by_comparison.setdefault(row["comparison_id"], []).append(row)
    return by_comparison


def write_views(pages: Sequence[View], directory: Path, title: str) -> Path:
    """Write a page per tree (``00001.html``, ...) and an index, and return the index's path; older pages go."""
    # A later run may have fewer trees, whose pages would stand beside those of this one.
    for stale in directory.glob("[0-9]" * 5 + ".html"):
        stale.unlink(missing_ok=True)
    names = [f"{number:05d}.html" for number in range(1, len(pages) + 1)]
    for name, view in zip(names, pages, strict=True):
        write_text_atomic(directory / name, tree_page(view, INDEX))
    index = render(_TEMPLATES / "index.html", title=title, views=pages, names=names)
    write_text_atomic(directory / INDEX, index)
    return directory / INDEX


def tree_page(view: View, index: str | None = None) -> str:
    """Return the page of one tree; ``index`` is the address of the page of all trees, linked at the top."""
    branches = prune(view.tree)
    verdict = None
    if view.label:
        verdict = view.label.get("verdict")
    reasons = Counter(branch.reason for branch in branches.values())
    return render(
        _TEMPLATES / "tree.html",
        title=f"Tree of {view.tree.comparison.id}",
        view=view,
        given=verdict,
        judgments=[judgment for _, _, judgment in view.tree.judgments()],
        numbers=_numbers(view.tree),
        branches=branches,
        kept_ids={name for name, branch in branches.items() if branch.kept},
        pruned=sorted((reason, n) for reason, n in reasons.items() if reason != "kept"),
        tally=_tally,
        index=index,
    )


def _numbers(tree: EvaluationTree) -> dict[str, str]:
    """Return the number of every node by its id: ``2``, ``2.1`` and ``2.1.4`` of criterion, guideline and judgment."""
    numbers = {}
    for criterion in tree.criteria:
        # People count from 1.
        criterion_number = str(criterion.rank + 1)
        numbers[criterion.id] = criterion_number
        for place, guideline in enumerate(criterion.guidelines, start=1):
            guideline_number = f"{criterion_number}.{place}"
            numbers[guideline.id] = guideline_number
            for index, judgment in enumerate(guideline.judgments, start=1):
                numbers[judgment.id] = f"{guideline_number}.{index}"
    return numbers


def _tally(judgments: Sequence[JudgmentNode]) -> list[tuple[str, str, int]]:
    """Return the class, the word and the number of each verdict."""
    counts = Counter(judgment.verdict for judgment in judgments)
    rows = [(verdict, verdict, counts[verdict]) for verdict in VERDICTS]
    # Last, behind the bars of verdicts.
    return [*rows, ("none", "unreadable", counts[None])]
