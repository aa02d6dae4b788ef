"""Checks that span several keys, or ask what is on this machine; all of them before any stage runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from judgetrain.errors import ConfigError
from judgetrain.evaluate.objective import check_objective
from judgetrain.pipeline.checks.data import check_dialogues, check_label, check_responses
from judgetrain.pipeline.checks.evaluation import check_correct, check_evaluate, check_selfeval, check_studies
from judgetrain.pipeline.checks.models import check_teacher, check_tree
from judgetrain.pipeline.checks.training import check_dpo, check_initial, check_sft
from judgetrain.pipeline.config import Config


def check_together(config: Config) -> None:
    """Check what holds whatever the stage is.

    Raises:
        ConfigError: names the keys, their values and what is allowed.
    """
    _names("dialogues.sources", [s.name for s in config.dialogues.sources])
    _names("evaluate.benchmarks", [b.name for b in config.evaluate.benchmarks])
    _names("evaluate.stored", [s.name for s in config.evaluate.stored])
    _names("responses.models", [m.name for m in config.responses.models])
    branches, criteria = config.evaluate.branches, config.tree.criteria
    if not branches or min(branches) < 1 or max(branches) > criteria:
        raise ConfigError(
            f"evaluate.branches={branches}: allowed are 1 to tree.criteria={criteria}, "
            "since a branch follows one criterion"
        )
    if config.objective is not None:
        check_objective(config.objective, config.evaluate)
        if config.stage != "evaluate":
            raise ConfigError(
                f"objective={config.objective!r}: is a metric of stage=evaluate, not of stage={config.stage}"
            )
    teacher = config.teacher
    if teacher.branches > teacher.criteria:
        raise ConfigError(f"teacher.branches={teacher.branches}: at most teacher.criteria={teacher.criteria}")


def check_stage(config: Config, stage: str) -> None:
    """Check what one stage needs: sources, models, methods.

    Raises:
        ConfigError: names the key, its value and the remedy.
    """
    check = _CHECKS.get(stage)
    if check is not None:
        check(config)


def _names(key: str, names: Sequence[str]) -> None:
    for i, name in enumerate(names):
        if not name:
            raise ConfigError(f"{key}[{i}].name is empty: every entry needs a name")
        if not re.fullmatch(r"\w[\w.@+-]*", name):
            raise ConfigError(f"{key}[{i}].name={name!r}: allowed are letters, digits and _ . @ + -, for file names")
        if name in names[:i]:
            raise ConfigError(f"{key}: the name {name!r} is used twice; names must differ")


_CHECKS: dict[str, Callable[[Config], None]] = {
    "dialogues": check_dialogues,
    "responses": check_responses,
    "teacher": check_teacher,
    "initial": check_initial,
    "tree": check_tree,
    "label": check_label,
    "sft": check_sft,
    "reference": check_dpo,
    "dpo": check_dpo,
    "evaluate": check_evaluate,
    "correct": check_correct,
    "selfeval": check_selfeval,
    "studies": check_studies,
}
