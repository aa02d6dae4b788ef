"""Define the stages that train: what each reads, and what must hold before any of them runs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from judgetrain.amounts import amount
from judgetrain.artifacts.fingerprint import check_package
from judgetrain.artifacts.stages import Stage, StageSettings, at, needs
from judgetrain.engines.config import ModelConfig
from judgetrain.errors import ConfigError
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.prompting.prompts import load_prompt_set, prompt_path
from judgetrain.keys import did_you_mean, in_place
from judgetrain.train.config import DpoConfig, SupervisedConfig, TrainConfig, TrainerConfig, TrainStages
from judgetrain.train.distributed import FSDP, check_distributed

MASKED = ("sdpa", "eager")
"""The implementations of attention that take a mask of any form, as prefix trees need."""
PARTITIONED = (FSDP, "zero3")
"""What the modes begin with under which a process holds a part of each weight."""


def _decides(settings: "TrainingSettings") -> bool:
    """Return True if the number of processes, and how they share a model, change the result.

    In float32, with whole micro-batches shared out, they do not. In bfloat16 DeepSpeed keeps weights in it where others
    keep float32 ones, and sums gradients in it over processes; FSDP computes in it what others compute in float32.
    Where micro-batches are split, the last step is filled up. And every process draws its own noise.
    """
    config = settings.train
    mode = settings.distributed or "none"
    if mode == "none":
        return False
    draws_noise = "neftune_noise_alpha" in config.trainer
    half_precision = (mode.startswith("zero") or mode == FSDP) and config.bf16 is not False
    splits = False
    if isinstance(settings, JudgeTrainingSettings) and isinstance(config, TrainConfig):
        # Where the number of processes is left to the GPUs, there are two or more.
        splits = config.global_accumulation_steps % (settings.processes or 2) > 0
    return draws_noise or half_precision or splits


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(StageSettings):
    """The settings of every stage that trains."""

    distributed: str | None = at("train.distributed", active_if=_decides)
    processes: int | None = at("train.processes", active_if=_decides)
    train: TrainerConfig
    stages: TrainStages = at("train", in_fingerprint=False)

    @classmethod
    def key(cls) -> str:
        """Return the key at which the stage's own settings stand, as ``train.sft``."""
        # Each stage says itself, by its field, which section its settings stand in.
        (field,) = (field for field in fields(cls) if field.name == "train")
        return str(field.metadata["key"])


@dataclass(frozen=True, kw_only=True)
class JudgeTrainingSettings(TrainingSettings):
    """The settings of every stage that makes a judge."""

    base: ModelConfig = at("train.base", in_fingerprint=False)
    """Precision and attention with which the model of the stage before is loaded; they belong to that stage."""


@dataclass(frozen=True, kw_only=True)
class InitialSettings(JudgeTrainingSettings):
    """The settings of stage initial; those of the judge and its criteria are written beside the weights."""

    base: ModelConfig = at("train.base")
    prompts: str = at("prompts", content=in_place(prompt_path))
    judge: JudgeConfig = at("judge", in_fingerprint=False)
    criteria: int = at("tree.criteria", in_fingerprint=False)
    rubric: str | None = at("criteria", in_fingerprint=False)
    train: SupervisedConfig = at("train.initial")
    reads: str = at("tree.reads", in_fingerprint=False)
    reference: bool = at("tree.reference", in_fingerprint=False)


@dataclass(frozen=True, kw_only=True)
class SftSettings(JudgeTrainingSettings):
    """The settings of stage sft."""

    train: SupervisedConfig = at("train.sft")
    reads: str = at("tree.reads", in_fingerprint=False)


@dataclass(frozen=True, kw_only=True)
class PairSettings(TrainingSettings):
    """The settings by which a stage that reads preference pairs is checked: that there are any, and held-out ones."""

    pairs: int = at("label.max_pairs_per_level", in_fingerprint=False)
    held: float = at("label.holdout", in_fingerprint=False)


@dataclass(frozen=True, kw_only=True)
class ReferenceSettings(PairSettings):
    """The settings of stage reference: what decides the log-probabilities besides the model and the pairs."""

    adapters: bool = at("train.dpo.lora")
    four_bit: bool | None = at("train.dpo.four_bit", active_if=lambda s: s.four_bit)

    # Of stage dpo's settings these alone change a log-probability: a sweep over beta computes them once.
    train: DpoConfig = at("train.dpo", only=("max_length", "bf16"))
    base: ModelConfig = at("train.base", only=("dtype", "attn_implementation"))
    batch_size: int = at("train.dpo.per_device_train_batch_size", in_fingerprint=False)


