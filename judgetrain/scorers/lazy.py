"""The scorer of a configuration, loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from judgetrain.engines.config import ModelConfig
from judgetrain.engines.once import loaded_once
from judgetrain.scorers.config import ScorerConfig

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer


def load_scorer(config: ScorerConfig, model: ModelConfig) -> TokenScorer:
    """The scorer that reads a model.

    Raises:
        EngineError: the model cannot be loaded or taken apart.
    """
    from judgetrain.scorers.statistics import TokenScorer

    return TokenScorer.from_pretrained(model, batch_size=config.batch_size, max_context=config.max_context)


def lazy_scorer(config: ScorerConfig, model: ModelConfig) -> AbstractContextManager[Callable[[], TokenScorer]]:
    """A function that loads the scorer when it is first called; it is closed at the end."""
    return loaded_once(lambda: load_scorer(config, model))
