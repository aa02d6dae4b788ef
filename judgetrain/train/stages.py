"""The stages of this room, what each reads, and what must hold before any of them runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

from judgetrain.artifacts.stages import Stage, StageSettings, at, needs, value_at
from judgetrain.engines.config import ModelConfig
from judgetrain.errors import ConfigError
from judgetrain.judges.config import Aggregation, JudgeConfig, StepsConfig
from judgetrain.judges.prompting.prompts import load_prompt_set, prompt_path
from judgetrain.keys import in_place
from judgetrain.train.checks import check_machine, check_training
from judgetrain.train.config import DpoConfig, InitialConfig, RlConfig, TrainConfig
from judgetrain.train.distributed import check_distributed


def deepspeed_file(path: str | None, owner: object = None) -> str | None:
    """DeepSpeed's own configuration, if there is one."""
    return path


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(StageSettings):
    """What every stage that trains reads."""

    deepspeed: str | None = at("train.deepspeed", content=in_place(deepspeed_file))
    distributed: str | None = at("train.distributed")
    processes: int | None = at("train.processes")

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """What of the processes decides no result: in float32 nothing does, when whole micro-batches are shared out.

        In bfloat16 DeepSpeed keeps weights in it where others keep float32 ones, and sums gradients in it over
        processes. Packed sequences are made while training, and those left over at the end of an epoch go round the
        processes; so do held-out pairs, which a stop-loss watches; and every process draws its own dropout of adapters.
        """
        own = next(field for field in fields(cls) if field.name == "train")
        settings, mode = value_at(config, own.metadata["key"]), config.train.distributed
        watched = isinstance(settings, DpoConfig) and settings.stop.watched
        dropped = settings.lora.enabled and settings.lora.lora_dropout > 0
        half = mode.startswith("zero") and settings.bf16 is not False
        decides = mode != "none" and (settings.packing or watched or dropped or half)
        return () if decides else ("distributed", "processes")


@dataclass(frozen=True, kw_only=True)
class InitialSettings(TrainingSettings):
    """Stage initial."""

    base: ModelConfig = at("train.base")
    train: InitialConfig = at("train.initial")
    prompts: str = at("prompts", content=in_place(prompt_path))
    judge: JudgeConfig = at("judge", in_fingerprint=False)
    criteria: int = at("tree.criteria", in_fingerprint=False)
    aggregation: Aggregation = at("evaluate.aggregation", in_fingerprint=False)
    """The three are written beside the weights, for those who ask the judge without saying how; they decide nothing of
    them."""


@dataclass(frozen=True, kw_only=True)
class SftSettings(TrainingSettings):
    """Stage sft."""

    base: ModelConfig = at("train.base", in_fingerprint=False)
    """How the model of the stage before is loaded: its precision and attention are part of that stage."""
    train: TrainConfig = at("train.sft")


_BATCH = "precompute_ref_batch_size"


@dataclass(frozen=True, kw_only=True)
class ReferenceSettings(TrainingSettings):
    """Stage reference: what decides the reference model's log-probabilities besides the model and the pairs."""

    base: ModelConfig = at("train.base", only=("dtype", "attn_implementation", "trust_remote_code"))
    train: DpoConfig = at("train.dpo", only=("reference", "max_length", "bf16", "tf32", "ld_alpha", _BATCH))
    adapters: bool = at("train.dpo.lora.enabled")
    quantize: str | None = at("train.dpo.lora.quantize")


@dataclass(frozen=True, kw_only=True)
class DpoSettings(TrainingSettings):
    """Stage dpo."""

    base: ModelConfig = at("train.base", in_fingerprint=False)
    train: DpoConfig = at("train.dpo")


_ASKING = ("criteria", "criteria_sampling", "guideline_sampling", "judgment_sampling")


@dataclass(frozen=True, kw_only=True)
class RlSettings(TrainingSettings):
    """Stage rl."""

    base: ModelConfig = at("train.base", in_fingerprint=False)
    train: RlConfig = at("train.rl")
    asking: StepsConfig = at("tree", only=_ASKING)
    """How many criteria are listed, and how long each text may be."""
    tie: float = at("judge.tie")
    """A branch's verdict is rewarded as it is read when the judge is used."""
    holdout: float | None = at("label.holdout")
    aggregation: Aggregation | None = at("evaluate.aggregation")
    """How branches become a verdict, the start's own labels' and those of held-out comparisons."""

    @property
    def held_out(self) -> float:
        """The share of the comparisons that a checkpoint is chosen by; 0 where none is chosen."""
        if not self.train.keep_best:
            return 0.0
        return (self.holdout if self.train.holdout is None else self.train.holdout) or 0.0

    @classmethod
    def unused(cls, config: Any) -> Collection[str]:
        """The other stages' held-out share, where nothing is held out or a share of its own is; how branches become a
        verdict, where neither the start is asked for labels nor a checkpoint about more branches than one."""
        own = config.train.rl
        kept = () if own.keep_best and own.holdout is None else ("holdout",)
        together = own.labels == "start" or (own.keep_best and own.branches > 1)
        return {*super().unused(config), *kept, *(() if together else ("aggregation",))}


