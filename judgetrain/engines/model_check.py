"""Whether a model can be loaded, looked at before anything runs: all but the reading of its weights."""

import copy
import json
from pathlib import Path
from typing import Any

from judgetrain.artifacts.fingerprint import check_package
from judgetrain.engines.adapters import check_mergeable
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.hub import check_on_hub
from judgetrain.engines.loading import adapted, load_config, load_tokenizer, resolve_path
from judgetrain.engines.prompting import render
from judgetrain.errors import ConfigError, EngineError

WEIGHTS = (".safetensors", ".gguf")
"""Never a pickle (``.bin``), which runs code."""
INDEX = "model.safetensors.index.json"


def check_loadable(config: ModelConfig, named: str) -> None:
    """Check a model's configuration, its files of weights, its tokenizer and its chat template (ConfigError: what is
    wrong with what is ``named``, a key and its value, and the remedy).

    Of a model on the Hub the metadata are asked for and the small files are fetched; with ``HF_HUB_OFFLINE`` it has to
    be in the cache. Of GGUF files only the first bytes are read.
    """
    try:
        _check(config)
    except EngineError as error:
        raise ConfigError(f"{named}: {error}") from error


def _check(config: ModelConfig) -> None:
    path, gguf = resolve_path(config)
    directory = Path(path)
    if gguf:
        with (directory / gguf).open("rb") as file:
            if file.read(4) != b"GGUF":
                raise EngineError(f"{directory / gguf} is no GGUF file")
        check_package("gguf", "GGUF weights")
        return
    base = adapted(config)
    if base is not None:
        _check(base)
        _check_adapters(config)
        # It is the adapters' own.
        load_tokenizer(config)
        return
    local = directory.is_dir()
    names = [p.name for p in directory.iterdir()] if local else check_on_hub(path, config.revision, "config.json")
    if local and INDEX in (names or ()):
        parts = set(json.loads((directory / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
        if missing := sorted(parts - set(names or ())):
            raise EngineError(f"{missing[0]}, which {INDEX} names, is missing")
    if names is not None and not any(name.endswith(WEIGHTS) for name in names):
        where = "directory" if local else "repository on the Hugging Face Hub"
        raise EngineError(f"the {where} holds no weights ({', '.join(WEIGHTS)})")
    tokenizer = load_tokenizer(config)
    _check_kind(config, path, max(tokenizer.get_vocab().values()))
    render([{"role": "system", "content": "Judge."}, {"role": "user", "content": "?"}], tokenizer)


def _check_adapters(config: ModelConfig) -> None:
    """Check that adapters can be merged into their base (EngineError), whose own files were looked at before."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    directory, _ = resolve_path(config)
    root = config
    below = adapted(root)
    while below is not None:
        root = below
        below = adapted(root)
    path, gguf = resolve_path(root)
    if gguf:
        return
    found = load_config(root, path)
    # A model whose code comes with it is looked at when it is loaded.
    if type(found) in MODEL_FOR_CAUSAL_LM_MAPPING:
        check_mergeable(directory, found, MODEL_FOR_CAUSAL_LM_MAPPING[type(found)])


def check_trainable(config: ModelConfig, named: str) -> None:
    """Check that the weights of a base are ordinary ones, which training can change and write.

    Raises:
        ConfigError: they are stored quantised; ``named``, a key and its value, and the remedy.
    """
    try:
        path, gguf = resolve_path(config)
        # GGUF is unpacked, and adapters were looked at with their base.
        if gguf or adapted(config) is not None:
            return
        found = load_config(config, path)
    except EngineError as error:
        raise ConfigError(f"{named}: {error}") from error
    quantization = getattr(found, "quantization_config", None)
    if quantization is None:
        return
    if not isinstance(quantization, dict):
        quantization = quantization.to_dict()
    method = quantization.get("quant_method", "unknown")
    raise ConfigError(
        f"{named}: its weights are stored quantised ({method}), and a judge trained on them could not be written: take "
        f"the same base in 16 bits (with train=qlora it is trained on in 4 bits all the same)"
    )


def _check_kind(config: ModelConfig, path: str, last: int) -> None:
    """That it is a causal language model which the decoder can run, with embeddings up to the token id ``last``."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    found = load_config(config, path)
    own = getattr(found, "auto_map", None) or {}
    if type(found) in MODEL_FOR_CAUSAL_LM_MAPPING:
        _check_cache(MODEL_FOR_CAUSAL_LM_MAPPING[type(found)], found)
    elif "AutoModelForCausalLM" not in own:
        raise EngineError(f"a model of type {found.model_type!r} is no causal language model")
    if found.model_type == "bloom" or getattr(found, "alibi", False):
        raise EngineError(f"models of type {found.model_type!r} with ALiBi cannot be decoded here; take another base")
    if last >= (rows := getattr(found.get_text_config(), "vocab_size", None) or last + 1):
        told = f"its tokenizer has tokens up to id {last}, and the model embeddings for {rows}"
        raise EngineError(f"{told}: take the tokenizer that belongs to the model, or resize the embeddings")


def _check_cache(model_class: Any, config: Any) -> None:
    """Check that a model of the class writes into the cache that it is given, tried on one without weights.

    On the device ``meta`` tensors have shapes and no values, so that a model of any size is made and run in a second.
    One that needs values (to choose experts, say) cannot be tried so. It passes here, and the engine tries it with its
    weights when it loads them.
    """
    import torch

    from judgetrain.engines.cache_keyword import ForgetfulModelError, cache_keyword

    try:
        with torch.device("meta"):
            model = model_class._from_config(copy.deepcopy(config), dtype=torch.bfloat16)
            cache_keyword(model.eval())
    except ForgetfulModelError as error:
        told = f"a model of type {config.model_type!r} leaves the cache empty that it is given"
        raise EngineError(f"{told}: it would forget what it has read after every token; take another base") from error
    except Exception:  # whatever a model says that has no values; with its weights it says so again
        return
