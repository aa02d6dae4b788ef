"""Whether a model can be loaded, looked at before anything runs: all but the reading of its weights."""

from __future__ import annotations

import inspect
import json
from contextlib import suppress
from functools import cache
from pathlib import Path

from judgetrain.artifacts.fingerprint import check_package
from judgetrain.engines.config import ModelConfig, hub_id, looks_local
from judgetrain.engines.loading import adapted, load_config, load_tokenizer, resolve_path
from judgetrain.engines.prompting import render
from judgetrain.errors import ConfigError, EngineError

WEIGHTS = (".safetensors", ".gguf")
"""Never a pickle (``.bin``), which runs code."""
INDEX = "model.safetensors.index.json"
SECONDS = 10.0
"""How long the Hub may take to answer."""


def check_loadable(config: ModelConfig, named: str) -> None:
    """Check a model's configuration, its files of weights, its tokenizer and its chat template.

    Of a model on the Hub the metadata are asked for and the small files are fetched; with ``HF_HUB_OFFLINE`` it has to
    be in the cache. Of GGUF files only the first bytes are read.

    Args:
        config: the model and how to load it.
        named: the key that names it and its value, for messages.

    Raises:
        ConfigError: what is wrong, and the remedy.
    """
    try:
        _check(config)
    except EngineError as error:
        raise ConfigError(f"{named}: {error}") from error


def check_on_hub(path: str, revision: str | None, file: str) -> list[str] | None:
    """The names of a repository's files on the Hub; None where only the cache is asked, in which ``file`` has to be
    (EngineError: no such repository or revision, no access to it, or no network and nothing in the cache)."""
    from huggingface_hub import HfApi, constants, errors, try_to_load_from_cache

    try:
        cached = isinstance(try_to_load_from_cache(path, file, revision=revision), str)
        if constants.is_offline_mode():
            if not cached:
                raise EngineError(
                    "HF_HUB_OFFLINE is set, and the cache does not have it: unset that, or give a local directory"
                )
            return None
        found = HfApi(endpoint=constants.ENDPOINT).model_info(path, revision=revision, timeout=SECONDS)
    except _no_network(errors.HFValidationError) as error:
        refused = (errors.HFValidationError, errors.RepositoryNotFoundError, errors.RevisionNotFoundError)
        if isinstance(error, refused):  # a gated repository is one that is not found, as long as its terms are not
            raise EngineError(
                f"the Hugging Face Hub does not give it ({_why(error)}): check name and revision, accept its terms at "
                f"{constants.ENDPOINT}/{path} and set HF_TOKEN, or give a local directory"
            ) from error
        if cached:
            return None
        raise EngineError(f"the Hugging Face Hub cannot be reached ({_why(error)}); give a local directory") from error
    return [sibling.rfilename for sibling in found.siblings or ()]


@cache
def commit_of(path: str) -> str | None:
    """The commit that a Hub id (``OWNER/NAME``, ``OWNER/NAME:REVISION``) stands for during this process.

    It is the Hub's word, else the cache's; None where neither knows the id.
    """
    from huggingface_hub import HfApi, constants, errors, try_to_load_from_cache

    name, revision = hub_id(path)
    with suppress(*_no_network(errors.HFValidationError)):
        if not constants.is_offline_mode():
            return HfApi(endpoint=constants.ENDPOINT).model_info(name, revision=revision, timeout=SECONDS).sha
    with suppress(errors.HFValidationError):
        if isinstance(cached := try_to_load_from_cache(name, "config.json", revision=revision), str):
            return Path(cached).parent.name
    return None


def snapshot(path: str, file: str, revision: str | None = None) -> Path:
    """The directory of a model: the path itself, or what the Hub has under this id, fetched into the cache.

    Args:
        path: a directory or Hub id, which may have a revision behind it.
        file: that the repository has to hold, as ``config.json``.
        revision: of the Hub's repository; None: the commit that fingerprints have (:func:`commit_of`).

    Raises:
        EngineError: there is none, or it cannot be had; says why.
    """
    from huggingface_hub import constants, snapshot_download

    directory = Path(path).expanduser()
    if directory.is_dir():
        return directory
    if looks_local(path):
        raise EngineError(f"{path}: there is no such directory; give a model's, or its id on the Hub (OWNER/NAME)")
    commit, (path, tag) = revision or commit_of(path), hub_id(path)
    revision = revision or tag
    try:
        names = check_on_hub(path, revision, file)
        if names is not None and file not in names:
            raise EngineError(f"the repository on the Hugging Face Hub holds no {file}")
        offline = names is None or constants.is_offline_mode()
        found = Path(snapshot_download(path, revision=revision, local_files_only=offline))
        moved = commit and len(commit) == 40 and found.name != commit  # since fingerprints were made
        return Path(snapshot_download(path, revision=commit, local_files_only=offline)) if moved else found
    except EngineError as error:
        raise EngineError(f"{path}: there is no such directory, and of the Hub: {error}") from error
    except _no_network() as error:
        raise EngineError(f"{path}: the Hugging Face Hub did not give all of it ({_why(error)}); try again") from error


def _why(error: Exception) -> str:
    return " ".join(str(error).split())[:150] or type(error).__name__


def _no_network(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """What the Hub's client raises where there is no answer: of whichever HTTP library it uses, and of the system."""
    from huggingface_hub.errors import HfHubHTTPError

    return *others, HfHubHTTPError, OSError, *(base for base in HfHubHTTPError.__mro__ if base.__name__ == "HTTPError")


def _check(config: ModelConfig) -> None:
    path, gguf = resolve_path(config)
    directory = Path(path)
    if gguf:
        with (directory / gguf).open("rb") as file:
            if file.read(4) != b"GGUF":
                raise EngineError(f"{directory / gguf} is no GGUF file")
        check_package("gguf", "GGUF weights")
        return
    if (base := adapted(config)) is not None:
        _check(base)
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


def _check_kind(config: ModelConfig, path: str, last: int) -> None:
    """That it is a causal language model which the decoder can run, with embeddings up to the token id ``last``."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    found = load_config(config, path)
    own = getattr(found, "auto_map", None) or {}
    if type(found) in MODEL_FOR_CAUSAL_LM_MAPPING:
        if "past_key_values" not in inspect.signature(MODEL_FOR_CAUSAL_LM_MAPPING[type(found)].forward).parameters:
            raise EngineError(
                f"a model of type {found.model_type!r} carries its state in its own way and takes no past_key_values: "
                "it would forget what it has read after every token; take another base"
            )
    elif "AutoModelForCausalLM" not in own:
        raise EngineError(f"a model of type {found.model_type!r} is no causal language model")
    if found.model_type == "bloom" or getattr(found, "alibi", False):
        raise EngineError(
            f"a model of type {found.model_type!r} with ALiBi makes positions of the mask of whole texts: it cannot "
            "be decoded here; take another base"
        )
    if last >= (rows := getattr(found.get_text_config(), "vocab_size", None) or last + 1):
        raise EngineError(
            f"its tokenizer has tokens up to id {last}, and the model embeddings for {rows}: take the tokenizer that "
            "belongs to the model, or resize the model's embeddings and save both"
        )
