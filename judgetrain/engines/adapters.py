"""Check that adapters can be merged into their base, by merging them into a base without weights."""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from judgetrain.engines.memory import is_out_of_memory
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig, PreTrainedModel

MERGED = ("ADALORA", "BOFT", "HRA", "IA3", "LN_TUNING", "LOHA", "LOKR", "LORA", "OFT", "TRAINABLE_TOKENS", "VERA")
"""The methods of PEFT whose merged model was seen to be the adapted one (tests/engines/test_adapters.py)."""


def check_mergeable(path: str, base: PretrainedConfig) -> None:
    """Check that the adapters in a directory can be merged into a model of their base's architecture.

    On the device ``meta`` tensors have shapes and no values, so that a model of any size is made and merged in seconds.
    Adapters that need values (to be initialised by a decomposition, say) cannot be tried so. They pass here, and are
    looked at again when they are loaded.

    Args:
        path: the adapters' directory.
        base: the configuration of the model at the bottom.

    Raises:
        EngineError: they cannot be merged, or the merged model would be another one; says why and what to do.
    """
    import torch
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    # Before a model is made, which takes seconds.
    settings = settings_of(path)
    check_method(path, settings)
    if getattr(base, "quantization_config", None) is not None:
        raise EngineError(in_fewer_bits(path))
    # Weights are loaded later, so that what they begin with does not matter.
    settings.inference_mode = False
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(copy.deepcopy(base), dtype=torch.float32)
            adapted = get_peft_model(model, settings)
            check_shared(path, adapted)
            adapted.merge_and_unload()  # type: ignore[operator]
    except EngineError:
        raise
    except Exception as error:
        # It is no fault of the adapters.
        if is_out_of_memory(error):
            raise
        if needs_values(error):
            return
        raise EngineError(unmergeable(path, error)) from error


def needs_values(error: Exception) -> bool:
    """Return whether an error is one of tensors that have no values."""
    return isinstance(error, NotImplementedError) or "meta" in str(error)


def settings_of(path: str) -> Any:
    """Return PEFT's settings of the adapters in a directory (EngineError: they are not to be read)."""
    from peft import PeftConfig

    try:
        return PeftConfig.from_pretrained(path)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise EngineError(
            f"adapter_config.json of {path} holds settings that PEFT cannot read ({type(error).__name__}: {reason}): "
            "copy the adapters again"
        ) from error


def check_method(path: str, settings: Any) -> None:
    """Raise EngineError where adapters are of a method that cannot be merged, or that nobody has tried here."""
    method = str(getattr(settings.peft_type, "value", settings.peft_type))
    if settings.is_prompt_learning:
        raise EngineError(
            f"{path} holds no adapters but tokens that stand before every prompt ({method}), which cannot be merged "
            f"into weights: train it as LoRA, or take another model"
        )
    if method not in MERGED:
        raise EngineError(
            f"{path} holds adapters of the method {method}, and merged are {', '.join(MERGED)}: merge it yourself with "
            f"PEFT, compare the merged model with the adapted one, and give its directory"
        )


def check_shared(path: str, adapted: nn.Module) -> None:
    """Raise EngineError where adapters of one layer would be merged into a weight that another layer reads too.

    So it is with replicated layers, and with adapters of embeddings that are tied to the head. PEFT itself takes care
    of single tokens that are trained.

    Args:
        path: the adapters' directory, for the message.
        adapted: a model with adapters that are not merged.
    """
    from peft.tuners.trainable_tokens.layer import TrainableTokensLayer
    from peft.tuners.tuners_utils import BaseTunerLayer

    # By identity: tied weights are one parameter in two modules.
    owners: defaultdict[int, int] = defaultdict(int)
    for module in adapted.modules():
        # A module may itself hold one under two names.
        for _, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            owners[id(parameter)] += 1
    for name, module in adapted.named_modules():
        if not isinstance(module, BaseTunerLayer) or isinstance(module, TrainableTokensLayer):
            continue
        parameters = module.get_base_layer().parameters(recurse=False)
        if any(owners[id(parameter)] > 1 for parameter in parameters):
            layer = name.removeprefix("base_model.model.")
            raise EngineError(
                f"{path}: the adapters of {layer} cannot be merged, since another layer reads the same weights "
                f"(layer_replication, or embeddings tied to the head): give a merged model whose layers have weights "
                f"of their own"
            )


def merge(path: str, adapted: Any) -> PreTrainedModel:
    """Return a model with its adapters merged into the weights.

    Args:
        path: the adapters' directory, for messages.
        adapted: the model with its adapters, as PEFT loads it.

    Raises:
        EngineError: as :func:`check_mergeable`.
    """
    check_method(path, adapted.peft_config[adapted.active_adapter])
    if getattr(adapted.get_base_model(), "is_quantized", False):
        raise EngineError(in_fewer_bits(path))
    check_shared(path, adapted)
    try:
        merged: PreTrainedModel = adapted.merge_and_unload()
    except (RuntimeError, ValueError, NotImplementedError) as error:
        if is_out_of_memory(error):
            raise
        raise EngineError(unmergeable(path, error)) from error
    return merged


def unmergeable(path: str, error: Exception) -> str:
    """Return the message about adapters that PEFT does not merge."""
    reason = " ".join(str(error).split())[:200]
    return f"{path}: the adapters cannot be merged into their base ({reason}): train them without that setting"


def in_fewer_bits(path: str) -> str:
    """Return the message about adapters whose base is stored quantised."""
    return (
        f"{path}: the base of the adapters is stored quantised, and merged into such weights they would be rounded "
        f"away: write the path of the base in 16 bits into adapter_config.json"
    )
