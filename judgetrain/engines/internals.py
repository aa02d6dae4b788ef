"""The record of a private part of a library, and the two that engines and scorers use.

Every other module uses what libraries document; the parts that training needs stand in
:mod:`judgetrain.train.internals`. A release may move a private part without a notice, so that each is listed with the
line of the library that shows it, and a test looks for the line in the installed version.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from operator import attrgetter
from typing import TYPE_CHECKING

from judgetrain.errors import TrainingError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Internal:
    """A private part of a library that this package uses.

    Args:
        owner: ``module:name`` of the library's function that uses the part itself.
        line: the text in that function's source that shows the part.
        use: what this package does by it, to follow "by which".
    """

    owner: str
    line: str
    use: str

    def moved(self) -> str | None:
        """Return a sentence if the installed version has the part no longer, else None."""
        module, _, name = self.owner.partition(":")
        library = module.partition(".")[0]
        try:
            source = inspect.getsource(attrgetter(name)(importlib.import_module(module)))
        except (ImportError, AttributeError):
            source = ""
        except OSError:
            # Installed as bytecode alone: there is no text to look at, and no reason to refuse to train.
            return None
        if self.line in source:
            return None
        return (
            f"{library} {version(library)} no longer has `{self.line}` in {self.owner}, by which {self.use}: "
            "install the version that constraints.txt names."
        )


def check_internals(parts: Iterable[Internal]) -> None:
    """Check that the installed libraries have these parts still.

    Raises:
        TrainingError: names the parts that have moved, and the remedy.
    """
    sentences = [part.moved() for part in parts]
    moved = [sentence for sentence in sentences if sentence is not None]
    if moved:
        raise TrainingError(" ".join(moved))


ATTENTION = Internal(
    "transformers.modeling_utils:PreTrainedModel.set_attn_implementation",
    "self.config._attn_implementation",
    "engines choose the mask of a CPU, and scorers read attention weights",
)
"""Transformers documents how attention is chosen, and no way to ask which one a loaded model computes."""


def attention_of(model: PreTrainedModel) -> str | None:
    """Return the name of the attention that a model computes (``eager``, ``sdpa``); None where it has no choice."""
    name: str | None = getattr(model.config, "_attn_implementation", None)
    return name


STATIC_CACHE = Internal(
    "transformers.modeling_utils:PreTrainedModel",
    "_can_compile_fullgraph: bool",
    "engines know the models that Transformers tries with a static cache",
)
"""Transformers marks these models on their classes, and documents no way to ask."""


def is_tried_with_static_cache(model: PreTrainedModel) -> bool:
    """Return whether Transformers tries a model of this class with a static cache; False where nothing says so."""
    return bool(getattr(model, "_can_compile_fullgraph", False))
