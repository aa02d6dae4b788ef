"""Have a model read prefix trees: which tokens attend to which, and whether the model then reads what it should.

Transformers' models take a mask of four dimensions in place of the one they make, and positions beside it. Whether a
model does by them what it does with the examples apart is tried on a row of the training itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from judgetrain.engines.internals import attention_of
from judgetrain.engines.memory import is_out_of_memory
from judgetrain.errors import TrainingError
from judgetrain.train.prefix_trees import ENDS, POSITIONS
from judgetrain.train.stages import MASKED

Masks = torch.Tensor | dict[str, torch.Tensor]


def tree_columns(rows: Sequence[Mapping[str, Any]], width: int) -> dict[str, torch.Tensor]:
    """Return the columns :data:`ENDS` and :data:`POSITIONS` [rows, width] of a batch of prefix trees.

    Args:
        rows: of a table of prefix trees.
        width: of the batch; shorter rows are padded on the right.
    """
    # A token of padding attends to itself, since a softmax over no token is no number.
    ends = torch.arange(1, width + 1).repeat(len(rows), 1)
    depths = torch.zeros((len(rows), width), dtype=torch.long)
    for place, row in enumerate(rows):
        length = len(row[ENDS])
        ends[place, :length] = torch.tensor(row[ENDS])
        # And to the first token: what a model makes of padding alone may be zero, which has no direction.
        ends[place, 0] = width
        depths[place, :length] = torch.tensor(row[POSITIONS])
    return {ENDS: ends, POSITIONS: depths}


class TreeAttention:
    """Makes the masks of prefix trees for one model.

    Args:
        model: the model, before it is wrapped.
        balances_experts: whether its loss has a term that balances experts.

    Raises:
        TrainingError: it cannot read prefix trees; says what to set.
    """

    def __init__(self, model: Any, balances_experts: bool = False) -> None:
        config = model.config.get_text_config()
        self._kind = str(model.config.model_type)
        self._attention = attention_of(model)
        self._dtype = model.dtype
        if self._attention not in MASKED:
            raise TrainingError(
                f"share_prefixes: attention {self._attention!r} takes no mask of any form: set "
                f"train.base.attn_implementation=sdpa, or share_prefixes=false"
            )
        layers = set(getattr(config, "layer_types", None) or ["full_attention"])
        unknown = sorted(layers - {"full_attention", "sliding_attention"})
        if unknown:
            raise self._cannot(f"has layers of type {unknown[0]}, in which a token cannot be kept from others")
        if balances_experts:
            raise self._cannot("balances its experts over every token of a text, and a shared one would count once")
        self._window = _window(config, layers)
        self._by_layer = "sliding_attention" in layers

    def masks(self, ends: torch.Tensor, depths: torch.Tensor) -> Masks:
        """Return which tokens attend to which [rows, 1, tokens, tokens], by type of layer if the model has several.

        Args:
            ends: the column :data:`ENDS` [rows, tokens]; of padding, the place behind each token.
            depths: the column :data:`POSITIONS` [rows, tokens].
        """
        places = torch.arange(ends.shape[1], device=ends.device)
        # Of the places [rows, reading, read]: the read one comes first, and the reading one stands in its subtree.
        attends = (places[None, None, :] <= places[None, :, None]) & (places[None, :, None] < ends[:, None, :])
        near = attends
        if self._window is not None:
            near = attends & (depths[:, :, None] - depths[:, None, :] < self._window)
        if self._by_layer:
            return {"full_attention": self._as_read(attends), "sliding_attention": self._as_read(near)}
        return self._as_read(near)

    def _as_read(self, attends: torch.Tensor) -> torch.Tensor:
        """Return a mask [rows, tokens, tokens] in the form that the attention takes, with a dimension for heads."""
        mask = attends[:, None]
        if self._attention == "sdpa":
            return mask
        # Eager attention adds its mask to the scores.
        return torch.zeros_like(mask, dtype=self._dtype).masked_fill_(~mask, torch.finfo(self._dtype).min)

    def check(self, model: Any, row: Mapping[str, Any], device: torch.device, allowed: float) -> None:
        """Check that the model gives the answers of a row the log-probabilities that it gives them apart.

        All processes that share a model have to call it.

        Args:
            model: with TRL's output layer; left in training mode if it was in it.
            row: of a table of prefix trees, with its labels.
            device: of the model's inputs.
            allowed: by how many nats a token two computations may differ.

        Raises:
            TrainingError: it does not.
        """
        tensors = {name: torch.tensor([row[name]], device=device) for name in ("input_ids", "labels", ENDS, POSITIONS)}
        ids = tensors["input_ids"]
        labels = tensors["labels"]
        path = _longest_path(row)

        def log_probs(ids: torch.Tensor, labels: torch.Tensor, **reading: Any) -> torch.Tensor:
            output = model(input_ids=ids, labels=labels, use_cache=False, fused_lm_head=True, **reading)
            log_probs: torch.Tensor = output.log_probs[0].float()
            return log_probs

        was_training = model.training
        # Without dropout, which would make another model at every call.
        model.eval()
        try:
            with torch.no_grad(), torch.compiler.set_stance("force_eager"):
                apart = log_probs(ids[:, path], labels[:, path], attention_mask=torch.ones_like(ids[:, path]))
                masks = self.masks(tensors[ENDS], tensors[POSITIONS])
                together = log_probs(ids, labels, attention_mask=masks, position_ids=tensors[POSITIONS])
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            if is_out_of_memory(error):
                raise
            raise self._cannot(
                f"cannot read them ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
            ) from error
        finally:
            model.train(was_training)
        # The first of the log-probabilities is that of the second token.
        of_path = together[[place - 1 for place in path[1:]]]
        labelled = labels[0, path[1:]] != -100
        own = float(apart[labelled].mean())
        other = float(of_path[labelled].mean())
        if not abs(own - other) <= allowed * max(1.0, abs(own)):
            raise self._cannot(
                f"gives an answer {other:.4f} nats a token in a row of shared beginnings, and {own:.4f} apart (at most "
                f"{allowed:.3g} may lie between them)"
            )

    def _cannot(self, why: str) -> TrainingError:
        return TrainingError(
            f"share_prefixes: a model of type {self._kind!r} {why}: set share_prefixes=false, or take another base"
        )


def _window(config: Any, layers: set[str]) -> int | None:
    """Return how many tokens a token attends to in layers with a window; None if no layer has one."""
    window: int | None = getattr(config, "sliding_window", None)
    if "sliding_attention" in layers:
        return window
    # Where a configuration names the layers, a window that none of them has is not used.
    if getattr(config, "layer_types", None) or not getattr(config, "use_sliding_window", True):
        return None
    return window


def _longest_path(row: Mapping[str, Any]) -> Sequence[int]:
    """Return the places of the tokens of the longest example in a row."""
    ends = row[ENDS]
    depths = row[POSITIONS]
    leaves = [place for place, end in enumerate(ends) if end == place + 1]
    leaf = max(leaves, key=depths.__getitem__)
    return [place for place in range(leaf + 1) if ends[place] > leaf]