@dataclass(frozen=True, kw_only=True)
class DpoSettings(PairSettings, JudgeTrainingSettings):
    """The settings of stage dpo."""

    train: DpoConfig = at("train.dpo")


_PLACE = "output_dir seed data_seed report_to disable_tqdm logging_steps logging_nan_inf_filter"
_EVALUATION = (
    "eval_strategy eval_on_start save_total_limit load_best_model_at_end metric_for_best_model greater_is_better "
    "per_device_eval_batch_size"
)
_MACHINE = "tf32 use_cpu dataloader_pin_memory deepspeed fsdp fsdp_config ddp_find_unused_parameters ddp_timeout"
_BATCHES = (
    "gradient_accumulation_steps train_sampling_strategy shuffle_dataset packing padding_free remove_unused_columns"
)
_LOSS = "completion_only_loss loss_weights precompute_ref_log_probs ld_alpha disable_dropout"
_SAMPLING = "num_generations_eval reward_weights max_completion_length num_iterations temperature"
DECIDED_HERE = frozenset(" ".join([_PLACE, _EVALUATION, _MACHINE, _BATCHES, _LOSS, _SAMPLING]).split())
"""Arguments of TRL that this package decides, and no recipe.

- packing and padding_free: batches hold examples of like length, so little is padding; on a CPU padding_free is three
  times slower.
- ld_alpha: the reference's log-probabilities are sums.
- num_iterations and temperature: branches are the policy's own."""


OPTIMISATION = frozenset(
    (
        *("optim", "optim_args", "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm"),
        *("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps"),
    )
)
"""Arguments of every trainer that decide how it steps."""
COST = frozenset(
    ("dataloader_num_workers", "gradient_checkpointing_kwargs", "torch_empty_cache_steps", "use_liger_kernel")
)
"""Arguments of every trainer that change what training costs, and its results in the last digits at most."""
ALLOWED: Mapping[str, frozenset[str]] = {
    "SFTConfig": OPTIMISATION | COST | {"neftune_noise_alpha"},
    "DPOConfig": OPTIMISATION
    | COST
    | {"loss_type", "label_smoothing", "f_divergence_type", "f_alpha_divergence_coef", "discopop_tau"},
    "GRPOConfig": OPTIMISATION | COST,
}
"""The arguments that ``trainer`` may hold, by TRL's class of arguments.

Each was seen to do what it says (tests/train/test_trainer_arguments.py). TRL and Transformers have some two hundred
arguments. Many assume that they tokenise, order or sample what is trained on, all of which is done here, and so would
change nothing, or something else."""
_GOES_ON = "a run that is killed could not go on with the same weights"
_TOKENISED = "rows are tokenised before the trainer is made; change the files of train.base instead"
_SAMPLED = "branches are sampled by the judge's own settings, not by TRL"
_FIGURES = "rows would be left out of figures that are over all of them"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("chat_template_path", "eos_token", "pad_token", "dataset_num_proc", "assistant_only_loss"), _TOKENISED
    ),
    **dict.fromkeys(("save_only_model", "ignore_data_skip", "save_strategy", "save_on_each_node"), _GOES_ON),
    **dict.fromkeys(
        ("top_p", "top_k", "min_p", "repetition_penalty", "generation_kwargs", "cache_implementation"), _SAMPLED
    ),
    "mask_truncated_completions": "branches that are cut cannot be read, and are rewarded as such",
    "dataloader_drop_last": _FIGURES,
    "label_smoothing_factor": "the losses here do not read it",
    "neftune_noise_alpha": "its noise would stand beside a reference without noise",
}
"""Why arguments that are likely to be asked for are not among those that are allowed."""
READ_BY: Mapping[str, tuple[str, frozenset[str]]] = {
    "label_smoothing": ("loss_type", frozenset(("robust", "exo_pair"))),
    "discopop_tau": ("loss_type", frozenset(("discopop",))),
    "f_alpha_divergence_coef": ("f_divergence_type", frozenset(("alpha_divergence",))),
}
"""Arguments of DPO that only some values of another argument read: that argument, and the values."""


