"""The table over seeds: means, deviations and claims on figures that can be worked out by hand."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import pytest

from tests.benchmarks import quickstart_table
from tests.benchmarks.quickstart_table import claims, read, seconds, spread, table

Values = dict[tuple[str, int], tuple[float, float, float]]
GOOD: Values = {
    ("initial", 1): (0.30, 0.50, 70),
    ("initial", 10): (0.35, 0.60, 700),
    ("sft", 1): (0.33, 0.55, 70),
    ("sft", 10): (0.40, 0.60, 700),
    ("dpo", 1): (0.35, 0.55, 105),
    ("dpo", 10): (0.45, 0.70, 900),
}


def rows(values: Values) -> quickstart_table.Rows:
    names = ("agreement", "consistency", "generated_tokens")
    return {key: dict(zip(names, numbers, strict=True)) for key, numbers in values.items()}


def test_targets_reached_exactly_are_met() -> None:
    found = claims([rows(GOOD)])
    assert [c.met for c in found] == [True] * 4
    assert "+5.0 points" in found[0].text
    assert "15.0% of its generated tokens" in found[3].text
    assert str(found[0]).endswith("**met** (1 of 1 seeds)")


@pytest.mark.parametrize(
    ("key", "values", "missed"),
    [
        (("initial", 10), (0.349, 0.60, 700), [0]),
        (("sft", 1), (0.33, 0.49, 70), [1]),
        (("dpo", 10), (0.45, 0.59, 900), [2]),
        (("dpo", 1), (0.349, 0.55, 105), [3]),
        (("dpo", 1), (0.35, 0.55, 106), [3]),
    ],
)
def test_each_target_can_be_missed(key: tuple[str, int], values: tuple[float, float, float], missed: list[int]) -> None:
    found = claims([rows(GOOD | {key: values})])
    assert [i for i, c in enumerate(found) if not c.met] == missed


def test_the_mean_decides_and_every_seed_is_told() -> None:
    bad = rows(GOOD | {("initial", 10): (0.30, 0.60, 700)})
    good = rows(GOOD | {("initial", 10): (0.45, 0.60, 700)})
    first = claims([bad, good])[0]
    assert (first.met, first.by_seed) == (True, (False, True))
    assert "+7.5 points" in first.text


def test_without_the_three_judges_nothing_is_claimed() -> None:
    assert claims([rows({k: v for k, v in GOOD.items() if k[0] != "sft"})]) == []


def test_cells_are_mean_and_sample_deviation() -> None:
    values = [0.30, 0.36, 0.33]
    assert spread(values) == f"{100 * sum(values) / 3:.1f} ± {100 * statistics.stdev(values):.1f}" == "33.0 ± 3.0"
    assert spread([0.5]) == "50.0"
    shifted = rows({k: (a + 0.02, c, t) for k, (a, c, t) in GOOD.items()})
    assert "| dpo | 1 | 36.0 ± 1.4 | 55.0 ± 0.0 | 105 ± 0 |" in table([rows(GOOD), shifted])


def test_time_counts_every_stage_once(tmp_path: Path) -> None:
    upstream = {"a": {}, "b": {"a": "1"}, "c": {"a": "1", "b": "1"}}
    for stage, needs in upstream.items():
        directory = tmp_path / "artifacts" / stage / "1"
        directory.mkdir(parents=True)
        (directory / "manifest.json").write_text(json.dumps({"seconds": 10.0, "upstream": needs}))
    assert seconds(tmp_path / "artifacts" / "c" / "1", tmp_path) == 30


def test_one_benchmark_is_read(tmp_path: Path) -> None:
    values = [{"benchmark": b, "method": "dpo", "branches": 1, "n": n} for b, n in (("x", 1), ("y", 2))]
    (tmp_path / "metrics.json").write_text(json.dumps(values))
    assert read(tmp_path, None)["dpo", 1]["n"] == 1
    assert read(tmp_path, "y")["dpo", 1]["n"] == 2
    with pytest.raises(SystemExit, match="there are x, y"):
        read(tmp_path, "z")


def test_the_command_runs_each_seed_with_the_overrides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "artifacts" / "evaluate" / "f"
    directory.mkdir(parents=True)
    (directory / "manifest.json").write_text(json.dumps({"seconds": 60.0, "upstream": {}}))
    everything = [{"benchmark": "w", "method": m, "branches": k, "n": 7, **v} for (m, k), v in rows(GOOD).items()]
    (directory / "metrics.json").write_text(json.dumps(everything))
    asked = []

    def fake(recipe: str, seed: int, output: Path, overrides: list[str]) -> Path:
        asked.append((recipe, seed, output, list(overrides)))
        return directory

    monkeypatch.setattr(quickstart_table, "run", fake)
    monkeypatch.setattr(
        sys, "argv", ["x", "--seeds", "3", "4", "tree.criteria=5", "--recipe", "debug", f"--output={tmp_path}"]
    )
    quickstart_table.main()
    assert asked == [("debug", seed, tmp_path, ["tree.criteria=5"]) for seed in (3, 4)]
    printed = capsys.readouterr().out
    assert "Recipe debug tree.criteria=5, seeds 3, 4" in printed
    assert "n = 7 held-out" in printed
    assert "1.0 ± 0.0 min a run" in printed


def test_a_failed_run_is_said_with_its_seed(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="seed 5: the main command ended with exit code 2"):
        quickstart_table.run("no_such_recipe", 5, tmp_path, [])
