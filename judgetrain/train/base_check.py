"""Check before a run that TRL and PEFT can train a model of this architecture, without the model's weights.

TRL computes logits itself from the hidden states of a model's decoder (``add_fused_lm_head``), with the scales and soft
caps that it knows of. Whatever else a model does between the two would be left out in training, and no error would say
so: the judge would learn by another model's loss.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutputWithPast

from judgetrain.engines.config import ModelConfig
from judgetrain.engines.model_check import own_config, without_weights
from judgetrain.errors import ConfigError, EngineError, TrainingError
from judgetrain.train.arguments import peft_config
from judgetrain.train.config import TrainerConfig
from judgetrain.train.tree_attention import TreeAttention

WORDS = 64
"""The vocabulary that is tried: what a model does to its logits does not depend on how many there are."""
TOKENS = 6
MOST = 200_000_000
"""Weights behind the decoder that are drawn; a model with more there has layers there."""
CLOSE = 1e-3
"""Nats a token by which both may differ, in float32."""


class _States(BaseModelOutputWithPast):  # type: ignore[misc]
    """Hidden states as a decoder's output, which has nothing else that a model may ask it for."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def check_head(config: ModelConfig, named: str) -> None:
    """Check that TRL's log-probabilities are a model's own, on hidden states and an output layer that are drawn.

    What cannot be tried here is tried when training starts (:func:`judgetrain.train.checkpoints.check_loss`).

    Args:
        config: the model.
        named: the key that names it and the key's value, which messages begin with.

    Raises:
        ConfigError: they are not, or TRL cannot compute them; says what to take.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    model_config = own_config(config, named)
    # A model whose code comes with it is looked at when it is loaded.
    if type(model_config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return
    kind = model_config.model_type
    experts = _unknown_experts(model_config)
    if experts:
        raise ConfigError(
            f"{named}: TRL does not find how many experts a model of type {kind!r} has ({experts}), and could not "
            f"balance them: take another base, or set router_aux_loss_coef to 0 in its config.json"
        )
    if _says_of_no_experts(model_config):
        raise ConfigError(
            f"{named}: its config.json says how experts are balanced, and this model of type {kind!r} has none, which "
            f"TRL does not find out: take another base, or set router_aux_loss_coef to 0 in its config.json"
        )
    model = _with_drawn_output(model_config)
    if model is None:
        return
    difference = _difference(model, model_config)
    if difference is not None and not difference <= CLOSE:
        raise ConfigError(
            f"{named}: TRL computes another loss than that of a model of type {kind!r} ({difference:.3g} nats a token "
            f"apart): the model does something with its logits that TRL does not know. It can be asked as it is; to "
            f"train take another base"
        )


def check_adapters(config: ModelConfig, named: str, training: TrainerConfig, key: str) -> None:
    """Check that PEFT can put the stage's adapters on a model, tried on one without weights.

    Args:
        config: the model.
        named: the key that names it and the key's value, which messages begin with.
        training: the stage's settings.
        key: where they stand, as ``train.sft``.

    Raises:
        ConfigError: it cannot; says what to set.
    """
    from peft import get_peft_model

    adapters = peft_config(training)
    model_config = own_config(config, named)
    if adapters is None:
        return
    model = _known_without_weights(model_config)
    if model is None:
        return
    try:
        with torch.device("meta"):
            get_peft_model(model, adapters)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{named}: PEFT cannot put adapters on a model of type {model_config.model_type!r} "
            f"({' '.join(str(error).split())[:200]}): set {key}.lora=false, or take another base"
        ) from error


def check_trees(config: ModelConfig, named: str, training: TrainerConfig, key: str) -> None:
    """Check that a model may read prefix trees, where the stage shares prefixes, by its layers and attention.

    Whether it reads them as it reads examples apart is tried on a row of the training.

    Args:
        config: the model.
        named: the key that names it and the key's value, which messages begin with.
        training: the stage's settings.
        key: where they stand, as ``train.sft``.

    Raises:
        ConfigError: it cannot; says what to set.
    """
    if not getattr(training, "share_prefixes", False):
        return
    model_config = own_config(config, named)
    model = _known_without_weights(model_config)
    if model is None:
        return
    try:
        TreeAttention(model, _balances_experts(model_config))
    except TrainingError as error:
        raise ConfigError(f"{named}: {key}.{error}") from error


def _known_without_weights(config: Any) -> Any:
    """Return a model without weights; None for one that cannot be made so, and for one whose code comes with it."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return None
    return without_weights(config)


