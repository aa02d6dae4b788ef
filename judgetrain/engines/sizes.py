"""Check the numbers in a model's config.json before anything is made by them.

A model is made as large as its configuration says, and weights that its files lack are made, too, before anything
compares the two. So a number that is none, or not of these files, costs memory or hours, or gives another model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.files import read_json
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

INDEX = "model.safetensors.index.json"
"""The file that says in which file a weight is, where there are several."""
SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
)
"""Sizes in a model's configuration: whole numbers from 1, or a list of them by layer."""
LARGEST_SIZE = 10**8
"""More than any size of a model: contexts have ten million tokens at most, vocabularies a million."""
MOST_LAYERS = 2000
"""Layers that a model may have; large ones have some hundred."""
NUMBERS_A_BYTE = 4
"""Numbers that a byte of a file may hold at most: those of the coarsest quantisation have two bits each."""
DROPOUTS = ("dropout", "pdrop", "layerdrop")
"""Ends of the names of probabilities by which values are left out in training."""


def check_sizes(named: str, text_config: PretrainedConfig, directory: Path) -> None:
    """Check that a configuration's numbers are ones that a model may have, and that its files may hold.

    Args:
        named: the model, for messages.
        text_config: the configuration of its language model.
        directory: where its files are; none are looked at where it is no directory, as for a model on the Hub.

    Raises:
        EngineError: names the number, and what was expected.
    """
    _check_whole_numbers(named, text_config)
    _check_heads(named, text_config)
    _check_shares(named, text_config)
    tensors = _tensor_names(directory)
    layers = _value(text_config, "num_hidden_layers")
    # Layers may share weights, but not a single one.
    if tensors and isinstance(layers, int) and layers > len(tensors):
        raise EngineError(
            f"config.json of {named} says num_hidden_layers={layers}, and its files hold {len(tensors)} weights, fewer "
            f"than one a layer: copy the model again"
        )
    _check_embeddings(named, text_config, directory)


def _value(config: PretrainedConfig, name: str) -> Any:
    """Return a number that a configuration holds, by Transformers' general name for it; None where it has none.

    Read as it is stored: asked for its attribute, a configuration whose layers differ refuses to answer.
    """
    own_name = type(config).attribute_map.get(name, name)
    return vars(config).get(own_name)


def _check_whole_numbers(named: str, config: PretrainedConfig) -> None:
    """Raise EngineError where a size is no whole number above 0, or larger than that of any model."""
    for name in SIZES:
        value = _value(config, name)
        of_layers = [value]
        if isinstance(value, (list, tuple)):
            of_layers = list(value)
        most = LARGEST_SIZE
        if name == "num_hidden_layers":
            most = MOST_LAYERS
        for size in of_layers:
            # What is no number at all is Transformers' to refuse.
            if isinstance(size, int) and not isinstance(size, bool) and not 1 <= size <= most:
                raise EngineError(
                    f"config.json of {named} says {name}={size}, which no model has (expected 1 to {most:,}): copy the "
                    f"model again"
                )


def _check_heads(named: str, config: PretrainedConfig) -> None:
    """Raise EngineError where heads of attention cannot share heads of keys and values evenly."""
    heads = _value(config, "num_attention_heads")
    shared = _value(config, "num_key_value_heads")
    if isinstance(heads, int) and isinstance(shared, int) and heads % shared:
        raise EngineError(
            f"config.json of {named} says num_attention_heads={heads} and num_key_value_heads={shared}, which does not "
            f"divide it: copy the model again"
        )


def _check_shares(named: str, config: PretrainedConfig) -> None:
    """Raise EngineError where a probability of dropout is none, or what is added for stability drowns all else."""
    for name, value in vars(config).items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        is_share = name.endswith(DROPOUTS) or name.endswith(("_eps", "_epsilon"))
        # A comparison with NaN is false, too.
        if is_share and not (0 <= value < 1 and math.isfinite(value)):
            raise EngineError(
                f"config.json of {named} says {name}={value}, and a number from 0 to below 1 is expected: copy the "
                f"model again"
            )


def _tensor_names(directory: Path) -> set[str]:
    """Return the names of the weights in a directory's files; empty where they cannot be read, which is said later."""
    from safetensors import SafetensorError, safe_open

    if (directory / INDEX).is_file():
        content = read_json(directory / INDEX)
        weight_map = content.get("weight_map") if isinstance(content, Mapping) else None
        if isinstance(weight_map, Mapping):
            return set(weight_map)
        return set()
    names: set[str] = set()
    for file in directory.glob("*.safetensors"):
        try:
            with safe_open(file, "pt") as tensors:
                names.update(tensors.keys())
        except (OSError, SafetensorError):
            return set()
    return names


def _check_embeddings(named: str, config: PretrainedConfig, directory: Path) -> None:
    """Raise EngineError where the embeddings alone are more numbers than the files could hold."""
    vocabulary = _value(config, "vocab_size")
    width = _value(config, "hidden_size")
    files = list(directory.glob("*.safetensors"))
    if not files or not isinstance(vocabulary, int) or not isinstance(width, int):
        return
    stored = sum(file.stat().st_size for file in files)
    # Nothing is made for an empty file: it is refused when it is opened.
    if stored and vocabulary * width > NUMBERS_A_BYTE * stored:
        raise EngineError(
            f"config.json of {named} says vocab_size={vocabulary} and hidden_size={width}, and its files hold "
            f"{stored:,} bytes, too few for so many embeddings: copy the model again"
        )
