"""Stage ``round_check``: a round's judge on the held-out comparisons, and whether another round may follow.

A judge that is trained on its own trees can run away: it says A whatever is shown first, or the longer response wins,
and its trees then teach the next round the same. Their labels stay what they were before the first round.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.evaluate.metrics.reading import read_record
from judgetrain.extras.rounds.collapse import Figures, Round, best_of, failures
from judgetrain.extras.rounds.stages import RoundCheckSettings
from judgetrain.judges.factory import Models
from judgetrain.judges.method import JUDGE_STAGES, Method
from judgetrain.schema import Comparison

FILE = "rounds.json"
BRANCHES = 1
"""Of the judges that are checked: what one branch says shows a collapse first."""


def run(settings: RoundCheckSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``rounds.json``: the Initial judge as round 0, every round so far, the best, and whether to go on.

    What judges said is kept in ``verdicts-JUDGE`` shards.
    """
    held = [Comparison.from_row(row) for row in read_rows(inputs["holdout_comparisons"], "comparisons")]
    rounds: list[Round] = []
    if settings.earlier:
        rounds = [*read_record(tuple[Round, ...], read_rounds(Path(settings.earlier).parent)["rounds"])]
    for name in (name for name in JUDGE_STAGES if name in inputs):
        found = Figures.of(_asked(name, held, settings, inputs, out), held)
        failed = tuple(failures(found, rounds)) if rounds and settings.stop_on_collapse else ()
        judge = f"{name}/{inputs[name].name}"
        rounds.append(Round(round=len(rounds), judge=judge, figures=found, stopped=failed))
    best, stopped = best_of(rounds), rounds[-1].stopped
    out.write_json(FILE, {"rounds": [asdict(r) for r in rounds], "best": best, "go_on": not stopped})
    out.note("round_check", {"round": rounds[-1].round, "best": best, "stopped": list(stopped)})
    out.tell([_table(rounds, best)])
    if stopped:
        out.log(f"round_check: round {rounds[-1].round} is stopped: {'; '.join(stopped)}", keep=True)


def read_rounds(directory: Path) -> dict[str, Any]:
    """What the stage wrote: ``rounds`` (rows of :class:`Round`), ``best`` and ``go_on``."""
    found: dict[str, Any] = json.loads((directory / FILE).read_text(encoding="utf-8"))
    return found


def _asked(
    name: str, held: Sequence[Comparison], settings: RoundCheckSettings, inputs: Mapping[str, Path], out: StageRun
) -> list[dict[str, Any]]:
    models = Models(settings, inputs, out)
    with loaded_once(lambda: models.judge(Method.parse(name), BRANCHES)) as judge:

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            said = judge().compare_all(items, derive_seed(out.shard_seed(index), name))
            prompt, generated = (
                round(sum(getattr(p.whole_cost, f"{kind}_tokens") for p in said)) for kind in ("prompt", "generated")
            )
            rows = [{name: getattr(p, name) for name in ("comparison_id", "verdict_ab", "verdict_ba")} for p in said]
            return ShardResult(rows, len(said), prompt_tokens=prompt, generated_tokens=generated)

        out.sharded(f"verdicts-{name}", held, settings.shard_size, process, "comparisons", judge, spread=True)
    return list(read_rows(out.directory, f"verdicts-{name}"))


def _table(rounds: Sequence[Round], best: int) -> Any:
    from rich import box
    from rich.table import Table

    shown = ("agreement", "consistency", "position_bias", "unreadable", "alike", "length_bias")
    title = f"rounds on {rounds[0].figures.n} held-out comparisons (* the best)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("round", "judge", *shown, "stopped by"):
        table.add_column(column.replace("_", " "), justify="left" if column in ("judge", "stopped by") else "right")
    for each in rounds:
        cells = [f"{getattr(each.figures, name):.3f}" for name in shown]
        mark = f"{each.round}{' *' if each.round == best else ''}"
        table.add_row(mark, each.judge.partition("/")[0], *cells, ", ".join(s.split()[0] for s in each.stopped))
    return table
