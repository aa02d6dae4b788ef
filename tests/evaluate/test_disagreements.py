"""Pages of disagreements: which comparisons are shown, in which order, and the report's links to them."""

from dataclasses import replace
from pathlib import Path

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.engines import lazy_model
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.report.report import Report, html_page
from judgetrain.evaluate.runners import judges
from judgetrain.judges.kinds.tree_predictions import predict
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.pipeline.config import Config
from tests.builders.evaluate import UNATTACKED, judge, pairs, run
from tests.builders.pages import parse
from tests.builders.scripted import ScriptedEngine, noisy


@pytest.fixture
def evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Evaluate a judge that is often wrong, and return the directory."""
    artifacts = tmp_path / "artifacts"
    sft = judge(artifacts / "sft" / "s1")
    monkeypatch.setattr(lazy_model, "make_engine", lambda *a, **k: ScriptedEngine(noisy))
    monkeypatch.setattr(judges, "VIEW", 9)
    config = Config(
        evaluate=EvaluateConfig([pairs(tmp_path, 30)], ["sft", "random"], [1, 3], bootstrap=20),
        robustness=UNATTACKED,
        tree=TreeConfig(criteria=4, shard_size=4),
    )
    return run("evaluate", config, {"sft": sft}, artifacts / "evaluate" / "e1").directory


def wrong(tree: EvaluationTree) -> float | None:
    """Return how far the mean of A minus B is on the wrong side; None where both orders give the label."""
    margins = []
    verdicts = []
    for order in ("AB", "BA"):
        nodes = [(c.rank, j) for c, _, j in tree.judgments() if j.order == order and j.score_a]
        scores = [(j.score_a, j.score_b) for _, j in nodes]
        margins += [(1 / 3**rank, j.margin) for rank, j in nodes if j.margin is not None]
        signs = sum((a > b) - (a < b) for a, b in scores if a is not None and b is not None)
        verdicts.append(None if not scores else "A" if signs > 0 else "B" if signs < 0 else "tie")
    label = tree.comparison.label
    if verdicts == [label, label]:
        return None
    mean = sum(weight * margin for weight, margin in margins) / sum(weight for weight, _ in margins)
    return abs(mean) if label == "tie" else mean if label == "B" else -mean


def test_the_worst_disagreements_are_shown_and_no_agreement(evaluated: Path) -> None:
    trees = [EvaluationTree.from_row(row) for row in read_rows(evaluated, "trees-pairs-sft")]
    ranked = {t.comparison.id: w for t in trees if (w := wrong(t)) is not None}
    assert 9 < len(ranked) < 30, "the case needs agreements and more disagreements than pages"
    directory = evaluated / "view" / "pairs-sft"
    shown = []
    for page in sorted(directory.glob("0*.html")):
        page_elements = parse(page.read_text(encoding="utf-8"))
        shown.append(page_elements.all("p", "soft")[0].text())
    assert len(shown) == len(set(shown)) == 9
    assert [ranked[i] for i in shown] == pytest.approx(sorted(ranked.values(), reverse=True)[:9])
    index = parse((directory / "index.html").read_text(encoding="utf-8"))
    assert index.all("h1")[0].text() == f"pairs, sft: 9 of {len(ranked)} comparisons without the right verdict"
    assert [e.text() for e in index.all("th")] == [
        *("query", "verdict, A shown first", "verdict, B shown first", "mean score of A minus B", "right verdict")
    ]
    assert not (evaluated / "view" / "pairs-random").exists()


def test_the_report_links_to_pages_that_are_there(evaluated: Path) -> None:
    text = (evaluated / "report.html").read_text(encoding="utf-8")
    assert 'href="view/pairs-sft/index.html"' in text and (evaluated / "view" / "pairs-sft" / "index.html").is_file()
    assert text.count("href=") - text.count('href="#') == 1
    assert html_page(Report(recipe="r", seed=1, rows=[])).count("href=") == 0


def test_what_could_not_be_read_comes_last(evaluated: Path, tmp_path: Path) -> None:
    trees = [EvaluationTree.from_row(row) for row in read_rows(evaluated, "trees-pairs-sft")][:3]
    silent = replace(trees[0], criteria=())
    predictions = [predict(t, 3, JudgeOptions(), "sft") for t in (silent, *trees[1:])]
    predictions[1:] = [replace(p, verdict_ab="A", verdict_ba="B", margin=0.0) for p in predictions[1:]]
    out = StageRun(tmp_path / "out", "evaluate", 1, Console())
    benchmark = Benchmark(name="b", split="test", comparisons=[t.comparison for t in trees])
    judges.write_disagreements("sft", benchmark, [(tree, None) for tree in (silent, *trees[1:])], predictions, out)
    last = (out.directory / "view" / "b-sft" / "00003.html").read_text(encoding="utf-8")
    assert trees[0].comparison.id in last
    assert "none could be read" in last
