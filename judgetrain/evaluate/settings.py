"""What stage evaluate reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from judgetrain.artifacts.stages import at
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.hooks import with_sections
from judgetrain.judges.method import Method
from judgetrain.judges.settings import ModelSettings


@dataclass(frozen=True, kw_only=True)
@with_sections
class EvaluateSettings(ModelSettings):
    """Stage evaluate."""

    evaluate: EvaluateConfig = at("evaluate")
    shard_size: int = at("tree.shard_size")

    own_criteria: ClassVar[bool] = True

    @property
    def methods(self) -> Sequence[Method]:
        """``evaluate.methods``."""
        return [Method.parse(text) for text in self.evaluate.methods]

    @property
    def reads_world(self) -> bool:
        """Whether a benchmark is of the world."""
        return any(b.source.type == "world" for b in self.evaluate.benchmarks)
