"""Evaluation trees as self-contained pages: one a tree, and an index of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.pages import render
from judgetrain.judges.trees.schema import EvaluationTree, JudgmentNode, prune

DIRECTORY = "view"
"""Where in a stage's directory its pages are."""
INDEX = "index.html"
_TEMPLATES = Path(__file__).with_name("templates")

Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class View:
    """A tree and what is known of it.

    ``label`` is its row of ``labels.jsonl``; ``sft`` and ``pairs`` are the rows made of it; ``facts`` stand at the
    top, in order. All may be missing.
    """

    tree: EvaluationTree
    label: Mapping[str, Any] | None = None
    sft: Sequence[Mapping[str, Any]] = ()
    pairs: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def views(trees: Iterable[EvaluationTree], labels: Rows = (), sft: Rows = (), pairs: Rows = ()) -> list[View]:
    """The trees, each with its own label, examples and pairs out of rows of many trees (by ``comparison_id``)."""
    shown = [(tree.comparison.id, tree) for tree in trees]  # with independent plans a comparison has two
    made: dict[str, tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]] = {i: ([], []) for i, _ in shown}
    known = {row["comparison_id"]: row for row in labels if row["comparison_id"] in made}
    for kind, rows in enumerate((sft, pairs)):
        for row in rows:
            if row["comparison_id"] in made:
                made[row["comparison_id"]][kind].append(row)
    return [View(tree, known.get(i), *made[i]) for i, tree in shown]


def write_views(found: Sequence[View], directory: Path, title: str) -> Path:
    """Write a page per tree (``00001.html``, ...) and ``index.html``, whose path is given; older pages are removed."""
    for stale in directory.glob("[0-9]" * 5 + ".html"):
        stale.unlink(missing_ok=True)
    names = [f"{number:05d}.html" for number in range(1, len(found) + 1)]
    for name, view in zip(names, found, strict=True):
        write_text_atomic(directory / name, tree_page(view, INDEX))
    page = render(_TEMPLATES / "index.html", title=title, views=found, names=names)
    write_text_atomic(directory / INDEX, page)
    return directory / INDEX


def tree_page(view: View, index: str | None = None) -> str:
    """The page of one tree; ``index`` is the address of the page of all trees, linked at the top."""
    branches = prune(view.tree)
    given = view.label.get("verdict") if view.label else None
    reasons = Counter(branch.reason for branch in branches.values())
    return render(
        _TEMPLATES / "tree.html",
        title=f"Tree of {view.tree.comparison.id}",
        view=view,
        given=given,
        judgments=[judgment for _, _, judgment in view.tree.judgments()],
        numbers=_numbers(view.tree),
        branches=branches,
        kept_ids={name for name, branch in branches.items() if branch.kept},
        pruned=sorted((reason, n) for reason, n in reasons.items() if reason != "kept"),
        tally=_tally,
        index=index,
    )


def _numbers(tree: EvaluationTree) -> dict[str, str]:
    """Of every node, by its id: ``2``, ``2.1`` and ``2.1.4`` are a criterion, its guideline and its judgment."""
    found = {}
    for criterion in tree.criteria:
        number = found[criterion.id] = str(criterion.rank + 1)
        for k, guideline in enumerate(criterion.guidelines, start=1):
            found[guideline.id] = f"{number}.{k}"
            found |= {j.id: f"{number}.{k}.{n}" for n, j in enumerate(guideline.judgments, start=1)}
    return found


def _tally(judgments: Sequence[JudgmentNode]) -> list[tuple[str, str, int]]:
    """Class, words and number of each verdict."""
    count = Counter(j.verdict for j in judgments)
    return [(k, k, count[k]) for k in ("A", "tie", "B")] + [("none", "unreadable", count[None])]
