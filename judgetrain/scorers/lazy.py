"""The scorer of a configuration, loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

from judgetrain.engines.config import ModelConfig
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.scorers.config import ScorerConfig

if TYPE_CHECKING:
    from judgetrain.artifacts.stage_run import StageRun
    from judgetrain.engines.answers import AnswerStore, Budget
    from judgetrain.scorers.statistics import TokenScorer


def load_scorer(
    config: ScorerConfig, model: ModelConfig, answers: AnswerStore | None = None, budget: Budget | None = None
) -> TokenScorer:
    """The scorer that reads a model, or asks the server ``scorer.engine`` to, whose tokenizer ``model`` then has.

    ``answers`` and ``budget`` are the server's: where what it tells is kept, and what it may be sent.

    Raises:
        EngineError: the model or tokenizer cannot be loaded, or the model not be taken apart.
    """
    if config.engine is None:
        from judgetrain.scorers.statistics import TokenScorer

        return TokenScorer.from_pretrained(model)
    from judgetrain.engines.loading import load_tokenizer
    from judgetrain.scorers.served import ServedScorer

    return cast("TokenScorer", ServedScorer(config.engine, load_tokenizer(model), answers, budget))


def scorer_of_run(
    config: ScorerConfig, model: ModelConfig, seed: int, out: StageRun, budget: Budget | None
) -> TokenScorer:
    """:func:`load_scorer`; what ``scorer.engine`` tells is kept with the run, by what ``model`` holds, too."""
    if config.engine is None:
        return load_scorer(config, model)
    from judgetrain.artifacts.fingerprint import ContentHashes
    from judgetrain.engines.answers import answers_of

    answers = answers_of(config.engine, out.home, seed, ContentHashes.of_run(out.home).identity(model))
    return load_scorer(config, model, answers, budget)


def lazy_scorer(
    config: ScorerConfig, model: ModelConfig, seed: int, out: StageRun, budget: Budget | None
) -> AbstractContextManager[Callable[[], TokenScorer]]:
    """A function that loads the scorer (:func:`scorer_of_run`) when it is first called; it is closed at the end."""
    return loaded_once(lambda: scorer_of_run(config, model, seed, out, budget))
