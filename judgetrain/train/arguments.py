"""TRL's arguments from this package's training settings, and what a model and the machine need for training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model
from judgetrain.engines.memory import is_out_of_memory
from judgetrain.errors import ConfigError, TrainingError
from judgetrain.train.config import DpoConfig, SupervisedConfig, TrainConfig, TrainerConfig
from judgetrain.train.distributed import STEP_TIMEOUT, current
from judgetrain.train.internals import has_cpp_compiler

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PreTrainedModel
    from trl import DPOConfig, SFTConfig


DEFAULTS = {"warmup_steps": 0.05, "lr_scheduler_type": "cosine"}
"""Defaults that differ from TRL's; ``train.STAGE.trainer`` overrides them."""

RANK = 16
"""The adapters' rank. It is no key: with adapters in all layers the result does not depend on it (QLoRA, arXiv
2305.14314, section 4). They have no dropout either: DPO and RL compare log-probabilities, experts take none, and on a
CPU it is a fifth of a step."""

FSDP_CONFIG: Mapping[str, Any] = {
    "version": 2,
    # Every block of the model is gathered when it is run, and given back after it.
    "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "reshard_after_forward": True,
    # Each process writes its own part of a checkpoint. Whole ones would be gathered at every save.
    "state_dict_type": "SHARDED_STATE_DICT",
}
"""How FSDP shares a model out, in the names of Transformers' ``fsdp_config``."""

KEPT = 2
"""Checkpoints kept while training, the best among them: what kills the run may cut the last one."""

