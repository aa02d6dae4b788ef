"""The stages of this room, what each reads, and what must hold before any of them runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from judgetrain.artifacts.stages import Stage, StageSettings, at, needs
from judgetrain.data.config import (
    BenchmarkConfig,
    ClusterConfig,
    DialoguesConfig,
    DialogueSourceConfig,
    ResponsesConfig,
)
from judgetrain.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DialoguesSettings(StageSettings):
    """Stage dialogues: the sources, and the benchmarks whose queries are taken out of them."""

    dialogues: DialoguesConfig = at("dialogues")


@dataclass(frozen=True, kw_only=True)
class ClusterSettings(StageSettings):
    """Stage cluster."""

    cluster: ClusterConfig = at("cluster")


@dataclass(frozen=True, kw_only=True)
class ResponsesSettings(StageSettings):
    """Stage responses."""

    responses: ResponsesConfig = at("responses")
    sources: list[DialogueSourceConfig] = at("dialogues.sources", in_fingerprint=False)


def check_names(key: str, names: Sequence[str]) -> None:
    """Check that the entries of a list have names that differ and can be part of file names.

    Raises:
        ConfigError: names the key and the entry.
    """
    for i, name in enumerate(names):
        if not name:
            raise ConfigError(f"{key}[{i}].name is empty: every entry needs a name")
        if not re.fullmatch(r"\w[\w.@+-]*", name):
            raise ConfigError(f"{key}[{i}].name={name!r}: allowed are letters, digits and _ . @ + -, for file names")
        if name in names[:i]:
            raise ConfigError(f"{key}: the name {name!r} is used twice; names must differ")


def check_benchmarks(key: str, benchmarks: Sequence[BenchmarkConfig]) -> None:
    """Check all of a list of benchmarks but what is in their files.

    Raises:
        ConfigError: names the key, its value and what is expected.
    """
    check_names(key, [b.name for b in benchmarks])
    for i, benchmark in enumerate(benchmarks):
        _check_benchmark(f"{key}[{i}]", benchmark)


def _check_benchmark(key: str, benchmark: BenchmarkConfig) -> None:
    from judgetrain.data.benchmarks.adapter import load_adapter
    from judgetrain.data.benchmarks.reading import source_of

    adapter = benchmark.source.adapter
    if adapter is not None:
        load_adapter(adapter, f"{key}.source")
    source_of(benchmark).check(f"{key}.source")
    if benchmark.answers is not None and not Path(benchmark.answers).expanduser().is_file():
        raise ConfigError(f"{key}.answers={benchmark.answers!r}: no such file")
    if adapter is not None and benchmark.unlabelled:
        raise ConfigError(f"{key}.unlabelled: rows that {key}.source.adapter reads have labels; leave one of them out")
    if adapter is None and benchmark.answers:
        raise ConfigError(f"{key}.answers: read with an adapter; set {key}.source.adapter")


def _check_dialogues(settings: DialoguesSettings) -> None:
    from judgetrain.data.given import check_adapter

    sources = settings.dialogues.sources
    if not sources:
        raise ConfigError("dialogues.sources is empty: name a recipe (recipe=quickstart) or a source")
    check_names("dialogues.sources", [s.name for s in sources])
    for i, source in enumerate(sources):
        source.check(f"dialogues.sources[{i}]")
        check_adapter(source, f"dialogues.sources[{i}]")
    check_benchmarks("dialogues.decontaminate", settings.dialogues.decontaminate)


def _check_responses(settings: ResponsesSettings) -> None:
    for i, source in enumerate(settings.sources):
        if source.format == "questions" and source.turns != "first":
            raise ConfigError(
                f"dialogues.sources[{i}].turns={source.turns}: rows of format questions have turns without answers, "
                "which only stage=selfeval fills in; set turns: first"
            )
    models = settings.responses.models
    check_names("responses.models", [m.name for m in models])
    for i, model in enumerate(models):
        key = f"responses.models[{i}].engine"
        if model.engine is None:
            raise ConfigError(f"{key} is empty: say which engine answers, as in engine: {{type: transformers, ...}}")
        model.engine.check(key)


DIALOGUES = Stage(
    name="dialogues", settings=DialoguesSettings, code="judgetrain.data.dialogues:run", check=_check_dialogues
)

CLUSTER = Stage(
    name="cluster", settings=ClusterSettings, code="judgetrain.data.clustering.stage:run", inputs=needs("dialogues")
)

RESPONSES = Stage(
    name="responses",
    settings=ResponsesSettings,
    code="judgetrain.data.responses:run",
    inputs=needs("dialogues", "cluster"),
    check=_check_responses,
)
