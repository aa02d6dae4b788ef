"""The stage graph: every room's stages, inputs before what needs them."""

from __future__ import annotations

from typing import Any

from judgetrain.artifacts.stages import Stage
from judgetrain.data.stages import CLUSTER, DIALOGUES, RESPONSES
from judgetrain.evaluate.stages import CORRECT, EVALUATE, STUDIES
from judgetrain.label.stages import LABEL, TEACHER, TREE
from judgetrain.scorers.stages import SELFEVAL
from judgetrain.train.stages import DPO, INITIAL, REFERENCE, RL, SFT

STAGES: dict[str, Stage[Any]] = {
    stage.name: stage
    for stage in (
        *(DIALOGUES, CLUSTER, RESPONSES, TEACHER, INITIAL, TREE, LABEL, SFT, REFERENCE, DPO, RL),
        *(EVALUATE, CORRECT, SELFEVAL, STUDIES),
    )
}
"""Every stage by name."""

COMMANDS = {
    "status": "what there is, what is partial, what a run would do",
    "report": "one report of several evaluations, a sweep among them",
    "clean": "what nothing refers to; clean.yes=true removes it",
}
"""What ``stage=`` may name besides, with a line for the help."""
