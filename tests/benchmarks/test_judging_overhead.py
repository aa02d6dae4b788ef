"""The benchmark of stage judge counts the judge's time as its own and the rest as the stage's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from judgetrain.serving import judging
from tests.benchmarks.harness_overhead import Clock, Overhead
from tests.benchmarks.judging_overhead import JudgingOverhead, measure_judging, write_rows


def test_the_share_is_of_the_judge_s_own_work() -> None:
    stage = Overhead(Clock(13.0, 9.0), Clock(2.0, 0.5), Clock(9.0, 7.0), "judge")
    found = JudgingOverhead(stage, Clock(10.0, 8.0))
    assert found.shares == (pytest.approx(0.1), pytest.approx(0.0625))
    assert "stage over compare_all: 10.0% on the clock, 6.2% of the process" in str(found)


def test_every_shard_is_timed_and_what_was_replaced_is_put_back(tmp_path: Path) -> None:
    source, load = tmp_path / "rows.jsonl", judging.load
    write_rows(source, 10)
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    assert len(rows) == 10 and "label" not in rows[0]
    overrides = ("recipe=debug", "verdicts.judge=longer", f"verdicts.source.path={source}", "verdicts.shard_size=4")
    found = measure_judging([*overrides, f"output_dir={tmp_path / 'out'}", "track.tracker=none"])
    assert (found.comparing.calls, found.stage.whole.calls) == (3, 1)
    assert 0 < found.comparing.wall < found.stage.whole.wall and judging.load is load