def _check_initial(config: Any) -> None:
    load_prompt_set(config.prompts)
    config.train.base.check("train.base")
    _check_training(config, "initial")
    first, teacher = config.train.initial.verdicts_first, config.teacher
    if first and not teacher.evaluations and not teacher.both_orders:
        raise ConfigError(
            f"train.initial.verdicts_first={first:g}: needs judgments in both orders; set teacher.both_orders=true"
        )


def _check_sft(config: Any) -> None:
    _check_training(config, "sft", after="initial")


def _check_dpo(config: Any) -> None:
    settings = config.train.dpo
    _check_training(config, "dpo", after="sft")
    if settings.reference.path:
        settings.reference.check("train.dpo.reference")
        if settings.reference.gpus > 1:
            raise ConfigError(
                f"train.dpo.reference.gpus={settings.reference.gpus}: each process holds the reference on one GPU; "
                "train.distributed=zero3 shares it out"
            )
    if not config.label.max_pairs_per_level:
        raise ConfigError("label.max_pairs_per_level=0 keeps no preference pairs for stage dpo: raise it")
    if settings.stop.watched and not config.label.holdout:
        raise ConfigError("train.dpo.stop watches held-out pairs, and label.holdout=0 keeps none: raise it")


def _check_rl(config: Any) -> None:
    settings: RlConfig = config.train.rl
    _check_training(config, "rl", after=settings.start)
    if settings.branches > config.tree.criteria:
        raise ConfigError(f"train.rl.branches={settings.branches}: at most tree.criteria={config.tree.criteria}")
    if settings.labels == "start" and settings.label_branches > config.tree.criteria:
        raise ConfigError(
            f"train.rl.label_branches={settings.label_branches}: at most tree.criteria={config.tree.criteria}"
        )
    key, share = ("label", config.label.holdout) if settings.holdout is None else ("train.rl", settings.holdout)
    if settings.keep_best and not share:
        raise ConfigError(f"train.rl.keep_best=true: {key}.holdout=0 holds no comparisons out to choose by; raise it")


def _check_training(config: Any, stage: str, after: str | None = None) -> None:
    """Check a stage's settings, the processes, and that its base is not what adapters of the stage before are on."""
    check_training(stage, getattr(config.train, stage))
    check_distributed(config.train, stage)
    if config.train.base.gpus > 1:
        raise ConfigError(
            f"train.base.gpus={config.train.base.gpus}: training shares a model out otherwise; set "
            "train.distributed=zero3, engine.model.gpus for sampling, and scorer.model.gpus for scorers"
        )
    if after and all(s.lora.enabled and not s.lora.merge for s in (getattr(config.train, n) for n in (stage, after))):
        raise ConfigError(
            f"train.{stage}.lora.merge=false: its base would be the adapters of {after}; "
            f"set train.{after}.lora.merge=true"
        )


def _dpo_inputs(config: Any) -> Sequence[str]:
    return ("sft", "label", *(("reference",) if config.train.dpo.precompute_ref_log_probs else ()))


def _rl_inputs(config: Any) -> Sequence[str]:
    own = config.train.rl.labels == "start"
    # Comparisons that are given are those of the trees, and none of the others is to be trained on.
    comparisons = ("responses", "teacher") if own and not config.tree.comparisons else ("tree",)
    return (config.train.rl.start, *(() if own else ("label",)), *comparisons)


def _stage(name: str, artifact: str = "model", **own: Any) -> Stage[Any]:
    """A stage that trains, or computes with several processes as those do."""
    code = f"judgetrain.train.stage:run_{name}"
    return Stage(
        name=name,
        code=code,
        artifact=artifact,
        check_here=lambda config: check_machine(config.train, name),
        trains=True,
        **own,
    )


INITIAL = _stage(
    "initial",
    settings=InitialSettings,
    inputs=needs("teacher"),
    check=_check_initial,
)
SFT = _stage("sft", settings=SftSettings, inputs=needs("initial", "label"), check=_check_sft)
REFERENCE = _stage(
    "reference",
    artifact="dataset",
    settings=ReferenceSettings,
    inputs=needs("sft", "label"),
    check=_check_dpo,
)
DPO = _stage("dpo", settings=DpoSettings, inputs=_dpo_inputs, check=_check_dpo)
RL = _stage(
    "rl",
    settings=RlSettings,
    inputs=_rl_inputs,
    check=_check_rl,
)