def _balances_experts(config: Any) -> bool:
    """Return whether TRL's loss of a model has a term that balances experts, as TRL decides it."""
    text_config = config.get_text_config()
    return hasattr(text_config, "output_router_logits") and bool(getattr(text_config, "router_aux_loss_coef", 0.0))


def _unknown_experts(config: Any) -> str:
    """Return the setting of experts that TRL reads for the loss that balances them, and that a model does not have."""
    if not _balances_experts(config):
        return ""
    text_config = config.get_text_config()
    for name in ("num_experts", "num_experts_per_tok"):
        if not hasattr(text_config, name):
            return name
    return ""


def _says_of_no_experts(config: Any) -> bool:
    """Return whether TRL would ask a decoder how it chose experts, and the decoder has none to tell of.

    It is tried on a decoder without weights. One that chooses experts needs values to do so, and has some to tell of.
    """
    if not _balances_experts(config):
        return False
    try:
        model = without_weights(config)
    except EngineError:
        return False
    if model is None:
        return False
    try:
        with torch.device("meta"), torch.no_grad():
            # With a mask, as without one positions are looked at for texts that are packed together.
            ids = torch.zeros((1, 2), dtype=torch.long)
            output = model.base_model(
                input_ids=ids, attention_mask=torch.ones_like(ids), output_router_logits=True, use_cache=False
            )
    except Exception:
        # Of one that needs values, and of one that cannot be run, others say so.
        return False
    router_logits = getattr(output, "router_logits", None)
    # Of a model that keeps none at all, TRL takes the loss that balances them for 0.
    return isinstance(router_logits, tuple) and not router_logits


def _with_drawn_output(config: Any) -> Any:
    """Return a model whose parts behind its decoder have drawn weights and few words, and the decoder none; or None.

    None is returned where it cannot be made so.
    """
    small = copy.deepcopy(config)
    text_config = small.get_text_config()
    text_config.vocab_size = WORDS
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        # The padding token has an embedding.
        setattr(text_config, name, 0)
    try:
        model = without_weights(small, torch.float32)
    except EngineError:
        return None
    if model is None or model.base_model is model:
        return None
    of_decoder = {*model.base_model.modules()}
    behind = [module for module in model.modules() if module not in of_decoder]
    if sum(weights.numel() for module in behind for weights in module.parameters(recurse=False)) > MOST:
        return None
    generator = torch.Generator().manual_seed(0)
    for module in behind:
        for name, weights in module.named_parameters(recurse=False):
            # Weights that are tied to the decoder's embeddings are drawn here, too.
            drawn = torch.randn(weights.shape, generator=generator)
            setattr(module, name, torch.nn.Parameter(drawn))
        for name, values in module.named_buffers(recurse=False):
            setattr(module, name, torch.zeros_like(values, device="cpu"))
    return model.eval()


def _difference(model: Any, config: Any) -> float | None:
    """Return how far TRL's log-probabilities are from a model's own, in nats a token; None where it cannot be tried.

    Args:
        model: of :func:`_with_drawn_output`.
        config: its configuration.
    """
    from trl.trainer.utils import add_fused_lm_head

    size = model.get_output_embeddings().weight.shape[-1]
    width = getattr(config.get_text_config(), "hidden_size", size)
    generator = torch.Generator().manual_seed(1)
    # Large enough for soft caps to bend the logits.
    states = 4 * torch.randn((1, TOKENS, width), generator=generator)
    ids = torch.randint(WORDS, (1, TOKENS), generator=generator)
    asked = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    # Some models call a part of their base model, which has their layers.
    for decoder in {model.base_model, model.get_decoder()} & {*model.base_model.modules()}:
        decoder.forward = lambda *args, **kwargs: _States(last_hidden_state=states)
    try:
        with torch.no_grad():
            logits = model(**asked, use_cache=False).logits[0, :-1].float()
            own = logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    except Exception:
        # A model may want more of its decoder than hidden states.
        return None
    with torch.no_grad():
        add_fused_lm_head(model)
        try:
            by_trl = model(**asked, labels=ids, fused_lm_head=True).log_probs[0]
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            return float("inf")
    return float((own - by_trl).abs().mean())
