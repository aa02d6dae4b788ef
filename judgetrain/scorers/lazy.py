"""The scorer of a configuration, loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

from judgetrain.engines.config import EngineConfig, ModelConfig, OpenAIEngineConfig
from judgetrain.engines.once import loaded_once
from judgetrain.scorers.config import ScorerConfig

if TYPE_CHECKING:
    from judgetrain.artifacts.stage_run import StageRun
    from judgetrain.engines.answers import AnswerStore, Budget
    from judgetrain.scorers.statistics import TokenScorer


def load_scorer(config: ScorerConfig, model: ModelConfig) -> TokenScorer:
    """The scorer that reads a model.

    Raises:
        EngineError: the model cannot be loaded or taken apart.
    """
    from judgetrain.scorers.statistics import TokenScorer

    return TokenScorer.from_pretrained(model, batch_size=config.batch_size, max_context=config.max_context)


def lazy_scorer(
    config: ScorerConfig, model: ModelConfig, answers: AnswerStore | None = None, budget: Budget | None = None
) -> AbstractContextManager[Callable[[], TokenScorer]]:
    """A function that loads the scorer when it is first called; it is closed at the end.

    With ``scorer.engine`` a server reads in the model's place; ``answers`` and ``budget`` are its.
    """

    def load() -> TokenScorer:
        if not isinstance(config.engine, OpenAIEngineConfig):
            return load_scorer(config, model)
        from judgetrain.scorers.served import ServedScorer

        return cast("TokenScorer", ServedScorer.of(config.engine, model, answers, budget))

    return loaded_once(load)


def kept_of(engine: EngineConfig | None, seed: int, out: StageRun) -> AnswerStore | None:
    """Where the answers of ``scorer.engine`` are kept, if there is one."""
    from judgetrain.engines.answers import answers_of

    return None if engine is None else answers_of(engine, out.home, seed)
