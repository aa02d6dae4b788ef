"""Stage rl: what it reads, and what must hold before anything runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from judgetrain.amounts import amount
from judgetrain.artifacts.stages import at
from judgetrain.engines.auto import ChosenVllmConfig
from judgetrain.engines.config import EngineConfig, VllmEngineConfig
from judgetrain.errors import ConfigError
from judgetrain.extras.rl.config import RlConfig
from judgetrain.judges.config import Aggregation
from judgetrain.judges.settings import check_asking
from judgetrain.judges.trees.config import StepsConfig
from judgetrain.schema import Reads
from judgetrain.train.distributed import FSDP
from judgetrain.train.stages import JudgeTrainingSettings, check_stage, training_stage


def _names_vllm(engine: EngineConfig | None) -> bool:
    """Return whether an engine is vLLM because somebody has named it."""
    return isinstance(engine, VllmEngineConfig) and not isinstance(engine, ChosenVllmConfig)


@dataclass(frozen=True, kw_only=True)
class RlSettings(JudgeTrainingSettings):
    """Stage rl."""

    train: RlConfig = at("rl")
    asking: StepsConfig = at("tree", only=("criteria", "criteria_sampling", "guideline_sampling", "judgment_sampling"))
    """The number of criteria that are listed, and the longest text of each step."""
    reads: Reads = at("judge.reads")
    """The responses that a judgment of a branch is shown: ``one`` or ``two``."""
    engine: EngineConfig | None = at("engine", active_if=lambda settings: _names_vllm(settings.engine))
    """vLLM, where it samples the branches; None: the trained model samples them itself."""
    holdout: float | None = at("label.holdout", active_if=lambda settings: settings.train.keep_best)
    """The share of the comparisons that a checkpoint is chosen by; None where none is chosen."""
    aggregation: Aggregation | None = at("judge.aggregation", active_if=lambda s: s.train.labels == "start")
    tie: float | None = at("judge.tie", active_if=lambda s: s.train.labels == "start")
    """With ``aggregation``, the rule by which branches become the start's own labels."""


def _check(settings: RlSettings) -> None:
    """Refuse (ConfigError) what the stage cannot do."""
    config = settings.train
    processes = check_stage(settings.stages, "rl", config)
    if settings.stages.distributed == FSDP:
        raise ConfigError(
            f"train.distributed={FSDP}: stage rl samples from whole weights, and each process holds a part of them; "
            "set train.distributed=ddp, zero2 or zero3"
        )
    if config.comparisons_per_step % processes:
        raise ConfigError(
            f"rl.comparisons_per_step={config.comparisons_per_step} cannot be shared out evenly over "
            f"{amount(processes, 'process')}: make it a multiple of {processes}"
        )
    # Micro-batches must be whole, as each step's rows are sampled at once and split into them.
    texts = config.rows_per_step // processes
    if texts % config.per_device_train_batch_size:
        raise ConfigError(
            f"rl.per_device_train_batch_size={config.per_device_train_batch_size} does not divide the "
            f"{amount(texts, 'text')} "
            "that a process learns from in a step: take a number that does"
        )
    if settings.engine is not None:
        check_asking(settings.engine)
        # vLLM gets the new weights of each step: whole ones, from the process beside it.
        if processes > 1:
            raise ConfigError(
                f"engine=vllm needs whole weights in one process, and rl has {amount(processes, 'process')}: set "
                "engine=transformers"
            )
        if config.lora:
            raise ConfigError(
                "engine=vllm needs whole weights in one process, and rl.lora=true trains adapters: set "
                "engine=transformers"
            )
    if config.keep_best and not settings.holdout:
        raise ConfigError("rl.keep_best=true: label.holdout=0 holds no comparisons out to choose by; raise it")


def _inputs(settings: RlSettings) -> Sequence[str]:
    """Return the stages that the start and the labelled comparisons come from."""
    start = settings.train.start
    if settings.train.labels == "label":
        return (start, "label", "tree")
    # The start's own labels are made here: its judge is asked about all comparisons but the teacher's.
    return (start, "responses", "teacher")


RL = training_stage(
    "rl", "GRPOConfig", code="judgetrain.extras.rl.run:run_rl", settings=RlSettings, inputs=_inputs, check=_check
)