BEST = "eval_agreement_then_loss"
"""The figure by which the trainer picks the best checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """The settings that the arguments of every stage that trains depend on.

    Args:
        config: the stage's settings.
        key: where they stand, as ``train.sft``; for errors.
        checkpoints: the directory of the checkpoints.
        seed: of the run.
        evaluate: whether there are held-out rows.
        dtype: of the model that training starts from, as configured.
    """

    config: TrainerConfig
    key: str
    checkpoints: Path
    seed: int
    evaluate: bool
    dtype: str


def training_arguments(
    config: TrainConfig, key: str, directory: Path, seed: int, evaluate: bool, dtype: str = "auto"
) -> SFTConfig | DPOConfig:
    """Return TRL's arguments of a stage that trains on examples or pairs; see :class:`Training`.

    Raises:
        ConfigError: TRL does not take what ``trainer`` holds.
    """
    from trl import DPOConfig, SFTConfig

    training = Training(config=config, key=key, checkpoints=directory, seed=seed, evaluate=evaluate, dtype=dtype)
    batch, accumulation_steps = shared_out(config, current().size)
    decided: dict[str, Any] = {
        "per_device_train_batch_size": batch,
        "per_device_eval_batch_size": batch,
        "gradient_accumulation_steps": accumulation_steps,
    }
    if isinstance(config, DpoConfig):
        return arguments_of(DPOConfig, training, decided | _dpo(config))
    decided["completion_only_loss"] = True
    # The ranking loss and prefix trees have columns of their own, which TRL does not know and would take away.
    has_columns = isinstance(config, SupervisedConfig) and (config.ranking_weight > 0 or config.share_prefixes)
    decided["remove_unused_columns"] = not has_columns
    return arguments_of(SFTConfig, training, decided)


def shared_out(config: TrainConfig, processes: int) -> tuple[int, int]:
    """Return a process's micro-batch size and its micro-batches in an optimizer step, so that the global batch stays.

    Where the micro-batches of a step are no multiple of the processes, each is split over some of them.
    """
    # Of 4 micro-batches, 8 processes take half a one each, and 2 processes take two each, one after the other.
    shares = math.gcd(config.global_accumulation_steps, processes)
    batch = config.per_device_train_batch_size * shares // processes
    return batch, config.global_accumulation_steps // shares


def arguments_of(kind: type, training: Training, decided: dict[str, Any], **defaults: Any) -> Any:
    """Return TRL's arguments: settings of the same name, what every stage decides, and what this stage decides.

    The data set holds all epochs in training order, so the trainer passes over it once, in sequence: the order is
    then a function of the seed alone, also after a resume.

    Args:
        kind: TRL's class of arguments.
        training: the stage's settings, and what belongs to its run.
        decided: what this stage decides; ``trainer`` cannot change it.
        defaults: the stage's defaults that differ from TRL's and :data:`DEFAULTS`; ``trainer`` overrides them.

    Raises:
        ConfigError: TRL does not take what ``trainer`` holds.
    """
    config = training.config
    names = {field.name for field in fields(kind)}
    settings = {name: getattr(config, name, None) for name in names}
    # None: there is no setting of this name, or the device decides it (bf16).
    same_name = {name: value for name, value in settings.items() if value is not None}
    eval_strategy = "no"
    if training.evaluate:
        eval_strategy = "steps"
    every_stage = {
        "output_dir": str(training.checkpoints),
        "num_train_epochs": 1,
        "per_device_eval_batch_size": config.per_device_train_batch_size,
        "train_sampling_strategy": "sequential",
        # Longer rows were left out and counted; TRL would cut them.
        "max_length": None,
        "eval_strategy": eval_strategy,
        "logging_steps": 1,
        "save_total_limit": KEPT,
        # A loss that is no number has to reach the log, where it stops the run.
        "logging_nan_inf_filter": False,
        "seed": training.seed,
        "data_seed": training.seed,
    }

    # Of two values for a name the later one holds, from the settings to what the stage decides.
    fixed = same_name | every_stage | device_arguments(config.bf16, training.dtype) | decided

    # TRL's classes of arguments do not all have the same ones.
    fixed = {name: value for name, value in fixed.items() if name in names}
    with trainer_explained(config, training.key):
        return kind(**(DEFAULTS | defaults | config.trainer | fixed))


@contextmanager
def trainer_explained(config: TrainerConfig, key: str) -> Iterator[None]:
    """Turn what TRL raises for its arguments into an error that names the key.

    Raises:
        ConfigError: with TRL's own message.
    """
    try:
        yield
    except (ValueError, ImportError) as error:
        raise ConfigError(f"{key}.trainer={config.trainer}: {error}") from error


def peft_config(config: TrainerConfig) -> Any:
    """Return PEFT's LoRA configuration, or None when adapters are off."""
    if not config.lora:
        return None
    from peft import LoraConfig

    # PEFT multiplies adapters by alpha / r: by 2 here, whatever the rank.
    return LoraConfig(r=RANK, lora_alpha=2 * RANK, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")


def onto_whole(adapted: Any, start: ModelConfig) -> Any:
    """Return the adapters of a base in 4 bits on the same base before it was rounded, in float32 on the CPU.

    Merged into weights in 4 bits they would be lost: what was learned is smaller than the weights' steps, and the next
    stage rounds the merged weights again.

    Args:
        adapted: the trained model, a base in 4 bits with adapters.
        start: the base.
    """
    from peft import PeftModel

    # By their files, which hold the adapters alone and not the base in 4 bits.
    with TemporaryDirectory(prefix="judgetrain-adapters-") as place:
        adapted.save_pretrained(place)
        base = load_model(replace(start, dtype="float32"), "cpu")
        return PeftModel.from_pretrained(base, place)


def in_one_piece(state: Mapping[str, torch.Tensor], start: ModelConfig, adapters: bool) -> Any:
    """Return a trained model that no process shares with another, in float32 on the CPU.

    Args:
        state: all trained weights by name.
        start: the model that training started from.
        adapters: whether adapters alone were trained; they stand on that model.
    """
    model: Any = load_model(replace(start, dtype="float32"), "cpu")
    if not adapters:
        model.load_state_dict(state)
        return model
    from peft import get_peft_model

    model = get_peft_model(model, peft_config(TrainerConfig(lora=True)))
    # The others are the base's as they were, perhaps rounded.
    trained = {name: state[name] for name, parameter in model.named_parameters() if parameter.requires_grad}
    model.load_state_dict(trained, strict=False)
    return model


def mixed_precision(bf16: bool | None, dtype: str) -> bool:
    """Return True to compute in bfloat16: as set, or, where None is set, if the GPU has it or a CPU is asked for it.

    Args:
        bf16: as in the settings.
        dtype: of the model that training starts from, as configured. On a CPU bfloat16 is a request, since without
            instructions for it it is slower than float32.
    """
    import torch

    if bf16 is not None:
        return bf16
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
    return dtype == "bfloat16"


def device_arguments(bf16: bool | None, dtype: str) -> dict[str, Any]:
    """Return the arguments that say on what device and in which precision to compute; as :func:`mixed_precision`."""
    import torch

    # A GPU that is there is used, or none: no setting asks for the CPU beside it.
    gpu = torch.cuda.is_available()
    # Ampere and newer GPUs have TF32; None leaves PyTorch's own setting as it is.
    tf32 = None
    if gpu and torch.cuda.get_device_capability()[0] >= 8:
        tf32 = True
    sharding: dict[str, Any] = {}
    if current().fsdp:
        # A dictionary of its own, since Transformers adds to it.
        sharding = {"fsdp": True, "fsdp_config": dict(FSDP_CONFIG)}
    return sharding | {
        "bf16": mixed_precision(bf16, dtype),
        "tf32": tf32,
        "use_cpu": not gpu,
        "dataloader_pin_memory": gpu,
        "deepspeed": current().deepspeed,
        # The search costs a walk over the graph in each step; every weight that is trained has a gradient.
        "ddp_find_unused_parameters": False,
        "ddp_timeout": int(STEP_TIMEOUT.total_seconds()),
        # The callbacks of this room print and log; what Transformers itself reports to is set when the trainer is made.
        "report_to": "none",
        "disable_tqdm": True,
    }


def _dpo(config: DpoConfig) -> dict[str, Any]:
    """Return the arguments that stage dpo decides: its losses and their weights, and how checkpoints are kept."""
    # TRL takes several losses by name, with a weight each: the preference loss, and perhaps the supervised term.
    weights = {config.trainer.get("loss_type", "sigmoid"): 1.0}
    if config.sft_weight:
        weights["sft"] = config.sft_weight
    decided: dict[str, Any] = {
        "loss_type": [*weights],
        "loss_weights": [*weights.values()],
        "precompute_ref_log_probs": True,
    }
    if config.keep_best:
        decided |= kept_best(BEST, config.eval_steps)
    return decided


def kept_best(figure: str, steps: int) -> dict[str, Any]:
    """Return the arguments under which the checkpoint with the largest held-out figure is loaded at the end.

    Args:
        figure: the figure's name in the evaluation's.
        steps: optimizer steps between two evaluations. There is a checkpoint at each, or the best could be none.
    """
    best = {"load_best_model_at_end": True, "metric_for_best_model": figure, "greater_is_better": True}
    return {"eval_steps": steps, "save_steps": steps, **best}


@contextmanager
def memory_explained(key: str) -> Iterator[None]:
    """Turn what PyTorch raises when memory runs out, on a GPU or not, into a sentence.

    Args:
        key: where the stage's settings stand.

    Raises:
        TrainingError: memory ran out; says what to lower.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            f"out of memory: lower {key}.per_device_train_batch_size (raise global_accumulation_steps as much), or set "
            f"{key}.gradient_checkpointing=true or {key}.lora=true"
        ) from error


def frozen_experts(model: PreTrainedModel) -> int:
    """Return how many weights belong to experts that have no adapters, since they stand together in one tensor."""
    count = 0
    for name, parameter in model.named_parameters():
        # Under ZeRO-3 a parameter has its whole shape in ds_shape, and an empty one of its own.
        shape = getattr(parameter, "ds_shape", parameter.shape)
        # Three dimensions: expert, output, input. PEFT calls a weight base_layer where it has put adapters beside it.
        if not parameter.requires_grad and len(shape) == 3 and ".base_layer." not in name:
            count += math.prod(shape)
    return count


def freeze_embeddings(model: PreTrainedModel) -> None:
    """Have training leave a model's token embeddings and its output layer as they are, which may be one weight."""
    for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
        # A model may have no output layer of its own.
        if layer is not None:
            layer.requires_grad_(False)


def without_dropout(model: nn.Module) -> None:
    """Switch off the dropout that layers do by a number of their own (``attention_dropout``).

    TRL's ``disable_dropout`` finds dropout that is a module of its own, and no other.
    """
    for module in model.modules():
        for name, value in vars(module).items():
            if name.endswith(("dropout", "pdrop")) and isinstance(value, float):
                setattr(module, name, 0.0)


def compiled(model: nn.Module) -> str:
    """Have every block of the model's stacks of like blocks compiled at its first call, and return a line for the log.

    It is done in place: names of weights, saving and wrapping (PEFT, DDP) stay as they are, and the blocks share what
    is compiled. Lengths are dynamic, so that batches of another width need no other code.
    """
    from accelerate.utils.other import is_repeated_blocks  # type: ignore[import-untyped]

    if not has_cpp_compiler():
        return "regional_compilation is left out, since there is no C++ compiler (g++ or clang++)"
    blocks: list[nn.Module] = []
    for module in model.modules():
        children = [*module.children()]
        # Two blocks share what is compiled; one alone gains nothing by it.
        if is_repeated_blocks(module) and len(children) > 1:
            blocks += children
    for block in blocks:
        block.compile(dynamic=True)
    return f"{len(blocks)} blocks are compiled at the first steps, which take longer"


def with_masks(model: ModelConfig) -> ModelConfig:
    """Return how to load a model whose attention takes a mask of any form, where the user named no attention."""
    from transformers.utils import import_utils

    if model.attn_implementation is None and import_utils.is_flash_attn_2_available():
        # It would be taken in half precision, and takes no such mask.
        return replace(model, attn_implementation="sdpa")
    return model


def trainable(model: ModelConfig, bf16: bool | None, adapters: bool) -> ModelConfig:
    """Return how to load a model for training: in float32 where all its weights are trained.

    AdamW's steps at these learning rates are smaller than bfloat16 can add to a weight. Mixed precision computes in
    bfloat16 all the same, and so can take flash attention.

    Under adapters the base stays as it is. So do weights in half precision under ZeRO, where DeepSpeed keeps float32
    copies beside them.

    Args:
        model: the base as configured.
        bf16: as in the settings.
        adapters: whether adapters alone are trained.
    """
    from transformers.utils import import_utils

    if adapters or (model.dtype != "auto" and current().deepspeed):
        return model
    attention = model.attn_implementation
    if attention is None and mixed_precision(bf16, model.dtype) and import_utils.is_flash_attn_2_available():
        attention = "flash_attention_2"
    return replace(model, dtype="float32", attn_implementation=attention)
