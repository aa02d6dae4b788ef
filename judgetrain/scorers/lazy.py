"""The scorer of a configuration, loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from judgetrain.engines.config import ModelConfig
from judgetrain.engines.once import loaded_once
from judgetrain.pipeline.config import Config

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer


def scorer_model(config: Config) -> ModelConfig:
    """The model that scorers read: ``scorer.model``, or ``train.base`` where that has no path."""
    return config.scorer.model if config.scorer.model.path else config.train.base


def load_scorer(config: Config, model: ModelConfig | None = None) -> TokenScorer:
    """The scorer of a configuration, or another model in its place.

    Raises:
        EngineError: the model cannot be loaded or taken apart.
    """
    from judgetrain.scorers.statistics import TokenScorer

    settings = config.scorer
    return TokenScorer.from_pretrained(
        model or scorer_model(config), batch_size=settings.batch_size, max_context=settings.max_context
    )


@contextmanager
def lazy_scorer(config: Config) -> Iterator[Callable[[], TokenScorer]]:
    """A function that loads the scorer when it is first called; it is closed at the end."""
    with loaded_once(lambda: load_scorer(config)) as scorer:
        yield scorer
