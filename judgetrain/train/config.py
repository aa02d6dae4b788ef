"""The settings of stages initial, sft, reference and dpo."""

from dataclasses import dataclass
from typing import Any

from judgetrain.engines.config import ModelConfig
from judgetrain.keys import key


@dataclass
class TrainerConfig:
    """The settings of every stage that trains a model.

    Keys have the names of Transformers' TrainingArguments and TRL's configurations where they mean the same.
    """

    learning_rate: float = key(1e-5, "peak", above=0.0)
    num_train_epochs: float = key(1.0, "passes over the data", low=0.001)
    max_steps: int = key(-1, "overrides num_train_epochs when positive", low=-1)
    per_device_train_batch_size: int = key(8, "examples that one process computes together", low=1)
    max_length: int = key(2048, "longer examples are left out and counted, never cut", low=8, unit="tokens")
    gradient_checkpointing: bool = key(False, "trade time for memory")
    bf16: bool | None = key(None, "None: where the GPU has it, and on a CPU with train.base.dtype=bfloat16")
    save_steps: int = key(50, "checkpoint every so many optimizer steps", low=1, in_fingerprint=False)
    eval_steps: int = key(
        50, "held-out figures every so many optimizer steps", low=1, active_if=lambda c: getattr(c, "keep_best", False)
    )
    trainer: dict[str, Any] = key(
        {},
        "more of TRL's SFTConfig, DPOConfig or GRPOConfig, as in {optim: adafactor}",
        active_if=lambda c: bool(c.trainer),
    )
    lora: bool = key(False, "train low-rank adapters of every linear layer in place of the weights; merged at the end")
    four_bit: bool = key(
        False,
        "QLoRA: adapters on the base in 4 bits (NF4; needs bitsandbytes), merged into the base as it was",
        active_if=lambda c: c.four_bit,
    )


@dataclass
class TrainConfig(TrainerConfig):
    """The settings of stages that train on examples or pairs, which are there before they begin."""

    min_steps: int = key(
        0,
        "so many passes more over little data that there are at least so many optimizer steps; a "
        "positive max_steps overrides it",
        low=0,
        active_if=lambda c: c.min_steps,
    )
    global_accumulation_steps: int = key(
        1, "micro-batches of per_device_train_batch_size in an optimizer step, over all processes", low=1
    )
    regional_compilation: bool = key(
        False,
        "torch.compile for the repeated blocks, with a C++ compiler: a minute, other last digits",
        in_fingerprint=False,
    )
    freeze_embeddings: bool = key(
        False,
        "train no token embeddings and no output layer: of a small model with a large vocabulary they are most of the "
        "weights",
        active_if=lambda c: c.freeze_embeddings,
    )


@dataclass
class SupervisedConfig(TrainConfig):
    """The settings of stages initial and sft."""

    ranking_weight: float = key(
        0.0, "share of a loss that ranks responses judged singly", low=0, high=1, active_if=lambda c: c.ranking_weight
    )
    share_prefixes: bool = key(
        False,
        "read the examples of a comparison in one pass, each beginning that they share once: a micro-batch then has so "
        "many comparisons, and a pass over the data costs a fraction",
        active_if=lambda c: c.share_prefixes,
    )


@dataclass
class DpoConfig(TrainConfig):
    """The settings of stage dpo."""

    keep_best: bool = key(
        False, "keep the checkpoint of the best agreement on held-out pairs, not the last (branching paper, 5.7)"
    )
    learning_rate: float = key(5e-7, "peak", above=0.0)
    beta: float = key(0.1, "strength of the KL constraint", above=0.0)
    sft_weight: float = key(
        0.0, "weight of a supervised term on the chosen side and on levels without pairs (TRL's loss type sft)", low=0.0
    )


DISTRIBUTED = ("none", "ddp", "fsdp", "zero2", "zero3", "zero3_offload")


@dataclass
class TrainStages:
    """The three training stages of the paper, and how several processes share them."""

    base: ModelConfig = key(ModelConfig, "the pretrained model that the Initial judge starts from")
    initial: SupervisedConfig = key(SupervisedConfig, "stage initial")
    sft: SupervisedConfig = key(SupervisedConfig, "stage sft")
    dpo: DpoConfig = key(DpoConfig, "stage dpo")
    # In float32 these two keys do not change results. Under ZeRO or FSDP and in bfloat16 they do, and the stages' own
    # settings hold them.
    distributed: str = key(
        "none",
        "how several processes train one model: ddp (each has all of it), fsdp (each has a part), zero2, zero3, "
        "zero3_offload (DeepSpeed)",
        choices=DISTRIBUTED,
        in_fingerprint=False,
    )
    processes: int | None = key(
        None,
        "processes here that train together; None: one a GPU; under torchrun: WORLD_SIZE",
        low=1,
        in_fingerprint=False,
    )
