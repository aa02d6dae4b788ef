"""What types of engine can do, known before one is made."""

from __future__ import annotations

from judgetrain.engines.base import Step
from judgetrain.engines.config import EngineConfig
from judgetrain.errors import ConfigError

HEURISTIC_STEPS: tuple[Step, ...] = ("criteria", "guideline", "judgment")
"""What the heuristic annotator writes; every other type of engine does every step."""
COMPUTED = ("world", "heuristic")
"""Types that compute scores and have no probabilities of tokens."""


def check_step(key: str, engine: EngineConfig, step: Step) -> None:
    """Check that an engine can do a step.

    Raises:
        ConfigError: names the type's key and what it is asked for.
    """
    if engine.type == "heuristic" and step not in HEURISTIC_STEPS:
        raise ConfigError(
            f"{key}.type=heuristic: cannot do step {step}, only {', '.join(HEURISTIC_STEPS)}; "
            "choose transformers, vllm, openai or world"
        )


def check_readout(key: str, engine: EngineConfig, method: str) -> None:
    """Check that an engine gives the probabilities that a method ending in ``+expected`` reads.

    Raises:
        ConfigError: names the type's key and the method.
    """
    if engine.type in COMPUTED and "+expected" in method:
        raise ConfigError(
            f"{key}.type={engine.type}: gives no probabilities of tokens, which {method!r} reads; "
            "leave out +expected or choose transformers, vllm or openai"
        )
