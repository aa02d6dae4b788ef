"""The stage graph: every room's stages, inputs before what needs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from judgetrain.artifacts.stages import Stage
from judgetrain.data.stages import CLUSTER, DIALOGUES, RESPONSES
from judgetrain.evaluate.stages import CORRECT, EVALUATE, STUDIES
from judgetrain.label.stages import LABEL, TEACHER, TREE
from judgetrain.scorers.stages import SELFEVAL
from judgetrain.serving.leaderboard.stages import LEADERBOARD
from judgetrain.serving.stages import JUDGE
from judgetrain.train.stages import DPO, INITIAL, REFERENCE, RL, SFT

STAGES: dict[str, Stage[Any]] = {
    stage.name: stage
    for stage in (
        *(DIALOGUES, CLUSTER, RESPONSES, TEACHER, INITIAL, TREE, LABEL, SFT, REFERENCE, DPO, RL),
        *(EVALUATE, CORRECT, SELFEVAL, STUDIES),
        *(JUDGE, LEADERBOARD),
    )
}
"""Every stage by name."""


@dataclass(frozen=True)
class Command:
    """What ``stage=`` may name besides stages: a line for the help, and ``module:function``, given the pipeline."""

    does: str
    code: str


COMMANDS = {
    "status": Command("what there is, what is partial, what a run would do", "judgetrain.pipeline.status:show"),
    "report": Command(
        "one report of several evaluations, a sweep among them", "judgetrain.pipeline.merged_report:merge"
    ),
    "serve": Command("a judge behind HTTP, for many clients at once", "judgetrain.pipeline.serve:serve"),
    "clean": Command("what nothing refers to; clean.yes=true removes it", "judgetrain.pipeline.clean:clean"),
}
"""Every command by name."""
