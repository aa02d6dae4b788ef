"""Pages of trees, read back with a parser and compared with the trees and rows that they show."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.judges.trees.schema import EvaluationTree, prune
from judgetrain.judges.views.tree_page import View, tree_page, views, write_views
from judgetrain.label import stage as label_stage
from judgetrain.label.config import LabelConfig
from judgetrain.label.stages import LabelSettings
from judgetrain.pipeline.config import Config
from judgetrain.schema import Dialogue, Message
from tests.builders.judges import noisy_trees
from tests.builders.pages import Element, parse

TREES = noisy_trees("A" * 12)
AGAINST = {("A", "B"), ("B", "A"), ("A", "tie"), ("B", "tie")}
"""Verdict and label; a tie contradicts nothing."""
HOSTILE = "</style></details><script>alert(1)</script><img src=x onerror=alert(1)> \"' & &lt; [a](http://x) \u202e"


EVERY_PAIR = LabelConfig(max_sft_per_tree=3, max_pairs_per_level=2, holdout=0.3, min_evidence=0.5, balance=[])


@pytest.fixture(scope="module")
def label(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished label artifact beside its tree artifact."""
    root = tmp_path_factory.mktemp("artifacts")
    tree = StageRun(root / "tree" / "t1", "tree", 0, Console())
    tree.write_rows("trees", (t.to_row() for t in TREES))
    out = StageRun(root / "label" / "l1", "label", 0, Console())
    config = Config(prompts="compact", tree=TreeConfig(criteria=4), label=EVERY_PAIR)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_stage, "VIEWED", 5)
        label_stage.run(LabelSettings.of(config), {"tree": tree.directory}, out)
    return out.directory


def rows_of(label: Path, kind: str) -> list[dict[str, Any]]:
    return [row for split in ("train", "heldout") for row in read_rows(label, f"{kind}-{split}")]


def views_of(label: Path) -> list[View]:
    """Return every tree with what the stage made of it."""
    return views(TREES, read_rows(label, "labels"), rows_of(label, "sft"), rows_of(label, "pairs"))


def own_number(tree: EvaluationTree) -> dict[str, str]:
    numbers = {}
    for i, criterion in enumerate(tree.criteria, 1):
        numbers[criterion.id] = f"{i}"
        for k, guideline in enumerate(criterion.guidelines, 1):
            numbers[guideline.id] = f"{i}.{k}"
            for n, judgment in enumerate(guideline.judgments, 1):
                numbers[judgment.id] = f"{i}.{k}.{n}"
    return numbers


def test_every_node_stands_on_the_page_with_its_scores_and_its_reason(label: Path) -> None:
    reasons = {
        "kept": "kept",
        "self_inconsistent": "pruned: judgments of the same prompt differ",
        "position_inconsistent": "pruned: the verdict changes with the order",
    }
    seen = Counter[str]()
    for view in views_of(label):
        page = parse(tree_page(view))
        numbers = own_number(view.tree)
        branches = prune(view.tree)
        for criterion, guideline in view.tree.guidelines():
            assert criterion.text in page.by_id(f"n{numbers[criterion.id]}").all("summary")[0].text()
            part = page.by_id(f"n{numbers[guideline.id]}")
            assert part.all(kind="text")[0].text() == guideline.text
            for node in guideline.judgments:
                card = page.by_id(f"n{numbers[node.id]}")
                reason = branches[node.id].reason
                tags = [t.text() for t in card.all(kind="tag")]
                heading = card.all("h3")[0].text()
                assert card.all(kind="text")[0].text() == node.text
                assert reasons.get(reason, f"pruned: unreadable: {node.failure}") in tags
                shown_scores = "not read" if node.score_a is None else f"A {node.score_a:g} : B {node.score_b:g} "
                assert heading.startswith(shown_scores)
                assert ("against the label" in tags) == ((node.verdict, view.label["verdict"]) in AGAINST)
                column = next(c for c in part.all(kind="column") if card in c.children)
                assert column.all("small")[0].text().startswith(f"{node.order[0]} shown first")
                seen[reason] += 1
            kept = sum(branches[node.id].kept for node in guideline.judgments)
            assert f"{kept} of 4 judgments kept" in part.all("summary")[0].text()
            readable = [j.verdict for j in guideline.judgments if j.verdict]
            rate = f"{readable.count(view.label['verdict'])} of {len(readable)} readable judgments give the label"
            assert _own_tag(part, rate) == bool(readable and view.label["verdict"])
    assert seen.total() == 12 * 32 and len(seen) == 4


def test_label_votes_and_responses_are_told(label: Path) -> None:
    labels = {row["comparison_id"]: row for row in read_rows(label, "labels")}
    for view in views_of(label):
        page = parse(tree_page(view))
        row = labels[view.tree.comparison.id]
        facts = dict(zip((e.text() for e in page.all("dt")), (e.text() for e in page.all("dd")), strict=True))
        words = {"A": "A is better", "B": "B is better", "tie": "tie", None: f"none ({row['reason']})"}
        assert (facts["Label"], facts["Right verdict"]) == (words[row["verdict"]], "A is better")
        assert facts["Winner's share of votes"] == f"{100 * row['share']:.0f}%"
        if row["verdict"]:
            mark = "✓" if row["verdict"] == "A" else "✗"
            assert page.all(kind="lead")[0].text().startswith(f"Verdict: {mark} {row['verdict']}, after 32 judgments")
        votes = row["votes"]
        [votes_line] = [p.text() for p in page.all("p") if p.text().startswith("A ")]
        assert votes_line.startswith(f"A {votes['A']} · tie {votes['tie']} · B {votes['B']}")
        assert view.tree.comparison.response_a in page.text() and view.tree.comparison.dialogue.query in page.text()


