"""The stages of this room, what each reads, and what must hold before any of them runs."""

import math
from dataclasses import dataclass, fields
from typing import Any

from judgetrain.artifacts.fingerprint import check_package
from judgetrain.artifacts.stages import Stage, StageSettings, at, needs
from judgetrain.engines.config import ModelConfig
from judgetrain.errors import ConfigError
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.prompting.prompts import load_prompt_set, prompt_path
from judgetrain.keys import did_you_mean, in_place
from judgetrain.train.config import DpoConfig, SupervisedConfig, TrainConfig, TrainerConfig, TrainStages
from judgetrain.train.distributed import check_distributed


def _decides(settings: "TrainingSettings") -> bool:
    """Whether the number of processes and how they share a model decide a result; in float32, with whole micro-batches
    shared out, they do not.

    In bfloat16 DeepSpeed keeps weights in it where others keep float32 ones, and sums gradients in it over processes.
    Where micro-batches are split the last step is filled up; and every process draws its own noise.
    """
    own, mode = settings.train, settings.distributed or "none"
    drawn = "neftune_noise_alpha" in own.trainer
    half = mode.startswith("zero") and own.bf16 is not False
    trained = isinstance(settings, JudgeSettings) and isinstance(own, TrainConfig)
    split = trained and getattr(own, "global_accumulation_steps", 0) % (settings.processes or 2) > 0  # None: by GPUs
    return mode != "none" and (drawn or half or split)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(StageSettings):
    """What every stage that trains reads."""

    distributed: str | None = at("train.distributed", active_if=_decides)
    processes: int | None = at("train.processes", active_if=_decides)
    train: TrainerConfig
    stages: TrainStages = at("train", in_fingerprint=False)

    @classmethod
    def key(cls) -> str:
        """Where the stage's own settings stand, as ``train.sft``."""
        return str(next(field for field in fields(cls) if field.name == "train").metadata["key"])


@dataclass(frozen=True, kw_only=True)
class JudgeSettings(TrainingSettings):
    """What every stage that makes a judge reads."""

    base: ModelConfig = at("train.base", in_fingerprint=False)
    """How the model of the stage before is loaded: its precision and attention are part of that stage."""


@dataclass(frozen=True, kw_only=True)
class InitialSettings(JudgeSettings):
    """Stage initial. ``judge`` and ``criteria`` are written beside the weights: how the judge is asked by default."""

    base: ModelConfig = at("train.base")
    prompts: str = at("prompts", content=in_place(prompt_path))
    judge: JudgeConfig = at("judge", in_fingerprint=False)
    criteria: int = at("tree.criteria", in_fingerprint=False)
    train: SupervisedConfig = at("train.initial")
    reads: str = at("tree.reads", in_fingerprint=False)
    reference: bool = at("tree.reference", in_fingerprint=False)


@dataclass(frozen=True, kw_only=True)
class SftSettings(JudgeSettings):
    """Stage sft."""

    train: SupervisedConfig = at("train.sft")
    reads: str = at("tree.reads", in_fingerprint=False)


@dataclass(frozen=True, kw_only=True)
class PairSettings(TrainingSettings):
    """What is checked where preference pairs are read: that there are any, and held-out ones if they are needed."""

    pairs: int = at("label.max_pairs_per_level", in_fingerprint=False)
    held: float = at("label.holdout", in_fingerprint=False)


@dataclass(frozen=True, kw_only=True)
class ReferenceSettings(PairSettings):
    """Stage reference: what decides the reference model's log-probabilities besides the model and the pairs."""

    adapters: bool = at("train.dpo.lora")
    four_bit: bool | None = at("train.dpo.four_bit", active_if=lambda s: s.four_bit)
    train: DpoConfig = at("train.dpo", only=("max_length", "bf16"))
    base: ModelConfig = at("train.base", only=("dtype", "attn_implementation"))
    batch_size: int = at("train.dpo.per_device_train_batch_size", in_fingerprint=False)


@dataclass(frozen=True, kw_only=True)
class DpoSettings(PairSettings, JudgeSettings):
    """Stage dpo."""

    train: DpoConfig = at("train.dpo")


OWN = frozenset(
    (
        *("output_dir", "seed", "data_seed", "report_to", "disable_tqdm", "logging_steps", "logging_nan_inf_filter"),
        *("eval_strategy", "eval_on_start", "save_total_limit", "load_best_model_at_end", "metric_for_best_model"),
        *("greater_is_better", "per_device_eval_batch_size", "gradient_accumulation_steps", "train_sampling_strategy"),
        *("tf32", "use_cpu", "dataloader_pin_memory", "deepspeed", "ddp_find_unused_parameters", "ddp_timeout"),
        *("packing", "padding_free", "completion_only_loss", "loss_weights", "precompute_ref_log_probs", "ld_alpha"),
        *("shuffle_dataset", "remove_unused_columns", "disable_dropout"),
        *("num_generations_eval", "reward_weights", "max_completion_length", "num_iterations", "temperature"),
    )
)
"""Arguments of TRL that are decided here. Packing and padding_free among them: batches hold examples of like length, so
little is padding, and on a CPU padding_free is three times slower; ld_alpha: the reference's log-probabilities are
sums; num_iterations and temperature: branches are the policy's own."""


