"""The table over seeds: means, deviations and claims on figures that can be worked out by hand."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.benchmarks import quickstart_table
from tests.benchmarks.quickstart_claims import Claim, Rows, Seed, claims, differences
from tests.benchmarks.quickstart_table import load, read, seconds, spread, table

Values = dict[tuple[str, int], tuple[float, float, float]]
N, PREDICTIONS = 200, "predictions.parquet"
GOOD: Values = {  # agreement, consistency, tokens
    ("initial", 1): (0.30, 0.90, 70),
    ("initial", 10): (0.40, 0.90, 700),
    ("sft", 1): (0.40, 0.92, 70),
    ("sft", 10): (0.50, 0.92, 700),
    ("dpo", 1): (0.60, 0.93, 105),
    ("dpo", 10): (0.60, 0.93, 900),
    ("rl", 1): (0.70, 0.97, 105),
    ("rl", 10): (0.68, 0.97, 900),
    ("surface", 0): (0.20, 1.00, 0),
}


def rows(values: Values, unreadable: int = 0) -> Rows:
    names = ("agreement", "consistency", "generated_tokens")
    return {
        key: dict(zip(names, numbers, strict=True)) | {"n": N, "unreadable_verdicts": unreadable}
        for key, numbers in values.items()
    }


def run_of(values: Values, unreadable: int = 0) -> Seed:
    """Whoever is better is right on all that the others are right on, and more."""
    right = {key: [i < round(N * a) for i in range(N)] for key, (a, _, _) in values.items()}
    return Seed(rows=rows(values, unreadable), right=right, one=0.75, both=0.80)


def unmet(found: list[Claim]) -> list[str]:
    return [c.text.partition(":")[0] for c in found if not c.met]


def test_targets_reached_exactly_are_met() -> None:
    found = claims([run_of(GOOD)])
    assert not unmet(found) and len(found) == 20
    assert "- dpo@1 at least 80% of a perfect reader of one criterion: 80.0%: **met** (1 of 1 seeds)" in map(str, found)
    assert "the best k of rl at least 85% of a perfect reader of both criteria: 87.5%" in [c.text for c in found]
    assert "rl@1 above dpo@1 by at least 4 points: +10.0" in " ".join(c.text for c in found)
    without = {k: v for k, v in GOOD.items() if k[0] != "rl"}
    assert not unmet(claims([run_of(without)])) and not any("rl" in c.text for c in claims([run_of(without)]))
    assert claims([run_of({k: v for k, v in GOOD.items() if k[0] != "sft"})]) == []


def test_differences_are_of_all_comparisons_of_all_seeds() -> None:
    fewer = GOOD | {("dpo", 1): (0.50, 0.93, 105)}
    told = differences([run_of(GOOD), run_of(fewer)])
    assert len(told) == len({*told}) == 6 + 6 - 1, "rl@10, dpo@10 and sft@10 stand against initial@10, sft@10 in both"
    assert told[0].startswith("- sft@1 less initial@1: +10.0 [") and told[0].endswith("] points on 400 comparisons")
    assert any(line.startswith("- dpo@1 less sft@1: +15.0 [") for line in told)
    assert any(line.startswith("- dpo@1 less initial@10: +15.0 [") for line in told)


@pytest.mark.parametrize(
    ("key", "values", "missed"),
    [
        (("initial", 10), (0.30, 0.90, 700), {"initial@10 above initial@1"}),
        (("sft", 1), (0.31, 0.92, 70), {"sft@1 above initial@1"}),
        (("sft", 1), (0.50, 0.92, 70), {"dpo@1 above sft@1 by at least 12 points"}),
        (("dpo", 1), (0.60, 0.929, 105), {"consistency of dpo@1 at least 93%"}),
        (("rl", 1), (0.70, 0.969, 105), {"consistency of rl@1 at least 97%"}),
        (("rl", 10), (0.67, 0.97, 900), {"rl loses at most 2 points from its best k to 10"}),
        (("dpo", 1), (0.60, 0.93, 106), {"dpo@1 at least the best of initial (@10) with at most 15% of its tokens"}),
        (("surface", 0), (0.30, 1.0, 0), {"sft@1 above every floor, intervals apart"}),
    ],
)
def test_each_target_can_be_missed(key: tuple[str, int], values: tuple[float, float, float], missed: set[str]) -> None:
    assert missed <= set(unmet(claims([run_of(GOOD | {key: values})])))


def test_a_seed_on_which_a_stage_falls_is_told() -> None:
    bad = run_of(GOOD | {("sft", 1): (0.28, 0.92, 70)})
    found = {c.text.partition(":")[0]: c for c in claims([bad, *[run_of(GOOD)] * 4])}
    fall = found["no seed where a stage at 1 is below the one before"]
    assert not fall.met and fall.by_seed == (False, True, True, True, True)
    above = found["sft@1 above initial@1"]
    assert above.met and above.by_seed[0] is False and "on 1000 comparisons, McNemar p = " in above.text
    assert not found["standard deviation over seeds at most 4 points (a seed"].met
    assert "unreadable verdicts of trained judges at most 0.5%" in unmet(claims([run_of(GOOD, unreadable=3)]))


def test_cells_are_mean_and_sample_deviation() -> None:
    values = [0.30, 0.36, 0.33]
    assert spread(values) == f"{100 * sum(values) / 3:.1f} ± {100 * statistics.stdev(values):.1f}" == "33.0 ± 3.0"
    assert spread([0.5]) == "50.0"
    shifted = rows({k: (a + 0.02, c, t) for k, (a, c, t) in GOOD.items()})
    assert "| dpo | 1 | 61.0 ± 1.4 | 93.0 ± 0.0 | 105 ± 0 |" in table([rows(GOOD), shifted])


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
    columns = ("benchmark", "method", "branches", "label", "verdict_ab", "verdict_ba")
    said = [("w", m, k, "A", "A", "A" if i < 100 * a else "B") for (m, k), (a, *_) in GOOD.items() for i in range(100)]
    pq.write_table(
        pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in said]), directory / PREDICTIONS
    )
    asked = []

    def fake(recipe: str, seed: int, output: Path, overrides: list[str]) -> Path:
        asked.append((recipe, seed, output, list(overrides)))
        return directory

    monkeypatch.setattr(quickstart_table, "run", fake)
    monkeypatch.setattr(
        sys,
        "argv",
        ["x", "--seeds", "3", "4", "tree.criteria=5", "--recipe", "debug", "--n", "30", f"--output={tmp_path}"],
    )
    quickstart_table.main()
    more = ["tree.criteria=5", "dialogues.world.eval_comparisons=30"]
    assert asked == [("debug", seed, tmp_path, more) for seed in (3, 4)]
    printed = capsys.readouterr().out
    assert "Recipe debug tree.criteria=5 dialogues.world.eval_comparisons=30, seeds 3, 4" in printed
    assert "- dpo@1 above sft@1 by at least 12 points: +20.0" in printed
    assert "n = 200 held-out" in printed
    assert "1.0 ± 0.0 min a run" in printed


def test_a_failed_run_is_said_with_its_seed(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="seed 5: the main command ended with exit code 2"):
        quickstart_table.run("no_such_recipe", 5, tmp_path, [])


def test_a_run_of_the_world_brings_its_ceilings(tmp_path: Path) -> None:
    metrics = [{"benchmark": "world", "method": "dpo", "branches": 1, "n": 60}]
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    said = [
        {"benchmark": name, "method": "dpo", "branches": 1, "label": label, "verdict_ab": "A", "verdict_ba": ba}
        for name, label, ba in (("world", "A", "A"), ("world", "A", "B"), ("world", None, "A"), ("other", "A", "A"))
    ]
    pq.write_table(pa.Table.from_pylist(said), tmp_path / PREDICTIONS)
    found = load(tmp_path, None, 3)
    assert found.right == {("dpo", 1): [True, False]}
    assert found.one and found.both and 0.5 < found.one < found.both < 1
