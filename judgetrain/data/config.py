"""Stages dialogues, cluster and responses."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import yaml

from judgetrain import rooms
from judgetrain.engines.config import (
    AnyEngine,
    EngineConfig,
    LimitsConfig,
    SamplingConfig,
    engine_key,
    engine_type,
    model_content,
)
from judgetrain.errors import ConfigError
from judgetrain.keys import beside, in_place, key, of_file

VOCABULARY = Path(__file__).parent / "world" / "vocabulary.yaml"

_of_world = beside(lambda type_, owner: str(VOCABULARY) if type_ == "world" else None)
"""The fingerprint of a type ``world`` holds the file that decides what the generated world says."""


def adapter_file(name: str | None, owner: object = None) -> str | None:
    """Return the file of an adapter: the one that a room brings under this name, else the path itself."""
    if not name:
        return None
    file = rooms.adapters().get(name)
    if file is None:
        return name
    return str(file)


A_CLUSTER = 4
"""Dialogues a cluster that are proposed where there are few: of fewer a cluster says nothing."""


@dataclass
class SourceConfig:
    """Where rows come from: dialogues, comparisons or prompts."""

    name: str = key("", "source name, unique")
    type: str = key(
        "jsonl", "reader", choices=("world", "jsonl", "csv", "parquet", "hub", "comparisons"), content=_of_world
    )
    path: str = key(
        "",
        "file, glob (JSON lines or array, CSV, Parquet, ParlAI .txt) or Hub id",
        content=in_place(lambda path, owner: path if owner.local else None),
    )
    hub: dict[str, Any] = key({}, "for datasets.load_dataset: split (train), name (the subset), revision, data_files")
    format: str = key("auto", "row shape", choices=("auto", "turns", "questions", "multiple_choice", "comparison"))
    fields: dict[str, Any] = key(
        {},
        "column names where they differ: {query: ask}; {columns} in a text are filled in; label may be a list of "
        "annotators' columns, or a column a criterion",
    )
    limit: int | None = key(None, "take at most this many rows, the first ones", low=1, unit="rows")
    max_row_chars: int = key(
        1 << 24, "refuse a row of a file with more text, before it is held", low=100, unit="characters"
    )
    labels: dict[Any, str] = key(
        {},
        "label -> A, B or tie, of one response 0 to 1, or none (it says nothing); empty: the adapter's, or A, B, tie, "
        "the row's model_a or model_b, pass, fail, 0 and 1, 1 to 5",
    )
    rule: int | None = key(
        None,
        "of type world: seed of the rule that decides; null: dialogues.world.rule",
        low=0,
        active_if=lambda c: c.type == "world",
    )
    adapter: str | None = key(
        None, "reader of published rows: a name (ultrafeedback, ...) or a YAML file", content=in_place(adapter_file)
    )

    def __post_init__(self) -> None:
        """Write labels and columns that are numbers as texts; YAML reads ``{0: A, 1: B}`` as numbers."""
        for name, column in self.fields.items():
            if isinstance(column, (bool, int, float)):
                self.fields[name] = str(column)
        for label in list(self.labels):
            if isinstance(label, str):
                continue
            text = str(label)
            # True and 1 are one label, as are 1 and 1.0: rows are compared by label_text.
            if isinstance(label, bool) or label == int(label):
                text = str(int(label))
            self.labels[text] = self.labels.pop(label)

    @property
    def local(self) -> bool:
        """Return whether the source is read from files of this machine."""
        return self.type in ("jsonl", "csv", "parquet", "comparisons")

    @property
    def split(self) -> str:
        """Return the Hub split that is read."""
        return str(self.hub.get("split", "train"))

    def check(self, key: str) -> None:
        """Refuse (ConfigError) settings that do not go together; ``key`` is the source's key. No file is read."""
        if self.type == "world" and self.path:
            raise ConfigError(f"{key}.path={self.path!r}: type=world reads no file; set {key}.type=jsonl, or no path")
        if not self.path and (self.local or (self.type == "hub" and not self.adapter)):
            raise ConfigError(f"{key}.path is empty: give a file, a glob or the data set's Hub id")
        if self.local and Path(self.path).expanduser().is_dir():
            raise ConfigError(f"{key}.path={self.path!r} is a directory: give its files, as in DIR/*.jsonl")