def check_training(key: str, config: TrainerConfig) -> None:
    """Check the training settings that stand at ``key`` (ConfigError: names the key, its value and what is allowed)."""
    if known := next((name for name in config.trainer if hasattr(config, name)), None):
        raise ConfigError(f"{key}.trainer.{known}: is not given here; see {key}.{known}")
    if decided := next((name for name in config.trainer if name in OWN), None):
        raise ConfigError(f"{key}.trainer.{decided}: judgetrain decides it; leave it out")


def check_shared(key: str, config: TrainConfig, processes: int) -> None:
    """Check that the global batch is shared out evenly over the processes (ConfigError: it cannot be)."""
    steps, batch = config.global_accumulation_steps, config.per_device_train_batch_size
    ranked = getattr(config, "ranking_weight", 0.0) > 0
    parts = processes // math.gcd(steps, processes) * (1 + ranked)  # of a micro-batch
    if batch % parts:
        shared = f"{batch} x global_accumulation_steps={steps} cannot be shared out evenly over {processes} processes"
        shared += f" in whole pairs, as {key}.ranking_weight needs" if ranked else ""
        batch_size = f"{key}.per_device_train_batch_size"
        raise ConfigError(f"{batch_size}={shared}: set {batch_size}={-(-batch // parts) * parts}")


def check_trainer(key: str, config: TrainerConfig, kind: str) -> None:
    """Check that TRL's configuration ``kind`` has the arguments of ``trainer``; imports TRL where there are any
    (ConfigError: names the argument)."""
    if config.trainer:
        import trl

        known = {field.name for field in fields(getattr(trl, kind))}
        if wrong := next((name for name in config.trainer if name not in known), None):
            raise ConfigError(f"{key}.trainer.{wrong}: TRL's {kind} has no such argument{did_you_mean(wrong, known)}")


def _check_initial(settings: InitialSettings) -> None:
    load_prompt_set(settings.prompts)
    settings.base.check("train.base")
    _check(settings)
    if settings.reads == "one" and settings.judge.reads == "two":
        raise ConfigError("judge.reads=two: with tree.reads=one it learns to read one response; set judge.reads=one")


def _check_dpo(found: DpoSettings | ReferenceSettings) -> None:
    settings = found.stages.dpo
    _check(found)
    if not found.pairs:
        raise ConfigError("label.max_pairs_per_level=0 keeps no preference pairs for stage dpo: raise it")
    if settings.keep_best and not found.held:
        raise ConfigError("train.dpo.keep_best=true: label.holdout=0 keeps no held-out pairs to choose by; raise it")


def check_stage(stages: TrainStages, key: str, own: TrainerConfig) -> int:
    """How many processes share a stage that trains, whose settings at ``key`` are checked (ConfigError: names the key,
    its value and the remedy)."""
    check_training(key, own)
    size = check_distributed(stages)
    if own.four_bit:
        if not own.lora:
            raise ConfigError(f"{key}.four_bit=true: adapters alone are trained so; set {key}.lora=true")
        if stages.distributed.startswith("zero3"):
            told = "weights in 4 bits cannot be partitioned; set train.distributed=zero2 or ddp"
            raise ConfigError(f"{key}.four_bit=true and train.distributed={stages.distributed}: {told}")
        check_package("bitsandbytes", f"{key}.four_bit=true")
    if stages.base.gpus > 1:
        told = f"train.base.gpus={stages.base.gpus}: training shares a model out otherwise: set train.distributed=zero3"
        raise ConfigError(f"{told}, engine.model.gpus for sampling, and scorer.model.gpus for scorers")
    return size


def _check(settings: TrainingSettings) -> None:
    key = settings.key()
    own: TrainConfig = getattr(settings.stages, key.removeprefix("train."))
    check_shared(key, own, check_stage(settings.stages, key, own))
    if getattr(own, "ranking_weight", 0.0):
        if settings.stages.distributed.startswith("zero3"):
            raise ConfigError(f"{key}.ranking_weight reads whole weights: set train.distributed=zero2 or ddp")
        if getattr(settings, "reads", "") == "two":
            raise ConfigError(f"{key}.ranking_weight ranks responses judged one by one: set tree.reads=one or both")


def training_stage(name: str, kind: str, settings: type[JudgeSettings], **own: Any) -> Stage[Any]:
    """A stage that trains a judge with TRL's configuration ``kind``."""

    def check_here(found: JudgeSettings) -> None:
        check_trainer(settings.key(), found.train, kind)

    return Stage(name=name, artifact="model", settings=settings, check_here=check_here, trains=True, **own)


INITIAL = training_stage(
    "initial",
    "SFTConfig",
    code="judgetrain.train.stage:run_initial",
    settings=InitialSettings,
    inputs=needs("teacher"),
    check=_check_initial,
)
SFT = training_stage(
    "sft",
    "SFTConfig",
    code="judgetrain.train.stage:run_next",
    settings=SftSettings,
    inputs=needs("initial", "label"),
    reads={"label": "examples"},
    check=_check,
)
REFERENCE = Stage(
    name="reference",
    code="judgetrain.train.stage:run_reference",
    trains=True,
    settings=ReferenceSettings,
    inputs=needs("sft", "label"),
    format=2,
    check=_check_dpo,
)
DPO = training_stage(
    "dpo",
    "DPOConfig",
    code="judgetrain.train.stage:run_next",
    settings=DpoSettings,
    inputs=needs("sft", "label", "reference"),
    check=_check_dpo,
)
