"""The scorer of a configuration, loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def lazy_scorer(config: ScorerConfig, model: ModelConfig) -> Iterator[Callable[[], TokenScorer]]:
    """A function that loads the scorer when it is first called; it is closed at the end."""
    with loaded_once(lambda: load_scorer(config, model)) as scorer:
        yield scorer