def check_training(key: str, config: TrainerConfig) -> None:
    """Check that ``trainer`` holds nothing that has a key of its own or is decided here.

    Args:
        key: where the settings stand.
        config: the settings.

    Raises:
        ConfigError: names the argument and the remedy.
    """
    for name in config.trainer:
        if hasattr(config, name):
            raise ConfigError(f"{key}.trainer.{name}: is not given here; see {key}.{name}")
        if name in DECIDED_HERE:
            raise ConfigError(f"{key}.trainer.{name}: judgetrain decides it; leave it out")


def check_shared(key: str, config: TrainConfig, processes: int) -> None:
    """Check that the global batch is shared out evenly over the processes.

    Raises:
        ConfigError: it cannot be; names the next size that can.
    """
    batch = config.per_device_train_batch_size
    steps = config.global_accumulation_steps
    # A micro-batch is split over this many processes, and its parts hold both sides of the pairs that are ranked.
    parts = processes // math.gcd(steps, processes)
    in_pairs = ""
    # In a row of prefix trees both sides of a pair stand together.
    if getattr(config, "ranking_weight", 0.0) > 0 and not getattr(config, "share_prefixes", False):
        parts *= 2
        in_pairs = f" in whole pairs, as {key}.ranking_weight needs"
    if batch % parts:
        next_size = math.ceil(batch / parts) * parts
        raise ConfigError(
            f"{key}.per_device_train_batch_size={batch} x global_accumulation_steps={steps} cannot be shared out "
            f"evenly over {amount(processes, 'process')}{in_pairs}: set {key}.per_device_train_batch_size={next_size}"
        )


def check_trainer(key: str, config: TrainerConfig, kind: str) -> None:
    """Check that the arguments of ``trainer`` are TRL's, and among those that may be given; imports TRL for any.

    Args:
        key: where the settings stand.
        config: the settings.
        kind: TRL's class of arguments.

    Raises:
        ConfigError: names the argument and the reason.
    """
    if not config.trainer:
        return
    import trl

    from judgetrain.train.trainer_values import check_values

    names = {field.name for field in fields(getattr(trl, kind))}
    for name, value in config.trainer.items():
        if name not in names:
            raise ConfigError(f"{key}.trainer.{name}: TRL's {kind} has no such argument{did_you_mean(name, names)}")
        if name not in ALLOWED[kind]:
            reason = REFUSED.get(name, "nobody has tried here what it does")
            raise ConfigError(
                f"{key}.trainer.{name}: is not allowed, since {reason}. Allowed are {', '.join(sorted(ALLOWED[kind]))}"
            )
        if name == "loss_type" and not isinstance(value, str):
            raise ConfigError(
                f"{key}.trainer.loss_type={value}: expected one loss, since judgetrain weighs it against the "
                f"supervised term by {key}.sft_weight"
            )
        if name in READ_BY:
            other, reading = READ_BY[name]
            if config.trainer.get(other) not in reading:
                raise ConfigError(
                    f"{key}.trainer.{name}: is read with {other}={' or '.join(sorted(reading))} alone, and would "
                    f"change nothing here"
                )
    check_values(key, config, kind)


def _check_initial(settings: InitialSettings) -> None:
    """Check stage initial before anything runs (ConfigError)."""
    load_prompt_set(settings.prompts)
    settings.base.check("train.base")
    _check(settings)
    if settings.reads == "one" and settings.judge.reads == "two":
        raise ConfigError("judge.reads=two: with tree.reads=one it learns to read one response; set judge.reads=one")


def _check_dpo(settings: DpoSettings | ReferenceSettings) -> None:
    """Check stage dpo, or stage reference for it, before anything runs (ConfigError)."""
    _check(settings)
    if not settings.pairs:
        raise ConfigError("label.max_pairs_per_level=0 keeps no preference pairs for stage dpo: raise it")
    if settings.stages.dpo.keep_best and not settings.held:
        raise ConfigError("train.dpo.keep_best=true: label.holdout=0 keeps no held-out pairs to choose by; raise it")