_PART = "take only rows whose prompts stand in this stretch of 0 to 1, by a hash, as [0.8, 1]; empty: all"
_ONLY = "file of prompts' hashes (docs/own_data.md): take only rows on these prompts; empty: all"
_LEAVE_OUT = "file of prompts' hashes: leave out rows on these prompts, as those that were looked at before"


def _named(name: str) -> Callable[[Any], bool]:
    """Return a function that returns whether a text of this name is not empty: fingerprints leave out an empty one."""
    return lambda config: bool(getattr(config, name))


@dataclass
class DialogueSourceConfig(SourceConfig):
    """A source of stage dialogues."""

    turns: str = key("last", "user turns of a conversation that become dialogues", choices=("first", "last", "every"))
    sample: int | None = key(None, "take this many rows, drawn by the seed; all are read", low=1, unit="rows")
    part: list[float] = key([], _PART)
    only: str = key("", _ONLY, content=of_file, active_if=_named("only"))
    leave_out: str = key("", _LEAVE_OUT, content=of_file, active_if=_named("leave_out"))
    answers: str | None = key(
        None,
        "file of the models' answers, for votes published without texts",
        content=of_file,
        active_if=_named("answers"),
    )
    dataset: str | None = key(None, "a known data set (data/data_sets.yaml): its shape and its place on the Hub")


@dataclass
class WorldConfig:
    """The generated quickstart world (docs/world.md)."""

    rule: int | None = key(
        None, "seed from which it is drawn what decides for which kind of query; null: the run's seed", low=0
    )
    train_dialogues: int = key(480, "queries of the training split", low=8)
    # Neutral for stage dialogues; stages that read the held-out split have it among their settings.
    eval_comparisons: int = key(300, "comparisons of the held-out split", low=8, in_fingerprint=False)


@dataclass
class DialoguesConfig:
    """Stage dialogues."""

    sources: list[DialogueSourceConfig] = key([], "where dialogues come from")
    world: WorldConfig = key(WorldConfig, "read by sources of type world")
    max_query_chars: int = key(8000, "longer dialogues are dropped and counted", low=1, unit="characters")
    near_dedup: bool = key(False, "also drop near-duplicates of kept queries (MinHash LSH over character 5-grams)")
    decontaminate: list[BenchmarkConfig] = key(
        [],
        "benchmarks, as in evaluate.benchmarks, whose queries and near-duplicates are left out of training",
        content=lambda benchmarks, owner: resolve_name("judgetrain.data.duplicates:identity_of")(benchmarks),
    )
    strict: bool = key(True, "a malformed row stops the run; false keeps it aside in rejects.jsonl and counts it")


@dataclass
class ClusterConfig:
    """Stage cluster."""

    encoder: str = key(
        "sentence-transformers/all-MiniLM-L6-v2",
        "sentence-transformers id or path, 'package:NAME', or 'static:MODEL' (mean of MODEL's input embeddings)",
        content=beside(lambda encoder, owner: model_content(encoder.removeprefix("static:"))),
    )
    backend: str = key("auto", "k-means", choices=("auto", "cuml", "sklearn"))
    n_clusters: int = key(1000, "k", low=1)
    sample: int = key(7000, "dialogues sampled uniformly over clusters", low=1)

    def check_here(self, key: str) -> None:
        """Check that the encoder is there, and what the backend needs."""
        if self.backend == "cuml" and importlib.util.find_spec("cuml") is None:
            raise ConfigError(f"{key}.backend=cuml: pip install 'judgetrain[cuml]', or set {key}.backend=sklearn")
        # Imported by name: reading settings must not load the libraries of the stage.
        resolve_name("judgetrain.data.clustering:check_encoder")(self.encoder, f"{key}.encoder")


