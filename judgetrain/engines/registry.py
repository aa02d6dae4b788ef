"""Make the engine that a configuration describes."""

from __future__ import annotations

from dataclasses import replace
from pkgutil import resolve_name

from judgetrain.engines.answers import AnswerStore, Budget
from judgetrain.engines.base import Engine
from judgetrain.engines.config import EngineConfig


def make_engine(
    config: EngineConfig,
    model_path: str | None = None,
    name: str | None = None,
    answers: AnswerStore | None = None,
    budget: Budget | None = None,
) -> Engine:
    """The engine of a configuration: what it names in ``makes``.

    ``model_path`` stands in for the model that it names (a stage's trained model), ``name`` for its name. ``answers``
    and ``budget`` are for models that are paid for: where their answers are kept, and what may be sent.

    Raises:
        EngineError: a missing package, or a model or server that cannot be used.
    """
    if model_path is not None:
        config = config.with_model(str(model_path))
    if name is not None:
        config = replace(config, name=name)
    engine: Engine = resolve_name(config.makes)(config, *((answers, budget) if config.paid else ()))
    return engine
