"""Pages as a browser shows them: nothing scrolls sideways, everything can be read, what matters is in sight."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from judgetrain.artifacts.pages import render
from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.intervals import Resampling
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import WorldEngine
from judgetrain.evaluate.metrics.rows import metric_row
from judgetrain.evaluate.report.report import Report, html_page
from judgetrain.extras.leaderboard.ratings import Battle, Outcome
from judgetrain.extras.leaderboard.stage import page
from judgetrain.extras.leaderboard.standings import leaderboard
from judgetrain.judges import BranchingJudge
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.views.tree_page import views, write_views
from judgetrain.judging.rows import row_of
from judgetrain.judging.stage import PAGE
from tests.builders.browser import DESK, PHONE, Browser, needs_chromium
from tests.builders.evaluate import answers, benchmark
from tests.builders.judges import noisy_trees

pytestmark = needs_chromium
PAGES = ("report", "leaderboard", "verdicts", "trees/index", "trees/00001")
SIDEWAYS = """[document.documentElement, ...document.querySelectorAll('*')].filter(e => e.checkVisibility()
  && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== 'visible'
  || e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => `${e.tagName}.${e.className}: ${e.innerText}`.slice(0, 80))"""
"""What is wider than its place."""
FAINT = """(() => {
  const numbers = c => c.match(/[\\d.]+/g).map(Number);
  const parts = c => ({rgb: numbers(c).slice(0, 3), a: numbers(c)[3] ?? 1});
  const light = rgb => rgb.map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (c.startsWith('rgb') && parts(c).a === 1) return light(parts(c).rgb); } return 1; };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = [];
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement, svg = e.namespaceURI.endsWith('svg');
    if (!walker.currentNode.data.trim() || !e.checkVisibility() || e.closest('.matrix, title, script')) continue;
    const style = getComputedStyle(e), a = light(parts(svg ? style.fill : style.color).rgb), b = ground(e);
    const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (contrast < 4.5) faint.push(`${contrast.toFixed(1)}: ${walker.currentNode.data.trim().slice(0, 40)}`);
  }
  return faint; })()"""
"""Texts whose contrast is below WCAG 2's 4.5 to 1."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pages")
    whole = benchmark(60)
    rng = random.Random(0)
    names = ["initial", "sft", "dpo", "dpo+sampled+independent", "pairwise:teacher", "longer", "scorer:sentprob_mean"]
    judged = [(n, k) for n in names for k in ((1, 3, 10) if n.startswith(("initial", "sft", "dpo")) else (0,))]
    rows = [metric_row(whole, answers(n, k, whole, rng.randint(20, 58)), 0.1, Resampling(50, 0)) for n, k in judged]
    report = Report(recipe="mine", seed=1, rows=rows)
    (root / "report.html").write_text(html_page(report, {"b": [("disagreements", "trees/index.html")]}))
    pairs = [*itertools.combinations([f"a-model-with-a-long-name-{n}" for n in range(7)], 2)] * 12
    outcomes: tuple[Outcome, ...] = ("A", "A", "B", "tie")
    battles = [
        Battle(prompt=(str(i // 3),), system_a=a, system_b=b, outcome=rng.choice(outcomes))
        for i, (a, b) in enumerate(pairs)
    ]
    (root / "leaderboard.html").write_text(page(leaderboard(battles, 0), "Leaderboard"))
    judge = BranchingJudge(WorldEngine(WorldEngineConfig()), load_prompt_set("compact"), JudgeOptions(branches=3))
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=8), seed=5)
    verdict_rows = [row_of(c, p, "dpo") for c, p in zip(comparisons, judge.compare_batch(comparisons), strict=True)]
    (root / "verdicts.html").write_text(render(PAGE, title="Verdicts", rows=verdict_rows, about=[]))
    label = {"comparison_id": "d1", "verdict": "A", "share": 0.75}
    write_views(views(noisy_trees("A" * 3), [label]), root / "trees", "Trees")
    return root


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


@pytest.mark.parametrize(("width", "dark"), [(DESK, False), (DESK, True), (PHONE, False), (PHONE, True)])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_screen_and_can_be_read(
    name: str, width: int, dark: bool, pages: Path, browser: Browser
) -> None:
    browser.open(pages / f"{name}.html", width, dark)
    assert browser.value(SIDEWAYS) == [] and browser.value(FAINT) == []
    folded = browser.value("document.querySelectorAll('details:not([open])').length")
    browser.value("document.querySelectorAll('details').forEach(e => e.open = true)")
    assert browser.value(SIDEWAYS) == [] and browser.value(FAINT) == []
    assert folded or name == "trees/index"
    assert [e for e in browser.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")] == []


def test_what_matters_is_in_sight_when_a_page_opens(pages: Path, browser: Browser) -> None:
    seen = "[...document.querySelectorAll('{}')].filter(e => e.checkVisibility()).map(e => e.innerText)"
    for name in ("report", "leaderboard"):
        browser.open(pages / f"{name}.html")
        assert browser.value("document.querySelector('.lead').getBoundingClientRect().bottom < innerHeight / 2")
        assert len(browser.value(seen.format("tbody tr"))) == 5, "judges or systems at most"
    browser.open(pages / "report.html")
    ends = browser.value(
        "[...document.querySelectorAll('svg')].map(e => [...e.querySelectorAll('.name')].map(e => e.textContent))"
    )
    assert len(ends) == 1 and all({*chart} >= {"dpo", "sft", "initial"} and len(chart) <= 5 for chart in ends)
    assert all("n = 60" in title for title in browser.value(seen.format("figcaption")))
    browser.open(pages / "verdicts.html")
    marks = browser.value(seen.format("h2 .good, h2 .bad"))
    assert len(marks) == 8 and {mark[0] for mark in marks} <= {"✓", "✗"}
    assert f"{sum(mark.startswith('✓') for mark in marks)} of 8 as labelled" in browser.text(".lead")
    reasons = browser.value(seen.format(".criterion .card .text"))
    assert len(reasons) == 5 * 6 and all("Analysis of Response A: " in reason for reason in reasons), "without a click"
    browser.open(pages / "trees" / "00001.html")
    assert browser.value(seen.format(".guideline .card .text")), "the first criterion's"
