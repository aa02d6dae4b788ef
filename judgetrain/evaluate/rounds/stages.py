"""Stage gate: what it reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from judgetrain.artifacts.stages import Stage, at
from judgetrain.errors import ConfigError
from judgetrain.judges.checks import check_model
from judgetrain.judges.method import Method
from judgetrain.judges.settings import ModelSettings


@dataclass(frozen=True, kw_only=True)
class GateSettings(ModelSettings):
    """Stage gate."""

    gates: bool = at("rounds.gates")
    branches: int = at("rounds.branches")
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
    """The round's result, and what is known of the rounds before: in the first, of the Initial judge."""
    return "holdout_comparisons", ("initial" if config.rounds.number == 1 else "gate"), config.rounds.judge


def _check_gate(config: Any) -> None:
    if config.rounds.branches > config.tree.criteria:
        raise ConfigError(f"rounds.branches={config.rounds.branches}: at most tree.criteria={config.tree.criteria}")
    check_model(config, Method.parse(config.rounds.judge), "rounds.judge")


GATE = Stage(
    name="gate",
    settings=GateSettings,
    code="judgetrain.evaluate.rounds.stage:run",
    artifact="evaluation",
    inputs=_gate_inputs,
    check=_check_gate,
    format=2,
)
