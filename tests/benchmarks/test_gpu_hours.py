"""What recipes say that they take is what the arithmetic of docs/scale.md comes to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.benchmarks.gpu_hours import ASSUMED, expected, sampling, total, training

RECIPES = Path(__file__).parents[2] / "recipes"
OF_THE_PAPERS = sorted(
    str(path.relative_to(RECIPES).with_suffix(""))
    for path in (*RECIPES.glob("paper_*.yaml"), *RECIPES.glob("tables/*.yaml"))
)
"""Every one that is shipped."""
SHOWN = {0: "none", 1: "(?:under )?1"}
"""How docs/scale.md writes hours."""
HOURS = re.compile(r"^# (?:Expected on GPUs of 80 GB[^:]*: (\d+) GPU hours|No GPU is needed)", re.MULTILINE)


@pytest.mark.parametrize("name", OF_THE_PAPERS)
def test_a_recipe_says_what_it_takes_and_that_is_what_the_arithmetic_comes_to(name: str) -> None:
    found = HOURS.search((RECIPES / f"{name}.yaml").read_text(encoding="utf-8"))
    assert found, "Expected on GPUs of 80 GB: N GPU hours, or No GPU is needed"
    said = int(found[1] or 0)
    assert said == (max(1, round(total(name))) if expected(name) else 0)
    row = rf"^\| .*`{re.escape(name)}`.* \| {SHOWN.get(said, said)} \|$"
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
