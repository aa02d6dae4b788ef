"""Stage rl: what it reads, and what must hold before anything runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from judgetrain.artifacts.stages import at
from judgetrain.engines.config import EngineConfig, VllmEngineConfig
from judgetrain.errors import ConfigError
from judgetrain.extras.rl.config import RlConfig
from judgetrain.judges.config import Aggregation, StepsConfig
from judgetrain.judges.settings import check_asking
from judgetrain.schema import Reads
from judgetrain.train.stages import JudgeTrainingSettings, check_stage, training_stage


@dataclass(frozen=True, kw_only=True)
class RlSettings(JudgeTrainingSettings):
    """Stage rl."""

    train: RlConfig = at("rl")
    asking: StepsConfig = at("tree", only=("criteria", "criteria_sampling", "guideline_sampling", "judgment_sampling"))
    """How many criteria are listed, and how long each text may be."""
    reads: Reads = at("judge.reads")
    """What the judgments of branches are shown."""
    engine: EngineConfig | None = at("engine", active_if=lambda settings: isinstance(settings.engine, VllmEngineConfig))
    """vLLM, where it samples the branches; None: the trained model samples them itself."""
    holdout: float | None = at("label.holdout", active_if=lambda settings: settings.train.keep_best)
    """The share of the comparisons that a checkpoint is chosen by; None where none is chosen."""
    aggregation: Aggregation | None = at("judge.aggregation", active_if=lambda s: s.train.labels == "start")
    tie: float | None = at("judge.tie", active_if=lambda s: s.train.labels == "start")
    """How branches become the start's own labels."""


def _check(settings: RlSettings) -> None:
    own = settings.train
    size = check_stage(settings.stages, "rl", own)
    if own.comparisons_per_step % size:
        told = f"rl.comparisons_per_step={own.comparisons_per_step}"
        raise ConfigError(f"{told} cannot be shared out evenly over {size} processes: make it a multiple of {size}")
    if (rows := own.rows_per_step // size) % own.per_device_train_batch_size:
        told = f"rl.per_device_train_batch_size={own.per_device_train_batch_size} does not divide the {rows} texts"
        raise ConfigError(f"{told} that a process learns from in a step: take a number that does")
    if settings.engine is not None:
        check_asking(settings.engine)
        if size > 1 or own.lora:
            what = f"rl has {size} processes" if size > 1 else "rl.lora=true trains adapters"
            raise ConfigError(f"engine=vllm needs whole weights in one process, and {what}: set engine=transformers")
    if own.keep_best and not settings.holdout:
        raise ConfigError("rl.keep_best=true: label.holdout=0 holds no comparisons out to choose by; raise it")


def _inputs(settings: RlSettings) -> Sequence[str]:
    start = settings.train.start
    if settings.train.labels == "label":
        return (start, "label", "tree")
    return start, "responses", "teacher"


RL = training_stage(
    "rl", "GRPOConfig", code="judgetrain.extras.rl.run:run_rl", settings=RlSettings, inputs=_inputs, check=_check
)
