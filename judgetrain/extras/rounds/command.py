"""Command ``rounds``: the core's pipeline again and again, each time with the judge that the time before made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.files import write_rows_atomic
from judgetrain.artifacts.shards import read_rows
from judgetrain.extras.rounds.holdout import part_of
from judgetrain.extras.rounds.stage import FILE, read_rounds
from judgetrain.schema import Comparison

if TYPE_CHECKING:
    from judgetrain.pipeline.run import Pipeline


def make(pipeline: Pipeline) -> Path:
    """Make every round up to ``rounds.count``, or to the first that a check stops; gives the best judge's directory.

    What is finished is reused, so that a run which was killed goes on where it was.
    """
    config = pipeline.config
    pipeline.check("round_check")
    held = pipeline.run("holdout_comparisons")
    others = [Comparison.from_row(row) for row in read_rows(held, "others")]
    judge, earlier, found = None, "", dict[str, Any]()
    for number in range(1, config.rounds.count + 1):
        pipeline.console.line(f"rounds: round {number} of {config.rounds.count}")
        part = part_of(others, number, config.tree.max_comparisons, config.rounds.count)
        file = Path(config.output_dir) / "rounds" / f"{held.name}-{number}-{len(part)}.jsonl"
        write_rows_atomic(file, [c.to_row() for c in part])
        tree = replace(config.tree, judge=judge, comparisons=str(file), max_comparisons=None)
        each = pipeline.of(config.changed(tree=tree, rounds=replace(config.rounds, earlier=earlier)))
        check = each.run("round_check")
        found = read_rounds(check)
        if not found["go_on"]:
            break
        judge, earlier = str(each.plan(config.rounds.judge).directory / "model"), str(check / FILE)
    best = pipeline.root / next(row["judge"] for row in found["rounds"] if row["round"] == found["best"])
    said = f"the best is round {found['best']}" if found["best"] else "no round is better than the Initial judge"
    pipeline.console.line(
        f"rounds: {said}: {best / 'model'}; stage=evaluate 'evaluate.methods=[{best / 'model'}]' evaluates it"
    )
    return best
