"""Check before anything runs whether a model can be loaded, asked and trained: all but the reading of its weights."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.amounts import amount
from judgetrain.artifacts.files import read_json
from judgetrain.artifacts.fingerprint import check_package
from judgetrain.engines.adapters import check_mergeable, needs_values
from judgetrain.engines.answer_tokens import token_ids
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.hub import check_on_hub
from judgetrain.engines.loading import adapted, end_token_ids, load_config, load_tokenizer, resolve_path
from judgetrain.engines.memory import is_out_of_memory
from judgetrain.engines.pretrained import revision_of
from judgetrain.engines.prompting import frame_of_chat, render
from judgetrain.engines.sizes import INDEX
from judgetrain.engines.unknown import unknown_pieces
from judgetrain.errors import ConfigError, EngineError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

WEIGHTS = (".safetensors", ".gguf")
"""Never a pickle (``.bin``), which runs code."""


def check_loadable(config: ModelConfig, named: str) -> None:
    """Check a model's configuration, its files of weights, its tokenizer and its chat template.

    Of a model on the Hub the metadata are asked for and the small files are fetched; with ``HF_HUB_OFFLINE`` it has to
    be in the cache. Of GGUF files only the first bytes are read.

    Args:
        config: the model.
        named: the key that names it and the key's value, which messages begin with.

    Raises:
        ConfigError: it cannot be loaded or run; says why, and what to do.
    """
    try:
        _check(config)
    except EngineError as error:
        raise ConfigError(f"{named}: {error}") from error


def _check(config: ModelConfig) -> None:
    """Raise EngineError where a model cannot be loaded or run (:func:`check_loadable`)."""
    path, gguf = resolve_path(config)
    directory = Path(path)
    if gguf:
        with (directory / gguf).open("rb") as file:
            if file.read(4) != b"GGUF":
                raise EngineError(f"{directory / gguf} is no GGUF file")
        # Tokenizer and configuration are inside the file, and are read when it is unpacked.
        check_package("gguf", "GGUF weights")
        return
    base = adapted(config)
    if base is not None:
        _check(base)
        _check_adapters(config)
        # It is the adapters' own.
        _check_tokenizer(config, path)
        return
    if directory.is_dir():
        _check_files(directory)
    else:
        # None where only the cache can be read, which has those files that were fetched.
        try:
            names = check_on_hub(path, config.revision, "config.json")
        except EngineError as error:
            raise EngineError(f"{error}, or 'world' or package:NAME, which need no Hub") from error
        if names is not None:
            _check_weights(names, "repository on the Hugging Face Hub")
    tokenizer = _check_tokenizer(config, path)
    end_token_ids(config, tokenizer)
    _check_kind(config, path, max(tokenizer.get_vocab().values()))
    render([{"role": "system", "content": "Judge."}, {"role": "user", "content": "?"}], tokenizer)
    _check_frame(tokenizer)


def _check_files(directory: Path) -> None:
    """Raise EngineError where a model's directory has no weights, or lacks a file that its index names."""
    names = {path.name for path in directory.iterdir()}
    if INDEX in names:
        content = read_json(directory / INDEX)
        weight_map = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise EngineError(f"{directory / INDEX} names no file for each weight: copy the model again")
        missing = sorted(set(weight_map.values()) - names)
        if missing:
            raise EngineError(f"{missing[0]}, which {INDEX} names, is missing")
    _check_weights(names, "directory")


def _check_weights(names: Iterable[str], where: str) -> None:
    """Raise EngineError where none of some files holds weights; ``where`` says of what they are, for the message."""
    if not any(name.endswith(WEIGHTS) for name in names):
        raise EngineError(f"the {where} holds no weights ({', '.join(WEIGHTS)})")


PLAIN = (
    "Which of the two responses is the better one, and why?\n\nScore: 5 of 10 (it's 3.14!)",
    "def f(x):\n    return x  # naïve café, 東京 2024",
)
"""Texts on which a tokenizer is compared with its own file."""


