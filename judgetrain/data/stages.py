"""The stages of this room: their settings, their inputs, and the checks before any of them runs."""

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
    """Refuse (ConfigError) names of a list's entries that repeat or cannot be part of file names."""
    for place, name in enumerate(names):
        if not name:
            raise ConfigError(f"{key}[{place}].name is empty: every entry needs a name")
        # Names of benchmarks, sources and models are parts of files' names.
        if not re.fullmatch(r"\w[\w.@+-]*", name):
            raise ConfigError(
                f"{key}[{place}].name={name!r}: allowed are letters, digits and _ . @ + -, for file names"
            )
        if name in names[:place]:
            raise ConfigError(f"{key}: the name {name!r} is used twice; names must differ")


def check_benchmarks(key: str, benchmarks: Sequence[data.BenchmarkConfig]) -> None:
    """Refuse (ConfigError) settings of benchmarks that do not go together, and unknown adapters; no rows are read."""
    check_names(key, [benchmark.name for benchmark in benchmarks])
    for place, benchmark in enumerate(benchmarks):
        _check_benchmark(f"{key}[{place}]", benchmark)


def _check_benchmark(key: str, benchmark: data.BenchmarkConfig) -> None:
    """Refuse (ConfigError) the settings of one benchmark; ``key`` is its configuration key."""
    # Imported here, as reading settings alone must not load the readers of rows.
    from judgetrain.data.benchmarks.adapter import load_adapter
    from judgetrain.data.benchmarks.benchmark import source_of
    from judgetrain.data.parts import check_parted

    answers = benchmark.answers
    adapter = benchmark.source.adapter
    if adapter is not None:
        load_adapter(adapter, f"{key}.source")
    source_of(benchmark).check(f"{key}.source")
    check_parted(benchmark, key)
    if (benchmark.part or benchmark.only or benchmark.leave_out) and benchmark.source.type == "world":
        raise ConfigError(f"{key}.part: the generated world is divided already: its held-out queries are never taught")
    _check_answers(answers, adapter, key, "source.adapter")
    if adapter is not None and benchmark.unlabelled:
        raise ConfigError(f"{key}.unlabelled: rows that {key}.source.adapter reads have labels; leave one out")


def _check_answers(answers: str | None, adapter: str | None, key: str, adapter_key: str) -> None:
    """Refuse (ConfigError) a file of models' answers that is missing, or that nothing reads.

    Args:
        answers: the file, if there is one.
        adapter: of the rows.
        key: the configuration key of the source or benchmark.
        adapter_key: the key of the adapter, below it.
    """
    if answers is None:
        return
    if adapter is None:
        raise ConfigError(f"{key}.answers={answers!r}: read with an adapter; set {adapter_key}")
    if not Path(answers).expanduser().is_file():
        raise ConfigError(f"{key}.answers={answers!r}: no such file")


def check_adapter(source: data.SourceConfig, key: str, votes: bool = False) -> None:
    """Refuse the adapter of a source of training data.

    Args:
        source: with or without an adapter.
        key: the configuration key of the source.
        votes: rows may be single votes, which the reader unites.

    Raises:
        ConfigError: there is no such adapter, its rows are single votes, or it names no place on the Hub for a source
            that is read from there.
    """
    from judgetrain.data.benchmarks.adapter import load_adapter
    from judgetrain.data.benchmarks.benchmark import placed

    if not source.adapter:
        return
    if load_adapter(source.adapter, key).kind == "votes" and not votes:
        raise ConfigError(f"{key}.adapter={source.adapter}: its rows are single votes; give one row a comparison")
    if source.type == "hub" and not placed(source).path:
        raise ConfigError(f"{key}.path is empty: give the data set's Hub id")


def _check_dialogues(settings: DialoguesSettings) -> None:
    """Refuse (ConfigError) settings of stage dialogues that do not go together."""
    from judgetrain.data.parts import check_parted

    sources = settings.dialogues.sources
    if not sources:
        raise ConfigError("dialogues.sources is empty: name a recipe (recipe=quickstart) or a source")
    # A source's name begins the ids of its rows, so that equal names would give equal ids.
    check_names("dialogues.sources", [source.name for source in sources])
    for place, source in enumerate(sources):
        source.check(f"dialogues.sources[{place}]")
        check_parted(source, f"dialogues.sources[{place}]")
        check_adapter(source, f"dialogues.sources[{place}]", votes=True)
        _check_answers(source.answers, source.adapter, f"dialogues.sources[{place}]", "adapter")

    # Later stages judge all dialogues of the world by one rule.
    rules = {source.rule for source in sources if source.type == "world"}
    if len(rules) > 1:
        raise ConfigError("dialogues.sources: sources of type world have different rules; give all of them one rule")
    check_benchmarks("dialogues.decontaminate", settings.dialogues.decontaminate)


def _check_responses(settings: ResponsesSettings) -> None:
    """Refuse (ConfigError) settings of stage responses that do not go together."""
    for place, source in enumerate(settings.sources):
        if source.format == "questions" and source.turns != "first":
            raise ConfigError(
                f"dialogues.sources[{place}].turns={source.turns}: only stage=selfeval answers several questions "
                "in turn; set turns: first"
            )
    models = settings.responses.models
    check_names("responses.models", [model.name for model in models])
    for place, model in enumerate(models):
        key = f"responses.models[{place}].engine"
        if model.engine is None:
            raise ConfigError(f"{key} is empty: say which engine answers, as in engine: {{type: transformers, ...}}")
        model.engine.check(key)


_AT = "judgetrain.data."
DIALOGUES = Stage(
    name="dialogues", format=2, settings=DialoguesSettings, code=f"{_AT}dialogues:run", check=_check_dialogues
)
CLUSTER = Stage(name="cluster", settings=ClusterSettings, code=f"{_AT}clustering:run", inputs=needs("dialogues"))
RESPONSES = Stage(
    name="responses",
    format=2,
    settings=ResponsesSettings,
    code=f"{_AT}responses:run",
    inputs=needs("dialogues", "cluster"),
    check=_check_responses,
)
