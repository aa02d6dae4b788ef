"""GGUF files: their weights as ordinary ones, and small files unpacked once and for all."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.files import settle
from judgetrain.artifacts.heartbeat import doing
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.digests import digest_of
from judgetrain.engines.pretrained import from_pretrained

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)

GROWN = 4.5
"""How many times as many bytes the weights of a small GGUF file take once they are unpacked, about."""
KEPT = 1e9
"""The largest GGUF file, in bytes, that is unpacked once and kept.

It is kept in the folder ``judgetrain`` of ``HF_HOME``, and takes some five times as many bytes there. Unpacking takes
most of a minute, reading the result a few seconds.
"""


def dequantized(path: str, **options: Any) -> PreTrainedModel:
    """Return the model of a GGUF file with ordinary weights."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.quantization_config import GgufConfig

    quantization = GgufConfig(dequantize=True)
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(path, quantization_config=quantization, **options)

    # The loader marks the model as quantized, which would make ``save_pretrained`` refuse it.
    for name in ("hf_quantizer", "quantization_method", "is_quantized"):
        if name in vars(model):
            delattr(model, name)
    for model_config in (model.config, model.config.get_text_config()):
        # Both are one object for models of text alone.
        if hasattr(model_config, "quantization_config"):
            del model_config.quantization_config
    return model


def unpacked(
    config: ModelConfig, path: str, gguf_file: str | None, part: str, load: Callable[..., Any]
) -> tuple[str, str | None]:
    """Return where a model is; of a small GGUF file, the directory of an unpacked part.

    The part is unpacked if it is not there yet: whole or not at all, and by one process. Processes that train together
    do not unpack.

    Args:
        config: the model.
        path: its directory or Hub id.
        gguf_file: the name of its GGUF file, or None.
        part: ``weights`` or ``tokenizer``.
        load: reads the part from the GGUF file, as ``from_pretrained`` does; the result has ``save_pretrained``.
    """
    from filelock import FileLock
    from safetensors import SafetensorError

    if not gguf_file:
        return path, None
    file = Path(path, gguf_file)
    # Unpacked, it would take a disk's room without being asked for.
    if file.stat().st_size > KEPT:
        return path, gguf_file

    directory = _unpacked_place(file) / part
    unfinished = directory.with_suffix(".new")
    # Processes that train together load at the same time, and one would wait for another past its time limit.
    trains_alone = os.environ.get("WORLD_SIZE", "1") == "1"
    try:
        if not directory.is_dir() and trains_alone:
            directory.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{directory}.lock"):
                # Another process may have unpacked it while this one waited.
                if not directory.is_dir():
                    # A killed process may have left it.
                    shutil.rmtree(unfinished, ignore_errors=True)
                    announce_unpacking(path, gguf_file)
                    with doing(f"unpacking the {part} of {file.name}"):
                        from_pretrained(load, config, path, gguf_file).save_pretrained(unfinished)
                        # On the disk before it has its name: after a power cut a named directory is whole.
                        settle(unfinished)
                    unfinished.rename(directory)
    except (OSError, SafetensorError):
        # The disk is full or cannot be written.
        shutil.rmtree(unfinished, ignore_errors=True)
        log.info("%s is unpacked each time: %s cannot be written", config.path, directory)

    if directory.is_dir():
        return str(directory), None
    return path, gguf_file


def _unpacked_place(file: Path) -> Path:
    """Return the directory that holds, or will hold, what a small GGUF file is unpacked to."""
    from huggingface_hub import constants

    # Another file, or another version of what reads it, unpacks to other tensors.
    name = f"{file.stem}-{digest_of(file)}-{version('transformers')}"
    return Path(constants.HF_HOME, "judgetrain", name)


_announced: set[Path] = set()
"""Files of which it was said that they are unpacked."""


def announce_unpacking(path: str, gguf_file: str | None) -> None:
    """Say that the weights of a small GGUF file are about to be unpacked, where to, and that this is done once.

    It needs no PyTorch, so that it can be said before the libraries are loaded, which takes seconds by itself.

    Args:
        path: the file's directory.
        gguf_file: its name; None: the model is no such file.
    """
    if not gguf_file:
        return
    file = Path(path, gguf_file)
    size = file.stat().st_size
    if size > KEPT or file in _announced:
        return
    _announced.add(file)
    place = _unpacked_place(file)
    if not (place / "weights").is_dir():
        log.info("unpacking the weights of %s, once: about %.1f GB in %s", file.name, size * GROWN / 1e9, place)