def _check_tokenizer(config: ModelConfig, path: str) -> PreTrainedTokenizerBase:
    """Return a model's tokenizer, if it splits texts as its file ``tokenizer.json`` says.

    For some architectures Transformers takes a class of its own and what it knows of their tokenizers, whatever stands
    in the file. So a model of Qwen2's architecture with another tokenizer would read texts that are cut in other places
    than those that it was trained on; so would everybody who loads a judge made of it.

    Raises:
        EngineError: it does not, or cannot be loaded.
    """
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import cached_file

    tokenizer = load_tokenizer(config)
    # The general class reads the file as it is. One with code of its own may mean to differ.
    is_general = type(tokenizer) is PreTrainedTokenizerFast
    if is_general or config.trust_remote_code or not tokenizer.is_fast:
        return tokenizer
    file = cached_file(
        path, "tokenizer.json", revision=revision_of(config), _raise_exceptions_for_missing_entries=False
    )
    if file is None:
        return tokenizer
    by_file = Tokenizer.from_file(file)

    # The file may say to cut texts and to fill them up, which Transformers does only on demand.
    by_file.no_truncation()
    by_file.no_padding()
    for text in PLAIN:
        ids = tuple(by_file.encode(text, add_special_tokens=False).ids)
        if ids != token_ids(tokenizer, text):
            raise EngineError(
                f"Transformers reads its tokenizer as {type(tokenizer).__name__}, which splits texts otherwise than "
                f"its tokenizer.json ({amount(len(token_ids(tokenizer, text)), 'token')} for {len(ids)} of "
                f"{text[:30]!r}): the "
                f"model would read other tokens than it was trained on; take another base"
            )
    return tokenizer


