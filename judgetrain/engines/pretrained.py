"""Call Transformers' ``from_pretrained``, and say in words what to do where a model's files cannot be read."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from judgetrain.engines.config import ModelConfig, model_commit
from judgetrain.errors import EngineError

ODD_VALUE = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError)
"""Errors of libraries where a setting of a model has another type, or a value that nothing can be made of."""
OTHER_SIZES = ("size mismatch", "ignore_mismatched_sizes")
"""What errors of PyTorch and Transformers say where weights have other sizes than the configuration has."""


def revision_of(config: ModelConfig) -> str:
    """Return the revision at which a model of the Hub is loaded: the commit in fingerprints, where it is known."""
    return model_commit(config.path, config.revision) or config.revision or "main"


def from_pretrained(
    load: Callable[..., Any], config: ModelConfig, path: str, gguf_file: str | None, **options: Any
) -> Any:
    """Call a ``from_pretrained`` and return its result; raise EngineError with a remedy where it fails."""
    if gguf_file:
        options["gguf_file"] = gguf_file
        if importlib.util.find_spec("gguf") is None:
            raise EngineError(f"{config.path} has GGUF weights, which need the package gguf: pip install gguf")
    with explained(config, path):
        return load(path, revision=revision_of(config), trust_remote_code=config.trust_remote_code, **options)


@contextmanager
def explained(config: ModelConfig, path: str) -> Iterator[None]:
    """Turn the errors of libraries that read a model's files into an EngineError that says what to do."""
    from huggingface_hub.errors import StrictDataclassError

    try:
        yield
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise EngineError(_explain(error, config, path)) from error
    # Libraries raise errors of many classes for broken files; whatever says neither of both is raised as it is.
    except Exception as error:
        message = " ".join(str(error).split())[:200]
        # Their own message speaks of a report that the user does not see.
        if any(words in str(error) for words in OTHER_SIZES):
            raise EngineError(
                f"the weights of {path} have other sizes than its config.json says: copy or download it again"
            ) from error
        if _says_damaged(error):
            raise EngineError(f"a file of {path} is cut or damaged ({message}): copy or download it again") from error
        if isinstance(error, (*ODD_VALUE, StrictDataclassError)):
            raise EngineError(
                f"a file of {path} holds a value that a model of this kind cannot have ({type(error).__name__}: "
                f"{message}): look into config.json, tokenizer_config.json and the files' index"
            ) from error
        raise


def _says_damaged(error: Exception) -> bool:
    """Return whether an error is one that a broken file causes.

    Safetensors has a class for it, and tokenizers raise a plain Exception.
    """
    from safetensors import SafetensorError

    return isinstance(error, SafetensorError) or type(error) is Exception


def _explain(error: Exception, config: ModelConfig, path: str) -> str:
    """Return a message for an error of ``from_pretrained`` that says what to do."""
    message = " ".join(str(error).split())
    if "trust_remote_code" in message and not config.trust_remote_code:
        return f"{config.path} needs code from its repository: read that code, then set model.trust_remote_code=true"
    if isinstance(error, ImportError):
        return f"cannot load {config.path}: {message}"

    # Transformers says the same of a missing network, a missing file and a format that it does not load.
    directory = Path(path)
    if not directory.exists():
        return (
            f"cannot reach {path} on the Hugging Face Hub (no network, no access or no such model); give a local "
            f"directory, or 'world' or package:NAME, which need no Hub"
        )
    if directory.is_dir() and any(directory.glob("*.bin")) and not any(directory.glob("*.safetensors")):
        return f"{config.path} holds its weights in a pickle, which is never loaded: convert them to safetensors"
    return f"cannot load a model from {config.path}: {message[:300]}"
