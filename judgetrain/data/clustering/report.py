"""What the clusters hold and how well the sample covers the corpus: ``report.json``, ``map.svg``, ``report.html``."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.stage_run import StageRun, derive_seed
from judgetrain.data.clustering.coverage import coverage
from judgetrain.data.clustering.map import svg_map

EXAMPLES = 3
"""Queries shown of each cluster, drawn at random from it."""

LONGEST = 200
"""Characters of a query that are shown."""

_STYLE = """
:root{color-scheme:light dark;--page:#fff;--text:#1b1f24;--soft:#59636e;--line:#d5dae0}
@media (prefers-color-scheme:dark){:root{--page:#14171b;--text:#e4e8ee;--soft:#9aa5b1;--line:#343b44}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--text);background:var(--page);max-width:72rem;margin:auto;
padding:1rem;overflow-wrap:break-word}
h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2rem}p{color:var(--soft);max-width:60rem}
table{border-collapse:collapse;font-size:.9rem;width:100%}
td,th{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}td div+div{margin-top:.3rem}
svg{width:100%;height:auto;border:1px solid var(--line);border-radius:6px}
"""

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
    picture = svg_map(embeddings, labels, chosen, derive_seed(out.seed, "map"))
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
    write_text_atomic(out.path("map.svg"), picture)
    write_text_atomic(out.path("report.html"), _page(facts, covered, clusters, picture))
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


def _page(
    facts: Mapping[str, Any], covered: Mapping[str, Any] | None, clusters: list[dict[str, Any]], picture: str
) -> str:
    listed = "; ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
    rows = "".join(_cluster(c) for c in clusters)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Clusters</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head><body>'
        f"<h1>Clusters</h1><p>{html.escape(listed)}</p>{_coverage(covered)}"
        f"<h2>Map</h2><p>First two principal components of the embeddings; a colour a cluster; rings: the sample.</p>"
        f'{picture}<h2>Clusters, largest first</h2><table><thead><tr><th class="number">cluster</th>'
        '<th class="number">size</th><th class="number">sampled</th><th>commonest category</th>'
        f"<th>some queries</th></tr></thead><tbody>{rows}</tbody></table></body></html>\n"
    )


def _cluster(cluster: Mapping[str, Any]) -> str:
    numbers = "".join(f'<td class="number">{cluster[name]}</td>' for name in ("cluster", "size", "sampled"))
    examples = "".join(f"<div>{html.escape(text)}</div>" for text in cluster["examples"])
    return f"<tr>{numbers}<td>{html.escape(cluster['category'] or '')}</td><td>{examples}</td></tr>"


def _coverage(covered: Mapping[str, Any] | None) -> str:
    if covered is None:
        return ""
    named = {
        "distance": "mean distance of a query to its nearest sampled query",
        "distance_p95": "its 95th percentile",
        "distance_by_cluster": "mean distance, every cluster weighing the same",
        "categories": f"categories covered, of {covered['categories']}",
    }
    rows = "".join(
        f'<tr><td>{text}</td><td class="number">{covered["sample"][name]:g}</td>'
        f'<td class="number">{covered["random"][name]:g}</td></tr>'
        for name, text in named.items()
        if name != "categories" or covered["categories"]
    )
    return (
        f"<h2>Coverage</h2><p>Cosine distances of {covered['queries']} random queries, each to the nearest sampled one "
        f"that is not itself; random sampling: mean of {covered['random_draws']} samples of the same size.</p>"
        '<table><thead><tr><th></th><th class="number">this sample</th><th class="number">random</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )
