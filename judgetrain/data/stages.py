"""The stages of this room, what each reads, and what must hold before any of them runs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from judgetrain.artifacts.stages import Stage, StageSettings, at, needs
from judgetrain.data import config as data
from judgetrain.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DialoguesSettings(StageSettings):
    """Stage dialogues: the sources, and the benchmarks whose queries are taken out of them."""

    dialogues: data.DialoguesConfig = at("dialogues")


@dataclass(frozen=True, kw_only=True)
class ClusterSettings(StageSettings):
    """Stage cluster."""

    cluster: data.ClusterConfig = at("cluster")


@dataclass(frozen=True, kw_only=True)
class ResponsesSettings(StageSettings):
    """Stage responses."""

    responses: data.ResponsesConfig = at("responses")
    sources: list[data.DialogueSourceConfig] = at("dialogues.sources", in_fingerprint=False)


def check_names(key: str, names: Sequence[str]) -> None:
    """Refuse (ConfigError) names of a list's entries that do not differ or cannot be part of file names."""
    for i, name in enumerate(names):
        if not name:
            raise ConfigError(f"{key}[{i}].name is empty: every entry needs a name")
        if not re.fullmatch(r"\w[\w.@+-]*", name):
            raise ConfigError(f"{key}[{i}].name={name!r}: allowed are letters, digits and _ . @ + -, for file names")
        if name in names[:i]:
            raise ConfigError(f"{key}: the name {name!r} is used twice; names must differ")


def check_benchmarks(key: str, benchmarks: Sequence[data.BenchmarkConfig]) -> None:
    """Refuse (ConfigError) what is wrong about a list of benchmarks, but what is in their files."""
    from judgetrain.data.benchmarks.adapter import load_adapter
    from judgetrain.data.benchmarks.benchmark import source_of

    check_names(key, [b.name for b in benchmarks])
    for i, benchmark in enumerate(benchmarks):
        here, answers, adapter = f"{key}[{i}]", benchmark.answers, benchmark.source.adapter
        if adapter is not None:
            load_adapter(adapter, f"{here}.source")
        source_of(benchmark).check(f"{here}.source")
        if answers is not None and (adapter is None or not Path(answers).expanduser().is_file()):
            told = "read with an adapter; set source.adapter" if adapter is None else "no such file"
            raise ConfigError(f"{here}.answers={answers!r}: {told}")
        if adapter is not None and benchmark.unlabelled:
            raise ConfigError(f"{here}.unlabelled: rows that {here}.source.adapter reads have labels; leave one out")


def check_adapter(source: data.SourceConfig, key: str) -> None:
    """Refuse (ConfigError) an adapter that is none, whose rows are single votes, or that is at no place on the Hub."""
    from judgetrain.data.benchmarks.adapter import load_adapter
    from judgetrain.data.benchmarks.benchmark import placed

    if source.adapter and load_adapter(source.adapter, key).kind == "votes":
        raise ConfigError(f"{key}.adapter={source.adapter}: its rows are single votes; give one row a comparison")
    if source.adapter and source.type == "hub" and not placed(source).path:
        raise ConfigError(f"{key}.path is empty: give the data set's Hub id")


def _check_dialogues(settings: DialoguesSettings) -> None:
    sources = settings.dialogues.sources
    if not sources:
        raise ConfigError("dialogues.sources is empty: name a recipe (recipe=quickstart) or a source")
    check_names("dialogues.sources", [s.name for s in sources])
    for i, source in enumerate(sources):
        source.check(f"dialogues.sources[{i}]")
        check_adapter(source, f"dialogues.sources[{i}]")
    if len({source.rule for source in sources if source.type == "world"}) > 1:
        raise ConfigError("dialogues.sources: sources of type world have different rules; give all of them one rule")
    check_benchmarks("dialogues.decontaminate", settings.dialogues.decontaminate)


def _check_responses(settings: ResponsesSettings) -> None:
    for i, source in enumerate(settings.sources):
        if source.format == "questions" and source.turns != "first":
            told = f"dialogues.sources[{i}].turns={source.turns}: only stage=selfeval answers several questions in turn"
            raise ConfigError(f"{told}; set turns: first")
    models = settings.responses.models
    check_names("responses.models", [m.name for m in models])
    for i, model in enumerate(models):
        key = f"responses.models[{i}].engine"
        if model.engine is None:
            raise ConfigError(f"{key} is empty: say which engine answers, as in engine: {{type: transformers, ...}}")
        model.engine.check(key)


_AT = "judgetrain.data."
DIALOGUES = Stage(name="dialogues", settings=DialoguesSettings, code=f"{_AT}dialogues:run", check=_check_dialogues)
CLUSTER = Stage(name="cluster", settings=ClusterSettings, code=f"{_AT}clustering:run", inputs=needs("dialogues"))
RESPONSES = Stage(
    name="responses",
    settings=ResponsesSettings,
    code=f"{_AT}responses:run",
    inputs=needs("dialogues", "cluster"),
    check=_check_responses,
)
