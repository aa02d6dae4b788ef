"""What the clusters hold and how well the sample covers the corpus: ``report.json``, ``map.svg``, ``report.html``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.pages import render
from judgetrain.artifacts.stage_run import StageRun, derive_seed
from judgetrain.data.clustering.coverage import coverage

EXAMPLES = 3
"""Queries shown of each cluster, drawn at random from it."""

LONGEST = 200
"""Characters of a query that are shown."""

FITTED = 20_000
"""Rows from which the two dimensions are computed."""

DRAWN = 3000
"""Rows that are drawn, and as many of the sample at most."""

WIDTH, HEIGHT, MARGIN = 900, 700, 20
_GOLDEN_ANGLE = 137.508

TEMPLATES = Path(__file__).with_name("templates")

Rows = Callable[[], Iterable[Mapping[str, Any]]]


def write_report(
    rows: Rows, embeddings: np.ndarray, labels: np.ndarray, chosen: np.ndarray, facts: Mapping[str, Any], out: StageRun
) -> dict[str, Any] | None:
    """Write the report's three files; returns the coverage figures.

    Args:
        rows: reads the dialogues anew, in the order of the embeddings.
        embeddings: unit-length rows ``[n, dimension]``.
        labels: cluster of each row, int ``[n]``.
        chosen: rows of the sample.
        facts: what else is known of the clustering (backend, inertia, …).
        out: the stage's run; seeds derive from its own.
    """
    members, rng = _members(labels), np.random.default_rng(derive_seed(out.seed, "examples"))
    shown = {c: sorted(rng.choice(m, min(EXAMPLES, len(m)), replace=False).tolist()) for c, m in members.items()}
    categories, names, texts = _read(rows, len(labels), {i for picked in shown.values() for i in picked})
    covered = coverage(embeddings, labels, chosen, categories, derive_seed(out.seed, "coverage"))
    picture = corpus_map(embeddings, labels, chosen, derive_seed(out.seed, "map"))
    taken = np.bincount(labels[chosen], minlength=int(labels.max()) + 1)
    clusters = [
        {
            "cluster": cluster,
            "size": len(members[cluster]),
            "sampled": int(taken[cluster]),
            "category": _commonest(categories[members[cluster]], names) if names else None,
            "examples": [texts[i] for i in picked],
        }
        for cluster, picked in sorted(shown.items(), key=lambda item: (-len(members[item[0]]), item[0]))
    ]
    out.write_json("report", {**facts, "coverage": covered, "clusters": clusters})
    page = {"title": "Clusters", "facts": facts, "covered": covered, "clusters": clusters, "map": picture}
    for name in ("map.svg", "report.html"):
        write_text_atomic(out.path(name), render(TEMPLATES / name, **page))
    return covered


def _members(labels: np.ndarray) -> dict[int, np.ndarray]:
    """The rows of every cluster that has any."""
    order = np.argsort(labels, kind="stable")
    clusters, sizes = np.unique(labels, return_counts=True)
    return dict(zip(map(int, clusters), np.split(order, np.cumsum(sizes)[:-1]), strict=True))


def _read(rows: Rows, count: int, wanted: set[int]) -> tuple[np.ndarray, list[str], dict[int, str]]:
    """Categories by row (-1: none), their names, and the beginning of the wanted rows' queries."""
    categories, known, texts = np.full(count, -1, dtype=np.int32), dict[str, int](), dict[int, str]()
    for i, row in enumerate(rows()):
        if row.get("category"):
            categories[i] = known.setdefault(row["category"], len(known))
        if i in wanted:
            text = " ".join(row["messages"][-1]["content"].split())
            texts[i] = text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
    return categories, list(known), texts


def _commonest(categories: np.ndarray, names: list[str]) -> str | None:
    """The category that most rows have, and its share of all rows."""
    counts = np.bincount(categories[categories >= 0], minlength=len(names))
    best = int(counts.argmax())
    return f"{names[best]} {counts[best] / len(categories):.0%}" if counts[best] else None


@dataclass(frozen=True)
class Map:
    """The picture's dots: x, y, colour, and whether it is of the sample; the number of all rows and clusters."""

    dots: Sequence[tuple[float, float, str, bool]]
    rows: int
    clusters: int


def corpus_map(embeddings: np.ndarray, labels: np.ndarray, chosen: np.ndarray, seed: int) -> Map:
    """The first two principal components: rows as small dots in their cluster's colour, the sample on top.

    Args:
        embeddings: rows ``[n, dimension]``.
        labels: cluster of each row, int ``[n]``.
        chosen: rows of the sample.
        seed: of the rows that are drawn where there are more than a picture can hold.
    """
    from sklearn.decomposition import PCA

    rng = np.random.default_rng(seed)
    fitted = _some(np.arange(len(embeddings)), FITTED, rng)
    plain, ringed = _some(np.arange(len(embeddings)), DRAWN, rng), _some(chosen, DRAWN, rng)
    rows = np.concatenate([plain, ringed])
    values = np.asarray(embeddings[fitted], dtype=np.float32)
    if min(values.shape) >= 2:
        pca = PCA(2, svd_solver="randomized", random_state=int(rng.integers(2**31))).fit(values)
        places = pca.transform(np.asarray(embeddings[rows], dtype=np.float32))
    else:
        places = np.zeros((len(rows), 2))
    low, high = places.min(axis=0), places.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    places = MARGIN + (places - low) / span * (np.array([WIDTH, HEIGHT]) - 2 * MARGIN)
    colours = [_colour(label * _GOLDEN_ANGLE % 360) for label in labels[rows].tolist()]
    dots = [(x, y, c, i >= len(plain)) for i, ((x, y), c) in enumerate(zip(places.tolist(), colours, strict=True))]
    return Map(dots, len(embeddings), len(np.unique(labels)))


@cache
def _colour(hue: float) -> str:
    """A colour of this hue, in degrees, that stands out from a white ground as it does from a dark one.

    All have the relative luminance 0.2 (WCAG 2.2), which is at least 3 : 1 against white and against ``#14171b``.
    """
    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        rgb = hls_to_rgb(hue / 360, middle, 0.65)
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
        darker = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] < 0.2
        low, high = (middle, high) if darker else (low, middle)
    return "#" + "".join(f"{round(255 * c):02x}" for c in hls_to_rgb(hue / 360, low, 0.65))


def _some(rows: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    return np.sort(rng.choice(rows, number, replace=False)) if len(rows) > number else rows
