"""Rounds: every one while the gates let it (``stage=rounds``), and what stops those who ask for a later one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from judgetrain.pipeline.run import Pipeline

OF_A_ROUND = ("tree", "label", "sft", "reference", "dpo", "rl", "gate")
"""Stages of which every round has its own."""
OF_ROUNDS = ("holdout_comparisons", "gate")
"""Stages that one round alone has no use for."""


def each_round(pipeline: Pipeline) -> list[Pipeline]:
    """The pipelines of all rounds, the first one first."""
    return [pipeline.in_round(number) for number in range(1, pipeline.config.rounds.count + 1)]


def make(pipeline: Pipeline) -> Path:
    """Make every round up to ``rounds.count``, or to the first that the gates stop; gives the best judge's directory.

    What is finished is reused, so that a run which was killed goes on where it was.

    Raises:
        ConfigError: there is one round.
    """
    count = pipeline.config.rounds.count
    if count == 1:
        raise ConfigError("stage=rounds: rounds.count=1 is no more than stage=dpo; set rounds.count=2 or more")
    for each in each_round(pipeline):
        number = each.config.rounds.number
        pipeline.console.line(f"rounds: round {number} of {count}")
        found = _rounds(each.run("gate"))
        if not found["go_on"]:
            break
    best = pipeline.root / _judge(found)
    again = f"rounds.round={found['best']}" if found["best"] else "evaluate.methods=[initial]"
    pipeline.console.line(
        f"rounds: {_said(found)}: {best / 'model'}; the same command with stage=evaluate {again} evaluates it"
    )
    return best


def check_passed(gate: Path) -> None:
    """Refuse to go on from a round that was stopped; ``gate`` is the directory of its gate.

    Raises:
        TrainingError: says by what, and which round is the best.
    """
    found = _rounds(gate)
    if not found["go_on"]:
        last = found["rounds"][-1]
        raise TrainingError(
            f"round {last['round']} was stopped by its gates: {'; '.join(last['stopped'])}; {_said(found)}. Set "
            f"rounds.round={max(1, found['best'])} for what it made, or raise or unset (null) the gate's limit"
        )


def _rounds(gate: Path) -> dict[str, Any]:
    from judgetrain.evaluate.rounds.stage import read_rounds

    return read_rounds(gate)


def _judge(found: dict[str, Any]) -> str:
    """The artifact of the best judge, as ``dpo/FINGERPRINT``."""
    return str(next(row["judge"] for row in found["rounds"] if row["round"] == found["best"]))


def _said(found: dict[str, Any]) -> str:
    return f"the best is round {found['best']}" if found["best"] else "no round is better than the Initial judge"
