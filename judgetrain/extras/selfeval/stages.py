"""Stage selfeval: what it reads, what must hold before it runs, and what others read of a finished one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judgetrain.artifacts.integrity import MANIFEST, checked
from judgetrain.artifacts.stages import Stage, StageSettings, at, needs
from judgetrain.engines.config import ModelConfig
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.selfeval.config import SelfEvalConfig
from judgetrain.scorers.config import ScorerConfig, check_scorer, scored_model


@dataclass(frozen=True, kw_only=True)
class SelfEvalSettings(StageSettings):
    """Stage selfeval."""

    selfeval: SelfEvalConfig = at("selfeval")
    scorer: ScorerConfig = at("scorer")
    base: ModelConfig | None = at("train.base", active_if=lambda settings: not settings.scorer.model.path)

    @property
    def scored_model(self) -> ModelConfig:
        """Return the model whose probabilities are read."""
        return scored_model(self.scorer, self.base)


def finished_settings(directory: Path) -> dict[str, Any]:
    """Return the settings of a finished stage selfeval (DataError: the directory holds none)."""
    manifest = checked(directory)
    if manifest is None:
        raise DataError(f"{directory}: holds no finished stage selfeval (no {MANIFEST}); run stage=selfeval")
    settings: dict[str, Any] = manifest["config"]
    return settings


def model_of(settings: Mapping[str, Any]) -> str:
    """Return the path of the model that a stage selfeval with these settings looked at."""
    # As in scored_model, but of settings as a manifest holds them.
    path: str = settings["scorer"]["model"]["path"] or settings["train.base"]["path"]
    return path


def _check(settings: SelfEvalSettings) -> None:
    from judgetrain.scorers.methods import check_scorers

    if not settings.selfeval.methods:
        raise ConfigError("selfeval.methods is empty: name a score")
    check_scorers(settings.selfeval.methods, key="selfeval.methods")
    check_scorer(settings.scorer, settings.base)


SELFEVAL = Stage(
    name="selfeval", settings=SelfEvalSettings, artifact="evaluation", inputs=needs("dialogues"), check=_check
)
