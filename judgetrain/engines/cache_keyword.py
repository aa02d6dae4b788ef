"""The argument by which a model is handed what it has read so far, found by trying.

Transformers renamed it in 5.24, which takes the old name until 5.40, and a model whose code comes with it may have
either. No signature tells: many models swallow any argument, and forget.
"""

from typing import Any

import torch
from transformers.cache_utils import DynamicCache

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