def check_stage(stages: TrainStages, key: str, config: TrainerConfig) -> int:
    """Check the settings of a stage that trains, and return how many processes share it.

    Args:
        stages: the section ``train``.
        key: where the stage's settings stand.
        config: the stage's settings.

    Raises:
        ConfigError: names the key, its value and the remedy.
    """
    check_training(key, config)
    size = check_distributed(stages)
    if config.four_bit:
        if not config.lora:
            raise ConfigError(f"{key}.four_bit=true: adapters alone are trained so; set {key}.lora=true")
        if stages.distributed.startswith(PARTITIONED):
            raise ConfigError(
                f"{key}.four_bit=true and train.distributed={stages.distributed}: weights in 4 bits cannot be "
                "partitioned; set train.distributed=zero2 or ddp"
            )
        check_package("bitsandbytes", f"{key}.four_bit=true")
    if config.lora and getattr(config, "freeze_embeddings", False):
        raise ConfigError(
            f"{key}.freeze_embeddings=true and {key}.lora=true: adapters leave the embeddings as they are anyway; "
            "leave one of the two out"
        )
    if getattr(config, "regional_compilation", False) and stages.distributed == FSDP:
        raise ConfigError(
            f"{key}.regional_compilation=true and train.distributed={FSDP}: whole blocks are compiled, and each "
            "process holds a part of them; set train.distributed=ddp or leave it out"
        )
    if stages.base.gpus > 1:
        raise ConfigError(
            f"train.base.gpus={stages.base.gpus}: training shares a model out otherwise: set train.distributed=zero3, "
            "and engine.model.gpus for sampling, and scorer.model.gpus for scorers"
        )
    return size


def _check_shared_prefixes(key: str, config: TrainConfig, attention: str | None) -> None:
    """Check that a stage may read the examples of a comparison in one row.

    Args:
        key: where the stage's settings stand.
        config: the settings.
        attention: the configured implementation; None: there is none.

    Raises:
        ConfigError: it may not; says what to set.
    """
    if attention not in (None, *MASKED):
        raise ConfigError(
            f"{key}.share_prefixes=true and train.base.attn_implementation={attention}: it takes no mask of any form: "
            f"set train.base.attn_implementation=sdpa, or {key}.share_prefixes=false"
        )
    if "neftune_noise_alpha" in config.trainer:
        raise ConfigError(
            f"{key}.trainer.neftune_noise_alpha: its noise is scaled by how long a row is, and with "
            f"{key}.share_prefixes=true a row holds several examples: leave one of the two out"
        )


def _check(settings: TrainingSettings) -> None:
    """Check what all stages of this room have in common (ConfigError)."""
    key = settings.key()
    # Settings may be a part of the stage's section; how it trains stands in the whole.
    config: TrainConfig = getattr(settings.stages, key.removeprefix("train."))
    check_shared(key, config, check_stage(settings.stages, key, config))
    if getattr(config, "share_prefixes", False):
        _check_shared_prefixes(key, config, settings.stages.base.attn_implementation)
    if getattr(config, "ranking_weight", 0.0):
        if settings.stages.distributed.startswith(PARTITIONED):
            raise ConfigError(
                f"{key}.ranking_weight reads whole weights, and under train.distributed={settings.stages.distributed} "
                "each process holds a part: set train.distributed=zero2 or ddp"
            )
        if getattr(settings, "reads", "") == "two":
            raise ConfigError(f"{key}.ranking_weight ranks responses judged one by one: set tree.reads=one or both")


def training_stage(name: str, kind: str, settings: type[JudgeTrainingSettings], **options: Any) -> Stage[Any]:
    """Return a stage that trains a judge.

    Args:
        name: of the stage.
        kind: TRL's class of arguments.
        settings: the class of the stage's settings.
        options: further fields of :class:`Stage`.
    """

    # Imported when it is called, since a configuration is composed without TRL or a model at hand.
    def check_here(values: JudgeTrainingSettings) -> None:
        from judgetrain.engines.model_check import check_trainable
        from judgetrain.train.base_check import check_adapters, check_head, check_trees

        check_trainer(settings.key(), values.train, kind)
        if values.base.path:
            named = f"train.base.path={values.base.path}"
            check_trainable(values.base, named)
            check_head(values.base, named)
            check_adapters(values.base, named, values.train, settings.key())
            check_trees(values.base, named, values.train, settings.key())

    return Stage(name=name, artifact="model", settings=settings, check_here=check_here, trains=True, **options)


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
    # Settings of label that decide its pairs alone leave the fingerprint of sft as it is.
    input_parts={"label": "examples"},
    check=_check,
)
REFERENCE = Stage(
    name="reference",
    code="judgetrain.train.stage:run_reference",
    trains=True,
    settings=ReferenceSettings,
    inputs=needs("sft", "label"),
    # 2: with rows for reminders. A reference without them would lack pairs that stage dpo trains on.
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
