"""The stage graph: every room's stages, inputs before what needs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from judgetrain.artifacts.stages import Stage
from judgetrain.data.stages import CLUSTER, DIALOGUES, RESPONSES
from judgetrain.evaluate.stages import CORRECT, CORRELATE, EVALUATE, GATE, SCENARIOS, STUDIES
from judgetrain.label.stages import ANCHORS, LABEL, TEACHER, TREE
from judgetrain.scorers.stages import SELFEVAL
from judgetrain.serving.leaderboard.stages import LEADERBOARD
from judgetrain.serving.queue.stages import LABEL_QUEUE
from judgetrain.serving.stages import JUDGE
from judgetrain.serving.stress.stages import STRESS
from judgetrain.train.stages import DPO, INITIAL, REFERENCE, RL, SFT

STAGES: dict[str, Stage[Any]] = {
    stage.name: stage
    for stage in (
        *(DIALOGUES, CLUSTER, RESPONSES, TEACHER, INITIAL, ANCHORS),
        *(TREE, LABEL, SFT, REFERENCE, DPO, RL, GATE),
        *(EVALUATE, CORRECT, SELFEVAL, STUDIES, CORRELATE, SCENARIOS),
        *(JUDGE, LEADERBOARD, STRESS, LABEL_QUEUE),
    )
}
"""Every stage by name."""


OF_A_ROUND = tuple(stage.name for stage in (TREE, LABEL, SFT, REFERENCE, DPO, RL, GATE))
"""Those of which every round has its own."""
OF_ROUNDS = (ANCHORS.name, GATE.name)
"""Those that one round alone has no use for."""
_PLACES = {name: place for place, name in enumerate(STAGES)}


def of_round_before(stage: str, needed: str) -> bool:
    """Whether what a stage needs is the round before's: it comes after the stage in the graph, or is the stage."""
    return _PLACES[needed] >= _PLACES[stage]


@dataclass(frozen=True)
class Command:
    """What ``stage=`` may name besides stages: a line for the help, and ``module:function``, given the pipeline.

    One that ``makes`` stages gives a directory.
    """

    does: str
    code: str
    makes: bool = False


COMMANDS = {
    "rounds": Command(
        "every round up to rounds.count, while the gates let it; the best", "judgetrain.pipeline.rounds:make", True
    ),
    "status": Command(
        "what there is, what is partial, what a run would do",
        "judgetrain.pipeline.status:show",
    ),
    "report": Command(
        "one report of several evaluations, a sweep among them", "judgetrain.pipeline.merged_report:merge"
    ),
    "card": Command(
        "the judges' cards, filled with what was found of them so far", "judgetrain.pipeline.cards:fill_all"
    ),
    "serve": Command("a judge behind HTTP, for many clients at once", "judgetrain.pipeline.serve:serve"),
    "clean": Command("what nothing refers to; clean.yes=true removes it", "judgetrain.pipeline.clean:clean"),
}
"""Every command by name."""
