"""Stage evaluate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from judgetrain.data.config import BenchmarkConfig
from judgetrain.engines.config import AnyEngine, LimitsConfig, TransformersEngineConfig, engine_key
from judgetrain.judges.method import Method, method_directory
from judgetrain.judges.once_config import OnceConfig
from judgetrain.judges.settings import fields_read
from judgetrain.keys import beside, key


def _read(field: str) -> Callable[[EvaluateConfig], bool]:
    """Return a function that returns whether a method's judge reads this field, which counts only then."""
    # By the kind that is asked: a method may ask another kind's judge in its own way.
    return lambda config: any(field in fields_read(Method.parse(text).asked_as) for text in config.methods)


def _names_external(config: EvaluateConfig) -> bool:
    """Return whether a method asks the model ``external``."""
    methods = [Method.parse(text) for text in config.methods]
    return any(method.names_model and method.target == "external" for method in methods)


@dataclass
class EvaluateConfig(LimitsConfig):
    """Stage evaluate."""

    benchmarks: list[BenchmarkConfig] = key([], "held-out comparisons")
    methods: list[str] = key(
        ["initial", "sft", "dpo"],
        "what stands in the table: judges (dpo, a directory, dpo+sampled@3), models asked once (pairwise:base), "
        "baselines (random, first, longer, surface), and further kinds (docs/benchmarks.md)",
        # A directory's content counts, not its path.
        content=beside(method_directory),
    )
    branches: list[int] = key([1, 3, 5, 10], "k values read off one run of max(branches)", low=1)
    bootstrap: int = key(2000, "resamples of the 95% intervals", low=10)
    shard_size: int | None = key(None, "comparisons a shard, the unit of resume; None: twice tree.shard_size", low=1)
    external: AnyEngine = engine_key(
        TransformersEngineConfig(),
        "the model of methods external, pairwise:external, pointwise:external",
        active_if=_names_external,
    )
    partial: bool = key(False, "evaluate what there is where nothing came to train on", in_fingerprint=False)
    pairwise: OnceConfig = key(
        OnceConfig, "methods that ask pairwise:MODEL: [[A]], [[B]] or [[C]]", active_if=_read("pairwise")
    )
    pointwise: OnceConfig = key(
        OnceConfig("pointwise"), "methods pointwise:MODEL: each response rated", active_if=_read("pointwise")
    )
    dev_share: float = key(0.0, "share of each benchmark's queries set aside to choose by", low=0.0, high=0.9)
