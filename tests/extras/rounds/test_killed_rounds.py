"""Two rounds by the real command on the debug recipe: killed in the second, and run again."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from tests.builders.debug_run import finish, start

ROUNDS = ("stage=rounds", "rounds.count=2", "rounds.holdout_comparisons=4", "track.tracker=none")
OPEN = "rounds.stop_on_collapse=false"
"""Four held-out comparisons tell nothing."""


def manifests(output: Path, stage: str) -> list[Path]:
    """Of a stage's finished artifacts, the first one first."""
    return sorted(output.glob(f"artifacts/{stage}/*/manifest.json"), key=lambda path: path.stat().st_mtime_ns)


def test_rounds_that_were_killed_go_on_where_they_were(tmp_path: Path) -> None:
    output, log = tmp_path / "outputs", tmp_path / "log"
    process = start(output, log, *ROUNDS, OPEN)
    while len(manifests(output, "label")) < 2:
        assert process.poll() is None, log.read_text()
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = {path: path.stat().st_mtime_ns for path in output.glob("artifacts/*/*/manifest.json")}
    assert len(manifests(output, "dpo")) == 1
    printed = finish(output, log, *ROUNDS, OPEN)
    assert done == {path: path.stat().st_mtime_ns for path in done}, "what was finished is reused"
    trees, judges = manifests(output, "tree"), manifests(output, "dpo")
    tree = json.loads(trees[1].read_text())
    assert set(tree["upstream"]) == {"teacher"} and judges[0].parent.name in tree["config"]["tree"]["judge"]
    taught = [
        {json.loads(line)["comparison"]["id"] for shard in path.parent.glob("trees-*.jsonl") for line in shard.open()}
        for path in [*trees, *manifests(output, "holdout_comparisons")]
    ]
    assert [*map(len, taught)] == [6, 6, 4] and len(set.union(*taught)) == 16, "no comparison serves twice"
    found = json.loads((manifests(output, "round_check")[-1].parent / "rounds.json").read_text())
    assert [row["round"] for row in found["rounds"]] == [0, 1, 2] and found["go_on"]
    assert [row["judge"] for row in found["rounds"][1:]] == [f"dpo/{path.parent.name}" for path in judges]
    assert "rounds: the best is round" in printed or "rounds: no round is better than the Initial judge" in printed
    assert "round_check: nothing to do, everything is there" in finish(output, log, *ROUNDS, OPEN)
