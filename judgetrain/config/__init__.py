"""Typed configuration: every key with its type, default, unit and range, a module a room.

Hydra composes it from ``conf/`` and ``recipes/``; rooms receive these dataclasses and never see Hydra. Ranges
stand in the fields' metadata and are checked by :func:`validate` before any model loads.
"""

from __future__ import annotations

from judgetrain.config.data import (
    ClusterConfig,
    DialoguesConfig,
    ResponseModelConfig,
    ResponsesConfig,
    SourceConfig,
    WorldConfig,
)
from judgetrain.config.evaluate import (
    AskConfig,
    BenchmarkConfig,
    CorrectConfig,
    EvaluateConfig,
    ReportConfig,
    StoredConfig,
)
from judgetrain.config.keys import key, validate
from judgetrain.config.models import EngineConfig, LimitsConfig, ModelConfig, PaidConfig, SamplingConfig
from judgetrain.config.scorers import SCORE_KEYS, ScorerConfig, SelfEvalConfig, StudiesConfig
from judgetrain.config.train import (
    DISTRIBUTED,
    DPO_LOSSES,
    OPTIMIZERS,
    DpoConfig,
    LoraSettings,
    StopConfig,
    TrainConfig,
    TrainStages,
)
from judgetrain.config.tree import (
    SIGNALS,
    ExternalConfig,
    LabelConfig,
    RewardConfig,
    TeacherConfig,
    TreeConfig,
)
from judgetrain.config.whole import COMMANDS, STAGES, CleanConfig, Config, HubConfig, TrackConfig

__all__ = [
    "COMMANDS",
    "DISTRIBUTED",
    "DPO_LOSSES",
    "OPTIMIZERS",
    "SCORE_KEYS",
    "SIGNALS",
    "STAGES",
    "AskConfig",
    "BenchmarkConfig",
    "CleanConfig",
    "ClusterConfig",
    "Config",
    "CorrectConfig",
    "DialoguesConfig",
    "DpoConfig",
    "EngineConfig",
    "EvaluateConfig",
    "ExternalConfig",
    "HubConfig",
    "LabelConfig",
    "LimitsConfig",
    "LoraSettings",
    "ModelConfig",
    "PaidConfig",
    "ReportConfig",
    "ResponseModelConfig",
    "ResponsesConfig",
    "RewardConfig",
    "SamplingConfig",
    "ScorerConfig",
    "SelfEvalConfig",
    "SourceConfig",
    "StopConfig",
    "StoredConfig",
    "StudiesConfig",
    "TeacherConfig",
    "TrackConfig",
    "TrainConfig",
    "TrainStages",
    "TreeConfig",
    "WorldConfig",
    "key",
    "validate",
]
