"""Stages holdout_comparisons and gate: what each reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from judgetrain.artifacts.stages import Stage, StageSettings, at
from judgetrain.engines.config import EngineConfig
from judgetrain.errors import ConfigError
from judgetrain.judges.checks import check_model
from judgetrain.judges.config import TreeConfig
from judgetrain.judges.method import Method
from judgetrain.judges.settings import ModelSettings
from judgetrain.keys import in_place
from judgetrain.label.config import LabelConfig
from judgetrain.label.stages import check_tree

HOW = tuple(f.name for f in fields(TreeConfig) if f.name not in ("comparisons", "judge", "max_comparisons"))
"""What says how trees are grown, whoever grows them over whatever: it is the same in every round."""


def _grows(settings: Any) -> bool:
    return bool(settings.holdout_labels == "ensemble")


@dataclass(frozen=True, kw_only=True)
class HoldoutSettings(StageSettings):
    """Stage holdout_comparisons."""

    holdout_comparisons: int = at("rounds.holdout_comparisons")
    holdout_labels: str = at("rounds.holdout_labels")
    tree: TreeConfig | None = at("tree", only=HOW, active_if=_grows)
    engine: EngineConfig | None = at("engine", active_if=_grows)
    label: LabelConfig | None = at("label", only=("vote",), active_if=_grows)


@dataclass(frozen=True, kw_only=True)
class GateSettings(ModelSettings):
    """Stage gate."""

    gates: bool = at("rounds.gates")
    branches: int = at("rounds.branches")
    earlier: str = at("rounds.earlier", content=in_place(lambda path, owner: path))
    shard_size: int = at("tree.shard_size")

    @classmethod
    def methods_of(cls, config: Any) -> Iterable[Method]:
        """The round's result."""
        return (Method.parse(config.rounds.judge),)

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """Stopping early: the gates measure the scores of all branches."""
        return {*super().unused(config), "early_stop"}


def _gate_inputs(config: Any) -> Sequence[str]:
    """The round's result, and before the first round the Initial judge."""
    return "holdout_comparisons", *(() if config.rounds.earlier else ("initial",)), config.rounds.judge


def _check_gate(config: Any) -> None:
    if config.rounds.branches > config.tree.criteria:
        raise ConfigError(f"rounds.branches={config.rounds.branches}: at most tree.criteria={config.tree.criteria}")
    check_model(config, Method.parse(config.rounds.judge), "rounds.judge")


HOLDOUT = Stage(
    name="holdout_comparisons",
    settings=HoldoutSettings,
    code="judgetrain.extras.rounds.holdout:run",
    inputs=lambda config: ("teacher", *(("initial",) if config.rounds.holdout_labels == "ensemble" else ())),
    check=check_tree,
)

GATE = Stage(
    name="gate",
    settings=GateSettings,
    code="judgetrain.extras.rounds.stage:run",
    artifact="evaluation",
    inputs=_gate_inputs,
    check=_check_gate,
)