def test_pairs_and_examples_lead_to_their_nodes_and_back(label: Path) -> None:
    view_of = {view.tree.comparison.id: view for view in views_of(label)}
    pairs = rows_of(label, "pairs")
    examples = rows_of(label, "sft")
    assert sum(len(v.pairs) for v in view_of.values()) == len(pairs) > 0
    assert sum(len(v.sft) for v in view_of.values()) == len(examples) > 0
    for view in view_of.values():
        page = parse(tree_page(view))
        numbers = own_number(view.tree)
        for i, row in enumerate(view.pairs, 1):
            assert row["level"] in page.by_id(f"pair{i}").text()
            for side in ("chosen", "rejected"):
                for node in row["nodes"][side]:
                    place = page.by_id(f"n{numbers[node]}")
                    links = [(a.attributes["href"], a.text()) for a in place.all("a", "tag")]
                    assert (f"#pair{i}", f"{side} in pair {i}") in links
        headings = [h for h in page.all("h3") if h.text().startswith(("chosen", "rejected"))]
        expected_links = [(row[s][0]["content"], row["nodes"][s]) for row in view.pairs for s in ("chosen", "rejected")]
        for heading, (text, nodes) in zip(headings, expected_links, strict=True):
            assert [a.text() for a in heading.all("a")] == [numbers[n] for n in nodes]
            [card] = [c for c in page.all(kind="card") if heading in c.children]
            assert card.all(kind="text")[0].text() == text
        marked = {e.attributes["id"] for e in page.all() if "id" in e.attributes and _own_tag(e, "SFT example")}
        assert marked == {f"n{numbers[n]}" for row in view.sft for n in row["nodes"]}


def _own_tag(element: Element, text: str) -> bool:
    rows = [c for c in element.children if isinstance(c, Element) and c.attributes.get("class") == "tags"]
    return any(tag.text() == text for row in rows for tag in row.all("span", "tag"))


def hostile(text: str) -> View:
    tree = TREES[0]
    first = tree.criteria[0]
    guideline = replace(first.guidelines[0], text=text, finish_reason=text)
    judgment = replace(guideline.judgments[0], text=text, failure=text, score_a=None, score_b=None, finish_reason=text)
    guideline = replace(guideline, judgments=(judgment, *guideline.judgments[1:]))
    turns = (Message("user", text), Message("assistant", text), Message("user", text))
    shown = replace(
        tree.comparison, id=text, dialogue=Dialogue(text, text, turns), response_a=text, response_b=text,
        model_a=text, model_b=text,
    )  # fmt: skip
    pair = {
        "comparison_id": text, "level": text, "margin": 0.5, "reward": {text: 0.5}, "chosen": [{"content": text}],
        "rejected": [{"content": text}], "nodes": {"chosen": [judgment.id], "rejected": [text]},
    }  # fmt: skip
    tree = replace(
        tree, comparison=shown, failures={text: 1}, criteria_text=text,
        criteria=(replace(first, text=text, guidelines=(guideline,)), *tree.criteria[1:]),
    )  # fmt: skip
    label = {"comparison_id": text, "verdict": None, "share": 0.5, "readable": 1.0, "reason": text, text: text}
    return View(tree, label, [{"nodes": [judgment.id]}], [pair], {text: text})


@settings(max_examples=40, deadline=None)
@given(st.one_of(st.just(HOSTILE), st.text(alphabet="<>&\"'/=!-[]aonscript \n\ud800\u202e", min_size=1, max_size=30)))
def test_text_of_any_kind_stays_text(text: str) -> None:
    page = parse(tree_page(hostile(text), "index.html"))
    clean = text.encode("utf-8", "replace").decode()
    assert page.all("title")[0].text() == f"Tree of {clean}"
    shown = [e.text() for e in page.all(kind="text")]
    assert shown.count(clean) >= 8
    policy = page.all("meta")[1].attributes
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_the_index_leads_to_every_page_and_old_pages_go(tmp_path: Path) -> None:
    pages = views(TREES[:3], [{"comparison_id": "d1", "verdict": "A", "share": 0.75}])
    write_views(views(TREES), tmp_path, "old")
    (tmp_path / "mine.html").touch()
    index = write_views([*pages, hostile(HOSTILE)], tmp_path, HOSTILE)
    page = parse(index.read_text(encoding="utf-8"))
    addresses = [a.attributes["href"] for a in page.all("a")]
    assert addresses == [f"{n:05d}.html" for n in (1, 2, 3, 4)]
    assert sorted(p.name for p in tmp_path.iterdir()) == [*map(str, addresses), "index.html", "mine.html"]
    for address, view in zip(addresses, pages, strict=False):
        assert view.tree.comparison.id in parse((tmp_path / str(address)).read_text(encoding="utf-8")).text()
    head = [e.text() for e in page.all("th")]
    cells = [dict(zip(head, (c.text() for c in row.all("td")), strict=True)) for row in page.all("tr")[1:]]
    assert cells[1]["label"] == "A is better"
    assert cells[1]["winner's share"] == "75%"
    assert cells[0]["label"] == "–"
    assert cells[0]["right verdict"] == "A is better"
    assert "There are none." in write_views([], tmp_path, "x").read_text(encoding="utf-8")


def test_the_label_stage_writes_some_pages(label: Path) -> None:
    assert len(list((label / "view").glob("0*.html"))) == 5
    assert (label / "view" / "00001.html").read_text(encoding="utf-8") == tree_page(views_of(label)[0], "index.html")
