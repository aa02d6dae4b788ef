"""The cluster report: coverage against a loop, the map, the page; and clusterings that are hard to sample."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from judgetrain.artifacts.pages import SHARED, render
from judgetrain.artifacts.shards import read_rows
from judgetrain.data.clustering import coverage as coverage_module
from judgetrain.data.clustering import kmeans as kmeans_module
from judgetrain.data.clustering.coverage import coverage, nearest, sample_uniform
from judgetrain.data.clustering.kmeans import kmeans
from judgetrain.data.clustering.report import TEMPLATES, corpus_map
from judgetrain.data.config import ClusterConfig, WorldConfig
from judgetrain.data.world import train_dialogues
from judgetrain.errors import ConfigError
from judgetrain.schema import Dialogue, Message
from tests.builders.data import run_cluster


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)


@pytest.fixture
def corpus() -> tuple[np.ndarray, np.ndarray]:
    """A cluster of 180 rows close together, and nine of 5 rows far from it and from each other."""
    rng = np.random.default_rng(0)
    centres = np.eye(10)
    sizes = [180, *[5] * 9]
    rows = np.concatenate([c + 0.05 * rng.normal(size=(n, 10)) for c, n in zip(centres, sizes, strict=True)])
    return unit(rows), np.repeat(np.arange(10), sizes)


def by_loop(rows: np.ndarray, probe: int, sample: list[int]) -> float:
    others = [1 - float(rows[probe].astype(float) @ rows[i].astype(float)) for i in sample if i != probe]
    return max(0.0, min(others))


def test_distances_are_to_the_nearest_other_row_of_the_sample(
    corpus: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage_module, "BLOCK", 7)
    rows, _ = corpus
    probes, sample = np.arange(0, 225, 9), np.array([0, 9, 100, 190, 224])
    expected = [by_loop(rows, int(p), sample.tolist()) for p in probes]
    assert nearest(rows, probes, sample) == pytest.approx(expected, abs=1e-3)


def test_a_sample_over_clusters_covers_what_a_random_one_misses(corpus: tuple[np.ndarray, np.ndarray]) -> None:
    rows, labels = corpus
    found = coverage(rows, labels, sample_uniform(labels, 20, 1), labels, 3)
    assert found is not None
    assert found["queries"] == 225
    assert (found["categories"], found["sample"]["categories"]) == (10, 10)
    assert found["random"]["categories"] < 8
    assert found["sample"]["distance_by_cluster"] < 0.5 * found["random"]["distance_by_cluster"]
    sample = sample_uniform(labels, 20, 1)
    distance = np.array([by_loop(rows, i, sample.tolist()) for i in range(225)])
    assert found["sample"]["distance"] == pytest.approx(distance.mean(), abs=1e-3)
    by_cluster = [distance[labels == c].mean() for c in range(10)]
    assert found["sample"]["distance_by_cluster"] == pytest.approx(np.mean(by_cluster), abs=1e-3)
    everything = coverage(rows, labels, np.arange(225), np.full(225, -1), 3)
    assert everything is not None
    assert everything["categories"] == 0
    assert everything["sample"] == everything["random"]
    assert coverage(rows, labels, np.array([3]), labels, 3) is None


@pytest.mark.parametrize("shape", [(225, 10), (1, 4), (3, 1), (5, 3)])
def test_the_map_draws_every_row_and_rings_the_sample(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(1).normal(size=shape)
    chosen = np.arange(0, len(rows), 2)
    picture = render(TEMPLATES / "map.svg", map=corpus_map(rows, np.arange(len(rows)) % 4, chosen, 0))
    root = ElementTree.fromstring(picture)
    dots = root.findall("{http://www.w3.org/2000/svg}circle")
    assert len(dots) == len(rows) + len(chosen)
    assert sum("stroke" in dot.attrib for dot in dots) == len(chosen)
    assert len({dot.attrib["fill"] for dot in dots}) == min(4, len(rows))
    for name, size in (("cx", 900), ("cy", 700)):
        assert all(0 <= float(dot.attrib[name]) <= size for dot in dots)


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's contrast of two colours #rrggbb."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def test_the_map_is_readable_on_light_and_on_dark_grounds() -> None:
    rows = np.random.default_rng(1).normal(size=(60, 4))
    picture = render(TEMPLATES / "map.svg", map=corpus_map(rows, np.arange(60), np.arange(60), 0))
    root = ElementTree.fromstring(picture)
    style = (SHARED / "style.css").read_text()
    light, dark = re.findall(r"--page:(#\w+)", style)
    grounds = [f"#{light[1:] * 2}" if len(light) == 4 else light, dark, "#121212"]
    dots = root.findall("{http://www.w3.org/2000/svg}circle")
    colours = {dot.attrib["fill"] for dot in dots}
    assert len(colours) > 40
    assert min(contrast(colour, ground) for colour in colours for ground in grounds) >= 3
    assert {dot.attrib["stroke"] for dot in dots if "stroke" in dot.attrib} == {"currentColor"}
    assert root.attrib["style"] == "color-scheme:light dark;color:CanvasText", "as a file of its own"
    [ground] = root.findall("{http://www.w3.org/2000/svg}rect")
    assert ground.attrib["style"] == "fill:Canvas"
    assert ".map .ground{fill:none!important}" in style and ".map .ring{stroke:var(--text)}" in style


def test_the_stage_writes_the_report(tmp_path: Path) -> None:
    dialogues = train_dialogues(WorldConfig(train_dialogues=120), 0)
    odd = Dialogue("odd", "x", (Message("user", "<b>what</b> & how ?"),), category="<i>")
    out = run_cluster(tmp_path, [*dialogues, odd], ClusterConfig(encoder="static:world", n_clusters=8, sample=40))
    report = json.loads(out.path("report.json").read_text())
    assert report["coverage"] == out.notes["coverage"]
    labels = {r["id"]: r["cluster"] for r in read_rows(out.directory, "clusters")}
    sampled = {r["id"] for r in read_rows(out.directory, "sample")}
    text = {d.id: d.query for d in [*dialogues, odd]}
    for cluster in report["clusters"]:
        members = [i for i, c in labels.items() if c == cluster["cluster"]]
        assert (cluster["size"], cluster["sampled"]) == (len(members), len(sampled & set(members)))
        assert len(cluster["examples"]) == min(3, len(members))
        assert set(cluster["examples"]) <= {text[i] for i in members}
    assert [c["size"] for c in report["clusters"]] == sorted((c["size"] for c in report["clusters"]), reverse=True)
    assert report["coverage"]["categories"] == len({d.category for d in dialogues}) + 1
    page = out.path("report.html").read_text()
    assert "<b>what" not in page and "<i>" not in page
    assert not re.search(r"""(?:src|href)=|url\(|<script""", page), "nothing is fetched"
    assert out.path("map.svg").read_text() in page
    before = out.path("report.json").read_bytes()
    assert run_cluster(tmp_path, [*dialogues, odd], ClusterConfig(encoder="static:world", n_clusters=8, sample=40))
    assert out.path("report.json").read_bytes() == before


def test_queries_that_are_all_alike_leave_clusters_empty_and_are_sampled_all_the_same(tmp_path: Path) -> None:
    same = [Dialogue(f"a{i}", "x", (Message("user", "how do i cook ?"),)) for i in range(20)]
    other = Dialogue("b", "x", (Message("user", "my son likes apple cake ."),))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn says that there are fewer distinct points than clusters
        out = run_cluster(tmp_path, [*same, other], ClusterConfig(encoder="static:world", n_clusters=5, sample=4))
    facts = out.notes["clustering"]
    assert (facts["clusters"], facts["empty"], facts["singletons"]) == (2, 3, 1)
    sample = [r["id"] for r in read_rows(out.directory, "sample")]
    assert len(sample) == 4 and "b" in sample, "what the singleton cannot give, the other cluster does"


def test_as_many_clusters_as_queries_and_one_more(tmp_path: Path) -> None:
    dialogues = train_dialogues(WorldConfig(train_dialogues=12), 0)
    out = run_cluster(tmp_path, dialogues, ClusterConfig(encoder="static:world", n_clusters=12, sample=7))
    assert len(list(read_rows(out.directory, "sample"))) == 7
    with pytest.raises(ConfigError, match=r"cluster\.n_clusters=13: there are only 12 dialogues"):
        run_cluster(tmp_path, dialogues, ClusterConfig(encoder="static:world", n_clusters=13, sample=7))


def test_past_a_size_batches_are_used_with_a_like_inertia(monkeypatch: pytest.MonkeyPatch) -> None:
    import sklearn.cluster

    rng = np.random.default_rng(0)
    rows = unit(np.repeat(rng.normal(size=(6, 8)), 100, axis=0) + 0.1 * rng.normal(size=(600, 8)))
    plain = kmeans(rows, ClusterConfig(n_clusters=6), 2)
    used = []
    batched = sklearn.cluster.MiniBatchKMeans

    def recording(*arguments: Any, **options: Any) -> Any:
        used.append(options["random_state"])
        return batched(*arguments, **options)

    monkeypatch.setattr(sklearn.cluster, "MiniBatchKMeans", recording)
    monkeypatch.setattr(kmeans_module, "MINI_BATCH_FROM", 500)
    found = kmeans(rows, ClusterConfig(n_clusters=6), 2)
    assert used == [2]
    assert found.inertia == pytest.approx(plain.inertia, rel=0.5)
    assert np.array_equal(found.labels, kmeans(rows, ClusterConfig(n_clusters=6), 2).labels), "the seed decides"
