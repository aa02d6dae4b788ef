"""Stages holdout_comparisons and round_check: what each reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from judgetrain.artifacts.stages import Stage, StageSettings, at
from judgetrain.engines.config import EngineConfig
from judgetrain.judges.checks import check_model
from judgetrain.judges.config import TreeConfig
from judgetrain.judges.method import Method
from judgetrain.judges.settings import ModelSettings
from judgetrain.keys import in_place
from judgetrain.label.config import LabelConfig
from judgetrain.label.stages import check_grown

HOW = tuple(f.name for f in fields(TreeConfig) if f.name not in ("comparisons", "judge", "max_comparisons"))
"""What says how trees are grown, whoever grows them over whatever: it is the same in every round."""


def _grows(settings: Any) -> bool:
    return bool(settings.labels != "given")


@dataclass(frozen=True, kw_only=True)
class HoldoutSettings(StageSettings):
    """Stage holdout_comparisons."""

    holdout_comparisons: int = at("rounds.holdout_comparisons")
    labels: str = at("label.source")
    """Where labels are given the held-out comparisons have those of the data, else the Initial judge's vote."""
    tree: TreeConfig | None = at("tree", only=HOW, active_if=_grows)
    engine: EngineConfig | None = at("engine", active_if=_grows)
    label: LabelConfig | None = at("label", only=("rule",), active_if=_grows)
    prompts: str = at("prompts", in_fingerprint=False)


@dataclass(frozen=True, kw_only=True)
class RoundCheckSettings(ModelSettings):
    """Stage round_check."""

    stop_on_collapse: bool = at("rounds.stop_on_collapse")
    earlier: str = at("rounds.earlier", content=in_place(lambda path, owner: path))
    shard_size: int = at("tree.shard_size")

    result: str = at("rounds.judge", in_fingerprint=False)

    @property
    def methods(self) -> Sequence[Method]:
        """The round's result."""
        return (Method.parse(self.result),)


def _inputs(settings: RoundCheckSettings) -> Sequence[str]:
    """The round's result, and before the first round the Initial judge."""
    return "holdout_comparisons", *(() if settings.earlier else ("initial",)), settings.result


def _check(settings: RoundCheckSettings) -> None:
    check_model(settings, Method.parse(settings.result), "rounds.judge")


def _check_holdout(settings: HoldoutSettings) -> None:
    if settings.tree and settings.engine:
        check_grown(settings.tree, settings.engine, settings.prompts)


HOLDOUT = Stage(
    name="holdout_comparisons",
    settings=HoldoutSettings,
    code="judgetrain.extras.rounds.holdout:run",
    inputs=lambda settings: ("teacher", *(("initial",) if _grows(settings) else ())),
    check=_check_holdout,
)

ROUND_CHECK = Stage(
    name="round_check", settings=RoundCheckSettings, artifact="evaluation", inputs=_inputs, check=_check
)