def _check_frame(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise EngineError where the chat template writes text that the tokenizer has no tokens for.

    Turns that begin with the unknown token, or with nothing, look alike to the model, whoever speaks.
    """
    unknown = unknown_pieces(tokenizer, frame_of_chat(tokenizer, content=""))
    if unknown:
        raise EngineError(
            f"its chat template writes {unknown[0]!r}, and its tokenizer has no token for that: the model would not "
            f"see whose turn it is; give it the template that it was tuned with (chat_template.jinja), or take another "
            f"model"
        )


def _root_of(config: ModelConfig) -> ModelConfig:
    """Return the model at the bottom of adapters; the model itself where it is none."""
    root = config
    below = adapted(root)
    while below is not None:
        root = below
        below = adapted(root)
    return root


def _check_adapters(config: ModelConfig) -> None:
    """Check that adapters can be merged into their base (EngineError), whose own files were looked at before."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    directory, _ = resolve_path(config)
    root = _root_of(config)
    path, gguf = resolve_path(root)
    if gguf:
        return
    model_config = load_config(root, path)
    # A model whose code comes with it is looked at when it is loaded.
    if type(model_config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        check_mergeable(directory, model_config)


def check_unquantised(config: ModelConfig, named: str) -> None:
    """Check that the weights of a base are ordinary ones, which training can change and write.

    Args:
        config: the model.
        named: the key that names it and the key's value, which messages begin with.

    Raises:
        ConfigError: they are stored quantised; says what to take.
    """
    model_config = own_config(config, named)
    quantization = getattr(model_config, "quantization_config", None)
    # Adapters were looked at with their base.
    if quantization is None or _root_of(config) is not config:
        return
    if not isinstance(quantization, dict):
        quantization = quantization.to_dict()
    method = quantization.get("quant_method", "unknown")
    raise ConfigError(
        f"{named}: its weights are stored quantised ({method}), and a judge trained on them could not be written: take "
        f"the same base in 16 bits (with train=qlora it is trained on in 4 bits all the same)"
    )


def check_trainable(config: ModelConfig, named: str) -> None:
    """Check that a base is one that TRL can train, and that a judge made of it can be read again.

    TRL's losses are made of the hidden states of a model's decoder, which it looks for under the name that the model's
    class gives; a wrong name leaves the whole model.

    Args:
        config: the model.
        named: the key that names it and the key's value, which messages begin with.

    Raises:
        ConfigError: it is none, or its weights are stored quantised; says what to take.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    check_unquantised(config, named)
    model_config = own_config(config, named)
    # A model whose code comes with it is looked at when it is loaded.
    if type(model_config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return
    kind = model_config.model_type
    # Of a model with pictures the judge may keep the text model alone, which has a configuration of its own.
    written = MODEL_FOR_CAUSAL_LM_MAPPING[type(model_config)].config_class
    if written not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ConfigError(
            f"{named}: of a model of type {kind!r} a judge would be written as {written.model_type!r}, which cannot be "
            f"read again as a causal language model: take another base"
        )
    try:
        model = without_weights(model_config)
    except EngineError as error:
        raise ConfigError(f"{named}: {error}") from error
    if model is not None and model.base_model is model:
        raise ConfigError(
            f"{named}: a model of type {kind!r} does not show its decoder ({model.base_model_prefix!r} is no part of "
            f"it), through which TRL trains: it can be asked as it is, and to train take another base"
        )


def own_config(config: ModelConfig, named: str) -> Any:
    """Return the configuration of a model, or of the one below adapters; None for GGUF files, which are unpacked.

    Raises:
        ConfigError: it cannot be read; begins with ``named``.
    """
    try:
        root = _root_of(config)
        path, gguf = resolve_path(root)
        if gguf:
            return None
        return load_config(root, path)
    except EngineError as error:
        raise ConfigError(f"{named}: {error}") from error


def _check_kind(config: ModelConfig, path: str, last_token: int) -> None:
    """Check that a model is a causal language model which can be made and decoded.

    Args:
        config: the model.
        path: where it is.
        last_token: the largest token id of its tokenizer, which needs an embedding.

    Raises:
        EngineError: it is none; says why, and what to do.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING

    model_config = load_config(config, path)
    kind = model_config.model_type
    is_shipped = type(model_config) in MODEL_FOR_CAUSAL_LM_MAPPING
    brings_code = "AutoModelForCausalLM" in (getattr(model_config, "auto_map", None) or {})
    if not is_shipped and not brings_code:
        raise EngineError(f"a model of type {kind!r} is no causal language model")
    is_seq_to_seq = type(model_config) in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
    # By default, as the configuration of a decoder that was taken out says that it has no encoder.
    if is_seq_to_seq and type(model_config)().is_encoder_decoder:
        raise EngineError(f"a model of type {kind!r} is an encoder and a decoder, which is no causal language model")

    # ALiBi is computed from a mask [rows, columns], and decoding on a CPU hands over an additive one of four dimensions
    # (engines/local/row_cache.py).
    if kind == "bloom" or getattr(model_config, "alibi", False):
        raise EngineError(f"models of type {kind!r} with ALiBi cannot be decoded here; take another base")

    # A token without an embedding is an index beyond the table, which on a GPU ends the process.
    embeddings = getattr(model_config.get_text_config(), "vocab_size", None)
    if embeddings and last_token >= embeddings:
        raise EngineError(
            f"its tokenizer has tokens up to id {last_token}, and the model embeddings for {embeddings}: take the "
            f"tokenizer that belongs to the model, or resize the embeddings"
        )
    if is_shipped:
        _check_cache(model_config)


def without_weights(config: Any, dtype: torch.dtype | None = None) -> Any:
    """Return a model without weights; None for one that cannot be made so.

    On the device ``meta`` tensors have shapes and no values, so that a model of any size is made in a second.

    Args:
        config: Transformers' configuration of the model.
        dtype: of its weights; None: bfloat16.

    Raises:
        EngineError: it cannot be made at all; with weights it is made in the same way.
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            # A copy, as Transformers writes dtype and attention into the configuration that it is given.
            return AutoModelForCausalLM.from_config(copy.deepcopy(config), dtype=dtype or torch.bfloat16)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        if needs_values(error):
            return None
        raise EngineError(_unmade(config.model_type, error)) from error


def _check_cache(config: Any) -> None:
    """Check that a model can be made, and writes into the cache that it is given, tried on one without weights.

    One that needs values is made with drawn weights, if it is small enough. A larger one (most that choose experts)
    passes here, and the engine tries it with its weights when it loads them.

    Raises:
        EngineError: it cannot be made, fails whatever its weights are, or leaves the cache empty.
    """
    import torch

    model = without_weights(config)
    if model is None:
        return
    with torch.device("meta"):
        needs_weights = not _decodes(model.eval(), config.model_type)
    if needs_weights and sum(weights.numel() for weights in model.parameters()) <= DRAWN:
        model = _with_drawn_weights(config)
        if model is not None:
            _decodes(model.eval(), config.model_type)


DRAWN = 300_000_000
"""The most weights that are drawn to try a model: 0.6 GB, a few seconds."""


def _with_drawn_weights(config: Any) -> Any:
    """Return a model whose weights are drawn as its makers drew them before training; None where they cannot be."""
    import torch
    from transformers import AutoModelForCausalLM

    random_state = torch.get_rng_state()
    try:
        return AutoModelForCausalLM.from_config(copy.deepcopy(config), dtype=torch.bfloat16)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return None
    finally:
        # What is drawn for a trial changes no number of the run.
        torch.set_rng_state(random_state)


def _decodes(model: Any, kind: str) -> bool:
    """Return whether decoding with a cache could be tried; False where the model needs values that it does not have.

    Args:
        model: with or without weights.
        kind: its ``model_type``.

    Raises:
        EngineError: it fails whatever its weights are, or forgets what it has read.
    """
    from judgetrain.engines.cache_keyword import ForgetfulModelError, cache_keyword, decoded_columns

    try:
        keyword = cache_keyword(model)
        columns = decoded_columns(model, keyword)
    except ForgetfulModelError as error:
        raise EngineError(
            f"a model of type {kind!r} leaves the cache empty that it is given: it would forget what it has read after "
            f"every token; take another base"
        ) from error
    except (AssertionError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError) as error:
        # NotImplementedError, as PyTorch raises for what a tensor without values cannot do, is a RuntimeError.
        if needs_values(error):
            return False
        if is_out_of_memory(error):
            return True
        reason = " ".join(str(error).split())[:200]
        raise EngineError(
            f"a model of type {kind!r} fails over two tokens with a cache ({type(error).__name__}: {reason}): it "
            f"cannot be decoded here; take another base"
        ) from error
    except Exception:
        # Whatever else a model says that has no values: with its weights it says so again.
        return True

    for read, kept in columns:
        if kept != read:
            raise EngineError(
                f"a model of type {kind!r} keeps keys and values of {amount(kept, 'token')} after {read} were "
                "read, so that "
                f"texts of several lengths cannot be decoded together; take another base"
            )
    if columns and "position_ids" not in inspect.signature(model.forward).parameters:
        raise EngineError(
            f"a model of type {kind!r} takes no position_ids and counts its tokens itself, with the padding before "
            f"them: texts of several lengths cannot be decoded together; take another base"
        )
    return True


def _unmade(kind: str, error: Exception) -> str:
    """Return the message for a model that cannot be made from its configuration, which names missing packages."""
    packages = re.findall(r"`pip install ([\w.-]+)`", str(error))
    if isinstance(error, ImportError) and packages:
        return f"a model of type {kind!r} needs packages that are not installed: pip install {' '.join(packages)}"
    reason = " ".join(str(error).split())[:200]
    return f"a model of type {kind!r} cannot be made from its configuration ({type(error).__name__}: {reason})"
