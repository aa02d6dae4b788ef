"""What recipes say that they take is what the arithmetic of docs/scale.md comes to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.benchmarks.gpu_hours import ASSUMED, expected, sampling, total, training

RECIPES = Path(__file__).parents[2] / "recipes"
SAID = {
    str(path.relative_to(RECIPES).with_suffix("")): int(found[1])
    for path in sorted(RECIPES.rglob("*.yaml"))
    if (found := re.search(r"# Expected on GPUs of 80 GB[^:]*: (\d+) GPU hours", path.read_text(encoding="utf-8")))
}


def test_the_recipes_of_the_papers_say_what_they_take() -> None:
    assert {"paper_ood", "paper_id", "paper_transfer", "paper_ood_gpt4"} < set(SAID)
    assert {f"tables/{name}" for name in ("table1", "table2", "table4")} < set(SAID)
    assert {f"tables/probdiff_{name}" for name in ("tuned", "leaderboard", "align")} < set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_a_recipe_s_hours_are_those_of_the_arithmetic(name: str) -> None:
    assert SAID[name] == max(1, round(total(name)))
    row = rf"^\| `{re.escape(name)}` .* \| {SAID[name]} \|$"
    docs = (RECIPES.parent / "docs" / "scale.md").read_text(encoding="utf-8")
    assert name in ("paper_ood", "paper_id", "paper_transfer") or re.search(row, docs, re.MULTILINE), row


def test_hours_by_hand() -> None:
    generated = 3_600 * ASSUMED["generated tokens/s of 7B a GPU"]
    assert sampling(0, generated, 14) == pytest.approx(2.0), "an hour of a 7B model is two of a 14B one"
    calls = 3_600 * ASSUMED["prompt tokens/s of 7B a GPU"] / (0.5 * ASSUMED["prompt tokens of a call"])
    assert sampling(int(calls), 0, 7) == pytest.approx(1.0, abs=1e-4)
    assert training(3_600 * 125e12 / (8 * 7e9), 7) == pytest.approx(1.0)


def test_table_4_trains_on_one_two_and_three_thousand() -> None:
    found = [part.calls for part in expected("tables/table4") if part.stage == "initial"]
    assert found == [10_000, 20_000, 30_000], "a list, and three branches of a guideline and two judgments"
