"""Training: stages initial, sft, reference, dpo and rl."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.engines.config import ModelConfig
from judgetrain.keys import in_place, key


def _on(adapters: AdapterConfig) -> bool:
    """Whether there are adapters: nothing else of them counts otherwise."""
    return adapters.enabled


@dataclass
class AdapterConfig:
    """Low-rank adapters (PEFT's LoraConfig has keys of the same names)."""

    enabled: bool = key(False, "train adapters in place of the weights")
    r: int = key(16, "rank", low=1, active_if=_on)
    lora_alpha: int = key(32, "scale: the adapters' product is multiplied by lora_alpha / r", low=1, active_if=_on)
    lora_dropout: float = key(0.05, "dropout before the adapters", low=0.0, high=1.0, active_if=_on)
    target_modules: str = key(
        "all-linear", "names, as in q_proj,v_proj; a regular expression; or all-linear", active_if=_on
    )
    merge: bool = key(
        True, "merge at the end; false leaves adapters that from_pretrained puts on their base", active_if=_on
    )
    quantize: str | None = key(
        None,
        "QLoRA: the frozen base in 4 or 8 bits (a GPU and the extra 'qlora')",
        choices=(None, "4bit", "8bit"),
        active_if=_on,
    )


OPTIMIZERS = (
    "adamw_torch",
    "adamw_torch_fused",
    "adafactor",
    "sgd",
    "rmsprop",
    "adamw_8bit",
    "paged_adamw_32bit",
    "paged_adamw_8bit",
    "lion_8bit",
    "paged_lion_8bit",
)


@dataclass
class TrainConfig:
    """One training stage (initial, sft, dpo or rl).

    Keys have the names of Transformers' TrainingArguments and TRL's SFTConfig and DPOConfig where they mean the same.
    """

    learning_rate: float = key(1e-5, "peak", above=0.0)
    num_train_epochs: float = key(1.0, "passes over the data", low=0.001)
    min_steps: int = key(
        0,
        "initial, sft, dpo: of little data so many passes more are taken that there are at least so many optimizer "
        "steps (those of verdicts_first come on top); a positive max_steps overrides it",
        low=0,
        active_if=lambda c: c.min_steps,
    )
    max_steps: int = key(-1, "overrides num_train_epochs when positive", low=-1)
    per_device_train_batch_size: int = key(8, "examples that one process computes together", low=1)
    global_accumulation_steps: int = key(
        1,
        "micro-batches in an optimizer step, shared out over the processes: the global batch is "
        "per_device_train_batch_size x global_accumulation_steps however many there are, where Transformers' "
        "gradient_accumulation_steps counts those of each process",
        low=1,
    )
    max_length: int = key(2048, "longer examples are left out and counted, never cut", low=8, unit="tokens")
    warmup_steps: float = key(0.05, "steps of warm-up; below 1 a share of all steps", low=0.0)
    lr_scheduler_type: str = key(
        "cosine",
        "how the learning rate falls",
        choices=("linear", "cosine", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt"),
    )
    optim: str | None = key(
        None,
        "None takes fused AdamW; 8-bit and paged ones need a GPU and the extra 'qlora'",
        choices=(None, *OPTIMIZERS),
    )
    weight_decay: float = key(0.0, "AdamW", low=0.0)
    adam_beta2: float = key(
        0.999,
        "AdamW: how much of its mean of squared gradients a step keeps",
        low=0.0,
        high=0.99999,
        active_if=lambda c: c.adam_beta2 != 0.999,
    )
    max_grad_norm: float = key(1.0, "gradient clipping", low=0.0)
    gradient_checkpointing: bool = key(False, "trade time for memory")
    bf16: bool | None = key(None, "None: where the GPU has it")
    tf32: bool | None = key(None, "float32 products on tensor cores; None: where the GPU has them")
    packing: bool = key(False, "initial, sft: fill sequences of max_length with whole examples, none cut")
    padding_free: bool = key(False, "initial, sft: the examples of a batch in one row, without padding")
    orders_together: bool = key(
        False,
        "initial, sft: judgments by one guideline in both orders stand in one batch, so that no step prefers a place; "
        "needs an even per_device_train_batch_size",
        active_if=lambda c: c.orders_together,
    )
    use_liger_kernel: bool = key(False, "Liger's Triton kernels for the layers (a GPU and the extra 'liger')")
    regional_compilation: bool = key(
        False,
        "initial, sft, dpo: torch.compile for the repeated blocks; compiling takes a minute or more. Results differ in "
        "the last digits, after a resume too. Without a C++ compiler it is left out, which is said",
        in_fingerprint=False,
    )
    save_steps: int = key(50, "checkpoint every so many optimizer steps", low=1, in_fingerprint=False)
    eval_steps: int = key(
        50,
        "held-out loss every so many optimizer steps",
        low=1,
        active_if=lambda c: isinstance(c, DpoConfig) and c.stop.watched,
    )
    save_total_limit: int = key(2, "checkpoints kept while training", low=2, in_fingerprint=False)
    lora: AdapterConfig = key(AdapterConfig, "adapters")


@dataclass
class InitialConfig(TrainConfig):
    """Stage initial."""

    verdicts_first: float = key(
        0.0,
        "passes over the judgments given in both orders, before all else and shortened to the token at which the two "
        "part, which alone is learned (ties do not part and have none): for a teacher that says who is better before "
        "it says anything that differs between the orders, as teacher.engine.type=given; needs orders_together. Has a "
        "schedule (lr_scheduler_type, warm-up) of its own, after which that of the rest begins",
        low=0.0,
        active_if=lambda c: c.verdicts_first,
    )


DPO_LOSSES = (
    "sigmoid",
    "sigmoid_norm",
    "hinge",
    "ipo",
    "exo_pair",
    "nca_pair",
    "robust",
    "bco_pair",
    "sppo_hard",
    "aot",
    "aot_unpaired",
    "apo_zero",
    "apo_down",
    "discopop",
)


@dataclass
class StopConfig:
    """Stop-loss of DPO on the held-out pairs (branching paper, section 5.7): any limit that is set is watched."""

    chosen_drop: float | None = key(
        None, "stop when the chosen sides' log-probability is so far below the reference's", low=0.0, unit="nats/token"
    )
    margin: float | None = key(
        None, "stop when the mean reward margin is this large: pairs past 5 move the weights by under 1%", low=0.0
    )
    patience: int | None = key(None, "stop after so many evaluations in a row without a better agreement", low=1)
    keep_best: bool = key(
        False,
        "keep the checkpoint of the best held-out agreement (then loss), not the last; holds wherever a limit is set",
    )

    @property
    def watched(self) -> bool:
        """Whether the checkpoint that is kept depends on held-out pairs."""
        return self.keep_best or any(v is not None for v in (self.chosen_drop, self.margin, self.patience))


@dataclass
class DpoConfig(TrainConfig):
    """Stage dpo."""

    learning_rate: float = key(5e-7, "peak", above=0.0)
    reference: ModelConfig = key(ModelConfig, "the reference model; an empty path takes the SFT judge")
    beta: float = key(0.1, "strength of the KL constraint", above=0.0)
    loss_type: str = key("sigmoid", "TRL's DPO loss_type", choices=DPO_LOSSES)
    sft_weight: float = key(0.0, "weight of a supervised term on the chosen side (TRL's loss type sft)", low=0.0)
    label_smoothing: float = key(0.0, "of the preference labels (robust, exo_pair, aot)", low=0.0, high=0.5)
    ld_alpha: float | None = key(
        None, "LD-DPO: weight of the tokens past the shorter side's length; None: 1", low=0.0, high=1.0
    )
    f_divergence_type: str = key(
        "reverse_kl",
        "f-DPO: the divergence from the reference that is penalised",
        choices=("reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"),
    )
    f_alpha_divergence_coef: float = key(
        0.5,
        "alpha of f_divergence_type=alpha_divergence",
        active_if=lambda c: c.f_divergence_type == "alpha_divergence",
    )
    precompute_ref_log_probs: bool = key(
        True,
        "reference log-probabilities are a stage of their own, made once for data and reference model, so that one "
        "model is in memory; false: the reference model is kept beside the trained one",
    )
    precompute_ref_batch_size: int = key(
        8, "pairs that the reference model reads together", low=1, in_fingerprint=False
    )
    stop: StopConfig = key(StopConfig, "stop-loss")


RL_LOSSES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo")


@dataclass
class RewardWeights:
    """Weights of the rewards that a branch gets in stage rl (judgetrain/train/rl/rewards.py); 0 leaves one out."""

    both_orders: float = key(1.0, "1 where the branch gives the label in both orders, else 0", low=0.0)
    one_order: float = key(0.0, "the share of the two orders in which it gives the label", low=0.0)
    unreadable: float = key(1.0, "-1 where neither order can be read, -0.5 where one cannot", low=0.0)
    consistent: float = key(0.0, "1 where both orders say the same, whatever they say", low=0.0)
    strength: float = key(
        0.0, "how far the scores lie apart in the label's favour, from -1 to 1; under a label tie, how close", low=0.0
    )


def _own_labels(config: RlConfig) -> bool:
    return config.labels == "start"


@dataclass
class RlConfig(TrainConfig):
    """Stage rl: on-policy training on whole branches with TRL's GRPOTrainer."""

    learning_rate: float = key(1e-6, "peak", above=0.0)
    lr_scheduler_type: str = key(
        "constant_with_warmup",
        "how the learning rate falls",
        choices=("linear", "cosine", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt"),
    )
    max_length: int = key(
        2048, "prompt and longest answer; a branch that would be longer counts as unreadable", low=8, unit="tokens"
    )
    start: str = key("dpo", "the judge that training goes on from", choices=("dpo", "sft", "initial"))
    labels: str = key(
        "label",
        "what branches are rewarded by: label, the labels of stage label; start, the verdicts of the judge that "
        "training goes on from, asked greedily with label_branches branches, where both orders say the same",
        choices=("label", "start"),
    )
    label_branches: int = key(
        10,
        "branches of the start's own labels, put together as evaluate.aggregation says",
        low=1,
        active_if=_own_labels,
    )
    max_comparisons: int | None = key(
        None,
        "comparisons that the start labels, drawn by the seed, and all that are held out; None: all",
        low=1,
        active_if=_own_labels,
    )
    comparisons_per_step: int = key(8, "comparisons judged for one optimizer step, over all processes", low=1)
    num_generations: int = key(8, "branches of a comparison that are compared with one another", low=2)
    branches: int = key(1, "criteria of each list that are judged", low=1)
    position_discount: float = key(
        0.5, "a list's reward weighs its i-th criterion's branch with this to the power of i", low=0.0, high=1.0
    )
    credit: str = key(
        "branch",
        "what a branch's parts are rewarded for: branch, all for the branch's reward; level, judgments only for what "
        "they can decide: rewards.unreadable, and where it has a weight rewards.consistent",
        choices=("branch", "level"),
    )
    rewards: RewardWeights = key(RewardWeights, "what is rewarded")
    temperature: float = key(1.0, "of sampling branches", low=0.01, high=10.0)
    beta: float = key(0.0, "strength of the KL constraint to the start; above 0 the start stays in memory", low=0.0)
    loss_type: str = key("dr_grpo", "TRL's GRPO loss_type", choices=RL_LOSSES)
    scale_rewards: str = key(
        "group", "by what standard deviation advantages are divided", choices=("group", "batch", "none")
    )
    num_iterations: int = key(1, "optimizer steps on the same branches", low=1)
    epsilon: float = key(0.2, "clipping of probability ratios, where num_iterations is above 1", low=0.0)
    epsilon_high: float | None = key(None, "clipping upwards; None: as epsilon", low=0.0)
    min_label_share: float = key(
        0.0,
        "leave out comparisons whose label won a smaller share of the deciding votes; of the labels of stage label",
        low=0.0,
        high=1.0,
        active_if=lambda c: not _own_labels(c),
    )
    pass_rate: list[float] = key(
        [],
        "lowest and highest share of the start's sampled branches that are right in both orders, as [0.2, 0.8]: "
        "comparisons outside teach little and are left out; empty: all are kept, and none is tried first",
        low=0.0,
        high=1.0,
    )
    keep_best: bool = key(True, "keep the checkpoint that agrees most with held-out labels, asked greedily; needs them")
    holdout: float | None = key(
        None,
        "share of the comparisons that are held out to choose a checkpoint by; None: label.holdout. What is above that "
        "share is new to this stage, though sft and dpo may have learned from it",
        low=0.0,
        high=0.5,
        active_if=lambda c: c.keep_best,
    )
    patience: int | None = key(None, "stop after so many evaluations in a row without a better agreement", low=1)
    eval_steps: int = key(
        10,
        "held-out agreement every so many optimizer steps; rounded up to whole num_iterations",
        low=1,
        active_if=lambda c: c.keep_best,
    )
    save_steps: int = key(10, "checkpoint every so many optimizer steps", low=1, in_fingerprint=False)

    @property
    def parts(self) -> int:
        """Texts that a list of criteria makes: itself, and a guideline and two judgments for each that is judged."""
        return 1 + 3 * self.branches

    @property
    def rows_per_step(self) -> int:
        """Texts that an optimizer step learns from, over all processes."""
        return self.comparisons_per_step * self.num_generations * self.parts


DISTRIBUTED = ("none", "ddp", "zero2", "zero3", "zero3_offload")


@dataclass
class TrainStages:
    """The three training stages of the paper, and the on-policy one after them."""

    base: ModelConfig = key(ModelConfig, "the pretrained model that the Initial judge starts from")
    initial: InitialConfig = key(InitialConfig, "stage initial")
    sft: TrainConfig = key(TrainConfig, "stage sft")
    dpo: DpoConfig = key(DpoConfig, "stage dpo")
    rl: RlConfig = key(RlConfig, "stage rl")
    # In float32 these two change where is computed, not what; under ZeRO and bfloat16 the stages list the first.
    distributed: str = key(
        "none",
        "how several processes train one model: ddp (each has all of it), zero2, zero3, zero3_offload (DeepSpeed)",
        choices=DISTRIBUTED,
        in_fingerprint=False,
    )
    processes: int | None = key(
        None,
        "processes here that train together; None: one a GPU; under torchrun: WORLD_SIZE",
        low=1,
        in_fingerprint=False,
    )
    deepspeed: str | None = key(
        None,
        "a DeepSpeed JSON in place of launch/deepspeed/<train.distributed>.json",
        content=in_place(lambda path, owner: path),
    )