@engine_type("world")
@dataclass
class WorldEngineConfig(EngineConfig):
    """The generated world's scripted writers, annotator and referee."""

    type: str = key("world", "backend", content=_of_world)
    error_rate: float = key(0.1, "share of scores that the annotator gets wrong", low=0.0, high=1.0)
    skill: float = key(0.7, "share of the responses that a writer writes with care", low=0.0, high=1.0)
    rule: int | None = key(None, "seed of the rule that decides; null: dialogues.world.rule", low=0)

    makes = "judgetrain.data.world.engine:WorldEngine"
    computes = True


@dataclass
class ResponseModelConfig:
    """A response model."""

    name: str = key("", "name of the model in comparisons, unique; part of the seed of its answers")
    engine: AnyEngine = engine_key(None, "the model")


@dataclass
class ResponsesConfig(LimitsConfig):
    """Stage responses."""

    models: list[ResponseModelConfig] = key([], "response models; empty uses the responses the sources already have")
    sampling: SamplingConfig = key(SamplingConfig, "of the responses")
    max_chars: int | None = key(None, "leave out (and count) pairs with more text", low=1, unit="characters")
    contrast: list[str] = key(
        [], "construct pairs: a good answer against a nearby query's, or with errors", choices=("nearby", "errors")
    )


@dataclass
class BenchmarkConfig:
    """A set of labelled comparisons, or of single responses with labels, to evaluate on."""

    name: str = key("", "name in reports")
    source: SourceConfig = key(SourceConfig, "type world, a file or the Hub; an adapter knows its own place on the Hub")
    limit: int | None = key(None, "take a seeded sample of this many comparisons", low=1)
    max_chars: int | None = key(None, "leave out (and count) comparisons with more text", low=1, unit="characters")
    answers: str | None = key(None, "file of the models' answers, for votes published without texts", content=of_file)
    where: dict[str, str] = key({}, "take only rows whose columns have these values, as in {turn: '1'}")
    part: list[float] = key([], _PART)
    only: str = key("", _ONLY, content=of_file, active_if=_named("only"))
    leave_out: str = key("", _LEAVE_OUT, content=of_file, active_if=_named("leave_out"))
    unlabelled: bool = key(False, "rows may lack a label (null): they are judged too; metrics are of the labelled")


@cache
def catalogue() -> Mapping[str, Mapping[str, Any]]:
    """Return the shape and the place on the Hub of each data set in ``data_sets.yaml``, by name."""
    return yaml.safe_load((Path(__file__).parent / "data_sets.yaml").read_text(encoding="utf-8"))


def described(source: DialogueSourceConfig, key: str) -> DialogueSourceConfig:
    """Return a source with the catalogue's description of its ``dataset`` filled in.

    The format and fields of the source itself go before those of the data set. Without a path the rows come from the
    Hub. A source that names no data set comes back as it is.

    Args:
        source: as it is configured.
        key: its configuration key, for messages.

    Raises:
        ConfigError: there is no such data set, or it is not on the Hub.
    """
    if source.dataset is None:
        return source
    data_set = catalogue().get(source.dataset)
    if data_set is None:
        names = ", ".join(catalogue())
        raise ConfigError(f"{key}.dataset={source.dataset}: unknown data set; known are {names}")

    format_ = source.format
    if format_ == "auto":
        format_ = data_set.get("format", "auto")
    # What the user says of columns goes before what the catalogue does.
    shaped = replace(source, format=format_, fields={**data_set["fields"], **source.fields})
    if source.path:
        return shaped
    if "hub" not in data_set:
        raise ConfigError(f"{key}.path is empty: {source.dataset} is not on the Hub; give its downloaded files")
    # The catalogue is read once and shared: it must not change.
    place = dict(data_set["hub"])
    path = place.pop("path")
    return replace(shaped, type="hub", path=path, hub={**place, **source.hub})
