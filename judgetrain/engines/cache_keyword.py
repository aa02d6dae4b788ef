"""The argument by which a model is handed what it has read so far, found by trying.

Transformers renamed it in 5.24, which takes the old name until 5.40, and a model whose code comes with it may have
either. No signature tells: many models swallow any argument, and forget.
"""

import inspect
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

KEYWORDS = ("cache", "past_key_values")
"""The names of the argument in Transformers since 5.24, and before."""


class ForgetfulModelError(ValueError):
    """A model leaves the cache empty that it is given."""


@torch.inference_mode()
def cache_keyword(model: Any) -> str:
    """Return the argument of ``model`` by which a cache is read and written.

    Two tokens are read for each try. Raises ForgetfulModelError where the cache stays empty by any name, and whatever
    the model itself raises over the tokens.
    """
    ids = torch.zeros((1, 2), dtype=torch.long, device=model.device)
    for keyword in KEYWORDS:
        cache = DynamicCache(config=model.config)
        # Layers with a window hold tensors before anything is read, so that growth tells, not presence.
        empty = _tensors(cache)
        try:
            model(input_ids=ids, use_cache=True, **{keyword: cache})
        except TypeError as error:
            # Any other TypeError is the model's own.
            if f"argument '{keyword}'" not in str(error):
                raise
            continue
        if _tensors(cache) > empty:
            return keyword
    raise ForgetfulModelError("it leaves the cache empty that it is given")


@torch.inference_mode()
def decoded_columns(model: Any, keyword: str) -> list[tuple[int, int]]:
    """Return how many tokens were read, and of how many a layer of attention keeps keys and values, after each pass.

    Three tokens of two texts are read, then one more of each, as a batch is decoded. Layers with a window or a
    recurrent state, which keep another number, are left out. Raises whatever the model raises over the tokens.

    Args:
        model: in evaluation mode.
        keyword: the argument by which it takes a cache (:func:`cache_keyword`).
    """
    takes_positions = "position_ids" in inspect.signature(model.forward).parameters
    cache = DynamicCache(config=model.config)
    columns: list[tuple[int, int]] = []
    read = 0
    for step in (3, 1):
        ids = torch.zeros((2, step), dtype=torch.long, device=model.device)
        options: dict[str, Any] = {keyword: cache}
        if ids.device.type != "meta":
            # A mask is looked at for padding, which needs values.
            options["attention_mask"] = torch.ones((2, read + step), dtype=torch.long, device=model.device)
        if takes_positions:
            options["position_ids"] = torch.arange(read, read + step, device=model.device).expand(2, step)
        read += step
        model(input_ids=ids, use_cache=True, **options)
        for layer in cache.layers:
            # A layer with a window is of a class below this one.
            if type(layer) is DynamicLayer and layer.keys is not None:
                columns.append((read, layer.keys.shape[-2]))
    return columns


def _tensors(cache: DynamicCache) -> int:
    """Return how many tensors the layers of a cache hold: keys and values, or states of layers without attention.

    Layers with a window hold one from the beginning.
    """
    count = 0
    for layer in cache.layers:
        for value in vars(layer).values():
            parts = [value]
            if isinstance(value, dict):
                parts = list(value.values())
            count += sum(isinstance(part, torch.Tensor) for part in parts)
    return count
