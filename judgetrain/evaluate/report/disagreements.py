"""Pages of the trees behind verdicts that are not the label, and the links to them on the report's page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.judges.base import Prediction
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.judges.views.tree_page import DIRECTORY, INDEX, View, write_views

VIEW = 20
"""Pages of disagreements to look at, per benchmark and judge."""
Link = tuple[str, str]
"""Text and address, relative to the report's page."""


def write_disagreements(
    name: str,
    benchmark: Benchmark,
    trees: Sequence[tuple[EvaluationTree, EvaluationTree | None]],
    predictions: Sequence[Prediction],
    out: StageRun,
    limit: int = VIEW,
) -> None:
    """Write pages of up to ``limit`` comparisons on which the judge does not give the label in both orders.

    Those with the largest margin for the wrong side come first. ``trees``: of each comparison the tree and None, or
    with independent plans those of both orders, a page each. ``predictions`` are with the most branches.
    """
    wrong = [
        (p, both)
        for p, both in zip(predictions, trees, strict=True)
        if both[0].comparison.label is not None and p.verdict != both[0].comparison.label
    ]
    wrong.sort(key=lambda pair: -_wrongness(pair[0], pair[1][0].comparison.label))
    views = [View(tree, facts=_facts(p)) for p, both in wrong[:limit] for tree in both if tree is not None]
    shown = min(limit, len(wrong))
    title = f"{benchmark.name}, {name}: {shown} of {len(wrong)} comparisons without the right verdict"
    write_views(views, out.path(DIRECTORY) / f"{benchmark.name}-{name}", title)


def _wrongness(prediction: Prediction, label: str | None) -> float:
    """How far the mean margin is from what the label says; -1 where nothing could be read."""
    if prediction.margin is None:
        return -1.0
    return {"A": -prediction.margin, "B": prediction.margin}.get(str(label), abs(prediction.margin))


def _facts(prediction: Prediction) -> dict[str, str]:
    words = {"A": "A", "B": "B", "tie": "tie", None: "none could be read"}
    margin = "–" if prediction.margin is None else f"{prediction.margin:+.2f}"
    return {
        "verdict, A shown first": words[prediction.verdict_ab],
        "verdict, B shown first": words[prediction.verdict_ba],
        "mean score of A minus B": margin,
    }


def disagreement_links(benchmark: str, methods: Iterable[str], out: StageRun) -> list[Link]:
    """Links to the pages that :func:`write_disagreements` wrote for a benchmark."""
    found = {name: f"{DIRECTORY}/{benchmark}-{name}/{INDEX}" for name in methods}
    return [(f"{benchmark}: disagreements of {name}", at) for name, at in found.items() if out.path(at).is_file()]
