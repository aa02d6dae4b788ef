"""What an evaluation's shards depend on, so that the next one takes them over where nothing differs.

New metrics, another method in the table, or a sweep that leaves a judge as it is then need no new inference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from judgetrain.artifacts.fingerprint import ContentHashes, fingerprint, slice_of
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.judges.names import base_method, is_directory, split_method
from judgetrain.pipeline import reads
from judgetrain.pipeline.config import Config

FORMAT = 2
"""Raised when the code changes what is sampled, asked or scored, or what is kept of it."""


def sample_key(method: str, benchmark: Benchmark, config: Config, inputs: Mapping[str, Path]) -> str:
    """What a branching judge's trees on a benchmark depend on, as a hash.

    The judge by its fingerprint, its files or its engine, the comparisons, and the settings of sampling. Metrics and
    other methods are not part of it.
    """
    base, settings = base_method(method), config.evaluate
    parts = {
        "format": FORMAT,
        "method": method.removeprefix(base) if is_directory(method) else method,
        "judge": _judge(base, config, inputs),
        "branches": max(settings.branches),
        "aggregation": settings.aggregation if settings.early_stop else None,
        "comparisons": [asdict(c) for c in benchmark.comparisons],
        **slice_of(config, ("seed", "tree", "engine", "evaluate.early_stop", "evaluate.top_up")),
    }
    if base not in inputs and not is_directory(method):  # a trained judge brings its own prompts
        parts["prompts"] = _content([reads.prompt_set("prompts", config.prompts)], config)
    return fingerprint(parts)


def reply_key(method: str, benchmark: Benchmark, config: Config, inputs: Mapping[str, Path], shard_size: int) -> str:
    """What the replies of a judge that is asked once depend on, as a hash: the model, the prompts and the sampling."""
    way, target = split_method(method)
    return fingerprint(
        {
            "format": FORMAT,
            "way": way,
            "name": None if is_directory(method) else method,
            "judge": _judge(target, config, inputs),
            "shard_size": shard_size,
            "comparisons": [asdict(c) for c in benchmark.comparisons],
            "prompts": _content([reads.prompt_set("prompts", getattr(config.evaluate, way).prompts)], config),
            **slice_of(config, ("seed", "engine", f"evaluate.{way}.sampling")),
        }
    )


def score_key(members: Sequence[str], benchmark: Benchmark, config: Config) -> str:
    """What scores of a benchmark's responses depend on, as a hash; from which margin on one wins is not part of it."""
    values = slice_of(config, ("seed", "scorer", "train.base"))
    del values["scorer"]["tie_threshold"]
    return fingerprint(
        {
            "format": FORMAT,
            "members": list(members),
            "comparisons": [asdict(c) for c in benchmark.comparisons],
            "model": _content(reads.scorer(config), config),
            **values,
        }
    )


def _judge(target: str, config: Config, inputs: Mapping[str, Path]) -> object:
    """What identifies a method's model: a stage's fingerprint, its files' content, or the engine that runs it."""
    if target in inputs:
        return inputs[target].name
    if is_directory(target):
        return _hashes(config).of(target)
    keys = {"base": "train.base", "teacher": "teacher.engine", "external": "evaluate.external"}
    if target not in keys:
        return None  # loading it says that there is none
    return [slice_of(config, [keys[target]]), _content(reads.model_of("model", target, config), config)]


def _content(files: Iterable[reads.File], config: Config) -> dict[str, object]:
    """The content of files by configuration key."""
    hashes = _hashes(config)
    return {key: reads.content_of(path, hashes) for key, path in files}


def _hashes(config: Config) -> ContentHashes:
    return ContentHashes(Path(config.output_dir) / ".content-hashes.json")
