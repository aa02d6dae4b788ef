"""Make the engine that a configuration names."""

from __future__ import annotations

from dataclasses import replace

from judgetrain.engines.answers import AnswerStore, Budget
from judgetrain.engines.base import Engine
from judgetrain.engines.config import EngineConfig
from judgetrain.errors import EngineError


def make_engine(
    config: EngineConfig,
    model_path: str | None = None,
    name: str | None = None,
    answers: AnswerStore | None = None,
    budget: Budget | None = None,
) -> Engine:
    """An engine of ``config.type``.

    ``model_path`` stands in for ``config.model.path`` (a stage's trained model, whose directory has its own weights
    and template, so ``gguf_file``, ``revision`` and ``chat_template`` do not apply); ``name`` for ``config.name``.
    ``answers`` and ``budget`` are for models that are paid for (type openai): where their answers are kept, and what
    may be sent.

    Raises:
        EngineError: an unknown type, a missing package, or a model or server that cannot be used.
    """
    if model_path is not None:
        model = replace(config.model, path=str(model_path), gguf_file=None, revision=None, chat_template=None)
        config = replace(config, model=model)
    if name is not None:
        config = replace(config, name=name)
    match config.type:
        case "transformers":
            from judgetrain.engines.local.transformers_engine import TransformersEngine

            return TransformersEngine(config)
        case "vllm":
            from judgetrain.engines.vllm_engine import VllmEngine

            return VllmEngine(config)
        case "openai":
            from judgetrain.engines.openai.engine import OpenAIEngine

            return OpenAIEngine(config, answers, budget)
        case "world":
            from judgetrain.data.world.engine import WorldEngine

            return WorldEngine(config)
        case "heuristic":
            from judgetrain.judges.heuristic.engine import HeuristicEngine

            return HeuristicEngine(config)
    raise EngineError(f"engine.type={config.type!r}: allowed are transformers, vllm, openai, world, heuristic")
